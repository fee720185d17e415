/**
 * A batch between two tiers of which neither is host memory: each block is read into a staging slot and
 * written from there, as soon as it has arrived, beside those that are still being read. Blocks that arrive
 * together are written in one call. Where the target verifies what arrives, the source need not. A slot is
 * free again when its block has been written, whatever became of it.
 */

import { requireInteger } from '../../runtime/errors.ts';
import { Outcome } from '../../runtime/tier/tier.ts';
import type { StoreItem, StoreResult, TierStore } from '../../runtime/tier/tierStore.ts';
import { HostArena } from '../host/hostArena.ts';

/** A block as its source knows it, and as its target will. */
export interface StagedBlock {
  readonly bytes: number;
  from(view: Uint8Array): StoreItem;
  to(view: Uint8Array): StoreItem;
  ended(end: StoreResult): void;
}

/** Fulfilled when every block has ended. Rejects when a store does, which none may. */
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
  const finish = (i: number, end: StoreResult): void => {
    if (!taken.delete(slots[i])) return;
    staging.giveBack([slots[i]]);
    blocks[i].ended(end);
  };
  const writes: Promise<unknown>[] = [];
  let arrived: number[] = [];
  const writeArrived = (): void => {
    if (arrived.length === 0) return;
    const now = arrived;
    arrived = [];
    const items = now.map((i) => blocks[i].to(views[i]));
    writes.push(to.write(items, (k, end) => finish(now[k], end)));
  };
  try {
    await from.read(
      blocks.map((block, i) => block.from(views[i])),
      (i, end) => {
        if (end.outcome !== Outcome.LOADED) finish(i, end);
        else if (arrived.push(i) === 1) queueMicrotask(writeArrived);
      },
    );
    writeArrived();
    for (const end of await Promise.allSettled(writes)) if (end.status === 'rejected') throw end.reason;
  } finally {
    staging.giveBack([...taken]);
  }
}

// Page-aligned host memory for blocks on their way between device and file: a bounded number of slots, taken
// in turn, since memory that another core has just read must first leave that core's cache.

/** Twice what a link has under way. */
const STAGING_BYTES = 64 * 1024 * 1024;
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

  /** How many slots keep both neighbours of the memory busy: 64 MiB of them, and never fewer than two. */
  static countFor(unitBytes: number): number {
    return Math.max(2, Math.min(SLOTS_MAX, Math.floor(STAGING_BYTES / unitBytes)));
  }

  /** @param unitBytes the largest block that passes through */
  static async open(unitBytes: number, slots: number): Promise<StagingSlots> {
    requireInteger('staging slots', slots, 1);
    const slotBytes = Math.ceil(unitBytes / 4096) * 4096;
    const arena = await HostArena.open({ chunkBytes: [slotBytes * slots], native: true, field: 'staging' });
    return new StagingSlots(arena, slotBytes, slots);
  }

  view(slot: number, bytes: number): Uint8Array {
    return new Uint8Array(this.#arena.chunks[0], slot * this.#slotBytes, bytes);
  }

  /** Between one and `wanted` slots, as soon as there are any. */
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
