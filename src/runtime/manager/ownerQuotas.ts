/**
 * Room that is an owner's own. An owner with a quota of a tier never loses blocks there to another owner
 * while it takes no more than its quota; what it takes beyond goes first of all. Owners without a quota share
 * what is left, in the order of the eviction policy. The quotas of a tier never add up to more than the tier,
 * so an owner that stays within its quota finds that room once others no longer hold it.
 *
 * An owner's cached blocks are listed in the order in which they were let go; what it loses by its quota it
 * loses in that order.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot.ts';
import { IntrusiveLists } from '../tables/slotPool.ts';

const NONE = -1;

interface OwnedTiers {
  readonly tiers: number;
  readonly owners: number;
  readonly replicas: number;
  /** Resident bytes by owner, then tier. */
  readonly ownedBytes: Float64Array;
}

export class OwnerQuotas {
  readonly #tiers: number;
  readonly #owners: number;
  readonly #ownedBytes: Float64Array;
  /** Quotas by owner, then tier; `NONE` for owners without one. */
  readonly #quotaBytes: Float64Array;
  readonly #cachedBytes: Float64Array;
  /** Cached bytes that may not be evicted for other owners. */
  readonly #protectedBytes: Float64Array;
  readonly #protectedIn: Float64Array;
  /** Cached replicas, by owner and tier. */
  readonly #cached: IntrusiveLists;
  /** Owners with cached blocks that others may have evicted: list `tier` beyond a quota, then without one. */
  readonly #payers: IntrusiveLists;
  /** 1 in the first of these lists, by owner, then tier, while listed. */
  readonly #isOver: Uint8Array;

  constructor({ tiers, owners, replicas, ownedBytes }: OwnedTiers) {
    const places = owners * tiers;
    this.#tiers = tiers;
    this.#owners = owners;
    this.#ownedBytes = ownedBytes;
    this.#quotaBytes = new Float64Array(places).fill(NONE);
    this.#cachedBytes = new Float64Array(places);
    this.#protectedBytes = new Float64Array(places);
    this.#protectedIn = new Float64Array(tiers);
    this.#cached = new IntrusiveLists(replicas, places);
    this.#payers = new IntrusiveLists(places, 2 * tiers);
    this.#isOver = new Uint8Array(places);
  }

  quotaBytes(owner: number, tier: number): number | null {
    const bytes = this.#quotaBytes[owner * this.#tiers + tier];
    return bytes === NONE ? null : bytes;
  }

