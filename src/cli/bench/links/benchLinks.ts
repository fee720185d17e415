/**
 * The link bench: for each unit size it sets up the tiers, lets everything that is compared run in the same interleaved
 * rounds, and makes one row of each route and pattern.
 */

import type { LiveDevice } from '../../../backends/webgpu/index.ts';
import { formatBytes } from '../../output/index.ts';
import { CoreDistance } from '../cores/coreDistance.ts';
import { stolenMs } from '../cores/stolenTime.ts';
import { UsualDistance } from '../cores/usualDistance.ts';
import { type Case, contestantsOf, naiveName, singleName, togetherName } from './contestants.ts';
import { DeviceRuns } from './deviceRuns.ts';
import { DiskRuns } from './diskRuns.ts';
import { limitOf } from './limit.ts';
import { type Arrangement, LinkRig } from './rig.ts';
import { measureRounds, quantile, type Speed } from './rounds.ts';
import { diskRoutes, jobsOver, type Machine, type Route, transferRoutes } from './routes.ts';
import type { LinkRow } from './row.ts';

export interface LinkBenchOptions {
  readonly links: 'transfers' | 'disk' | 'all';
  readonly unitBytes: readonly number[];
  /** Bytes that one run of a contestant moves, or a unit where that is larger; both ways two units at least. */
  readonly totalBytes: number;
  /** Fewer bytes where they would be more units: each costs the naive ways a call. */
  readonly unitsMax: number;
  /** Rounds before these, in which the ways to run a stage are compared: one at least. */
  readonly trials: number;
  readonly rounds: number;
  /** Stages alone and whole transfers run in further ones, this many at most, until their medians are known closely. */
  readonly roundsMax: number;
  /** Between two contestants. */
  readonly restMs: number;
  /** How long a sample is, in each round. */
  readonly sampleMs: number;
  /** When it is over, sizes make do with fewer rounds: one at least. */
  readonly secondsMax: number;
  readonly dir: string;
  readonly signal: AbortSignal;
  /** Lines for a person. */
  readonly say: (line: string) => void;
  /** fio's GB/s at a size, where it runs. */
  readonly fio?: (operation: 'read' | 'write', unitBytes: number, depth: number) => number;
}

export const fullSizes: readonly number[] = [16, 64, 256, 1024, 2048, 8192, 65536].map((kib) => kib * 1024);
export const calibrationSizes: readonly number[] = [16, 64, 256, 1024, 4096].map((kib) => kib * 1024);
export const quickSizes: readonly number[] = [16, 64, 256, 2048].map((kib) => kib * 1024);

/** Lone transfers for the latencies, after each round and of each row: as many as fit into so many milliseconds. */
const LATENCY_MS = 6;
const LATENCY_SAMPLES = 24;

export async function benchLinks(live: LiveDevice, options: LinkBenchOptions): Promise<LinkRow[]> {
  const rows: LinkRow[] = [];
  const withDisk = options.links !== 'transfers';
  const routes = [...(options.links === 'disk' ? [] : transferRoutes), ...(withDisk ? diskRoutes : [])];
  const untilMs = performance.now() + options.secondsMax * 1000;
  await using cores = new CoreDistance();
  const distance = new UsualDistance(() => cores.lookNs());
  for (const [index, unitBytes] of options.unitBytes.entries()) {
    const leftMs = untilMs - performance.now();
    const sizeUntilMs = performance.now() + leftMs / (options.unitBytes.length - index);
    options.say(`units of ${formatBytes(unitBytes)}`);
    const units = Math.min(options.unitsMax, Math.max(1, Math.ceil(options.totalBytes / unitBytes)));
    await using rig = await LinkRig.open(
      live,
      unitBytes,
      Math.max(2, units),
      withDisk ? options.dir : undefined,
    );
    options.say(
      `uploads by ${rig.uploadPath('hbm')}, verified by ${rig.arrivalCheck}; unverified ones by ${rig.uploadPath('none')}`,
    );
    const first = rig.ddr.view(0, 0);
    using device = new DeviceRuns(live, new Uint8Array(first.buffer, 0, rig.bytes), unitBytes);
    using disk = withDisk ? await DiskRuns.open(options.dir, rig) : undefined;
    if (disk !== undefined) warnOf(disk, options.say);
    rows.push(...(await rowsOf({ rig, device, disk }, routes, units, sizeUntilMs, distance, options)));
  }
  return rows;
}

