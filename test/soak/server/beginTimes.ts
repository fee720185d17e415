/**
 * How long `begin` takes where it got its cached blocks from HBM and DDR, DDR among them: none of them was
 * read from the disk before the request got its room, lay there or was on its way then, and no cached tail
 * was taken, which may come from the disk too. What lies in DDR when `begin` is called may be on the disk by
 * the time there is room.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import type { BeginOptions, KVRuntime, KVSequence } from '../../../src/index.ts';
import { JobPriority } from '../../../src/runtime/index.ts';

/**
 * Where the cached blocks of a request lay when it got its room, and what it had read from the disk before.
 */
interface Admitted {
  staged: number;
  inDdr: number;
  onDisk: number;
  pending: number;
}

export class BeginTimes {
  /**
   * Milliseconds of each such `begin`; first of calls that found room at once, then of all, with the wait for
   * room.
   */
  readonly atOnce: number[] = [];
  readonly all: number[] = [];
  /** Milliseconds of calls that had blocks read from the disk. */
  readonly fromDisk: number[] = [];
  /** Most requests that waited for room at a time. */
  waitingMost = 0;
  readonly #admitted = new AsyncLocalStorage<Admitted>();

  /** The runtime with a `begin` that is timed. */
  timed(kv: KVRuntime, blockTokens: number): KVRuntime {
    this.#watch(kv);
    return new Proxy(kv, {
      get: (target, name) => {
        if (name === 'begin') return (...args: BeginArguments) => this.#begin(target, blockTokens, ...args);
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  }

  /** Each time a request gets its room, its `begin` learns where its blocks lie. */
  #watch({ manager }: KVRuntime): void {
    const move = manager.move.bind(manager);
    manager.move = (key, position, priority, nowUs) => {
      const admitted = this.#admitted.getStore();
      // The migrator's moves may run within a `begin` too, at a lower priority.
      if (admitted !== undefined && priority === JobPriority.DEMAND_LOAD) admitted.staged++;
      return move(key, position, priority, nowUs);
    };
    for (const name of ['admit', 'openIfFits'] as const) {
      const open = manager[name].bind(manager);
      manager[name] = (keys, count, nowUs, limit, ...rest) => {
        const { byTier, pending } = manager.lookup(keys, Math.min(count, limit ?? count));
        const table = open(keys, count, nowUs, limit, ...rest);
        const admitted = this.#admitted.getStore();
        if (table !== null && admitted !== undefined) {
          const [, inDdr = 0, onDisk = 0] = byTier;
          Object.assign(admitted, { inDdr, onDisk, pending });
        }
        return table;
      };
    }
  }

  async #begin(kv: KVRuntime, blockTokens: number, ...args: BeginArguments): Promise<KVSequence> {
    const [tokens, options] = args;
    const { blocks, waiting } = kv.room;
    const findsRoom = waiting === 0 && blocks >= Math.ceil(tokens.length / blockTokens);
    const admitted: Admitted = { staged: 0, inDdr: 0, onDisk: 0, pending: 0 };
    const startMs = performance.now();
    const begun = this.#admitted.run(admitted, () => kv.begin(tokens, options));
    this.waitingMost = Math.max(this.waitingMost, kv.room.waiting);
    const sequence = await begun;
    const tookTail = sequence.cachedTokens % blockTokens > 0;
    const { staged, inDdr, onDisk, pending } = admitted;
    const tookMs = performance.now() - startMs;
    if (staged > 0 || onDisk > 0) this.fromDisk.push(tookMs);
    else if (inDdr > 0 && pending === 0 && !tookTail) {
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
