/**
 * The contract of whatever holds the bytes of one tier. A store executes and decides nothing: it is told places and does
 * as told. `tierContract` in `tierkv/testing` is this text as tests.
 *
 * - A place is (slot, generation). The store remembers the generation whose bytes lie in each slot. A request that names
 *   an older generation than the slot holds is `refused`, and changes nothing. A read that names a newer one finds stale
 *   bytes: `corrupt`. A slot never written is `missing`.
 * - `write` puts an item's bytes in place; `read` fills an item's bytes. Either way the promise is fulfilled only when
 *   every job on those slots has retired, so that the slots may be used again. It is never rejected for I/O reasons: a
 *   full disk or a lost device is an outcome.
 * - Where a store can verify what arrived (HBM by a kernel, files by the host), it compares with `item.digest` and
 *   answers `corrupt`. A store that cannot says so in `verifies`.
 * - Where `streams` says so, a read tells of its bytes as they arrive (`onArrived`), and a write takes on bytes that are
 *   still arriving (`arriving`): one block is on both its ways at once. While it waits for bytes, a write holds up no other
 *   one. A write whose bytes do not all arrive ends as their read did, and its slot holds nothing.
 * - Items of one call may run in any order and must not name a slot twice. Calls that touch the same slot take effect in
 *   the order in which they were made.
 */

import type { Digest } from '../digest.ts';
import type { Tier } from '../tier.ts';
import type { Outcome } from './outcome.ts';

export interface StoreItem {
  readonly slot: number;
  readonly sizeClass: number;
  readonly generation: number;
  /** The content's key, 128 bits as four words. */
  readonly key: Uint32Array;
  /** The digest that the content must have. */
  readonly digest: Digest;
  /** Tokens that the content covers, for stores that outlive the process. 0 or absent: not known. */
  readonly tokens?: number | undefined;
  /** Key of the block before it in its chain, for the same stores; zeros for the first. Absent: not known. */
  readonly parent?: Uint32Array | undefined;
  /**
   * Of a read: whoever takes the bytes on compares them with the digest where they go, so that the store need not. What it
   * knows of the place (generation, key, header) it checks all the same. Default false.
   */
  readonly checkedLater?: boolean;
  /**
   * Of a read, where the store `streams.reads`: told of each stretch [from, to) of `bytes` that has arrived, in any order,
   * perhaps of none. It does not change any more, but only the end of the read says whether it may be believed.
   */
  readonly onArrived?: ((from: number, to: number) => void) | undefined;
  /**
   * Of a read that tells of its bytes: how many more will be read after it. The fewer there are, the shorter are the stretches
   * (guidedBytes.ts). Absent: not known.
   */
  readonly behindBytes?: number | undefined;
  /** Of a write, where the store `streams.writes`: `bytes` are still being filled, and this tells how far. */
  readonly arriving?: ArrivingBytes | undefined;
  /** Host bytes: the source of a write, the destination of a read; exactly the slot's size. Not kept after the call. */
  readonly bytes: Uint8Array;
}

/** The bytes of an item that a read fills while a write takes on what is there. */
export interface ArrivingBytes {
  /** So many leading bytes are there; all of them only when the read has ended as loaded. */
  readonly leading: number;
  /** How the read ended, where it brought less: no more bytes will come, and nothing that came may be believed. */
  readonly failure: StoreResult | undefined;
  /** Fulfilled when more than `bytes` leading bytes are there, or there is a failure. */
  beyond(bytes: number): Promise<void>;
}

export interface StoreResult {
  readonly outcome: Outcome;
  /** For people: why it was not `loaded`. Empty otherwise. */
  readonly reason: string;
}

export interface TierStore extends AsyncDisposable {
  readonly tier: Tier;
  readonly capacityBytes: number;
  /** Whether writes, reads or neither are checked against the item's digest on arrival. */
  readonly verifies: { readonly onWrite: boolean; readonly onRead: boolean };
  /** Whether reads tell of bytes as they arrive, and whether writes take on arriving bytes. Absent: neither. */
  readonly streams?: { readonly reads: boolean; readonly writes: boolean } | undefined;
  /** What the store really got, for tables and reports: adapter, locked, huge pages, direct I/O. */
  describe(): Record<string, string | number | boolean>;
  write(items: readonly StoreItem[]): Promise<readonly StoreResult[]>;
  read(items: readonly StoreItem[]): Promise<readonly StoreResult[]>;
}

/** A store whose slots are host memory: other stores copy straight from and to its views. */
export interface HostTierStore extends TierStore {
  /** The slot's bytes themselves. The caller holds the place (a reader or a reservation) while it uses them. */
  view(slot: number, sizeClass: number): Uint8Array;
  /** The generation whose bytes lie in the slot, 0 for none. */
  generationOf(slot: number): number;
  /** The bytes of `generation` were written through the view. */
  markWritten(slot: number, generation: number): void;
}

/** A store in GPU memory, where sequences write KV with kernels of their own. */
export interface DeviceTierStore extends TierStore {
  /**
   * Digest of what lies in each place, after all device work submitted so far; the place takes the generation named.
   * This is the device fence that seals a block.
   */
  seal(items: readonly SealItem[]): Promise<readonly SealResult[]>;
}

export interface SealItem {
  readonly slot: number;
  readonly sizeClass: number;
  readonly generation: number;
}

export interface SealResult extends StoreResult {
  readonly digest: Digest;
}
