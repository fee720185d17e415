/**
 * One row a slot of every tier: which content lies there, in which state, who holds it and who reads it. A replica's
 * number is its tier's base plus its slot, so that one table and one set of links serve all tiers.
 *
 * - `refs` counts sequences that hold the replica, `readers` counts jobs that copy from it.
 * - Readers exist on READY and DRAINING only; a replica that leaves READY keeps its slot until they are gone.
 * - READY with no refs is cached: exactly those replicas are in the LRU list of their tier and size class.
 */

import { invariant } from '../errors.ts';
import { IntrusiveLists } from '../pool/intrusiveLists.ts';
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
  readonly lru: IntrusiveLists;
  /** Order of becoming evictable, across size classes; kept only where there is more than one. */
  readonly stamp: Float64Array;
  readonly #classes: number;
  readonly #counts: Int32Array;
  #stamps = 0;

  constructor(slotLimits: readonly number[], classes: number) {
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
    this.lru = new IntrusiveLists(total, this.tiers * classes);
    this.stamp = new Float64Array(classes > 1 ? total : 0);
    this.#classes = classes;
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

  enterLru(replica: number, tier: number, sizeClass: number): void {
    if (this.stamp.length > 0) this.stamp[replica] = ++this.#stamps;
    this.lru.append(tier * this.#classes + sizeClass, replica);
  }

  leaveLru(replica: number, tier: number, sizeClass: number): void {
    this.lru.remove(tier * this.#classes + sizeClass, replica);
  }

  cachedCount(tier: number): number {
    let count = 0;
    for (let c = 0; c < this.#classes; c++) count += this.lru.size(tier * this.#classes + c);
    return count;
  }

  /** The least recently used cached replica of a size class, or -1. */
  oldestOfClass(tier: number, sizeClass: number): number {
    return this.lru.oldest(tier * this.#classes + sizeClass);
  }

  /** The least recently used cached replica of a tier, or -1. */
  oldest(tier: number): number {
    let best = this.oldestOfClass(tier, 0);
    for (let c = 1; c < this.#classes; c++) {
      const candidate = this.oldestOfClass(tier, c);
      if (candidate !== -1 && (best === -1 || this.stamp[candidate] < this.stamp[best])) best = candidate;
    }
    return best;
  }
}
