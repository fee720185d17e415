/** `tierkv bench`: what this machine's links and the manager give. One file a bench under `bench/`. */

import { Command } from 'commander';
import { configError } from '../runtime/errors.ts';
import { renderTable, requireWritableTarget, writeJsonFile } from './output/index.ts';

interface BenchOptions {
  readonly json?: string;
  readonly svg?: string;
  readonly dir?: string;
  readonly adapter?: string;
  readonly against?: string;
  readonly quick: boolean;
}

const subjects = ['transfers', 'disk', 'manager', 'all'] as const;
type Subject = (typeof subjects)[number];

const helpEnd = `
transfers  HBM <-> DDR          disk  DDR <-> NVMe and HBM <-> NVMe          all  both, and the manager

Every row stands beside what the same run measured in the same rounds: the limit (the slowest stage of the link alone and
at its best), what all stages reach together when nobody waits for anybody, the best single transfer of the same bytes, and
the naive way. Figures are medians over the rounds; --json holds the rows of links, or those of the manager for "bench
manager".
`;

export function benchCommand(): Command {
  return new Command('bench')
    .description('Measure the links of this machine and the manager, beside the limit where there is one.')
    .argument('<what>', subjects.join(', '))
    .option('--json <file>', 'write the rows as JSON')
    .option('--svg <file>', 'write a plot of the links as SVG')
    .option('--dir <dir>', 'directory on the disk to measure (default: a temporary one)')
    .option('--adapter <name>', 'hardware, software, or a part of the name of the adapter to measure')
    .option('--against <tool>', 'fio: measure the disk with fio too, where it is installed')
    .option('--quick', 'fewer sizes and rounds: ends within 40 s', false)
    .addHelpText('after', helpEnd)
    .action(async (what: string, options: BenchOptions) => {
      const subject = subjects.find((one) => one === what);
      if (subject === undefined) {
        throw configError('<what>', `is "${what}"`, `Use one of ${subjects.join(', ')}.`);
      }
      for (const file of [options.json, options.svg]) if (file !== undefined) requireWritableTarget(file);
      if (subject === 'manager' && options.svg !== undefined) {
        throw configError('--svg', 'draws links, of which bench manager has none', 'Leave --svg out.');
      }
      if (subject !== 'manager') await benchLinksAsAsked(subject, options);
      if (subject === 'manager' || subject === 'all') await benchManagerAsAsked(subject, options);
    });
}

function say(line: string): void {
  process.stderr.write(`tierkv: ${line}\n`);
}

async function benchLinksAsAsked(subject: Exclude<Subject, 'manager'>, options: BenchOptions): Promise<void> {
  const { runLinkBench, renderRows, plotOf } = await import('./bench/links/index.ts');
  const rows = await runLinkBench({
    links: subject,
    quick: options.quick,
    dir: options.dir,
    adapter: options.adapter,
    against: options.against,
    say,
  });
  if (options.json !== undefined) writeJsonFile(options.json, rows);
  if (options.svg !== undefined) {
    const { renderSvg } = await import('./chart.ts');
    const { writeFileSync } = await import('node:fs');
    writeFileSync(options.svg, await renderSvg(plotOf(rows)));
  }
  process.stdout.write(renderRows(rows));
}

async function benchManagerAsAsked(subject: Subject, options: BenchOptions): Promise<void> {
  const { benchManager } = await import('./bench/manager.ts');
  const { tableMemory } = await import('../backends/arena/index.ts');
  const rows = benchManager({ quick: options.quick, tableMemory: await tableMemory(), say });
  if (subject === 'manager' && options.json !== undefined) writeJsonFile(options.json, rows);
  process.stdout.write(
    renderTable(
      [{ title: 'manager' }, { title: 'value', align: 'right' }, { title: 'unit' }],
      rows.map((row) => [
        row.what,
        row.value.toLocaleString('en-US', { maximumSignificantDigits: 4 }),
        row.unit,
      ]),
    ),
  );
}
