/** Least recently used first: the replica whose last sequence let it go longest ago. O(1) a call. */

import { firstRows } from '../growing.ts';
import type { StateVisitor } from '../snapshot.ts';
import { IntrusiveLists } from '../tables/slotPool.ts';
import type { EvictionPolicy, EvictionWorld } from './evictionPolicy.ts';

export class Lru implements EvictionPolicy {
  readonly #classes: number;
  readonly #lists: IntrusiveLists;
  /** Order of entering, across size classes; kept only where there is more than one. */
  readonly #stamp: Float64Array;
  #stamps = 0;

  constructor({ tiers, base, unitBytes, whole }: EvictionWorld) {
    this.#classes = unitBytes.length;
    const replicas = base[tiers];
    this.#lists = new IntrusiveLists(replicas, tiers * unitBytes.length, firstRows(replicas, whole));
    this.#stamp = new Float64Array(unitBytes.length > 1 ? base[tiers] : 0);
  }

  enter(replica: number, tier: number, sizeClass: number): void {
    if (this.#stamp.length > 0) this.#stamp[replica] = ++this.#stamps;
    this.#lists.append(tier * this.#classes + sizeClass, replica);
  }

  leave(replica: number, tier: number, sizeClass: number): void {
    this.#lists.remove(tier * this.#classes + sizeClass, replica);
  }

  touch(): void {}

  victim(tier: number): number {
    let best = this.victimOfClass(tier, 0);
    for (let c = 1; c < this.#classes; c++) {
      const candidate = this.victimOfClass(tier, c);
      if (candidate !== -1 && (best === -1 || this.#stamp[candidate] < this.#stamp[best])) best = candidate;
    }
    return best;
  }

  victimOfClass(tier: number, sizeClass: number): number {
    return this.#lists.oldest(tier * this.#classes + sizeClass);
  }

  upcoming(tier: number, count: number): number[] {
    if (this.#classes > 1)
      return this.dump(tier)
        .sort((a, b) => this.#stamp[a] - this.#stamp[b])
        .slice(0, count);
    const next: number[] = [];
    let at = this.victimOfClass(tier, 0);
    for (; at !== -1 && next.length < count; at = this.#lists.newer(at)) next.push(at);
    return next;
  }

  forgotten(): void {}

  dump(tier: number): number[] {
    const all: number[] = [];
    for (let c = 0; c < this.#classes; c++) {
      for (let at = this.victimOfClass(tier, c); at !== -1; at = this.#lists.newer(at)) all.push(at);
    }
    return all;
  }

  visitState(visitor: StateVisitor): void {
    this.#lists.visitState(visitor);
    visitor.array(this.#stamp);
    this.#stamps = visitor.number(this.#stamps);
  }

  checkIntegrity(): void {
    this.#lists.checkIntegrity();
  }
}
