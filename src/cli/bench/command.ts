/** `tierkv bench`: what this machine's links and the manager give. One file a bench under `bench/`. */

import { tmpdir } from 'node:os';
import { Argument, Command } from 'commander';
import { requireWritableTargets, writeResultJson, writeText } from '../../io/files/results.ts';
import { renderSvg } from '../../io/printing/chart.ts';
import { startProgressBar } from '../../io/printing/progress.ts';
import { formatSeconds, renderTable } from '../../io/printing/text.ts';
import { configError } from '../../runtime/errors.ts';
import type { LinkRound, LinkRow, TimerDelay } from '../../studies/measure/links.ts';
import type { ManagerRow } from '../../studies/measure/manager.ts';
import { notes } from '../help.ts';
import { jsonOption } from '../optionRows.ts';
import { printText } from '../output.ts';
import { interruptible } from '../process.ts';
import { checkReport, reportAbout, reportFlags, reportTo } from '../reportOption.ts';

interface BenchOptions {
  readonly json?: string;
  readonly plot?: string;
  readonly report?: string;
  readonly dir?: string;
  readonly adapter?: string;
  readonly quick: boolean;
  readonly sustained: boolean;
  readonly fio?: string;
  readonly remote?: string;
}

interface LinksFound {
  readonly adapter?: { readonly name: string; readonly software: boolean };
  readonly sustained?: boolean;
  readonly links?: readonly LinkRow[];
  readonly samples?: readonly LinkRound[];
  readonly timer?: TimerDelay;
}

interface ManagerFound {
  readonly manager?: readonly ManagerRow[];
}

const helpEnd = `
  links    HBM <-> DDR, DDR <-> NVMe and HBM <-> NVMe in GB/s
  remote   a Valkey or Redis (--remote URL): whole blocks, and lookups
  manager  allocations, lookups, garbage and memory, without moving a byte
  all      links and manager, and remote where --remote is given

Without a word: the four links between HBM, DDR and NVMe, one way each, in five lines and half a minute.

Beside each link, from the same rounds: the most that the slowest of bus, memory and disk has done (limit), the shares
of it, of what the device copies alone (bus) and of what one thread of the host does (thread); one block at a time by plain
calls (single), all in one plain transfer (bulk); what tierkv moved, and half the distance of its slowest
round from its fastest (±). Below, how late a timer is while 1 GiB moves each way.

Short samples flatter a disk, which takes up bursts. --sustained measures its links for 15 seconds each, and
--fio writes the job with which fio measures the same: compare its figures with the stages read and write.
`;

type Measured = 'links' | 'manager' | 'remote' | 'all' | 'own';

/** I/Os that run at once: the 16 that the store gives, where libuv has 16 threads. */
const ioAtOnce = (): number => Math.min(16, Number(process.env.UV_THREADPOOL_SIZE ?? 4));

export function benchCommand(): Command {
  return new Command('bench')
    .description('Measure the links of this machine, beside their limits, and the manager.')
    .addArgument(
      new Argument('[what]', 'default: the four links of this machine in five lines').choices([
        'links',
        'manager',
        'remote',
        'all',
      ]),
    )
    .addOption(jsonOption())
    .option('--plot <file>', 'write a plot of the links as SVG; needs the packages vega and vega-lite')
    .option(reportFlags, reportAbout)
    .option('--dir <dir>', 'directory on the disk to measure (default: a temporary one)')
    .option('--adapter <name>', 'hardware, software, or a part of the name of the adapter to measure')
    .option('--quick', 'fewer sizes and rounds, short bursts: for a first look', false)
    .option('--sustained', 'links of the disk under load, for seconds each', false)
    .option('--fio <file>', 'with --sustained: write the job with which fio measures the same')
    .option('--remote <url>', 'the server that bench remote measures')
    .addHelpText('after', notes(helpEnd))
    .action(async (asked: Measured | undefined, options: BenchOptions) => {
      const what = asked ?? 'own';
      refuseIdle(what, options);
      requireWritableTargets({ '--json': options.json, '--plot': options.plot, '--fio': options.fio });
      await checkReport(options.report);
      const has = (part: Measured): boolean => what === part || what === 'all';
      const measuresLinks = has('links') || what === 'own';
      const { samples = [], ...links }: LinksFound = measuresLinks
        ? await linksAsAsked(options, what === 'own')
        : {};
      const manager: ManagerFound = has('manager') ? await managerAsAsked(options.quick) : {};
      const { remote: url } = options;
      const remote = url === undefined ? {} : { remote: await remoteAsAsked(url, options.quick) };
      const about = { date: new Date().toISOString(), node: process.version, quick: options.quick };
      if (options.json !== undefined)
        writeResultJson(options.json, 'bench', { ...about, ...links, ...manager, ...remote });
      if (options.report !== undefined) {
        const { benchReport } = await import('../../observe/report/benchReport.ts');
        await reportTo(options.report, (command) => benchReport({ ...links, ...manager, samples, command }));
      }
    });
}

