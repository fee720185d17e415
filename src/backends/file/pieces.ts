/**
 * One long run of bytes of a file, moved in several I/Os at once. A disk is at its best with several I/Os of middling size:
 * a longer one gains nothing, and all of it must have arrived before the first of its bytes can be looked at. Pieces are
 * about equally long, but shrink towards the end of a load, are whole blocks, and begin in the order of the file; none is under
 * way any more when the move ends.
 */

import { guidedBytes } from '../../runtime/transfer/guidedBytes.ts';
import { BLOCK_BYTES } from './record.ts';

export interface Piece {
  /** Its first byte and the one behind its last, counted from the start of the run. */
  readonly from: number;
  readonly to: number;
  /** The memory that it moves. */
  readonly parts: readonly Uint8Array[];
}

/**
 * Bytes of each piece of a run: whole blocks.
 * @param bytes of the run: whole blocks
 * @param payloadBytes those of them that are not headers of its records
 * @param pieceBytes payload of a piece, about and at most
 * @param behindBytes of the same load, behind the run
 */
export function pieceLengths(
  bytes: number,
  payloadBytes: number,
  pieceBytes: number,
  behindBytes: number = Number.POSITIVE_INFINITY,
): readonly number[] {
  const lengths: number[] = [];
  for (let left = bytes; left > 0; left -= lengths.at(-1)!) {
    const payloadLeft = left - (bytes - payloadBytes);
    const most = Math.max(BLOCK_BYTES, guidedBytes(payloadLeft + behindBytes, pieceBytes));
    const count = Math.max(1, Math.ceil(payloadLeft / most));
    lengths.push(Math.min(left, Math.ceil(left / count / BLOCK_BYTES) * BLOCK_BYTES));
  }
  return lengths;
}

/** @param lengths together as many bytes as `parts` */
export function cutIntoPieces(parts: readonly Uint8Array[], lengths: readonly number[]): readonly Piece[] {
  let to = 0;
  return lengths.map((length) => {
    const from = to;
    to += length;
    return { from, to, parts: lengths.length === 1 ? parts : between(parts, from, to) };
  });
}

/** Moves all pieces of a run, as many at once as it is given lanes. A lane takes piece after piece until none is left. */
export class PieceMove {
  readonly #count: number;
  readonly #lanesMax: number;
  readonly #failures: unknown[] = [];
  #pieces: readonly Piece[] = [];
  #move: (piece: Piece) => Promise<void> = async () => {};
  #begun = false;
  #lanes = 1;
  #next = 0;
  #laneEnded: () => void = () => {};
  #allEnded: () => void = () => {};

  /** With one lane. */
  constructor(count: number, lanesMax: number) {
    this.#count = count;
    this.#lanesMax = lanesMax;
  }

  /** One more lane; false when it would find no piece, or there are enough. */
  widen(): boolean {
    const left = this.#begun ? this.#pieces.length - this.#next : this.#count - this.#lanes;
    if (left <= 0 || this.#lanes >= this.#lanesMax || this.#failures.length > 0) return false;
    this.#lanes += 1;
    if (this.#begun) void this.#lane();
    return true;
  }

  /**
   * To be called once.
   * @param laneEnded called when a lane has found no further piece
   * @throws what the first piece failed with, once none is under way
   */
  async run(
    pieces: readonly Piece[],
    move: (piece: Piece) => Promise<void>,
    laneEnded: () => void,
  ): Promise<void> {
    this.#pieces = pieces;
    this.#move = move;
    this.#laneEnded = laneEnded;
    this.#begun = true;
    const ended = new Promise<void>((resolve) => {
      this.#allEnded = resolve;
    });
    for (let lanes = this.#lanes; lanes > 0; lanes--) void this.#lane();
    await ended;
    if (this.#failures.length > 0) throw this.#failures[0];
  }

  async #lane(): Promise<void> {
    while (this.#next < this.#pieces.length && this.#failures.length === 0) {
      try {
        await this.#move(this.#pieces[this.#next++]);
      } catch (error) {
        this.#failures.push(error);
      }
    }
    this.#lanes -= 1;
    if (this.#lanes === 0) this.#allEnded();
    this.#laneEnded();
  }
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
