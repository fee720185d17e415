/**
 * The pieces of one batch, as rows of the eight words that shaders/boxes.wgsl reads, in the units of the kernel that moves
 * them: vectors where every run allows it, else words. Filled again and again.
 */

import { type BoxPlan, inUnitsOf } from './boxPlan.ts';

export const VECTOR_BYTES = 16;
const WORD_BYTES = 4;
export const WORDS_PER_PIECE = 8;

/** The two forms of a kernel. */
export const pieceForms = ['vectors', 'words'] as const;

export class PieceList {
  readonly capacity: number;
  readonly rows: Uint32Array;
  readonly slab: Uint32Array;
  /** Index in `pieceForms`. */
  readonly form: Uint8Array;
  #count = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
    this.rows = new Uint32Array(capacity * WORDS_PER_PIECE);
    this.slab = new Uint32Array(capacity);
    this.form = new Uint8Array(capacity);
  }

  get count(): number {
    return this.#count;
  }

  get full(): boolean {
    return this.#count === this.capacity;
  }

  /**
   * `runs` runs of a box from `firstRun` on, in the slot at `slotOffset` of the slab; packed, they begin at `packedOffset`,
   * a multiple of a vector.
   */
  add(
    plan: BoxPlan,
    slab: number,
    slotOffset: number,
    packedOffset: number,
    firstRun: number,
    runs: number,
  ): void {
    const index = this.#count++;
    const form = inUnitsOf(plan, VECTOR_BYTES, slotOffset) ? 0 : 1;
    const unitBytes = form === 0 ? VECTOR_BYTES : WORD_BYTES;
    this.slab[index] = slab;
    this.form[index] = form;
    const { rows } = this;
    let at = index * WORDS_PER_PIECE;
    rows[at++] = (slotOffset + plan.firstOffsetBytes) / unitBytes;
    rows[at++] = packedOffset / unitBytes;
    rows[at++] = firstRun;
    rows[at++] = runs;
    rows[at++] = plan.runBytes / unitBytes;
    rows[at++] = plan.runsPerLayer;
    rows[at++] = plan.runStrideBytes / unitBytes;
    rows[at] = plan.layerStrideBytes / unitBytes;
  }

  clear(): void {
    this.#count = 0;
  }
}
