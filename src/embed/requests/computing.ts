/**
 * Blocks that some request is computing now. Another request with the same prompt can wait for them instead
 * of computing them once more. It holds nothing while it waits, so nobody can wait for it in turn.
 */

import type { BlockKeys } from '../../runtime/index.ts';
import type { SequenceState } from './kvSequence.ts';

interface Computed {
  readonly by: SequenceState;
  readonly over: Promise<void>;
  readonly end: () => void;
}

export class ComputingBlocks {
  /** By half of the block's key, which tells blocks apart well enough for a wait. */
  readonly #blocks: Map<number, Computed> = new Map();
  readonly #keysOf: Map<SequenceState, number[]> = new Map();

  /** The sequence computes its full blocks from `from` on, except those that another one computes. */
  begin(sequence: SequenceState, keys: BlockKeys, from: number): void {
    const numbers: number[] = [];
    let end = (): void => {};
    const over = new Promise<void>((resolve) => {
      end = resolve;
    });
    for (let i = from; i < keys.length; i++) {
      const number = numberOf(keys, i);
      if (this.#blocks.has(number)) continue;
      this.#blocks.set(number, { by: sequence, over, end });
      numbers.push(number);
    }
    if (numbers.length > 0) this.#keysOf.set(sequence, numbers);
  }

  /** The sequence has sealed its blocks, or never will: whoever waits for them looks again. */
  end(sequence: SequenceState): void {
    const numbers = this.#keysOf.get(sequence);
    if (numbers === undefined) return;
    this.#keysOf.delete(sequence);
    this.#blocks.get(numbers[0])?.end();
    for (const number of numbers) this.#blocks.delete(number);
  }

  /** Fulfilled when block `i` is computed no more; undefined where nobody computes it. */
  wait(keys: BlockKeys, i: number): Promise<void> | undefined {
    return i < keys.length ? this.#blocks.get(numberOf(keys, i))?.over : undefined;
  }
}

function numberOf(keys: BlockKeys, i: number): number {
  return keys.words[i * 4] * 2 ** 21 + (keys.words[i * 4 + 1] >>> 11);
}
