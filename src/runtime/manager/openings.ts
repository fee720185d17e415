/**
 * The blocks of the top tier that sequences write, from their opening to their seal. A door of the runtime is a shape of
 * calls on the manager; the rules of safety are here, below every door:
 *
 * - A block is clear before its owner can reach it: what another owner left in its slot is wiped in the call that opens it.
 * - A block is sealed only if its owner was told to write it, on this device, after it was last opened. A block that was
 *   opened again has another slot or another generation of it, and a block that was opened while no device was there is
 *   told of once there is one. So in any order of calls, what was not written is never found.
 * - A block counts as written for as many tokens as its owner was told of, or, in a copy, as many as the source had.
 * - An error that the device reported after the owner was told may have hit the work that wrote the block: it is not sealed
 *   until its owner was told to write it once more.
 *
 * A manager without a `TopTier` moves no bytes, as in a simulation: there every open block may be sealed.
 */

import { TierKVError } from '../errors.ts';
import { ReplicaState, type ReplicaTable } from '../tables/replicaTable.ts';
import { TOP } from '../tier/tier.ts';
import { Entry, requireOwn, type Sequence } from './sequence.ts';

/** The holder of the bytes of the top tier. */
export interface TopTier {
  /** Whether it can be written to: false from the loss of a device to the next one. */
  readonly present: boolean;
  /** Errors that it has reported so far, and the last one. */
  readonly errors: { readonly count: number; readonly last: string };
  /** Wipes slots, ahead of all work that is given to it later. It is never called while the tier is not present. */
  wipe(slots: readonly WipedSlot[]): void;
}

export interface WipedSlot {
  readonly slot: number;
  readonly sizeClass: number;
}

/** A copy under way: what its target counts as once it is in place. */
interface CopiedBlock {
  readonly tokens: number;
  readonly errors: number;
}

export class Openings {
  readonly #home: object;
  readonly #replicas: ReplicaTable;
  readonly #sizeClassOf: (replica: number) => number;
  #top: TopTier | null = null;
  /** Tokens that the owner of an open block was told to write, by slot of the top tier; 0 before it was told. */
  #tokens: Uint32Array = new Uint32Array(0);
  /** Errors that the tier had reported when the owner was told, by slot. */
  #errors: Float64Array = new Float64Array(0);
  /** 1 where the owner failed to write the block, as far as that is known; by slot. */
  #spoiled: Uint8Array = new Uint8Array(0);
  /** Copied blocks by row of the job that copies. */
  readonly #copies: Map<number, CopiedBlock> = new Map();
  /** Slots that were opened in this call and are to be wiped at its end. */
  #foreign: WipedSlot[] = [];
  #isHeld = false;

  /** @param home the core of the manager whose openings they are */
  constructor(home: object, replicas: ReplicaTable, sizeClassOf: (replica: number) => number) {
    this.#home = home;
    this.#replicas = replicas;
    this.#sizeClassOf = sizeClassOf;
  }

  /** The tier's bytes are kept by `top` from now on. Call it before the first block is opened. */
  connect(top: TopTier): void {
    this.#top = top;
    const slots = this.#replicas.base[TOP + 1];
    this.#tokens = new Uint32Array(slots);
    this.#errors = new Float64Array(slots);
    this.#spoiled = new Uint8Array(slots);
  }

  // Blocks that owners were told of, and that they wrote.

