/**
 * One row a slot of every tier: which content lies there, in which state, how many sequences hold it and jobs read
 * it. A replica's number is its tier's base plus its slot, so that one table and one set of links serve all tiers.
 * tableMemory.ts says what -1 and 0 mean.
 *
 * - `refs` counts sequences that hold the replica, `readers` counts jobs that copy from it.
 * - A replica that jobs read keeps its slot until they have ended.
 * - Rows exist up to the highest replica that was ever reserved.
 * - READY with no refs is cached: exactly those replicas are evictable, and the eviction policy has them.
 */

import { type CodeName, codeNames } from '../codes.ts';
import { invariant } from '../errors.ts';
import { firstRows, grown, rowsFor } from '../growing.ts';
import type { StateVisitor } from '../snapshot.ts';

export class ReplicaTable {
  readonly tiers: number;
  readonly base: Int32Array;
  state: Uint8Array;
  content: Int32Array;
  refs: Int32Array;
  readers: Uint16Array;
  /** Next ready replica of the same content, in the same tier or a slower one; -1 for none. */
  alias: Int32Array;
  /** 1 while the replica counts against its tier's capacity. */
  resident: Uint8Array;
  /** 1 while a job fills the slot. */
  writing: Uint8Array;
  /** 1 while the replica may be evicted. */
  evictable: Uint8Array;
  /** 1 while the slot may hold bytes of another owner than the replica's. */
  foreign: Uint8Array;
  /** Owner whose room it takes; for a free slot, the last one. */
  owner: Uint16Array;
  readonly #counts: Int32Array;

  /** @param whole whether all rows are allocated at the start */
  constructor(slotLimits: readonly number[], whole = true) {
    this.tiers = slotLimits.length;
    this.base = new Int32Array(this.tiers + 1);
    for (let t = 0; t < this.tiers; t++) this.base[t + 1] = this.base[t] + slotLimits[t];
    const total = firstRows(this.base[this.tiers], whole);
    this.state = new Uint8Array(total);
    this.content = new Int32Array(total).fill(-1);
    this.refs = new Int32Array(total);
    this.readers = new Uint16Array(total);
    this.alias = new Int32Array(total).fill(-1);
    this.resident = new Uint8Array(total);
    this.writing = new Uint8Array(total);
    this.evictable = new Uint8Array(total);
    this.foreign = new Uint8Array(total);
    this.owner = new Uint16Array(total);
    this.#counts = new Int32Array(this.tiers * STATES);
  }

  /** Replicas of all tiers. */
  get size(): number {
    return this.base[this.tiers];
  }

  /** Replicas below this have a row; all others are free. */
  get rows(): number {
    return this.state.length;
  }

  /** End of the tier's replicas that have a row. */
  end(tier: number): number {
    return Math.min(this.base[tier + 1], this.state.length);
  }

  /** Makes rows for the replica and those before it. */
  reach(replica: number): void {
    if (replica < this.state.length) return;
    const rows = rowsFor(replica, this.state.length, this.size);
    this.state = grown(this.state, rows);
    this.content = grown(this.content, rows, -1);
    this.refs = grown(this.refs, rows);
    this.readers = grown(this.readers, rows);
    this.alias = grown(this.alias, rows, -1);
    this.resident = grown(this.resident, rows);
    this.writing = grown(this.writing, rows);
    this.evictable = grown(this.evictable, rows);
    this.foreign = grown(this.foreign, rows);
    this.owner = grown(this.owner, rows);
  }

  tierOf(replica: number): number {
    let tier = 0;
    while (replica >= this.base[tier + 1]) tier++;
    return tier;
  }

  slotOf(replica: number, tier: number): number {
    return replica - this.base[tier];
  }

  /** Replicas of a tier in a state; FREE is not counted. */
  count(tier: number, state: ReplicaState): number {
    return this.#counts[tier * STATES + state];
  }

  become(replica: number, next: ReplicaState): void {
    const now = this.state[replica];
    invariant(
      (successors[now] & (1 << next)) !== 0,
      () => `${stateNames[now]} may not become ${stateNames[next]}`,
    );
    const tier = this.tierOf(replica);
    if (now !== ReplicaState.FREE) this.#counts[tier * STATES + now]--;
    if (next !== ReplicaState.FREE) this.#counts[tier * STATES + next]++;
    this.state[replica] = next;
  }

  visitState(visitor: StateVisitor): void {
    visitor.constant(this.size);
    visitor.fields(this);
    visitor.array(this.#counts);
  }
}

/**
 * The life of a replica, one copy of a content in one slot. Only READY is ever read; a slot is FREE again only after
 * the last job on it has retired.
 *
 *     FREE -> RESERVED -> FILLING -> VERIFYING -> READY -> DRAINING -> FREE
 *                |           |          | wrong       ^      ^
 *                v           v          v             |      |
 *               FREE      DRAINING   QUARANTINED -----|------+
 *                                     the tier below took it not
 *
 *     HBM:  RESERVED -> OPEN (private, tokens are appended) -> SEALED -> VERIFYING -> READY | PRIVATE
 *           FILLING -> OPEN  where a copy of another block's bytes is continued
 *
 * PRIVATE holds right bytes that only its sequence may read: a second copy of a content whose digest differs, as GPUs
 * that add in another order give.
 */
export const ReplicaState = {
  FREE: 0,
  RESERVED: 1,
  FILLING: 2,
  VERIFYING: 3,
  READY: 4,
  QUARANTINED: 5,
  DRAINING: 6,
  OPEN: 7,
  SEALED: 8,
  PRIVATE: 9,
} as const;
export type ReplicaState = (typeof ReplicaState)[keyof typeof ReplicaState];

export const stateNames: readonly CodeName<typeof ReplicaState>[] = codeNames(ReplicaState);

export const STATES: number = stateNames.length;

const to = (...states: readonly ReplicaState[]): number =>
  states.reduce<number>((mask, state) => mask | (1 << state), 0);

/** Bit mask of the states that may follow each state. */
const successors: readonly number[] = [
  to(ReplicaState.RESERVED),
  to(ReplicaState.FILLING, ReplicaState.OPEN, ReplicaState.FREE),
  to(ReplicaState.VERIFYING, ReplicaState.OPEN, ReplicaState.QUARANTINED, ReplicaState.DRAINING),
  to(ReplicaState.READY, ReplicaState.PRIVATE, ReplicaState.QUARANTINED, ReplicaState.DRAINING),
  to(ReplicaState.DRAINING),
  to(ReplicaState.DRAINING),
  to(ReplicaState.FREE, ReplicaState.READY),
  to(ReplicaState.SEALED, ReplicaState.DRAINING),
  to(ReplicaState.VERIFYING, ReplicaState.DRAINING),
  to(ReplicaState.DRAINING),
];