async function remoteAsAsked(url: string, quick: boolean): Promise<object> {
  const { measureSharedServer, renderSharedServer } = await import('../../studies/measure/sharedServer.ts');
  using bar = startProgressBar('rounds');
  const { figures, rows } = await measureSharedServer(url, quick, (done, all) => {
    bar.update({ share: done / all, done });
  });
  printText(renderSharedServer(figures, rows));
  return { ...figures, rows };
}

/** @throws TKV_CONFIG for an option that would do nothing */
function refuseIdle(what: Measured, { plot, quick, sustained, fio, remote }: BenchOptions): void {
  const hasLinks = what === 'links' || what === 'all' || what === 'own';
  if (what === 'own' && (quick || sustained)) {
    const flag = quick ? '--quick' : '--sustained';
    throw configError(flag, 'is about bench links', 'Use bench links, or leave it out.');
  }
  if (!hasLinks && plot !== undefined) {
    throw configError('--plot', `draws links, and bench ${what} measures no links`, 'Leave it out.');
  }
  if (!hasLinks && sustained) {
    throw configError('--sustained', `is about links, and bench ${what} measures no links`, 'Leave it out.');
  }
  if (what === 'remote' && remote === undefined) {
    throw configError('--remote', 'is missing', 'Name the server, as redis://host:6379.');
  }
  if (remote !== undefined && what !== 'remote' && what !== 'all') {
    throw configError('--remote', `is not measured by bench ${what}`, 'Use bench remote, or bench all.');
  }
  if (quick && sustained) throw configError('--sustained', 'excludes --quick', 'Keep one of them.');
  if (fio !== undefined && !sustained) throw configError('--fio', 'has no --sustained', 'Add it.');
}

async function linksAsAsked(options: BenchOptions, isOwn: boolean): Promise<LinksFound> {
  const { plot, quick, sustained, dir, adapter: wanted, fio } = options;
  const bench = await import('../../studies/measure/links.ts');
  const { benchLinks, plotOf, renderOwn, renderRows, renderTimer } = bench;
  const sizes = isOwn
    ? bench.ownSizes
    : sustained
      ? bench.sustainedSizes
      : quick
        ? bench.quickSizes
        : bench.fullSizes;
  if (fio !== undefined)
    writeText(fio, bench.fioJob(sizes, { dir: dir ?? tmpdir(), queueDepth: ioAtOnce() }));
  using bar = startProgressBar('samples');
  if (!quick && !isOwn) bar.notice(`takes ${formatSeconds(bench.leastSeconds(sizes))} at the least`);
  const samples: LinkRound[] = [];
  const { adapter, rows, timer } = await interruptible((signal) =>
    benchLinks(sizes, dir, wanted, {
      say: (line) => bar.notice(line),
      progress: (done, all) => bar.update({ share: done / all, done }),
      sample: (taken) => samples.push(taken),
      signal,
    }),
  );
  const label = adapter.software ? ' (SW: a SOFTWARE device, whose times say nothing about a GPU)' : '';
  if (isOwn) printText(renderOwn(rows, adapter));
  else {
    const delay = timer === undefined ? '' : renderTimer(timer);
    printText(`${adapter.name}${label}\n${renderRows(rows)}${delay}`);
  }
  if (plot !== undefined) writeText(plot, await renderSvg(plotOf(rows, `${adapter.name}${label}`)));
  return { adapter, sustained, links: rows, samples, ...(timer === undefined ? {} : { timer }) };
}

async function managerAsAsked(quick: boolean): Promise<ManagerFound> {
  const { benchManager } = await import('../../studies/measure/manager.ts');
  const { tableMemory } = await import('../../backends/host/hostArena.ts');
  const manager = benchManager(quick, await tableMemory());
  const figure = (value: number): string => value.toLocaleString('en-US', { maximumSignificantDigits: 4 });
  const columns = [{ title: 'manager' }, { title: 'value', align: 'right' as const }, { title: 'unit' }];
  const cells = manager.map(({ what, value, unit }) => [what, figure(value), unit]);
  printText(renderTable(columns, cells));
  return { manager };
}