function warnOf(disk: DiskRuns, say: (line: string) => void): void {
  if (!disk.records.direct) say('the file system refuses direct I/O: the limit is that of buffered I/O');
  if (!disk.dropsCache)
    say('without koffi the page cache cannot be emptied: naive reads may come from memory');
}

async function rowsOf(
  machine: Machine,
  routes: readonly Route[],
  units: number,
  untilMs: number,
  distance: UsualDistance,
  options: LinkBenchOptions,
): Promise<LinkRow[]> {
  const { rig } = machine;
  const arrangements: Arrangement[] = rig.units < 4 ? ['contiguous'] : ['contiguous', 'scattered'];
  const cases = routes.flatMap((route) =>
    arrangements.map((arrangement): Case => {
      const name = `${route.link} ${arrangement} ${route.verify}`;
      return { route, arrangement, units: route.bothWays ? rig.units : units, name, latenciesUs: [] };
    }),
  );
  const contestants = contestantsOf(machine, units, cases);
  const speeds = await measureRounds({
    contestants,
    trials: options.trials,
    rounds: options.rounds,
    roundsMax: options.roundsMax,
    restMs: options.restMs,
    sampleMs: options.sampleMs,
    untilMs,
    // a device frees what a contestant used only when it is looked at again
    between: async () => void (await rig.live.whenDone()),
    async afterRound() {
      for (const one of cases) await sampleLatency(machine, one);
    },
    stolenMs,
    asUsual: () => distance.asUsual(),
    signal: options.signal,
  });
  return cases.map((one) => rowOf(machine, one, speeds, options));
}

/** One unit alone, or one each way. */
async function sampleLatency(machine: Machine, { route, arrangement, latenciesUs }: Case): Promise<void> {
  const { rig } = machine;
  const width = route.bothWays ? 2 : 1;
  const until = performance.now() + LATENCY_MS;
  for (let i = 0; i < LATENCY_SAMPLES; i++) {
    const from = (latenciesUs.length * width) % (rig.units - width + 1);
    const started = performance.now();
    await rig.run(jobsOver(machine, route, arrangement, from, from + width));
    const ended = performance.now();
    latenciesUs.push((ended - started) * 1000);
    if (ended > until) return;
  }
}

function rowOf(
  { rig }: Machine,
  { route, arrangement, name, latenciesUs }: Case,
  speeds: ReadonlyMap<string, Speed>,
  options: LinkBenchOptions,
): LinkRow {
  const own = speeds.get(name)!;
  const naive = speeds.get(naiveName(route, arrangement))!;
  const { adapter } = rig.live;
  const steps = route.work.flat();
  const limit = limitOf(route, arrangement, speeds, rig.checks);
  const fioGbps =
    options.fio !== undefined && !route.bothWays && limit.by.includes('disk')
      ? options.fio(limit.by.includes('disk read') ? 'read' : 'write', rig.unitBytes, limit.depth)
      : undefined;
  return {
    link: route.link,
    bytes: rig.unitBytes,
    pattern: route.bothWays ? `${arrangement}, both ways` : arrangement,
    verify: route.verify,
    gbps: own.gbps,
    singleGbps: speeds.get(singleName(route))!.gbps,
    naiveGbps: naive.gbps,
    limitGbps: limit.gbps,
    limitStage: limit.by,
    ...(route.bothWays ? {} : { togetherGbps: speeds.get(togetherName(name))!.gbps }),
    ratio: own.gbps / limit.gbps,
    p50Us: quantile(latenciesUs, 0.5),
    p99Us: quantile(latenciesUs, 0.99),
    cpuCores: own.cores,
    naiveCpuCores: naive.cores,
    ...(fioGbps === undefined ? {} : { fioGbps }),
    ...(steps.includes('device copy up') ? { uploadPath: rig.uploadPath(route.verify) } : {}),
    ...(steps.includes('arrival check') ? { arrivalCheck: rig.arrivalCheck } : {}),
    software: route.touchesHbm && adapter.software,
    adapter: adapter.name,
    rounds: own.rounds,
    disturbedRounds: own.disturbed,
  };
}