  /** Quotas of all owners but this one, in bytes. */
  quotasOfOthers(owner: number, tier: number): number {
    let sum = 0;
    for (let other = 0; other < this.#owners; other++) {
      if (other !== owner) sum += Math.max(0, this.#quotaBytes[other * this.#tiers + tier]);
    }
    return sum;
  }

  set(owner: number, tier: number, bytes: number | null): void {
    this.#quotaBytes[owner * this.#tiers + tier] = bytes ?? NONE;
    this.refresh(owner, tier);
  }

  /** The replica can be evicted from now on. */
  entered(replica: number, tier: number, owner: number, bytes: number): void {
    const place = owner * this.#tiers + tier;
    this.#cached.append(place, replica);
    this.#cachedBytes[place] += bytes;
    this.refresh(owner, tier);
  }

  left(replica: number, tier: number, owner: number, bytes: number): void {
    const place = owner * this.#tiers + tier;
    this.#cached.remove(place, replica);
    this.#cachedBytes[place] -= bytes;
    this.refresh(owner, tier);
  }

  /** The owner's bytes in the tier have changed. */
  refresh(owner: number, tier: number): void {
    const place = owner * this.#tiers + tier;
    const quota = this.#quotaBytes[place];
    const cached = this.#cachedBytes[place];
    const free = quota === NONE ? cached : Math.min(cached, Math.max(0, this.#ownedBytes[place] - quota));
    this.#protectedIn[tier] += cached - free - this.#protectedBytes[place];
    this.#protectedBytes[place] = cached - free;
    const overList = tier;
    const openList = this.#tiers + tier;
    const list = quota === NONE ? openList : overList;
    const isListed = this.#payers.has(place);
    if (free > 0 === isListed && (!isListed || this.#listOf(place) === list)) return;
    if (isListed) this.#payers.remove(this.#listOf(place), place);
    if (free > 0) {
      this.#payers.append(list, place);
      this.#isOver[place] = list === overList ? 1 : 0;
    }
  }

  /** Cached bytes of the tier that are within a quota: only their owner's needs evict them. */
  protectedBytes(tier: number): number {
    return this.#protectedIn[tier];
  }

  /** Cached bytes of the tier that may not be evicted for this owner. */
  protectedFrom(owner: number, tier: number): number {
    return this.#protectedIn[tier] - this.#protectedBytes[owner * this.#tiers + tier];
  }

  /** Whether blocks of `other` may be evicted for `owner`. */
  mayTakeFrom(other: number, owner: number, tier: number): boolean {
    const place = other * this.#tiers + tier;
    const quota = this.#quotaBytes[place];
    return other === owner || quota === NONE || this.#ownedBytes[place] > quota;
  }

  /**
   * The cached replica that goes for `bytes` more of the owner, or -1 when no replica may.
   * @param choice whom the eviction policy would name, and its owner; -1 for none
   * @param isKept whether a hint keeps the replica: it goes after all others of its owner
   */
  victim(
    tier: number,
    owner: number,
    bytes: number,
    choice: number,
    ownerOfChoice: number,
    isKept: (replica: number) => boolean,
  ): number {
    const over = this.#firstPaying(tier, isKept);
    if (over !== -1) return over;
    const own = owner === -1 ? -1 : owner * this.#tiers + tier;
    if (own !== -1) {
      const quota = this.#quotaBytes[own];
      const isOver = quota !== NONE && this.#ownedBytes[own] + bytes > quota;
      if (isOver && this.#cached.size(own) > 0) {
        return this.#notKept(own, isKept) ?? this.#cached.oldest(own);
      }
    }
    if (choice !== -1 && (ownerOfChoice === owner || this.quotaBytes(ownerOfChoice, tier) === null)) {
      return choice;
    }
    const open = this.#firstPaying(this.#tiers + tier, isKept);
    if (open !== -1 || own === -1) return open;
    return this.#notKept(own, isKept) ?? this.#cached.oldest(own);
  }

  /** The replica with which an owner of the list pays: one that no hint keeps, if some owner has one; -1 without an owner. */
  #firstPaying(list: number, isKept: (replica: number) => boolean): number {
    const first = this.#payers.oldest(list);
    for (let place = first; place !== -1; place = this.#payers.newer(place)) {
      const replica = this.#notKept(place, isKept);
      if (replica !== undefined) return replica;
    }
    return first === -1 ? -1 : this.#cached.oldest(first);
  }

  /** An owner's cached replica in a tier that was let go first and that no hint keeps. */
  #notKept(place: number, isKept: (replica: number) => boolean): number | undefined {
    for (let replica = this.#cached.oldest(place); replica !== -1; replica = this.#cached.newer(replica)) {
      if (!isKept(replica)) return replica;
    }
    return undefined;
  }

  visitState(visitor: StateVisitor): void {
    visitor.array(this.#quotaBytes);
    visitor.array(this.#cachedBytes);
    visitor.array(this.#protectedBytes);
    visitor.array(this.#protectedIn);
    visitor.array(this.#isOver);
    this.#cached.visitState(visitor);
    this.#payers.visitState(visitor);
  }

  /** @param cachedBytes what each owner's evictable replicas take, by owner, then tier */
  checkIntegrity(cachedBytes: Float64Array): void {
    this.#cached.checkIntegrity();
    this.#payers.checkIntegrity();
    for (let tier = 0; tier < this.#tiers; tier++) {
      let protectedBytes = 0;
      for (let owner = 0; owner < this.#owners; owner++) {
        const place = owner * this.#tiers + tier;
        const cached = cachedBytes[place];
        invariant(this.#cachedBytes[place] === cached, 'quotas know what each owner has cached');
        const quota = this.#quotaBytes[place];
        const over = quota === NONE ? cached : Math.max(0, this.#ownedBytes[place] - quota);
        const free = Math.min(cached, over);
        invariant(this.#protectedBytes[place] === cached - free, 'what is within a quota is protected');
        invariant(this.#payers.has(place) === free > 0, 'who may pay is listed');
        protectedBytes += cached - free;
      }
      invariant(this.#protectedIn[tier] === protectedBytes, 'a tier knows what is protected in it');
    }
  }

  #listOf(place: number): number {
    const tier = place % this.#tiers;
    return this.#isOver[place] === 1 ? tier : this.#tiers + tier;
  }
}

// A small number for each tenant, by which the manager counts bytes and knows whose bytes lay in a slot. Numbers are
// never given to another tenant; when they run out, the tenants that come later share the last one, and are kept apart
// by always wiping.

/** Owner 0 has the blocks whose tenant is not known, such as those of an earlier run. */
export const OWNERS = 4096;
/** Stands for all tenants beyond. */
export const SHARED_OWNER: number = OWNERS - 1;

export class OwnerNumbers {
  readonly #numbers: Map<string, number> = new Map();

  /** In the order in which they came. */
  get known(): ReadonlyMap<string, number> {
    return this.#numbers;
  }

  of(name: string): number {
    const known = this.#numbers.get(name);
    if (known !== undefined) return known;
    const next = this.#numbers.size + 1;
    if (next >= SHARED_OWNER) return SHARED_OWNER;
    this.#numbers.set(name, next);
    return next;
  }
}
