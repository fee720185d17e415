/**
 * The contract of whatever holds the bytes of one tier. A store executes and decides nothing: it is told
 * places and does as told. `tierContract` in `tierkv/testing` is this text as tests.
 *
 * - A place is (slot, generation). The store remembers the generation whose bytes lie in each slot. A request
 *   that names an older generation than the slot holds is `refused` as stale, and changes nothing. A read
 *   that names a newer one finds stale bytes: `corrupt`. A slot never written is `missing`.
 * - `write` puts an item's bytes in place; `read` fills an item's bytes. Either way the promise is fulfilled
 *   only when every job on those slots has retired, so that the slots may be used again. It is never rejected
 *   for I/O reasons: a full disk or a lost device is an outcome.
 * - Where a store can verify what arrived (HBM by a kernel, files by the host), it compares with
 *   `item.digest` and answers `corrupt`. A store that cannot says so in `verifies`.
 * - Each item ends by itself: `ended` is called with its result as soon as it has one, never before `write`
 *   or `read` has returned. The promise has all results, in the order of the items.
 * - Items of one call may run in any order and must not name a slot twice. An item that names a slot on which
 *   another call is still at work is `refused` and changes nothing, except that several calls may read one
 *   slot (`SlotLocks`).
 */

import type { Digest } from '../digest.ts';
import { invariant } from '../errors.ts';
import * as is from '../kinds.ts';
import type { PoolShape } from '../tables/slotPool.ts';
import { Outcome, type Tier } from './tier.ts';

/** One slot of a call on a store: its place, its key, its digest and its bytes. */
export interface StoreItem {
  readonly slot: number;
  readonly sizeClass: number;
  readonly generation: number;
  /** The content's key, 128 bits as four words. */
  readonly key: Uint32Array;
  /** The digest that the content must have. */
  readonly digest: Digest;
  /** Tokens that the content covers, for stores that outlive the process. 0 or absent: unknown. */
  readonly tokens?: number | undefined;
  /** Key of the block before it in its chain, for the same stores; zeros for the first. Absent: unknown. */
  readonly parent?: Uint32Array | undefined;
  /**
   * For a read: the next holder of the bytes compares them with the digest, so the store need not. It still checks what
   * it knows of the place (generation, key, header). Default false.
   */
  readonly checkedLater?: boolean;
  /**
   * For a write to a store whose blocks outlive the process: the item is `loaded` only once the bytes were read back
   * and have their digest. Default false.
   */
  readonly readBack?: boolean | undefined;
  /**
   * Host bytes: the source of a write, the destination of a read; exactly the slot's size. Not kept after the
   * call.
   */
  readonly bytes: Uint8Array;
}

/** Called with the result of item `index` of a call. */
export type ItemEnded = (index: number, result: StoreResult) => void;

/** How one item of a call on a store ended. */
export interface StoreResult {
  readonly outcome: Outcome;
  /** Why it was not `loaded`, for humans. Empty otherwise. */
  readonly reason: string;
  /**
   * The slot holds a newer generation than was named: the item is `refused`, and the caller must look its place up
   * again.
   */
  readonly isStale?: true;
}

/** The store of one tier: it reads and writes whole slots, and checks their digests. */
export interface TierStore extends AsyncDisposable {
  readonly tier: Tier;
  readonly capacityBytes: number;
  /** Whether writes, reads or neither are checked against the item's digest on arrival. */
  readonly verifies: { readonly onWrite: boolean; readonly onRead: boolean };
  /** Properties that the machine granted the store, for tables and reports: adapter, locked, huge pages, direct I/O. */
  describe(): Record<string, string | number | boolean>;
  write(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]>;
  read(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]>;
}

/** A store whose slots are host memory: other stores copy straight from and to its views. */
export interface HostTierStore extends TierStore {
  /**
   * The slot's bytes themselves. The caller holds the place (a reader or a reservation) while it uses them.
   */
  view(slot: number, sizeClass: number): Uint8Array;
  /** The generation whose bytes lie in the slot, 0 for none. */
  generationOf(slot: number): number;
  /** The bytes of `generation` were written through the view. */
  markWritten(slot: number, generation: number): void;
}

/**
 * A store that can be the top tier, where sequences write KV: GPU memory, which kernels write, or host memory, which
 * the process writes.
 */
