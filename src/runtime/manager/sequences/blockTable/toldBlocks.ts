/**
 * Which blocks of a table may be sealed: those that their owner was told to write, in the slot that they have
 * now. A block that was opened again since (its device was lost, a job ended late, a recovery was called off)
 * has another slot or another generation of it, and holds what nobody wrote. So whatever the order of calls,
 * only this file lets a runtime's block be sealed.
 *
 * An error that the device reported after a block was opened may have hit the work that wrote it: such a
 * block is not sealed either, until its owner was told to write it once more.
 */

import type { OpenBlock } from './handles.ts';
import { Entry, type Sequence } from './sequence.ts';

/** What is asked of the manager. */
export interface BlockSealer {
  openBlock(sequence: Sequence, i: number): OpenBlock | undefined;
  seal(
    sequence: Sequence,
    from: number,
    to: number,
    keys: Uint32Array,
    at: number,
    tokens: number,
    nowUs: number,
  ): void;
}

/** One opening of a block: no two have the same slot and generation. */
interface Opening {
  readonly slot: number;
  readonly generation: number;
  /** Errors that the device had reported when the owner was told. */
  readonly errors: number;
}

export class ToldBlocks {
  readonly #manager: BlockSealer;
  readonly #table: Sequence;
  readonly #openings: (Opening | undefined)[] = [];
  #tokens = 0;

  constructor(manager: BlockSealer, table: Sequence) {
    this.#manager = manager;
    this.#table = table;
  }

  /** Tokens from the front of which each lies in a sealed block, or the owner was told where its KV goes. */
  get tokens(): number {
    return this.#tokens;
  }

  /**
   * The owner learns now of the open blocks [from, to), and of all tokens up to `tokens`. What it was told of
   * a block before counts on, unless the block was opened again.
   * @param errors that the device has reported so far
   */
  tell(from: number, to: number, tokens: number, errors: number): void {
    for (let i = from; i < to; i++) {
      const block = this.#manager.openBlock(this.#table, i);
      const known = this.#openings[i];
      if (block === undefined) this.#openings[i] = undefined;
      else if (known?.slot !== block.slot || known.generation !== block.generation) {
        this.#openings[i] = { slot: block.slot, generation: block.generation, errors };
      }
    }
    this.#tokens = tokens;
  }

  /** The owner is to write all open blocks anew, also those that it wrote before. */
  tellAnew(tokens: number, errors: number): void {
    this.#openings.length = 0;
    this.tell(0, this.#table.length, tokens, errors);
  }

  /** Tokens from `tokens` on are taken back. */
  truncate(tokens: number): void {
    this.#tokens = Math.min(this.#tokens, tokens);
  }

  /** Whether the block is open and the owner was told so since it was opened. */
  has(i: number): boolean {
    const known = this.#openings[i];
    if (known === undefined) return false;
    const block = this.#manager.openBlock(this.#table, i);
    return block !== undefined && block.slot === known.slot && block.generation === known.generation;
  }

  /** Whether the owner was told where the KV of its first `tokens` tokens goes. */
  covers(tokens: number): boolean {
    return tokens <= this.#tokens;
  }

  /** Whether the owner was told of every open block of [from, to). */
  hasAll(from: number, to: number): boolean {
    for (let i = from; i < to; i++) if (this.#table.state[i] === Entry.OPEN && !this.has(i)) return false;
    return true;
  }

  /** The first block of [from, to) that was told of before the last of `errors` errors, or -1. */
  firstDoubtful(from: number, to: number, errors: number): number {
    for (let i = from; i < to; i++) {
      if (this.has(i) && (this.#openings[i] as Opening).errors !== errors) return i;
    }
    return -1;
  }

  /**
   * Seals block i under the key at word `at` of `keys`, if it may be sealed.
   * @param tokens that it has
   * @param end tokens of the table up to the block's last one
   * @param errors that the device has reported so far
   * @returns whether it was handed over
   */
  seal(
    i: number,
    keys: Uint32Array,
    at: number,
    tokens: number,
    end: number,
    errors: number,
    nowUs: number,
  ): boolean {
    if (!this.has(i) || !this.covers(end) || this.firstDoubtful(i, i + 1, errors) !== -1) return false;
    this.#manager.seal(this.#table, i, i + 1, keys, at, tokens, nowUs);
    return true;
  }
}
