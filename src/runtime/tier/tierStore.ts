/**
 * The contract of whatever holds the bytes of one tier. A store executes and decides nothing: it is told
 * places and does as told. `tierContract` in `tierkv/testing/contract` is this text as tests.
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
 *   slot (slotLocks.ts).
 */

import type { Digest } from '../digest.ts';
import type { Outcome, Tier } from './tier.ts';

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
   * Of a read: the next holder of the bytes compares them with the digest, so the store need not. It still checks
   * what it knows of the place (generation, key, header). Default false.
   */
  readonly checkedLater?: boolean;
  /**
   * Host bytes: the source of a write, the destination of a read; exactly the slot's size. Not kept after the
   * call.
   */
  readonly bytes: Uint8Array;
}

/** Called with the result of item `index` of a call. */
export type ItemEnded = (index: number, result: StoreResult) => void;

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

export interface TierStore extends AsyncDisposable {
  readonly tier: Tier;
  readonly capacityBytes: number;
  /** Whether writes, reads or neither are checked against the item's digest on arrival. */
  readonly verifies: { readonly onWrite: boolean; readonly onRead: boolean };
  /** What the store got from the machine, for tables and reports: adapter, locked, huge pages, direct I/O. */
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
  return 'view' in store;
}

export function isTopStore(store: TierStore): store is TopTierStore {
  return 'seal' in store;
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
