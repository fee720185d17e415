/**
 * The link bench: for each unit size it sets up the tiers, lets everything that is compared run in the same interleaved
 * rounds, and makes one row of each route and pattern.
 */

import type { LiveDevice } from '../../../backends/webgpu/index.ts';
import { formatBytes } from '../../output/index.ts';
import { DeviceRuns } from './deviceRuns.ts';
import { DiskRuns } from './diskRuns.ts';
import { limitOf, stagesOf } from './limit.ts';
import { type Arrangement, LinkRig } from './rig.ts';
import { type Contestant, measureRounds, quantile, type Speed } from './rounds.ts';
import { diskRoutes, type Machine, moveOver, type Route, transferRoutes } from './routes.ts';
import type { LinkRow } from './row.ts';

export interface LinkBenchOptions {
  readonly links: 'transfers' | 'disk' | 'all';
  readonly unitBytes: readonly number[];
  /** Bytes that one run of a contestant moves, or a unit where that is larger; both ways two units at least. */
  readonly totalBytes: number;
  readonly rounds: number;
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

const DEPTHS = [1, 4, 8, 16] as const;
/** Units larger than that may be read and written faster in pieces, so the limit tries that too. */
const SMALL_PIECE_BYTES = 1024 * 1024;
/** Lone transfers for the latencies, after each round and of each row: as many as fit into so many milliseconds. */
const LATENCY_MS = 6;
const LATENCY_SAMPLES = 24;

interface Case {
  readonly route: Route;
  readonly arrangement: Arrangement;
  /** Units that one run moves. */
  readonly units: number;
  readonly name: string;
  readonly latenciesUs: number[];
}

export async function benchLinks(live: LiveDevice, options: LinkBenchOptions): Promise<LinkRow[]> {
  const rows: LinkRow[] = [];
  const withDisk = options.links !== 'transfers';
  const routes = [...(options.links === 'disk' ? [] : transferRoutes), ...(withDisk ? diskRoutes : [])];
  const untilMs = performance.now() + options.secondsMax * 1000;
  for (const [index, unitBytes] of options.unitBytes.entries()) {
    const leftMs = untilMs - performance.now();
    const sizeUntilMs = performance.now() + leftMs / (options.unitBytes.length - index);
    options.say(`units of ${formatBytes(unitBytes)}`);
    const units = Math.max(1, Math.ceil(options.totalBytes / unitBytes));
    await using rig = await LinkRig.open(
      live,
      unitBytes,
      Math.max(2, units),
      withDisk ? options.dir : undefined,
    );
    options.say(`uploads by ${rig.uploadPath}, verified by ${rig.arrivalCheck}`);
    const first = rig.ddr.view(0, 0);
    using device = new DeviceRuns(live, new Uint8Array(first.buffer as ArrayBuffer, 0, rig.bytes), unitBytes);
    using disk = withDisk ? await DiskRuns.open(options.dir, rig.bytes, unitBytes) : undefined;
    if (disk !== undefined) warnOf(disk, options.say);
    rows.push(...(await rowsOf({ rig, device, disk }, routes, units, sizeUntilMs, options)));
  }
  return rows;
}

function warnOf(disk: DiskRuns, say: (line: string) => void): void {
  if (!disk.direct) say('the file system refuses direct I/O: the limit is that of buffered I/O');
  if (!disk.dropsCache)
    say('without koffi the page cache cannot be emptied: naive reads may come from memory');
}

async function rowsOf(
  machine: Machine,
  routes: readonly Route[],
  units: number,
  untilMs: number,
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
  const { speeds, rounds } = await measureRounds({
    contestants,
    rounds: options.rounds,
    untilMs,
    // a device frees what a contestant used only when it is looked at again
    between: async () => void (await rig.live.whenDone()),
    async afterRound() {
      for (const one of cases) await sampleLatency(machine, one);
    },
    signal: options.signal,
  });
  return cases.map((one) => rowOf(machine, one, speeds, rounds, options));
}

/** @param units that a stage alone moves */
function contestantsOf(machine: Machine, units: number, cases: readonly Case[]): Contestant[] {
  const { rig, device, disk } = machine;
  const stageBytes = units * rig.unitBytes;
  const all = new Map<string, Contestant>();
  const add = (name: string, bytes: number, run: () => Promise<void>, prepare?: () => void): void => {
    if (!all.has(name)) {
      const usesDisk = /disk|nvme/i.test(name);
      const cold = usesDisk && name.startsWith('naive');
      const more = prepare === undefined ? {} : { prepare };
      all.set(name, { name, bytes, usesDisk, cold, run, ...more });
    }
  };
  const stages = new Set(
    cases.flatMap(({ route, arrangement }) =>
      route.work.flatMap((steps) => stagesOf(steps, arrangement, rig.arrivalCheck)),
    ),
  );
  if (stages.has('device copy')) add('device copy', stageBytes, () => device.deviceCopy(stageBytes));
  if (stages.has('device copies'))
    add('device copies', stageBytes, () => device.deviceCopyThereAndBack(stageBytes));
  if (stages.has('digest')) add('digest', stageBytes, () => device.digest(stageBytes));
  for (const how of ['whole', 'pieces'] as const) {
    if (stages.has('memcpy')) add(`memcpy: ${how}`, stageBytes, () => device.memcpy(how, stageBytes));
    if (!stages.has('memcpy and digest')) continue;
    add(`memcpy and digest: ${how}`, stageBytes, async () => {
      await device.memcpy(how, stageBytes);
      await device.digest(stageBytes);
    });
  }
  const placesOf = (arrangement: Arrangement, count: number): number[] => {
    const base = arrangement === 'contiguous' ? 0 : rig.units;
    return Array.from({ length: count }, (_, i) => rig.slotOf(i, arrangement) - base);
  };
  for (const stage of ['disk read', 'disk write', 'scattered disk read', 'scattered disk write'] as const) {
    if (!stages.has(stage)) continue;
    const operation = stage.endsWith('read') ? 'read' : 'write';
    const arrangement = stage.startsWith('scattered') ? 'scattered' : 'contiguous';
    const slots = placesOf(arrangement, units).sort((a, b) => a - b);
    for (const depth of DEPTHS) {
      add(`${stage}: ${depth}`, stageBytes, () => disk!.directAt(operation, slots, depth, rig.unitBytes));
      if (rig.unitBytes <= SMALL_PIECE_BYTES) continue;
      const inPieces = (): Promise<void> => disk!.directAt(operation, slots, depth, SMALL_PIECE_BYTES);
      add(`${stage}: ${depth} in pieces`, stageBytes, inPieces);
    }
  }
  for (const { route, arrangement, units: moved, name } of cases) {
    const emptyCache = route.link.includes('nvmeTo') ? () => disk!.emptyCache() : undefined;
    const slots = placesOf(arrangement, moved);
    const bytes = moved * rig.unitBytes;
    const usesDisk = [route.source, route.target].includes('nvme');
    const run = (): Promise<void> => moveOver(machine, route, arrangement, 0, moved);
    all.set(name, { name, bytes, usesDisk, run });
    add(`single ${route.link} ${route.verify}`, bytes, () => route.single(machine, bytes));
    add(naiveName(route, arrangement), bytes, () => route.naive(machine, slots), emptyCache);
  }
  return [...all.values()];
}

/** A naive way digests what it reads where the host does; nothing naive verifies what is in HBM. */
function naiveName({ link, verify }: Route, arrangement: Arrangement): string {
  return `naive ${link} ${arrangement}${verify === 'host' ? ' host' : ''}`;
}

/** One unit alone, or one each way. */
async function sampleLatency(machine: Machine, { route, arrangement, latenciesUs }: Case): Promise<void> {
  const { rig } = machine;
  const width = route.bothWays ? 2 : 1;
  const until = performance.now() + LATENCY_MS;
  for (let i = 0; i < LATENCY_SAMPLES; i++) {
    const from = (latenciesUs.length * width) % (rig.units - width + 1);
    const started = performance.now();
    await moveOver(machine, route, arrangement, from, from + width);
    const ended = performance.now();
    latenciesUs.push((ended - started) * 1000);
    if (ended > until) return;
  }
}

function rowOf(
  { rig }: Machine,
  { route, arrangement, name, latenciesUs }: Case,
  speeds: ReadonlyMap<string, Speed>,
  rounds: number,
  options: LinkBenchOptions,
): LinkRow {
  const own = speeds.get(name)!;
  const naive = speeds.get(naiveName(route, arrangement))!;
  const { adapter } = rig.live;
  const limit = limitOf(route, arrangement, speeds, rig.arrivalCheck);
  const fioGbps =
    options.fio !== undefined && !route.bothWays && limit.by.includes('disk')
      ? options.fio(limit.by.endsWith('read') ? 'read' : 'write', rig.unitBytes, limit.depth)
      : undefined;
  return {
    link: route.link,
    bytes: rig.unitBytes,
    pattern: route.bothWays ? `${arrangement}, both ways` : arrangement,
    verify: route.verify,
    gbps: own.gbps,
    singleGbps: speeds.get(`single ${route.link} ${route.verify}`)!.gbps,
    naiveGbps: naive.gbps,
    limitGbps: limit.gbps,
    limitStage: limit.by,
    ratio: own.gbps / limit.gbps,
    p50Us: quantile(latenciesUs, 0.5),
    p99Us: quantile(latenciesUs, 0.99),
    cpuCores: own.cores,
    naiveCpuCores: naive.cores,
    ...(fioGbps === undefined ? {} : { fioGbps }),
    ...(route.work.flat().includes('arrival check')
      ? { uploadPath: rig.uploadPath, arrivalCheck: rig.arrivalCheck }
      : {}),
    software: route.touchesHbm && adapter.software,
    adapter: adapter.name,
    rounds,
  };
}
