/**
 * Which requests travel in one I/O: those on neighbouring records, as long as their payloads are not too many bytes together.
 * One whose bytes are told of as they come, or still come, goes alone.
 */

import type { FileLayout } from './fileLayout.ts';
import type { SlotRequest } from './slotOrder.ts';

/** One vectored call takes at most 1,024 parts, and a record is two. */
const RECORDS_MAX = 256;

/** @param coalescedBytes payloads that go together at most */
export function runsOf(
  requests: readonly SlotRequest[],
  { records }: FileLayout,
  coalescedBytes: number,
): SlotRequest[][] {
  const runs: SlotRequest[][] = [];
  let run: SlotRequest[] = [];
  let payloadBytes = 0;
  let end = 0;
  for (const request of requests.toSorted((a, b) => a.offset - b.offset)) {
    const record = records[request.item.sizeClass];
    const joins =
      run.length > 0 &&
      run.length < RECORDS_MAX &&
      request.offset === end &&
      payloadBytes + record.payloadBytes <= coalescedBytes &&
      !streamed(request) &&
      !streamed(run[0]);
    if (!joins) {
      run = [];
      runs.push(run);
      payloadBytes = 0;
    }
    run.push(request);
    payloadBytes += record.payloadBytes;
    end = request.offset + record.recordBytes;
  }
  return runs;
}

/** The longest run that there can be, in bytes of the file. */
export function runBytesMax({ records }: FileLayout, coalescedBytes: number): number {
  const longest = records.map(({ payloadBytes, recordBytes }) => {
    const together = Math.min(RECORDS_MAX, Math.floor(coalescedBytes / payloadBytes));
    return Math.max(1, together) * recordBytes;
  });
  return Math.max(...longest);
}

function streamed({ item }: SlotRequest): boolean {
  return item.onArrived !== undefined || item.arriving !== undefined;
}
