/**
 * Interleaved rounds: in each, everybody who is compared runs, in an order of the round's own. So a machine
 * that is slow for a while is slow for all of them, and nobody always runs behind the same neighbour. Figures
 * are medians over the rounds. One more round before them warms up and counts for nothing.
 */

import { collectYoungGarbage, median } from '../measuring.ts';

/** What is measured. */
export type Run = () => void | Promise<void>;

export interface Contestant {
  readonly name: string;
  /** Bytes that one run moves. */
  readonly bytes: number;
  /** Sets up one run; not measured. */
  prepare(): Run | Promise<Run>;
}

/** What a contestant did in all rounds but the first. */
export interface Sample {
  readonly bytes: number;
  readonly seconds: number;
  /** The distance of the slowest round from the fastest, as a share of the median. */
  readonly spread: number;
}

/** GB/s by contestant, and what it rests on. */
export interface Medians extends ReadonlyMap<string, number> {
  readonly samples?: ReadonlyMap<string, Sample>;
}

export interface Effort {
  readonly rounds: number;
  /** How long a contestant runs in a round at least, without a pause that is not measured. */
  readonly sampleMs: number;
}

interface Round {
  readonly bytes: number;
  readonly elapsedMs: number;
}

/**
 * Lets all run in every round.
 * @param settle ends what the contestant before has left behind
 * @param progress told of each sample that is taken
 */
export async function measureRounds(
  contestants: readonly Contestant[],
  effort: Effort,
  settle: () => Promise<unknown>,
  signal: AbortSignal,
  progress: () => void = () => {},
): Promise<Medians> {
  const rounds = new Map(contestants.map(({ name }): [string, Round[]] => [name, []]));
  for (let round = 0; round <= effort.rounds; round++) {
    for (const one of shuffled(contestants, round)) {
      signal.throwIfAborted();
      await settle();
      collectYoungGarbage(); // nobody pays for the garbage of another
      const taken = await measure(one, round === 0 ? 0 : effort.sampleMs);
      if (round > 0) rounds.get(one.name)!.push(taken);
      progress();
    }
  }
  const all = [...rounds];
  const medians = new Map(all.map(([name, taken]) => [name, median(taken.map(gbpsOf))]));
  const samples = new Map(all.map(([name, taken]) => [name, sampleOf(taken)]));
  return Object.assign(medians, { samples });
}

function gbpsOf({ bytes, elapsedMs }: Round): number {
  return bytes / elapsedMs / 1e6;
}

function sampleOf(rounds: readonly Round[]): Sample {
  const rates = rounds.map(gbpsOf);
  return {
    bytes: rounds.reduce((sum, { bytes }) => sum + bytes, 0),
    seconds: rounds.reduce((sum, { elapsedMs }) => sum + elapsedMs, 0) / 1000,
    spread: (Math.max(...rates) - Math.min(...rates)) / median(rates),
  };
}

async function measure({ bytes, prepare }: Contestant, sampleMs: number): Promise<Round> {
  let [runs, elapsedMs] = [0, 0];
  for (; runs === 0 || elapsedMs < sampleMs; runs++) {
    const run = await prepare();
    const startMs = performance.now();
    await run();
    elapsedMs += performance.now() - startMs;
  }
  return { bytes: runs * bytes, elapsedMs };
}

/** In the order of a hash of each one's number: the same in every process. */
export function shuffled<T>(items: readonly T[], seed: number): T[] {
  const mixed = (word: number): number => Math.imul(word ^ (word >>> 15), 0x9e37_79b1);
  const keyed = items.map((item, i) => ({ item, key: mixed(mixed(seed + 1) ^ mixed(i + 1)) }));
  return keyed.sort((a, b) => a.key - b.key).map(({ item }) => item);
}
