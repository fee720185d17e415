/**
 * A batch between two tiers of which neither is host memory: each block is read into a staging slot and
 * written from there, as soon as it has arrived, beside those that are still being read. Blocks that arrive
 * together are written in one call. Where the target verifies what arrives, the source need not. A slot is
 * free again when its block has been written, whatever became of it.
 */

import type { StoreItem, StoreResult, TierStore } from '../../runtime/tier/tierStore.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import type { StagingSlots } from './stagingSlots.ts';

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
