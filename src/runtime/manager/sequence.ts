/**
 * A sequence's block table: for each block, where it stands on its way to being readable in HBM. The manager
 * writes it, all others read it.
 *
 *     NONE --allocate--> OPEN --seal--> SEALING --digest--> READY
 *       ^   (no slot yet: WAITING)
 *       |
 *     FAILED <-------- LOADING <--load-- MATCHED (pinned in a lower tier, or on its way there)
 */

import { described, TierKVError } from '../errors.ts';
import type { Retention, Visit } from '../eviction/evictionPolicy.ts';

import type { StateVisitor } from '../snapshot.ts';
import { Outcome } from '../tier/tier.ts';

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

/** A sequence of a manager: the blocks that it holds, in order. */
export class Sequence {
  readonly id: SequenceId;
  /** Blocks whose content was found, ready or on its way, when the sequence was opened. */
  readonly matched: number;
  /** Whose room its blocks take. */
  readonly owner: number;
  /** The use as the eviction policy counts it. */
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

/** @throws TKV_INPUT unless the manager with this core opened the table: the numbers of another manager mean other blocks */
export function requireOwn(sequence: Sequence, home: object): void {
  if (sequence instanceof Sequence && sequence.belongsTo(home)) return;
  const problem =
    sequence instanceof Sequence
      ? 'sequence belongs to another manager'
      : `sequence must be what open gave, and it is ${described(sequence)}`;
  throw new TierKVError('TKV_INPUT', `${problem}. Pass a sequence that this manager opened.`, {
    field: 'sequence',
  });
}

// Handles that a block table accepts. A `LoadedBlock` exists only for a block that is READY, an `OpenBlock` only for
// one that its own sequence writes, and a `SealingBlock` only for one that it has just written: so attending over a
// block that has not arrived, or was not verified, does not type-check. A handle names (slot, generation); it is good
// until its sequence releases the block.

class BlockHandle {
  readonly slot: number;
  readonly generation: number;
  readonly sizeClass: number;

  constructor(slot: number, generation: number, sizeClass: number) {
    this.slot = slot;
    this.generation = generation;
    this.sizeClass = sizeClass;
  }
}

/** A block that the asking sequence may read. */
export type ReadableBlock = LoadedBlock | OpenBlock | SealingBlock;

/** May be read. Only the manager makes one. */
export class LoadedBlock extends BlockHandle {
  readonly #loaded: true = true;

  static is(block: ReadableBlock): block is LoadedBlock {
    return #loaded in block;
  }
}

/**
 * May be written by the sequence that opened it, and read by that sequence alone. Only the manager makes one.
 */
export class OpenBlock extends BlockHandle {
  readonly #open: true = true;

  static is(block: ReadableBlock): block is OpenBlock {
    return #open in block;
  }
}

/**
 * Was written by its sequence, which alone may read it while its digest is taken. It is not written any more.
 * Only the manager makes one.
 */
export class SealingBlock extends BlockHandle {
  readonly #sealing: true = true;

  static is(block: ReadableBlock): block is SealingBlock {
    return #sealing in block;
  }
}

/**
 * A sequence's blocks in order, for the attention kernel: slots of loaded blocks and of its own that are
 * open or being sealed, and nothing else.
 */
export class BlockTable {
  readonly #blocks: ReadableBlock[] = [];

  get length(): number {
    return this.#blocks.length;
  }

  get blocks(): readonly ReadableBlock[] {
    return this.#blocks;
  }

  append(block: ReadableBlock): this {
    this.#blocks.push(block);
    return this;
  }

  /** Slot of each block, in order. */
  slots(): Uint32Array {
    return Uint32Array.from(this.#blocks, (block) => block.slot);
  }
}

// The arrays of block tables. A sequence that ends gives its arrays back, empty, and the next one of about
// its size takes them: sequences come and go by the thousand, and arrays are dear to make.

/** One entry a block. What each means is said where a sequence has them. */
interface TableArrays {
  readonly replica: Int32Array;
  readonly content: Int32Array;
  readonly claim: Int32Array;
  readonly state: Uint8Array;
  readonly outcome: Uint8Array;
}

/** Entries of all arrays that wait to be used again, at most. */
const SPARE_ENTRIES = 2 ** 16;
const SIZE_LEAST = 16;

export function newArrays(size: number): TableArrays {
  return {
    replica: new Int32Array(size).fill(-1),
    content: new Int32Array(size).fill(-1),
    claim: new Int32Array(size).fill(-1),
    state: new Uint8Array(size),
    outcome: new Uint8Array(size).fill(Outcome.LOADED),
  };
}

/** The arrays of a sequence that has ended. */
const noArrays: TableArrays = newArrays(0);

export class SpareArrays {
  readonly #bySize: Map<number, TableArrays[]> = new Map();
  #entries = 0;

  /** Empty arrays of at least `blocks` entries. */
  take(blocks: number): TableArrays {
    const size = sizeFor(blocks);
    const arrays = this.#bySize.get(size)?.pop();
    if (arrays === undefined) return newArrays(size);
    this.#entries -= size;
    return arrays;
  }

  /** @param arrays all of whose entries are empty */
  giveBack(arrays: TableArrays): void {
    const size = arrays.state.length;
    if (size !== sizeFor(size) || this.#entries + size > SPARE_ENTRIES) return;
    this.#entries += size;
    const spare = this.#bySize.get(size);
    if (spare === undefined) this.#bySize.set(size, [arrays]);
    else spare.push(arrays);
  }
}

/** Few different sizes: steps of an eighth at least. */
function sizeFor(blocks: number): number {
  let step = SIZE_LEAST;
  while (step * 8 < blocks) step *= 2;
  return Math.max(step, Math.ceil(blocks / step) * step);
}