  /**
   * The owner learns now that the blocks [from, to) that are open are to be written. What it was told of a block before
   * counts on, unless the block was opened again. Without a device no owner is told.
   * @param blockTokens of a full block
   * @param tokens of the sequence, up to which it is told
   */
  tell(sequence: Sequence, from: number, to: number, blockTokens: number, tokens: number): void {
    const top = this.#top;
    requireOwn(sequence, this.#home);
    if (top === null || !top.present) return;
    for (let i = from; i < Math.min(to, sequence.length); i++) {
      const count = Math.min(blockTokens, tokens - i * blockTokens);
      if (count <= 0 || sequence.state[i] !== Entry.OPEN) continue;
      const slot = sequence.replica[i];
      if (this.#tokens[slot] === 0) this.#begin(slot, top.errors.count);
      this.#tokens[slot] = Math.max(this.#tokens[slot], count);
    }
  }

  /** The same, and what was written before does not count: all of it is to be written, or has just been. */
  tellAnew(sequence: Sequence, from: number, to: number, blockTokens: number, tokens: number): void {
    this.takeBack(sequence, from, to);
    this.tell(sequence, from, to, blockTokens, tokens);
  }

  /** Takes back tokens of the open blocks [from, to), from `tokens` of each block on: others may come there. */
  takeBack(sequence: Sequence, from: number, to: number, tokens = 0): void {
    requireOwn(sequence, this.#home);
    if (this.#top === null) return;
    for (let i = from; i < Math.min(to, sequence.length); i++) {
      if (sequence.state[i] !== Entry.OPEN) continue;
      const slot = sequence.replica[i];
      this.#tokens[slot] = Math.min(this.#tokens[slot], tokens);
    }
  }

  /** The owner wrote the whole block, or failed to: then it is not sealed before it is written, or told of anew. */
  written(sequence: Sequence, i: number, isWhole: boolean): void {
    requireOwn(sequence, this.#home);
    if (this.#top !== null && sequence.state[i] === Entry.OPEN) {
      this.#spoiled[sequence.replica[i]] = isWhole ? 0 : 1;
    }
  }

  // Rules of sealing.

  /** Whether the owner of the open block has written `tokens` tokens of it, as far as it and the device say. */
  maySeal(sequence: Sequence, i: number, tokens: number): boolean {
    const top = this.#top;
    requireOwn(sequence, this.#home);
    if (sequence.state[i] !== Entry.OPEN) return false;
    return top === null || (this.#isTold(sequence, i, tokens) && !this.#isDoubtful(sequence, i, top));
  }

  /** The first open block of [from, to) whose owner was not told of all its tokens, or failed to write it; -1 for none. */
  firstUntold(sequence: Sequence, from: number, to: number, blockTokens: number, tokens: number): number {
    requireOwn(sequence, this.#home);
    if (this.#top === null) return -1;
    for (let i = from; i < Math.min(to, sequence.length); i++) {
      if (!this.#isTold(sequence, i, Math.min(blockTokens, tokens - i * blockTokens))) return i;
    }
    return -1;
  }

  /** The first open block of [from, to) whose owner was told of it before the last error of the device, or -1. */
  firstDoubtful(sequence: Sequence, from: number, to: number): number {
    const top = this.#top;
    requireOwn(sequence, this.#home);
    if (top === null) return -1;
    for (let i = from; i < Math.min(to, sequence.length); i++) {
      if (this.#isDoubtful(sequence, i, top)) return i;
    }
    return -1;
  }

  /** @throws TKV_STATE for an open block of [from, to) that was not written, TKV_DEVICE for one that an error may have hit */
  requireWritten(sequence: Sequence, from: number, to: number, tokens: number): void {
    const top = this.#top;
    requireOwn(sequence, this.#home);
    if (top === null) return;
    for (let i = from; i < to; i++) {
      if (!this.#isTold(sequence, i, tokens)) {
        throw new TierKVError(
          'TKV_STATE',
          `block ${i} has not been written since it was opened, so there is nothing to seal. Wait until it is ready, ` +
            'write all its tokens, and seal it then.',
          { field: 'block' },
        );
      }
      if (this.#isDoubtful(sequence, i, top)) throw doubtful(top, `block ${i} was`, 'block');
    }
  }

  #isTold(sequence: Sequence, i: number, tokens: number): boolean {
    if (sequence.state[i] !== Entry.OPEN) return true;
    const slot = sequence.replica[i];
    return this.#tokens[slot] >= Math.max(tokens, 1) && this.#spoiled[slot] === 0;
  }

  #isDoubtful(sequence: Sequence, i: number, top: TopTier): boolean {
    if (sequence.state[i] !== Entry.OPEN) return false;
    const slot = sequence.replica[i];
    return this.#tokens[slot] > 0 && this.#errors[slot] !== top.errors.count;
  }

  // News of openings and copies from the manager.

  /** The replica, in the top tier, is open now: its owner was not told of it yet. */
  opened(replica: number): void {
    const top = this.#top;
    if (top === null) return;
    this.#begin(replica, 0);
    if (this.#replicas.foreign[replica] === 0) return;
    // Nothing lies in the memory of the next device, and there is nothing to wipe until then.
    if (top.present) this.#foreign.push({ slot: replica, sizeClass: this.#sizeClassOf(replica) });
    else this.#replicas.foreign[replica] = 0;
  }

  /**
   * The job in the row copies the open or ready block `at` of the sequence.
   * @param tokens from the block's front that the owner of the copy keeps
   */
  copies(row: number, sequence: Sequence, at: number, tokens: number): void {
    const top = this.#top;
    if (top === null) return;
    this.#copies.delete(row);
    const isOpen = sequence.state[at] === Entry.OPEN;
    const slot = sequence.replica[at];
    const has = isOpen ? (this.#spoiled[slot] === 1 ? 0 : this.#tokens[slot]) : tokens;
    const errors = isOpen ? this.#errors[slot] : top.errors.count;
    this.#copies.set(row, { tokens: Math.min(has, tokens), errors });
  }

  /** The job has ended: the replica is open, and has what the source had. */
  copied(row: number, replica: number): void {
    if (this.#top === null) return;
    const copy = this.#copies.get(row);
    this.#copies.delete(row);
    this.#begin(replica, copy?.errors ?? 0);
    this.#tokens[replica] = copy?.tokens ?? 0;
  }

  /** The end of a call of the manager: what it opened is wiped. */
  wipe(): void {
    if (this.#foreign.length === 0 || this.#isHeld) return;
    const foreign = this.#foreign;
    this.#foreign = [];
    const open = foreign.filter(({ slot }) => this.#replicas.state[slot] === ReplicaState.OPEN);
    if (this.#top?.present === true) this.#top.wipe(open);
    for (const { slot } of open) this.#replicas.foreign[slot] = 0;
  }

  /** Several calls of the manager as one: what they open is wiped together, at the end. */
  together<T>(calls: () => T): T {
    this.#isHeld = true;
    try {
      return calls();
    } finally {
      this.#isHeld = false;
      this.wipe();
    }
  }

  #begin(slot: number, errors: number): void {
    this.#tokens[slot] = 0;
    this.#errors[slot] = errors;
    this.#spoiled[slot] = 0;
  }
}

export function doubtful({ errors }: Pick<TopTier, 'errors'>, what: string, field: string): TierKVError {
  return new TierKVError(
    'TKV_DEVICE',
    `the device reported an error after ${what} opened (${errors.last}), so what was ` +
      'written there may be wrong and is not sealed. Recover the sequence and write its open blocks again, ' +
      'or release it.',
    { field },
  );
}
