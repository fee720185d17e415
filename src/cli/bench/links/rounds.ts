/**
 * Measures contestants against each other: all of them in each round, in another order each time, so that whatever else
 * the machine does meets all alike and nobody always finds the caches as the same one left them. Those who use the disk
 * come last, since a disk is busy with what was written for a while after. Each runs twice, unless it is to begin with
 * cold caches, and the second time counts; of those, the median over the rounds. Nobody pays for what another left on the
 * heap: it is collected before each one's first run.
 */

import { setTimeout as pause } from 'node:timers/promises';
import { collectGarbage } from '../measuring.ts';

const SWEEPING_MS = 10;
const DISK_SETTLES_MS = 100;

export interface Contestant {
  readonly name: string;
  readonly bytes: number;
  readonly usesDisk: boolean;
  /** Not to be run before it is measured. */
  readonly cold?: boolean;
  /** What must be done before and is not measured. */
  prepare?(): void | Promise<void>;
  run(): Promise<void>;
}

export interface Speed {
  readonly gbps: number;
  /** Cores busy in this process while it ran. */
  readonly cores: number;
}

export interface RoundsRequest {
  readonly contestants: readonly Contestant[];
  readonly rounds: number;
  /** No round begins after this time of `performance.now()`, but the first one always does. */
  readonly untilMs: number;
  /** Lets what the one before left unfinished come to its end. */
  between(): Promise<void>;
  afterRound(): Promise<void>;
  readonly signal: AbortSignal;
}

/** The medians by name, and over how many rounds they are. */
export async function measureRounds(
  request: RoundsRequest,
): Promise<{ speeds: ReadonlyMap<string, Speed>; rounds: number }> {
  const { contestants, rounds, untilMs, between, afterRound, signal } = request;
  const samples = contestants.map(() => ({ gbps: [] as number[], cores: [] as number[] }));
  let done = 0;
  for (let round = -1; round < rounds; round++) {
    if (round > 0 && performance.now() > untilMs) break;
    for (const which of orderOf(contestants, round)) {
      signal.throwIfAborted();
      const one = contestants[which]!;
      await between();
      await cleanHeap();
      if (one.cold !== true) await one.run();
      await one.prepare?.();
      const speed = await timed(one);
      if (round < 0) continue; // the first round warms up
      samples[which]!.gbps.push(speed.gbps);
      samples[which]!.cores.push(speed.cores);
    }
    if (contestants.some((one) => one.usesDisk)) await pause(DISK_SETTLES_MS);
    if (round < 0) continue;
    await afterRound();
    done++;
  }
  const speeds = contestants.map(({ name }, i): [string, Speed] => {
    const { gbps, cores } = samples[i]!;
    return [name, { gbps: median(gbps), cores: median(cores) }];
  });
  return { speeds: new Map(speeds), rounds: done };
}

/** The collector's threads go on for a while after it. */
async function cleanHeap(): Promise<void> {
  collectGarbage();
  await pause(SWEEPING_MS);
}

function orderOf(contestants: readonly Contestant[], round: number): number[] {
  const all = contestants.map((_, i) => i);
  const withDisk = all.filter((i) => contestants[i]!.usesDisk);
  const without = all.filter((i) => !contestants[i]!.usesDisk);
  return [...shuffled(without, round), ...shuffled(withDisk, round)];
}

/** An order of the round's own, the same in each run. */
function shuffled(items: readonly number[], round: number): number[] {
  const order = [...items];
  let state = Math.imul(round + 2, 0x9e37_79b1);
  for (let i = order.length - 1; i > 0; i--) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    const other = (state >>> 0) % (i + 1);
    [order[i], order[other]] = [order[other]!, order[i]!];
  }
  return order;
}

async function timed({ bytes, run }: Contestant): Promise<Speed> {
  const cpuBefore = process.cpuUsage();
  const started = performance.now();
  await run();
  const elapsedMs = performance.now() - started;
  const { user, system } = process.cpuUsage(cpuBefore);
  return { gbps: bytes / elapsedMs / 1e6, cores: (user + system) / 1000 / elapsedMs };
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The smallest value that a share `q` of the values does not exceed; 0 of no values. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] ?? 0;
}
