/**
 * How long `begin` takes where cached blocks of the prompt lie in DDR, none of them on the disk or still on its
 * way, and no cached tail was taken, which may come from the disk too.
 */

import type { BeginOptions, KVRuntime, KVSequence } from '../../../src/index.ts';

export class BeginTimes {
  /** Milliseconds of each such `begin`; those that found room at once, and all, with their wait for it. */
  readonly atOnce: number[] = [];
  readonly all: number[] = [];
  /** Most requests that waited for room at a time. */
  waitingMost = 0;

  /** The runtime with a `begin` that is timed. */
  timed(kv: KVRuntime, blockTokens: number): KVRuntime {
    return new Proxy(kv, {
      get: (target, name) => {
        if (name === 'begin') return (...args: BeginArguments) => this.#begin(target, blockTokens, ...args);
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  }

  async #begin(kv: KVRuntime, blockTokens: number, ...args: BeginArguments): Promise<KVSequence> {
    const [tokens, options] = args;
    const { byTier, pending } = kv.lookup(tokens, options);
    const [, inDdr = 0, onDisk = 0] = byTier;
    const { blocks, waiting } = kv.room;
    const findsRoom = waiting === 0 && blocks >= Math.ceil(tokens.length / blockTokens);
    const startMs = performance.now();
    const begun = kv.begin(tokens, options);
    this.waitingMost = Math.max(this.waitingMost, kv.room.waiting);
    const sequence = await begun;
    const tookTail = sequence.cachedTokens % blockTokens > 0;
    if (inDdr > 0 && onDisk === 0 && pending === 0 && !tookTail) {
      const tookMs = performance.now() - startMs;
      this.all.push(tookMs);
      if (findsRoom) this.atOnce.push(tookMs);
    }
    return sequence;
  }
}

type BeginArguments = [tokens: readonly number[], options: BeginOptions];

/** The value below which this share of the samples lies; NaN without samples. */
export function quantile(samples: readonly number[], share: number): number {
  const sorted = samples.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}
