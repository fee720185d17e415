/**
 * Measures contestants against each other: all of them in each round, in another order each time, so that whatever else
 * the machine does meets all alike and nobody always finds the caches as the same one left them. Those who use the disk
 * come last, since a disk is busy with what was written for a while after. Each runs twice, unless it is to begin with
 * cold caches, and the second time counts; of those, the median over the rounds. What is over within milliseconds and leaves
 * the disk alone runs again and again, until a sample has seen more than the moment in which it began.
 *
 * Where the same can be done in several ways, trials before the rounds say which is fastest, and only that one goes on:
 * the best of many medians of the rounds themselves would be too high by what is chance in them.
 *
 * Nobody pays for what another left on the heap: its young part is collected before each one's first run. A full collection
 * would make everybody pay, for the machine code that it throws away.
 *
 * On a virtual machine, a run in which the cores were taken away measures the neighbours. Whoever has too few runs that were left
 * alone runs in up to half as many further rounds, and those in which the least was taken count.
 */

import { availableParallelism } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { collectYoungGarbage } from '../measuring.ts';

const DISK_SETTLES_MS = 100;
/** A run from which more was taken is disturbed. */
const STOLEN_SHARE = 0.05;

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
  /** Of how many of its rounds the machine's host took a part of the cores' time. */
  readonly disturbed: number;
}

export interface RoundsRequest {
  readonly contestants: readonly Contestant[];
  /** Rounds before, in which ways to do the same are tried; the last of them warms everybody up. */
  readonly trials: number;
  /** How many count; up to half as many more are run. */
  readonly rounds: number;
  /** No round begins after this time of `performance.now()`, but the first one always does. */
  readonly untilMs: number;
  /** Before each one, in which the engine's compilers and collectors end what they have begun. */
  readonly restMs: number;
  /** How long those that do not use the disk run for one sample, with what they do before each run left out. */
  readonly sampleMs: number;
  /** Lets what the one before left unfinished come to its end. */
  between(): Promise<void>;
  afterRound(): Promise<void>;
  /** How much time of its cores the machine's host has taken so far. */
  readonly stolenMs: () => number;
  readonly signal: AbortSignal;
}

interface Sample {
  readonly gbps: number;
  readonly cores: number;
  /** Share of the cores' time that the machine's host took. */
  readonly stolen: number;
}

type SamplesOf = ReadonlyMap<Contestant, Sample[]>;

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
  for (let lacking = chosen; done < 1.5 * rounds && lacking.length > 0; done++) {
    if (done > 0 && performance.now() > untilMs) break;
    await measureRound(request, lacking, samples, done + 1);
    if (done < rounds) await afterRound();
    if (done + 1 >= rounds) lacking = chosen.filter((one) => undisturbed(samples.get(one)!) < rounds);
  }
  const speeds = chosen.map((one): [string, Speed] => [one.name, speedOf(samples.get(one)!, rounds)]);
  return { speeds: new Map(speeds), rounds: Math.min(done, rounds) };
}

/** Of the `rounds` samples of which the least was taken, the earlier ones first. */
function speedOf(samples: readonly Sample[], rounds: number): Speed {
  const kept = samples.toSorted((a, b) => a.stolen - b.stolen).slice(0, rounds);
  return {
    gbps: median(kept.map(({ gbps }) => gbps)),
    cores: median(kept.map(({ cores }) => cores)),
    disturbed: kept.length - undisturbed(kept),
  };
}

function undisturbed(samples: readonly Sample[]): number {
  return samples.filter(({ stolen }) => stolen <= STOLEN_SHARE).length;
}

function samplesOf(contestants: readonly Contestant[]): SamplesOf {
  return new Map(contestants.map((one) => [one, []]));
}

async function measureRound(
  request: RoundsRequest,
  contestants: readonly Contestant[],
  samples: SamplesOf,
  round: number,
): Promise<void> {
  const { between, restMs, signal } = request;
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
    samples.get(one)!.push(await sampled(one, request));
  }
  if (contestants.some((one) => one.usesDisk)) await pause(DISK_SETTLES_MS);
}

function fastestWays(contestants: readonly Contestant[], tried: SamplesOf): Contestant[] {
  const best = new Map<string, { one: Contestant; gbps: number }>();
  for (const one of contestants) {
    if (one.wayTo === undefined) continue;
    const gbps = median(tried.get(one)!.map((sample) => sample.gbps));
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

async function sampled(one: Contestant, { restMs, sampleMs, stolenMs }: RoundsRequest): Promise<Sample> {
  const total = { runs: 0, elapsedMs: 0, cpuMs: 0, stolenMs: 0 };
  const untilMs = one.usesDisk || one.cold === true ? 0 : sampleMs;
  do {
    await one.prepare?.();
    if (one.alone === true) await pause(restMs);
    const stolenBeforeMs = stolenMs();
    const cpuBefore = process.cpuUsage();
    const started = performance.now();
    await one.run();
    total.elapsedMs += performance.now() - started;
    const { user, system } = process.cpuUsage(cpuBefore);
    total.cpuMs += (user + system) / 1000;
    total.stolenMs += stolenMs() - stolenBeforeMs;
    total.runs += 1;
  } while (total.elapsedMs < untilMs);
  return {
    gbps: (total.runs * one.bytes) / total.elapsedMs / 1e6,
    cores: total.cpuMs / total.elapsedMs,
    stolen: total.stolenMs / (total.elapsedMs * availableParallelism()),
  };
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The smallest value that a share `q` of the values does not exceed; 0 of no values. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] ?? 0;
}
