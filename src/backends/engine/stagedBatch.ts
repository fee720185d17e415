/**
 * Moves a batch between two tiers when neither is host memory, by way of staging slots. Each block is read
 * into a slot and written from it as soon as it has arrived, while other blocks are still being read. Blocks
 * that arrive together are written in one call. A slot is free again once its block has ended, in success or
 * failure.
 */

import { requireInteger } from '../../runtime/errors.ts';
import { Outcome } from '../../runtime/tier/tier.ts';
import type { StoreItem, StoreResult, TierStore } from '../../runtime/tier/tierStore.ts';
import { HostArena } from '../host/hostArena.ts';

/** A block of the batch: `from` is the item for its source, `to` the item for its target. */
export interface StagedBlock {
  readonly bytes: number;
  from(view: Uint8Array): StoreItem;
  to(view: Uint8Array): StoreItem;
  /** @param at the tier whose store said so */
  ended(end: StoreResult, at: 'source' | 'target'): void;
}

/** Fulfilled when every block has ended. Rejects only if a store rejects, against its contract. */
export async function moveStaged(
  staging: StagingSlots,
  from: TierStore,
  to: TierStore,
  batch: readonly StagedBlock[],
): Promise<void> {
  const parts: Promise<void>[] = [];
  for (let at = 0; at < batch.length; ) {
    const slots = await staging.take(batch.length - at);
    parts.push(movePart(staging, slots, from, to, batch.slice(at, at + slots.length)));
    at += slots.length;
  }
  for (const end of await Promise.allSettled(parts)) if (end.status === 'rejected') throw end.reason;
}

async function movePart(
  staging: StagingSlots,
  slots: readonly number[],
  from: TierStore,
  to: TierStore,
  blocks: readonly StagedBlock[],
): Promise<void> {
  const views = slots.map((slot, i) => staging.view(slot, blocks[i].bytes));
  const taken = new Set(slots);
  const finish = (i: number, end: StoreResult, at: 'source' | 'target'): void => {
    if (!taken.delete(slots[i])) return;
    staging.giveBack([slots[i]]);
    blocks[i].ended(end, at);
  };
  const writes: Promise<unknown>[] = [];
  let arrived: number[] = [];
  const writeArrived = (): void => {
    if (arrived.length === 0) return;
    const now = arrived;
    arrived = [];
    const items = now.map((i) => blocks[i].to(views[i]));
    writes.push(to.write(items, (k, end) => finish(now[k], end, 'target')));
  };
  try {
    await from.read(
      blocks.map((block, i) => block.from(views[i])),
      (i, end) => {
        if (end.outcome !== Outcome.LOADED) finish(i, end, 'source');
        else if (arrived.push(i) === 1) queueMicrotask(writeArrived);
      },
    );
    writeArrived();
    for (const end of await Promise.allSettled(writes)) if (end.status === 'rejected') throw end.reason;
  } finally {
    staging.giveBack([...taken]);
  }
}

// ---- staging slots: page-aligned host memory for blocks between device and file
//
// Slots are taken in turn, the longest free first: memory that another core has just read is still in that
// core's cache, and slower to write.

/** Twice the bytes that a staged link may have under way, so that reading and writing overlap. */
const STAGING_BYTES = 64 * 1024 * 1024;
/** Most slots: above this, small blocks gain nothing from more of them. */
const SLOTS_MAX = 1024;

export class StagingSlots implements Disposable {
  readonly #arena: HostArena;
  readonly #slotBytes: number;
  readonly #free: number[];
  readonly #waiting: (() => void)[] = [];

  private constructor(arena: HostArena, slotBytes: number, slots: number) {
    this.#arena = arena;
    this.#slotBytes = slotBytes;
    this.#free = Array.from({ length: slots }, (_, i) => i);
  }

  /** Number of slots that keeps source and target busy: 64 MiB of them, at least two. */
  static countFor(unitBytes: number): number {
    return Math.max(2, Math.min(SLOTS_MAX, Math.floor(STAGING_BYTES / unitBytes)));
  }

  /** @param unitBytes size of the largest block */
  static async open(unitBytes: number, slots: number): Promise<StagingSlots> {
    requireInteger('staging slots', slots, 1);
    const slotBytes = Math.ceil(unitBytes / 4096) * 4096;
    const arena = await HostArena.open({ chunkBytes: [slotBytes * slots], native: true, field: 'staging' });
    return new StagingSlots(arena, slotBytes, slots);
  }

  view(slot: number, bytes: number): Uint8Array {
    return new Uint8Array(this.#arena.chunks[0], slot * this.#slotBytes, bytes);
  }

  /** Waits until a slot is free. @returns one to `wanted` slots */
  async take(wanted: number): Promise<number[]> {
    while (this.#free.length === 0) {
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
      });
    }
    return this.#free.splice(0, Math.min(wanted, this.#free.length));
  }

  giveBack(slots: readonly number[]): void {
    this.#free.push(...slots);
    for (const wake of this.#waiting.splice(0)) wake();
  }

  [Symbol.dispose](): void {
    this.#arena[Symbol.dispose]();
  }
}
