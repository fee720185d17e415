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

/** GB/s by contestant. */
export type Medians = ReadonlyMap<string, number>;

export interface Effort {
  readonly rounds: number;
  /** How long a contestant runs in a round at least. */
  readonly sampleMs: number;
}

/** Lets all run in every round. @param settle ends what the contestant before has left behind */
export async function measureRounds(
  contestants: readonly Contestant[],
  effort: Effort,
  settle: () => Promise<unknown>,
  signal: AbortSignal,
): Promise<Medians> {
  const samples = new Map(contestants.map(({ name }): [string, number[]] => [name, []]));
  for (let round = 0; round <= effort.rounds; round++) {
    for (const one of shuffled(contestants, round)) {
      signal.throwIfAborted();
      await settle();
      collectYoungGarbage(); // nobody pays for the garbage of another
      const gbps = await measure(one, round === 0 ? 0 : effort.sampleMs);
      if (round > 0) samples.get(one.name)!.push(gbps);
    }
  }
  return new Map([...samples].map(([name, all]) => [name, median(all)]));
}

async function measure({ bytes, prepare }: Contestant, sampleMs: number): Promise<number> {
  let [runs, elapsedMs] = [0, 0];
  for (; runs === 0 || elapsedMs < sampleMs; runs++) {
    const run = await prepare();
    const startMs = performance.now();
    await run();
    elapsedMs += performance.now() - startMs;
  }
  return (runs * bytes) / elapsedMs / 1e6;
}

/** In the order of a hash of each one's number: the same in every process. */
export function shuffled<T>(items: readonly T[], seed: number): T[] {
  const mixed = (word: number): number => Math.imul(word ^ (word >>> 15), 0x9e37_79b1);
  const keyed = items.map((item, i) => ({ item, key: mixed(mixed(seed + 1) ^ mixed(i + 1)) }));
  return keyed.sort((a, b) => a.key - b.key).map(({ item }) => item);
}
