/**
 * Blocks that some request is computing now. Another request with the same prompt can wait for them instead
 * of computing them once more. It holds nothing while it waits, so nobody can wait for it in turn.
 */

import { runningClock } from '../../backends/runningClock.ts';
import type { BlockKeys, KVManager } from '../../runtime/index.ts';
import { unlessAborted } from '../abort.ts';
import type { SequenceState } from './kvSequence.ts';

/** What one sequence computes. */
interface Claim {
  readonly numbers: number[];
  readonly over: Promise<void>;
  readonly end: () => void;
}

export class ComputingBlocks {
  /** By half of the block's key, which tells blocks apart well enough for a wait. */
  readonly #blocks: Map<number, Claim> = new Map();
  readonly #claims: Map<SequenceState, Claim> = new Map();

  /**
   * The sequence computes its full blocks from `from` on, except those that another one computes. Call it in
   * the turn in which their room is taken, and again for blocks that could not be brought.
   */
  begin(sequence: SequenceState, keys: BlockKeys, from: number): void {
    const { promise, resolve } = Promise.withResolvers<void>();
    const fresh: Claim = { numbers: [], over: promise, end: resolve };
    const claim = this.#claims.get(sequence) ?? fresh;
    for (let i = from; i < keys.length; i++) {
      const number = numberOf(keys, i);
      if (this.#blocks.has(number)) continue;
      this.#blocks.set(number, claim);
      claim.numbers.push(number);
    }
    if (claim.numbers.length > 0) this.#claims.set(sequence, claim);
  }

  /** The sequence has sealed its blocks, or never will: whoever waits for them looks again. */
  end(sequence: SequenceState): void {
    const claim = this.#claims.get(sequence);
    if (claim === undefined) return;
    this.#claims.delete(sequence);
    for (const number of claim.numbers) this.#blocks.delete(number);
    claim.end();
  }

  /** Fulfilled when block `i` is computed no more; undefined where nobody computes it. */
  wait(keys: BlockKeys, i: number): Promise<void> | undefined {
    return i < keys.length ? this.#blocks.get(numberOf(keys, i))?.over : undefined;
  }
}

/** What a wait needs of the runtime. */
export interface SharingContext {
  readonly manager: Pick<KVManager, 'matchLength'>;
  readonly computing: ComputingBlocks;
  readonly blockTokens: number;
  nowUs(): number;
}

/** How long one request waits, all in all, for blocks that others compute. */
export class SharedWait {
  readonly #context: SharingContext;
  readonly #groups: readonly { readonly keys: BlockKeys }[];
  /** Blocks that can be found at most: the last token is always left to compute. */
  readonly #limit: number;
  #leftMs: number;

  constructor(
    context: SharingContext,
    groups: readonly { readonly keys: BlockKeys }[],
    tokens: number,
    waitMs: number,
  ) {
    this.#context = context;
    this.#groups = groups;
    this.#limit = Math.min(groups[0].keys.length, Math.floor(Math.max(tokens - 1, 0) / context.blockTokens));
    this.#leftMs = waitMs;
  }

  /**
   * What computes the first block that the request misses; undefined where nothing does, or it has waited long
   * enough. Who gets none takes its room in the same turn, or another request of that turn does as well.
   */
  other(): Promise<void> | undefined {
    if (this.#leftMs <= 0) return undefined;
    const { manager, computing } = this.#context;
    let matched = this.#limit;
    for (const { keys } of this.#groups) {
      matched = Math.min(matched, manager.matchLength(keys.words, matched));
    }
    return matched < this.#limit ? computing.wait(this.#groups[0].keys, matched) : undefined;
  }

  /** Waits for what `other` gave, or until the request has waited long enough. */
  async wait(other: Promise<void>, signals: readonly AbortSignal[]): Promise<void> {
    const { nowUs } = this.#context;
    const fromUs = nowUs();
    let stop: (() => void) | undefined;
    const late = new Promise<void>((resolve) => {
      const over = (): void => {
        this.#leftMs = 0;
        resolve();
      };
      stop = runningClock.alarm(this.#leftMs, over, true);
    });
    try {
      await unlessAborted(signals, () => Promise.race([other, late]));
    } finally {
      stop?.();
      this.#leftMs = Math.max(0, this.#leftMs - (nowUs() - fromUs) / 1000);
    }
  }
}

function numberOf(keys: BlockKeys, i: number): number {
  return keys.words[i * 4] * 2 ** 21 + (keys.words[i * 4 + 1] >>> 11);
}
