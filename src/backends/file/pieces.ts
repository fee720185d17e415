/**
 * One long run of bytes of a file, moved in several I/Os at once. A disk is at its best with several I/Os of middling size:
 * a longer one gains nothing, and all of it must have arrived before the first of its bytes can be looked at. Pieces are
 * about equally long, whole blocks, and begin in the order of the file; none is under way any more when the move ends.
 */

import { BLOCK_BYTES } from './record.ts';

export interface Piece {
  /** Its first byte and the one behind its last, counted from the start of the run. */
  readonly from: number;
  readonly to: number;
  /** The memory that it moves. */
  readonly parts: readonly Uint8Array[];
}

/** In how many pieces of about `pieceBytes` a run moves that has so many bytes beside the headers of its records. */
export function pieceCount(payloadBytes: number, pieceBytes: number): number {
  return Math.max(1, Math.ceil(payloadBytes / Math.max(BLOCK_BYTES, pieceBytes)));
}

/** @param bytes how many `parts` are together: whole blocks */
export function cutIntoPieces(parts: readonly Uint8Array[], bytes: number, count: number): readonly Piece[] {
  if (count === 1) return [{ from: 0, to: bytes, parts }];
  const length = Math.ceil(bytes / count / BLOCK_BYTES) * BLOCK_BYTES;
  const pieces: Piece[] = [];
  for (let from = 0; from < bytes; from += length) {
    const to = Math.min(bytes, from + length);
    pieces.push({ from, to, parts: between(parts, from, to) });
  }
  return pieces;
}

/** Moves all, `width` of them at once. @throws what the first one failed with, once none is under way */
export async function movePieces(
  pieces: readonly Piece[],
  width: number,
  move: (piece: Piece) => Promise<void>,
): Promise<void> {
  let next = 0;
  const failures: unknown[] = [];
  const lane = async (): Promise<void> => {
    while (next < pieces.length && failures.length === 0) {
      try {
        await move(pieces[next++]!);
      } catch (error) {
        failures.push(error);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(width, pieces.length) }, lane));
  if (failures.length > 0) throw failures[0];
}

function between(parts: readonly Uint8Array[], from: number, to: number): Uint8Array[] {
  const cut: Uint8Array[] = [];
  let at = 0;
  for (const part of parts) {
    const start = Math.max(0, from - at);
    const end = Math.min(part.byteLength, to - at);
    if (start < end) cut.push(part.subarray(start, end));
    at += part.byteLength;
  }
  return cut;
}
