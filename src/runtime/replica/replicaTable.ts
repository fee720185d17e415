/**
 * One row a slot of every tier: which content lies there, in which state, who holds it and who reads it. A
 * replica's number is its tier's base plus its slot, so that one table and one set of links serve all tiers.
 *
 * - `refs` counts sequences that hold the replica, `readers` counts jobs that copy from it.
 * - A replica that jobs read keeps its slot until they have ended.
 * - READY with no refs is cached: exactly those replicas are evictable, and the eviction policy has them.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot/index.ts';
import { STATES, State, stateNames, successors } from './state.ts';

export const NO_REPLICA = -1;

export class ReplicaTable {
  readonly tiers: number;
  readonly base: Int32Array;
  readonly state: Uint8Array;
  readonly content: Int32Array;
  readonly refs: Int32Array;
  readonly readers: Uint16Array;
  /** Next ready replica of the same content, in the same tier or a slower one; -1 for none. */
  readonly alias: Int32Array;
  /** 1 while the replica counts against its tier's capacity. */
  readonly resident: Uint8Array;
  /** 1 while a job fills the slot. */
  readonly writing: Uint8Array;
  /** 1 while the replica may be evicted. */
  readonly evictable: Uint8Array;
  /** 1 while the slot may hold bytes of another owner than the replica's. */
  readonly foreign: Uint8Array;
  /** Whose room it takes; of a free slot, whose it took. */
  readonly owner: Uint16Array;
  readonly #counts: Int32Array;

  constructor(slotLimits: readonly number[]) {
    this.tiers = slotLimits.length;
    this.base = new Int32Array(this.tiers + 1);
    for (let t = 0; t < this.tiers; t++) this.base[t + 1] = this.base[t] + slotLimits[t];
    const total = this.base[this.tiers];
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

  get size(): number {
    return this.base[this.tiers];
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
  count(tier: number, state: State): number {
    return this.#counts[tier * STATES + state];
  }

  become(replica: number, next: State): void {
    const now = this.state[replica];
    invariant(
      (successors[now] & (1 << next)) !== 0,
      () => `${stateNames[now]} may not become ${stateNames[next]}`,
    );
    const tier = this.tierOf(replica);
    if (now !== State.FREE) this.#counts[tier * STATES + now]--;
    if (next !== State.FREE) this.#counts[tier * STATES + next]++;
    this.state[replica] = next;
  }

  visitState(visitor: StateVisitor): void {
    visitor.fields(this);
    visitor.array(this.#counts);
  }
}
