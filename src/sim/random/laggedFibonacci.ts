/**
 * The additive lagged Fibonacci source of Go's `math/rand`: x[n] = x[n-607] + x[n-273] mod 2^64, bit for bit.
 * The register holds the last 607 words as interleaved 32-bit halves and is advanced 607 words at a time, so
 * that the ring never wraps inside a loop and passing over draws costs little more than the additions.
 *
 * What always holds: `position` is the number of words consumed since seeding, so (seed, position) names a
 * state; two sources with equal pairs produce equal words for ever.
 */

import { advanceRegister, LAG, seedRegister } from './register.ts';

const MODULUS = 2147483647; // 2^31 - 1, of the Lehmer generator that fills the register
const ZERO_SEED = 89482311; // Go's stand-in for a seed that is 0 modulo 2^31 - 1

/** A 64-bit seed as the generator that fills the register takes it: 1 … 2^31 - 2. */
function reduceSeed(seed: bigint): number {
  const residue = Number(BigInt.asIntN(64, seed) % BigInt(MODULUS));
  const positive = residue < 0 ? residue + MODULUS : residue;
  return positive === 0 ? ZERO_SEED : positive;
}

/** A state of a source as plain data. */
export interface SourceState {
  readonly words: Int32Array;
  readonly consumed: number;
  readonly blocks: number;
}

/** A stream of random words that can be taken back to an earlier state. */
export interface Rewindable {
  /** Number of 64-bit words consumed since seeding. */
  readonly position: number;
  snapshot(): SourceState;
  restore(state: SourceState): void;
}

export class LaggedFibonacciSource implements Rewindable {
  readonly #words: Int32Array = new Int32Array(2 * LAG);
  /** Words of the register that were handed out; LAG means that it must advance first. */
  #consumed = LAG;
  #blocks = 0;
  /** The rejection limit that the register was last counted against, and how many of its words exceed it. */
  #limit = 0x7fffffff;
  #rejected = 0;

  constructor(seed: bigint) {
    this.reseed(seed);
  }

  /** Number of 64-bit words consumed since seeding. */
  get position(): number {
    return this.#blocks * LAG + this.#consumed - LAG;
  }

  reseed(seed: bigint): void {
    seedRegister(this.#words, reduceSeed(seed));
    this.#consumed = LAG;
    this.#blocks = 0;
    this.#rejected = LAG;
  }

  snapshot(): SourceState {
    return { words: this.#words.slice(), consumed: this.#consumed, blocks: this.#blocks };
  }

  restore(state: SourceState): void {
    this.#words.set(state.words);
    this.#consumed = state.consumed;
    this.#blocks = state.blocks;
    this.#rejected = LAG;
  }

  /** Consumes one word and returns the index of its low half in `words()`; the high half follows. */
  next(): number {
    if (this.#consumed === LAG) this.#advance(1);
    return 2 * this.#consumed++;
  }

  /** The register that `next` indexes. Read only. */
  words(): Int32Array {
    return this.#words;
  }

  /** Consumes `count` words without looking at them. */
  skipWords(count: number): void {
    let left = count;
    if (left > LAG - this.#consumed) {
      left -= LAG - this.#consumed;
      const blocks = Math.ceil(left / LAG);
      this.#advance(blocks);
      left -= (blocks - 1) * LAG;
    }
    this.#consumed += left;
  }

  /**
   * Consumes words until `count` of them have a bit field [32, 63) of at most `limit`: what `count` draws of
   * Go's `Int31n` consume, whose values above `limit` are drawn again.
   */
  skipAccepted(count: number, limit: number): void {
    if (this.#limit !== limit) {
      this.#limit = limit;
      this.#rejected = LAG; // not counted against this limit
    }
    let left = count;
    while (left > 0) {
      if (this.#consumed === LAG) {
        // these blocks cannot hold more accepted words than are wanted; the last of them is looked at below
        const blocks = Math.max(1, Math.floor(left / LAG));
        const rejected = blocks > 1 ? this.#pass(blocks - 1) : 0;
        if (blocks > 1) left -= (blocks - 1) * LAG - rejected;
        this.#advance(1);
      }
      if (this.#rejected === 0) {
        const taken = Math.min(left, LAG - this.#consumed);
        this.#consumed += taken;
        left -= taken;
      } else if ((this.#words[2 * this.#consumed++ + 1] & 0x7fffffff) <= limit) {
        left--;
      }
    }
  }

  /** Moves on by `blocks` registers and stands before the last. */
  #advance(blocks: number): void {
    if (blocks > 1) this.#pass(blocks - 1);
    this.#rejected = advanceRegister(this.#words, this.#limit, 1);
    this.#blocks++;
    this.#consumed = 0;
  }

  /** Moves on by `blocks` whole registers and returns how many of their words the limit rejects. */
  #pass(blocks: number): number {
    this.#blocks += blocks;
    return advanceRegister(this.#words, this.#limit, blocks);
  }
}
