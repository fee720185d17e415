/**
 * What of which boxes rides in one staging buffer, and how it gets between there and the slabs: short runs through the
 * kernels and the packed buffer, long ones by copies of their own.
 *
 *     staging   | box a (short runs) | box b (short runs) | box c (one long run) |
 *     packed    | a                  | b                  |                      |      one copy between the two
 *     slabs     .. a a .. a a .. b b .. b b .. c c c c c c ..
 *
 * Boxes of short runs begin at a vector, and their gaps are copied along, so that neighbours are still one copy.
 */

import { CopyRuns } from '../copyRuns.ts';
import type { BoxKernels } from './boxKernels.ts';
import type { BoxPathName } from './boxPath.ts';
import { type BoxPlan, runOffsetBytes } from './boxPlan.ts';
import { PieceList, VECTOR_BYTES } from './pieceList.ts';

/** A stretch of a box in the staging buffer. */
export interface Stretch {
  readonly stagingOffset: number;
  readonly length: number;
}

export class BoxBatch {
  readonly #kernels: BoxKernels;
  readonly #slabs: readonly GPUBuffer[];
  readonly #capacity: number;
  /** Of these, what the kernels can reach. */
  readonly #kernelCapacity: number;
  readonly #pieces: PieceList;
  #copies: CopyRuns = new CopyRuns();
  #used = 0;

  /** @param capacity bytes of a staging buffer */
  constructor(kernels: BoxKernels, slabs: readonly GPUBuffer[], capacity: number) {
    this.#kernels = kernels;
    this.#slabs = [...slabs, kernels.packed];
    this.#capacity = capacity;
    this.#kernelCapacity = Math.min(capacity - (capacity % VECTOR_BYTES), kernels.packedBytes);
    this.#pieces = new PieceList(kernels.piecesMax);
  }

  get used(): number {
    return this.#used;
  }

  clear(): void {
    this.#copies = new CopyRuns();
    this.#pieces.clear();
    this.#used = 0;
  }

  /**
   * Adds as much of a box, from byte `from` of its packed bytes on, as fits; undefined when nothing does, which never
   * happens in an empty batch.
   */
  add(plan: BoxPlan, slab: number, slotOffset: number, from: number, path: BoxPathName): Stretch | undefined {
    return path === 'kernel' && plan.runBytes <= this.#kernelCapacity
      ? this.#addRuns(plan, slab, slotOffset, from / plan.runBytes)
      : this.#addBytes(plan, slab, slotOffset, from);
  }

  encodeGather(encoder: GPUCommandEncoder, staging: GPUBuffer): void {
    this.#kernels.encode(encoder, 'gather', this.#pieces);
    this.#copies.encodeFromSlabs(encoder, this.#slabs, staging);
  }

  encodeScatter(encoder: GPUCommandEncoder, staging: GPUBuffer): void {
    this.#copies.encodeToSlabs(encoder, staging, this.#slabs);
    this.#kernels.encode(encoder, 'scatter', this.#pieces);
  }

  /** Whole runs, through the kernels. */
  #addRuns(plan: BoxPlan, slab: number, slotOffset: number, firstRun: number): Stretch | undefined {
    const at = wholeVectors(this.#used);
    const runsThatFit = Math.floor((this.#kernelCapacity - at) / plan.runBytes);
    const runs = Math.min(plan.runs - firstRun, runsThatFit);
    if (runs <= 0 || this.#pieces.full) return undefined;
    const length = runs * plan.runBytes;
    this.#pieces.add(plan, slab, slotOffset, at, firstRun, runs);
    const packed = this.#slabs.length - 1;
    this.#used = wholeVectors(at + length);
    this.#copies.add(packed, at, at, this.#used - at);
    return { stagingOffset: at, length };
  }

  /** Any part of any run, by copies. */
  #addBytes(plan: BoxPlan, slab: number, slotOffset: number, from: number): Stretch | undefined {
    const at = this.#used;
    const end = Math.min(plan.boxBytes, from + this.#capacity - at);
    if (end <= from) return undefined;
    for (let done = from; done < end; ) {
      const inRun = done % plan.runBytes;
      const length = Math.min(plan.runBytes - inRun, end - done);
      const offset = slotOffset + runOffsetBytes(plan, (done - inRun) / plan.runBytes) + inRun;
      this.#copies.add(slab, offset, at + done - from, length);
      done += length;
    }
    this.#used = at + end - from;
    return { stagingOffset: at, length: end - from };
  }
}

function wholeVectors(bytes: number): number {
  return Math.ceil(bytes / VECTOR_BYTES) * VECTOR_BYTES;
}
