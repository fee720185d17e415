/** `tierkv bench`: what this machine's links and the manager give. One file a bench under `bench/`. */

import { writeFileSync } from 'node:fs';
import { Argument, Command } from 'commander';
import { configError } from '../../runtime/errors.ts';
import { renderSvg, renderTable, requireWritableTarget, writeJsonFile } from '../output/index.ts';

interface BenchOptions {
  readonly json?: string;
  readonly plot?: string;
  readonly dir?: string;
  readonly adapter?: string;
  readonly quick: boolean;
}

const helpEnd = `
links    HBM <-> DDR, DDR <-> NVMe and HBM <-> NVMe in GB/s. Beside it, from the same rounds: the slowest
         part of the machine alone (limit), one block at a time by plain calls (single), all in one plain
         transfer (bulk)
manager  allocations, lookups, garbage and memory of the manager, without moving a byte
`;

export function benchCommand(): Command {
  return new Command('bench')
    .description('Measure the links of this machine, beside their limits, and the manager.')
    .addArgument(new Argument('<what>').choices(['links', 'manager', 'all']))
    .option('--json <file>', 'write the rows as JSON')
    .option('--plot <file>', 'write a plot of the links as SVG; needs the packages vega and vega-lite')
    .option('--dir <dir>', 'directory on the disk to measure (default: a temporary one)')
    .option('--adapter <name>', 'hardware, software, or a part of the name of the adapter to measure')
    .option('--quick', 'fewer sizes and rounds', false)
    .addHelpText('after', helpEnd)
    .action(async (what: 'links' | 'manager' | 'all', options: BenchOptions) => {
      for (const file of [options.json, options.plot]) if (file !== undefined) requireWritableTarget(file);
      if (what === 'manager' && options.plot !== undefined) {
        throw configError('--plot', 'draws links, of which bench manager has none', 'Leave it out.');
      }
      const links = what === 'manager' ? {} : await linksAsAsked(options);
      const manager = what === 'links' ? {} : await managerAsAsked(options.quick);
      const about = { date: new Date().toISOString(), node: process.version, quick: options.quick };
      if (options.json !== undefined) writeJsonFile(options.json, { ...about, ...links, ...manager });
    });
}

async function linksAsAsked({ plot, quick, dir, adapter: wanted }: BenchOptions): Promise<object> {
  const { benchLinks, fullSizes, plotOf, quickSizes, renderRows } = await import('./links/index.ts');
  const say = (line: string): void => void process.stderr.write(`tierkv: ${line}\n`);
  if (plot !== undefined) await renderSvg(plotOf([], '')); // a missing package shows now, not after the bench
  const { adapter, rows } = await benchLinks(quick ? quickSizes : fullSizes, dir, wanted, say);
  const label = adapter.software ? ' (SW: a SOFTWARE device, whose times say nothing about a GPU)' : '';
  process.stdout.write(`${adapter.name}${label}\n${renderRows(rows)}`);
  if (plot !== undefined) writeFileSync(plot, await renderSvg(plotOf(rows, `${adapter.name}${label}`)));
  return { adapter, links: rows };
}

async function managerAsAsked(quick: boolean): Promise<object> {
  const { benchManager } = await import('./manager.ts');
  const { tableMemory } = await import('../../backends/arena/index.ts');
  const manager = benchManager(quick, await tableMemory());
  const figure = (value: number): string => value.toLocaleString('en-US', { maximumSignificantDigits: 4 });
  const columns = [{ title: 'manager' }, { title: 'value', align: 'right' as const }, { title: 'unit' }];
  const cells = manager.map(({ what, value, unit }) => [what, figure(value), unit]);
  process.stdout.write(renderTable(columns, cells));
  return { manager };
}
