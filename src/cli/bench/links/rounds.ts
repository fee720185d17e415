/**
 * Measures contestants against each other: all of them in each round, in another order each time, so that whatever else
 * the machine does meets all alike and nobody always finds the caches as the same one left them. Those who use the disk
 * come last, since a disk is busy with what was written for a while after; a run of theirs is long and leaves little in the caches
 * for the next. The others run once before they count. Then it is again and again, until a sample has seen more than the moment in
 * which it began. What counts is the median over the rounds.
 *
 * A pipeline of several cores is another one from one moment to the next. Where a median is to be known closely, there are
 * further rounds until it is, for all of its kind, with the disk or without: what is compared meets the same times.
 *
 * Where the same can be done in several ways, trials before the rounds say which is fastest, and only that one goes on:
 * the best of many medians of the rounds themselves would be too high by what is chance in them.
 *
 * Nobody pays for what another left on the heap: its young part is collected before each one's first run. A full collection
 * would make everybody pay, for the machine code that it throws away.
 *
 * On a virtual machine, a run in which the cores were taken away measures the neighbours, and one in which they were moved
 * together or apart measures another machine. Runs before or after which the cores were not as far apart as usual are run again
 * for as long as a sample is. Whoever still has too few samples that were left alone runs in up to half as many further
 * rounds, and the least disturbed ones count.
 */

import { availableParallelism } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { collectYoungGarbage } from '../measuring.ts';

const DISK_SETTLES_MS = 100;
/** A sample is disturbed when more of its time was taken, or spent with the cores elsewhere. */
const DISTURBED_SHARE = 0.05;
/** How wide the confidence interval of a median may be that is known closely, as a share of the median. */
const CLOSE_WIDTH = 0.1;
/** Of the normal distribution: 95 % lie so many standard deviations about its middle. */
const NORMAL_95 = 1.96;

export interface Contestant {
  readonly name: string;
  readonly bytes: number;
  readonly usesDisk: boolean;
  /** What this is one of several ways to do. */
  readonly wayTo?: string;
  /** It is to begin with cold caches: run once a round, however short that is. */
  readonly cold?: boolean;
  /**
   * A part of a transfer that runs alone: the garbage of what was mapped for it is collected before it begins, which takes cores
   * that it needs. Whole transfers bear what they cause.
   */
  readonly alone?: boolean;
  /** Its median is to be known closely. */
  readonly closely?: boolean;
  /** What must be done before each run and is not measured. */
  prepare?(): void | Promise<void>;
  run(): Promise<void>;
}

export interface Speed {
  readonly gbps: number;
  /** Cores busy in this process while it ran. */
  readonly cores: number;
  /** Rounds that count. */
  readonly rounds: number;
  /** In how many of them the machine's host took a part of the cores' time, or had moved them. */
  readonly disturbed: number;
}

export interface RoundsRequest {
  readonly contestants: readonly Contestant[];
  /** Rounds before, in which ways to do the same are tried; the last of them warms everybody up. */
  readonly trials: number;
  /** How many count at least; up to half as many more are run where some were disturbed. */
  readonly rounds: number;
  /** How many are run at most for a median that is to be known closely. */
  readonly roundsMax: number;
  /** No round begins after this time of `performance.now()`, but the first one always does. */
  readonly untilMs: number;
  /** Before each one, in which the engine's compilers and collectors end what they have begun. */
  readonly restMs: number;
  /** How long a sample is at least; what is done before each run is left out. */
  readonly sampleMs: number;
  /** Lets what the one before left unfinished come to its end. */
  between(): Promise<void>;
  afterRound(): Promise<void>;
  /** How much time of its cores the machine's host has taken so far. */
  readonly stolenMs: () => number;
  /** Whether the cores are as far apart now as they mostly are. */
  readonly asUsual: () => boolean;
  readonly signal: AbortSignal;
}

interface Sample {
  readonly gbps: number;
  readonly cores: number;
  /** Share of the cores' time that the machine's host took, or of the runs in which they were elsewhere. */
  readonly disturbance: number;
}

type SamplesOf = ReadonlyMap<Contestant, Sample[]>;

/** The medians by name. Ways that were not chosen have none. */
export async function measureRounds(request: RoundsRequest): Promise<ReadonlyMap<string, Speed>> {
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
  for (let lacking: readonly Contestant[] = chosen; lacking.length > 0; done++) {
    if (done > 0 && performance.now() > untilMs) break;
    await measureRound(request, lacking, samples, done + 1);
    if (done < rounds) await afterRound();
    if (done + 1 >= rounds) lacking = lackingRounds(chosen, samples, request, done + 1);
  }
  return new Map(chosen.map((one): [string, Speed] => [one.name, speedOf(samples.get(one)!, rounds)]));
}

