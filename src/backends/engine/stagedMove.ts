/**
 * A batch between device and file: read into staging slots, write from there. A batch that finds fewer free slots than it
 * has jobs goes in pieces. Where the target verifies what arrives, the source need not: the check is then end to end. A
 * slot is free again when its piece has been written, whatever became of it.
 */

import { Outcome } from '../../runtime/transfer/outcome.ts';
import type { StoreItem, StoreResult, TierStore } from '../../runtime/transfer/tierStore.ts';
import type { StagingSlots } from './stagingSlots.ts';

/** A block as its source knows it, and as its target will. */
export interface StagedJob {
  readonly bytes: number;
  /** Of jobs that wait behind it; infinite where that does not matter. */
  readonly behindBytes: number;
  from(view: Uint8Array): StoreItem;
  to(view: Uint8Array): StoreItem;
  settle(end: StoreResult): void;
}

export async function stagedMove(
  staging: StagingSlots,
  from: TierStore,
  to: TierStore,
  batch: readonly StagedJob[],
): Promise<void> {
  for (let at = 0; at < batch.length; ) {
    const stages = await staging.take(batch.length - at);
    try {
      await movePiece(staging, stages, from, to, batch.slice(at, at + stages.length));
    } finally {
      staging.giveBack(stages);
    }
    at += stages.length;
  }
}

async function movePiece(
  staging: StagingSlots,
  stages: readonly number[],
  from: TierStore,
  to: TierStore,
  piece: readonly StagedJob[],
): Promise<void> {
  const views = stages.map((stage, i) => staging.view(stage, piece[i].bytes));
  const reads = await from.read(piece.map((job, i) => job.from(views[i])));
  const arrived = piece.map((_, i) => i).filter((i) => reads[i].outcome === Outcome.LOADED);
  const writes = await to.write(arrived.map((i) => piece[i].to(views[i])));
  const ends = [...reads];
  arrived.forEach((i, at) => {
    ends[i] = writes[at];
  });
  piece.forEach((job, i) => {
    job.settle(ends[i]);
  });
}
