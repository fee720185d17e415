/**
 * One long block between device and file: its leading bytes are written while the rest is still being read, so that disk, host
 * and device work on different parts of it. The staging slot is free again when both the read and the write have ended.
 */

import { guidedBytes } from '../../runtime/transfer/guidedBytes.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import { refused } from '../../runtime/transfer/slotLedger.ts';
import type { StoreResult, TierStore } from '../../runtime/transfer/tierStore.ts';
import { ByteStream } from './byteStream.ts';
import type { StagedJob } from './stagedMove.ts';
import type { StagingSlots } from './stagingSlots.ts';

/** Shorter blocks overlap as well when each is whole, as long as there are others behind. */
const PART_BYTES_MAX = 2 * 1024 * 1024;

/** Whether the block is long enough for what is behind it, and both stores are able to. */
export function canStream(from: TierStore, to: TierStore, { bytes, behindBytes }: StagedJob): boolean {
  return (
    bytes > guidedBytes(bytes + behindBytes, PART_BYTES_MAX) &&
    from.streams?.reads === true &&
    to.streams?.writes === true
  );
}

export async function streamedMove(
  staging: StagingSlots,
  from: TierStore,
  to: TierStore,
  job: StagedJob,
): Promise<void> {
  const stages = await staging.take(1);
  try {
    const view = staging.view(stages[0], job.bytes);
    const stream = new ByteStream(job.bytes);
    const ends = await Promise.allSettled([
      readInto(stream, from, view, job),
      writeFrom(stream, to, view, job),
    ]);
    const [read, written] = ends.map((end) => {
      if (end.status === 'rejected') throw end.reason;
      return end.value;
    });
    job.settle(read.outcome === Outcome.LOADED ? written : read);
  } finally {
    staging.giveBack(stages);
  }
}

async function readInto(
  stream: ByteStream,
  from: TierStore,
  view: Uint8Array,
  job: StagedJob,
): Promise<StoreResult> {
  let end = refused('the read failed');
  try {
    const onArrived = (first: number, last: number): void => stream.arrived(first, last);
    const { behindBytes } = job;
    [end] = (await from.read([{ ...job.from(view), onArrived, behindBytes }])) as [StoreResult];
    return end;
  } finally {
    stream.end(end);
  }
}

async function writeFrom(
  stream: ByteStream,
  to: TierStore,
  view: Uint8Array,
  job: StagedJob,
): Promise<StoreResult> {
  const [end] = await to.write([{ ...job.to(view), arriving: stream }]);
  return end;
}