/** Who has to run again when so many rounds are done. */
function lackingRounds(
  chosen: readonly Contestant[],
  samples: SamplesOf,
  { rounds, roundsMax }: RoundsRequest,
  done: number,
): readonly Contestant[] {
  const vague = new Set<boolean>();
  for (const one of chosen) {
    if (one.closely === true && !isKnownClosely(keptOf(samples.get(one)!, rounds))) vague.add(one.usesDisk);
  }
  return chosen.filter((one) => {
    const disturbed = undisturbed(samples.get(one)!) < rounds && done < 1.5 * rounds;
    return disturbed || (one.closely === true && vague.has(one.usesDisk) && done < roundsMax);
  });
}

/**
 * By the 95 % confidence interval of a median between two of the sorted values, which holds for any distribution (Campbell and
 * Gardner, "Calculating confidence intervals for some non-parametric analyses", BMJ 296, 1988).
 */
function isKnownClosely(samples: readonly Sample[]): boolean {
  const sorted = Float64Array.from(samples, ({ gbps }) => gbps).sort();
  const half = sorted.length / 2;
  const reach = NORMAL_95 * Math.sqrt(half / 2);
  const low = sorted[Math.max(0, Math.round(half - reach) - 1)];
  const high = sorted[Math.min(sorted.length - 1, Math.round(half + reach))];
  return high - low <= CLOSE_WIDTH * sorted[sorted.length >> 1];
}

function speedOf(samples: readonly Sample[], rounds: number): Speed {
  const kept = keptOf(samples, rounds);
  return {
    gbps: median(kept.map(({ gbps }) => gbps)),
    cores: median(kept.map(({ cores }) => cores)),
    rounds: kept.length,
    disturbed: kept.length - undisturbed(kept),
  };
}

/** Those that nothing disturbed, or so many of the least disturbed ones, the earlier ones first. */
function keptOf(samples: readonly Sample[], rounds: number): readonly Sample[] {
  const calmestFirst = samples.toSorted((a, b) => a.disturbance - b.disturbance);
  return calmestFirst.slice(0, Math.max(rounds, undisturbed(samples)));
}

function undisturbed(samples: readonly Sample[]): number {
  return samples.filter(({ disturbance }) => disturbance <= DISTURBED_SHARE).length;
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
    const one = contestants[which];
    await between();
    collectYoungGarbage();
    await pause(restMs);
    if (one.cold !== true && !one.usesDisk) {
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
  const withDisk = all.filter((i) => contestants[i].usesDisk);
  const without = all.filter((i) => !contestants[i].usesDisk);
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
    [order[i], order[other]] = [order[other], order[i]];
  }
  return order;
}

async function sampled(one: Contestant, request: RoundsRequest): Promise<Sample> {
  const { sampleMs } = request;
  const untilMs = one.cold === true ? 0 : sampleMs;
  const total = { runs: 0, moved: 0, elapsedMs: 0, cpuMs: 0, stolenMs: 0 };
  let againMs = 0;
  do {
    const { elapsedMs, cpuMs, stolenMs, moved } = await measuredRun(one, request);
    if (moved && againMs < sampleMs) {
      againMs += elapsedMs;
      continue;
    }
    total.runs += 1;
    total.moved += moved ? 1 : 0;
    total.elapsedMs += elapsedMs;
    total.cpuMs += cpuMs;
    total.stolenMs += stolenMs;
  } while (total.runs === 0 || total.elapsedMs < untilMs);
  return {
    gbps: (total.runs * one.bytes) / total.elapsedMs / 1e6,
    cores: total.cpuMs / total.elapsedMs,
    disturbance: Math.max(
      total.stolenMs / (total.elapsedMs * availableParallelism()),
      total.moved / total.runs,
    ),
  };
}

async function measuredRun(
  one: Contestant,
  { restMs, stolenMs, asUsual }: RoundsRequest,
): Promise<Record<'elapsedMs' | 'cpuMs' | 'stolenMs', number> & { moved: boolean }> {
  await one.prepare?.();
  if (one.alone === true) await pause(restMs);
  const usualBefore = asUsual();
  const stolenBeforeMs = stolenMs();
  const cpuBefore = process.cpuUsage();
  const started = performance.now();
  await one.run();
  const elapsedMs = performance.now() - started;
  const { user, system } = process.cpuUsage(cpuBefore);
  const takenMs = stolenMs() - stolenBeforeMs;
  const moved = !asUsual() || !usualBefore;
  return { elapsedMs, cpuMs: (user + system) / 1000, stolenMs: takenMs, moved };
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The smallest value that a share `q` of the values does not exceed; 0 of no values. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] ?? 0;
}
