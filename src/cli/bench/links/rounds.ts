/**
 * Measures contestants against each other: all of them in each round, in another order each time, so that whatever else
 * the machine does meets all alike and nobody always finds the caches as the same one left them. Those who use the disk
 * come last, since a disk is busy with what was written for a while after. Each runs twice, unless it is to begin with
 * cold caches, and the second time counts; of those, the median over the rounds.
 *
 * Where the same can be done in several ways, trials before the rounds say which is fastest, and only that one goes on:
 * the best of many medians of the rounds themselves would be too high by what is chance in them.
 *
 * Nobody pays for what another left on the heap: its young part is collected before each one's first run. A full collection
 * would make everybody pay, for the machine code that it throws away.
 */

import { setTimeout as pause } from 'node:timers/promises';
import { collectYoungGarbage } from '../measuring.ts';

const DISK_SETTLES_MS = 100;

export interface Contestant {
  readonly name: string;
  readonly bytes: number;
  readonly usesDisk: boolean;
  /** What this is one of several ways to do. */
  readonly wayTo?: string;
  /** Not to be run before it is measured. */
  readonly cold?: boolean;
  /**
   * A part of a transfer that runs alone: the garbage of what was mapped for it is collected before it begins, which takes cores
   * that it needs. Whole transfers bear what they cause.
   */
  readonly alone?: boolean;
  /** What must be done before each run and is not measured. */
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
  /** Rounds before, in which ways to do the same are tried; the last of them warms everybody up. */
  readonly trials: number;
  readonly rounds: number;
  /** No round begins after this time of `performance.now()`, but the first one always does. */
  readonly untilMs: number;
  /** Before each one, in which the engine's compilers and collectors end what they have begun. */
  readonly restMs: number;
  /** Lets what the one before left unfinished come to its end. */
  between(): Promise<void>;
  afterRound(): Promise<void>;
  readonly signal: AbortSignal;
}

interface Samples {
  readonly gbps: number[];
  readonly cores: number[];
}

type SamplesOf = ReadonlyMap<Contestant, Samples>;

/** The medians by name, and over how many rounds they are. Ways that were not chosen have none. */
export async function measureRounds(
  request: RoundsRequest,
): Promise<{ speeds: ReadonlyMap<string, Speed>; rounds: number }> {
  const { contestants, rounds, untilMs, afterRound } = request;
  const tried = samplesOf(contestants);
  const alternatives = contestants.filter((one) => one.wayTo !== undefined);
  for (let trial = 1; trial < request.trials; trial++) {
    await measureRound(request, alternatives, tried, -trial);
  }
  await measureRound(request, contestants, tried, 0);
  const chosen = fastestWays(contestants, tried);
  const samples = samplesOf(chosen);
  let done = 0;
  for (; done < rounds; done++) {
    if (done > 0 && performance.now() > untilMs) break;
    await measureRound(request, chosen, samples, done + 1);
    await afterRound();
  }
  const speeds = chosen.map((one): [string, Speed] => {
    const { gbps, cores } = samples.get(one)!;
    return [one.name, { gbps: median(gbps), cores: median(cores) }];
  });
  return { speeds: new Map(speeds), rounds: done };
}

function samplesOf(contestants: readonly Contestant[]): SamplesOf {
  return new Map(contestants.map((one) => [one, { gbps: [], cores: [] }]));
}

async function measureRound(
  { between, restMs, signal }: RoundsRequest,
  contestants: readonly Contestant[],
  samples: SamplesOf,
  round: number,
): Promise<void> {
  for (const which of orderOf(contestants, round)) {
    signal.throwIfAborted();
    const one = contestants[which]!;
    await between();
    collectYoungGarbage();
    await pause(restMs);
    if (one.cold !== true) {
      await one.prepare?.();
      await one.run();
    }
    await one.prepare?.();
    if (one.alone === true) await pause(restMs);
    const { gbps, cores } = await timed(one);
    samples.get(one)!.gbps.push(gbps);
    samples.get(one)!.cores.push(cores);
  }
  if (contestants.some((one) => one.usesDisk)) await pause(DISK_SETTLES_MS);
}

function fastestWays(contestants: readonly Contestant[], tried: SamplesOf): Contestant[] {
  const best = new Map<string, { one: Contestant; gbps: number }>();
  for (const one of contestants) {
    if (one.wayTo === undefined) continue;
    const gbps = median(tried.get(one)!.gbps);
    if (gbps > (best.get(one.wayTo)?.gbps ?? 0)) best.set(one.wayTo, { one, gbps });
  }
  return contestants.filter((one) => one.wayTo === undefined || best.get(one.wayTo)!.one === one);
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
  let state = Math.imul(round + 8, 0x9e37_79b1);
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
