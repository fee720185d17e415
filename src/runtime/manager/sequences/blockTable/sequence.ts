/**
 * A sequence's block table: for each block, where it stands on its way to being readable in HBM. The manager
 * writes it, everybody else reads it.
 *
 *     NONE --allocate--> OPEN --seal--> SEALING --digest--> READY
 *       ^   (no slot yet: WAITING)
 *       |
 *     FAILED <-------- LOADING <--load-- MATCHED (pinned in a lower tier, or on its way there)
 */

import type { Retention, Visit } from '../../../policy/index.ts';
import type { StateVisitor } from '../../../snapshot/index.ts';
import { Outcome } from '../../../transfer/outcome.ts';
import { noArrays, type TableArrays } from './tableArrays.ts';

export type SequenceId = number & { readonly __sequence: never };

export const Entry = {
  NONE: 0,
  MATCHED: 1,
  LOADING: 2,
  WAITING: 3,
  OPEN: 4,
  SEALING: 5,
  READY: 6,
  FAILED: 7,
} as const;
export type Entry = (typeof Entry)[keyof typeof Entry];
export const entryNames = [
  'none',
  'matched',
  'loading',
  'waiting',
  'open',
  'sealing',
  'ready',
  'failed',
] as const;

export class Sequence {
  readonly id: SequenceId;
  /** Blocks whose content was found, ready or on its way, when the sequence was opened. */
  readonly matched: number;
  /** Whose room its blocks take. */
  readonly owner: number;
  /** As the eviction policy counts uses. */
  readonly visit: Visit;
  /**
   * Replica that the entry holds: in HBM from OPEN on, in a lower tier while MATCHED or LOADING; -1 for none.
   */
  replica: Int32Array;
  content: Int32Array;
  state: Uint8Array;
  outcome: Uint8Array;
  /** Job row of an entry that waits for a slot. */
  claim: Int32Array;
  /** Entries that wait for a job. */
  pending = 0;
  /** How the caller would like its blocks to be kept; null where it did not say. */
  retention: Retention | null = null;
  /** How often an entry has lost its bytes so far: a load or seal that failed, a tier that was lost. */
  disturbances = 0;
  #length = 0;
  readonly #home: object;

  /**
   * @param home the core of the manager that it belongs to
   * @param arrays of its table, empty; they are replaced when there are more blocks than entries
   */
  constructor(home: object, id: SequenceId, visit: Visit, owner: number, arrays: TableArrays) {
    this.#home = home;
    this.id = id;
    this.visit = visit;
    this.matched = visit.matched;
    this.owner = owner;
    this.replica = arrays.replica;
    this.content = arrays.content;
    this.state = arrays.state;
    this.outcome = arrays.outcome;
    this.claim = arrays.claim;
  }

  /** It has ended, and each of its blocks was cleared. @returns its arrays, which it has no more */
  retire(): TableArrays {
    const { replica, content, claim, state, outcome } = this;
    this.replica = noArrays.replica;
    this.content = noArrays.content;
    this.state = noArrays.state;
    this.outcome = noArrays.outcome;
    this.claim = noArrays.claim;
    this.#length = 0;
    return { replica, content, claim, state, outcome };
  }

  /** Whether its numbers mean slots and contents of this manager. */
  belongsTo(home: object): boolean {
    return this.#home === home;
  }

  /** Number of blocks in the table. */
  get length(): number {
    return this.#length;
  }

  /** Blocks from the front that can be read in HBM now. */
  readyPrefix(): number {
    let count = 0;
    while (count < this.#length && this.state[count] === Entry.READY) count++;
    return count;
  }

  /** The first block whose load failed and that must be computed again, or -1. */
  firstFailed(): number {
    for (let i = 0; i < this.#length; i++) if (this.state[i] === Entry.FAILED) return i;
    return -1;
  }

  extendTo(length: number): void {
    if (length <= this.#length) return;
    if (length > this.state.length) this.#grow(Math.max(length, this.state.length * 2));
    this.#length = length;
  }

  /** The table ends before block `length`; the blocks from there on hold nothing any more. */
  shortenTo(length: number): void {
    this.#length = Math.min(this.#length, length);
  }

  /** Forgets what block i held. */
  clear(i: number): void {
    this.replica[i] = -1;
    this.content[i] = -1;
    this.claim[i] = -1;
    this.state[i] = Entry.NONE;
    this.outcome[i] = Outcome.LOADED;
  }

  #grow(size: number): void {
    const copy = <T extends Int32Array | Uint8Array>(from: T, into: T): T => {
      into.set(from);
      return into;
    };
    this.replica = copy(this.replica, new Int32Array(size).fill(-1));
    this.content = copy(this.content, new Int32Array(size).fill(-1));
    this.claim = copy(this.claim, new Int32Array(size).fill(-1));
    this.state = copy(this.state, new Uint8Array(size));
    this.outcome = copy(this.outcome, new Uint8Array(size));
  }

  visitState(visitor: StateVisitor): void {
    visitor.fields(this);
    visitor.value(
      () => this.retention,
      (saved) => {
        this.retention = saved;
      },
    );
    this.#length = visitor.number(this.#length);
  }
}
