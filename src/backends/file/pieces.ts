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
        await this.#move(this.#pieces[this.#next++]!);
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