export interface TopTierStore extends TierStore {
  /**
   * Digest of what lies in each place, after all device work submitted so far; the place takes the generation
   * named. This is the fence that seals a block. In host memory the bytes are those of the moment of the call.
   */
  seal(items: readonly SealItem[]): Promise<readonly SealResult[]>;
  /** Copies whole slots within the tier, in the order of the calls and of the device's work. Nothing is verified. */
  copy(items: readonly CopyItem[]): Promise<readonly StoreResult[]>;
  /** Fills each slot with zeros; the place takes the generation named. */
  clear(items: readonly SealItem[]): Promise<readonly StoreResult[]>;
}

export function isHostStore(store: TierStore): store is HostTierStore {
  return 'view' in is.object<TierStore>().read(store, 'store');
}

export function isTopStore(store: TierStore): store is TopTierStore {
  return 'seal' in is.object<TierStore>().read(store, 'store');
}

/**
 * One whole slot to another of the same size class. The source is named as a read names it, the target as a
 * write.
 */
export interface CopyItem {
  readonly sizeClass: number;
  readonly fromSlot: number;
  readonly fromGeneration: number;
  readonly toSlot: number;
  readonly toGeneration: number;
  /**
   * The source is a block that its sequence still writes: it is copied as it is, whatever the store knows of it.
   * Default false.
   */
  readonly unsealed?: boolean | undefined;
}

export interface SealItem {
  readonly slot: number;
  readonly sizeClass: number;
  readonly generation: number;
}

export interface SealResult extends StoreResult {
  readonly digest: Digest;
}

// A tier store's memory of each slot: the generation that last took it, and the size class of the bytes in it;
// and which slots its calls work on. It answers the part of the tier contract that needs no bytes: stale, missing,
// cut anew.
//
// - The generation of a slot never falls. A failed write keeps its generation and leaves no bytes.
// - A page holds slots of one size class. The first write of another class cuts the page anew: the bytes of all its
// old slots are gone, their generations stay.
// - Memory grows with the highest slot touched, not with the pool's limit, since a disk tier may be practically
// unbounded.

/** The place of an item; `bytes` and `digest` do not matter to the ledger. */
export type SlotPlace = Pick<StoreItem, 'slot' | 'sizeClass' | 'generation'>;

/** The result of an item whose bytes are in place. */
export const loaded: StoreResult = { outcome: Outcome.LOADED, reason: '' };

/** The result of an item that the store did not take. */
export function refused(reason: string): StoreResult {
  return { outcome: Outcome.REFUSED, reason };
}

/** The result of an item whose bytes are not the bytes once written. */
export function corrupt(reason: string): StoreResult {
  return { outcome: Outcome.CORRUPT, reason };
}

/** Tells a store which generation lies in each slot, and refuses stale places. */
export class SlotLedger {
  readonly shape: PoolShape;
  #generations: Uint32Array = new Uint32Array(0);
  /** Size class of the bytes in a slot, plus 1; 0 if it holds none. */
  #held: Uint8Array = new Uint8Array(0);
  /** Size class that a page was last cut into, plus 1; 0 before the first write. */
  #cut: Uint8Array = new Uint8Array(0);

  constructor(shape: PoolShape) {
    this.shape = shape;
  }

  /** The generation that last took the slot, 0 before the first. */
  generationOf(slot: number): number {
    return this.#generations[slot] ?? 0;
  }

  /** Whether bytes lie in the slot. */
  holds(slot: number): boolean {
    return (this.#held[slot] ?? 0) !== 0;
  }

  /** Why the place is invalid, or undefined if it is valid. */
  misplaced(place: SlotPlace): StoreResult | undefined {
    const { shape } = this;
    const { slot, sizeClass, generation } = place;
    if (!(sizeClass >= 0 && sizeClass < shape.slotBytes.length)) return refused(`no size class ${sizeClass}`);
    if (!Number.isInteger(slot) || slot < 0 || slot >= shape.slotLimit)
      return refused(`slot ${slot} is outside the pool`);
    if (slot % shape.slotsPerPageMax >= shape.slotsPerPage[sizeClass]) {
      return refused(`slot ${slot} does not exist in a page of size class ${sizeClass}`);
    }
    if (!Number.isInteger(generation) || generation < 1 || generation > 0xffffffff) {
      return refused(`generation ${generation} is not an integer from 1 to 4294967295`);
    }
    return undefined;
  }

  /** Why a write must be refused, or undefined. Changes nothing. */
  refuseWrite(place: SlotPlace): StoreResult | undefined {
    const misplaced = this.misplaced(place);
    if (misplaced !== undefined) return misplaced;
    const current = this.generationOf(place.slot);
    return place.generation < current ? staleRequest(place, current) : undefined;
  }

  /** Why a read cannot find its bytes, or undefined if they are there. Changes nothing. */
  refuseRead(place: SlotPlace): StoreResult | undefined {
    const misplaced = this.misplaced(place);
    if (misplaced !== undefined) return misplaced;
    const { slot, sizeClass, generation } = place;
    const current = this.generationOf(slot);
    if (generation < current) return staleRequest(place, current);
    const held = this.#held[slot] ?? 0;
    if (held === 0) return { outcome: Outcome.MISSING, reason: `slot ${slot} holds no bytes` };
    if (generation > current) return corrupt(`slot ${slot} holds generation ${current}, not ${generation}`);
    if (held !== sizeClass + 1) return corrupt(`slot ${slot} holds size class ${held - 1}, not ${sizeClass}`);
    return undefined;
  }

  /**
   * The generation takes the slot and its old bytes are given up; a write is about to begin or has failed.
   */
  take(place: SlotPlace): void {
    const { slot, sizeClass, generation } = place;
    const { slotsPerPageMax } = this.shape;
    const page = Math.floor(slot / slotsPerPageMax);
    this.#cover(page);
    if (this.#cut[page] !== sizeClass + 1) {
      this.#cut[page] = sizeClass + 1;
      this.#held.fill(0, page * slotsPerPageMax, (page + 1) * slotsPerPageMax);
    }
    this.#generations[slot] = generation;
    this.#held[slot] = 0;
  }

  /** The bytes of the generation that took the slot are in place. No effect if the page was cut anew meanwhile. */
  fill(place: SlotPlace): void {
    const { slot, sizeClass } = place;
    const page = Math.floor(slot / this.shape.slotsPerPageMax);
    if (this.#cut[page] === sizeClass + 1) this.#held[slot] = sizeClass + 1;
  }

  #cover(page: number): void {
    if (page < this.#cut.length) return;
    const pages = Math.min(this.shape.pages, Math.max(page + 1, 2 * this.#cut.length, 64));
    const slots = pages * this.shape.slotsPerPageMax;
    this.#cut = grown(this.#cut, new Uint8Array(pages));
    this.#held = grown(this.#held, new Uint8Array(slots));
    this.#generations = grown(this.#generations, new Uint32Array(slots));
  }
}

function staleRequest(place: SlotPlace, current: number): StoreResult {
  const problem = `stale: slot ${place.slot} moved on to generation ${current}`;
  return { ...refused(`${problem}, the request names ${place.generation}`), isStale: true };
}

function grown<T extends Uint8Array | Uint32Array>(from: T, to: T): T {
  to.set(from);
  return to;
}

// The slots that a store's calls work on. Calls that meet on a slot are not queued: the second one is refused and
// changes nothing. The manager never sends such a call, since a slot belongs to its job until the job has retired.
//
//     held as | a further `read` | `device` | `source` | `write`
//     read    | allowed          | refused  | allowed  | refused
//     device  | refused          | allowed  | allowed  | refused
//     source  | allowed          | allowed  | allowed  | refused
//     write   | refused          | refused  | refused  | refused
//
// `device` is work on a device that its queue keeps in order, such as filling a slot and then sealing it. `source` is
// a slot that such work copies from. `read` goes another way and may come late, so the slot must not change.

const slotUses = ['read', 'device', 'source', 'write'] as const;
export type SlotUse = (typeof slotUses)[number];

const clashes: Readonly<Record<SlotUse, readonly SlotUse[]>> = {
  read: ['device', 'write'],
  device: ['read', 'write'],
  source: ['write'],
  write: slotUses,
};

/** Calls that hold a slot, by use. */
type Lock = Record<SlotUse, number>;

export class SlotLocks {
  readonly #locks: Map<number, Lock> = new Map();

  /** Slots that a call works on. */
  get size(): number {
    return this.#locks.size;
  }

  /** Takes the slot for `use`. @returns why it was refused; undefined if it was taken */
  take(slot: number, use: SlotUse): StoreResult | undefined {
    const lock = this.#locks.get(slot) ?? { read: 0, device: 0, source: 0, write: 0 };
    const held = clashes[use].find((other) => lock[other] > 0);
    if (held !== undefined) return refused(`slot ${slot} is busy: a ${held} of it has not ended`);
    lock[use]++;
    this.#locks.set(slot, lock);
    return undefined;
  }

  /** Gives back what `take` took. Call it before the caller learns that the call has ended. */
  release(slot: number, use: SlotUse): void {
    const lock = this.#locks.get(slot);
    invariant(lock !== undefined && lock[use] > 0, 'a slot is given back as often as it was taken');
    lock[use]--;
    if (lock.read + lock.device + lock.source + lock.write === 0) this.#locks.delete(slot);
  }
}
