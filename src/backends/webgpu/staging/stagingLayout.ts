/**
 * What lies where in one mapped buffer, and how it gets between there and the slabs: by copies, where
 * neighbours on both sides become one command, or, for boxes of many short runs, by the gather and scatter
 * kernels through the packed buffer:
 *
 *     mapped    | box a (short runs) | box b (short runs) | slot c, whole       |
 *     packed    | a                  | b                  |                     |     one copy between both
 *     slabs     .. a a .. a a .. b b .. b b .. c c c c c c ..
 *
 * A whole slot is a box of one run. Boxes of short runs begin at a vector of 16 bytes, and the gaps between
 * them are copied along, so that neighbours are still one copy.
 */

import { VECTOR_BYTES } from '../boxes/boxKernels.ts';
import { type BoxPlan, runOffsetBytes } from '../boxes/boxPlan.ts';
import type { BoxTables } from '../boxes/boxTables.ts';
import type { BoxPath, SlotLocation } from '../types.ts';
import { CopyRuns } from './copyRuns.ts';

/** So many parts of boxes at most ride in one buffer. */
const PARTS_MAX = 4096;

/** Where bytes of a box lie in the mapped buffer. */
export interface StagedPart {
  readonly at: number;
  readonly bytes: number;
}

export class StagingLayout {
  readonly #buffers: readonly GPUBuffer[];
  readonly #capacity: number;
  readonly #tables: BoxTables | undefined;
  /** So much of the buffer goes through the packed buffer at most. */
  readonly #packedCapacity: number;
  #copies: CopyRuns = new CopyRuns();
  #used = 0;
  #parts = 0;

  /** @param capacity of a mapped buffer @param tables absent where no box ever goes through kernels */
  constructor(slabs: readonly GPUBuffer[], capacity: number, tables?: BoxTables) {
    this.#buffers = tables === undefined ? slabs : [...slabs, tables.packed];
    this.#capacity = capacity;
    this.#tables = tables;
    const packedBytes = tables?.packed.size ?? 0;
    this.#packedCapacity = Math.min(capacity - (capacity % VECTOR_BYTES), packedBytes);
  }

  get used(): number {
    return this.#used;
  }

  get full(): boolean {
    return this.#used === this.#capacity || this.#parts === PARTS_MAX;
  }

  /** Adds what fits of a box from its packed byte `from` on; undefined for nothing, never when empty. */
  add(plan: BoxPlan, slot: SlotLocation, from: number, path: BoxPath): StagedPart | undefined {
    const part =
      path === 'kernel' && plan.runBytes <= this.#packedCapacity
        ? this.#addRuns(plan, slot, from / plan.runBytes)
        : this.#addBytes(plan, slot, from);
    if (part !== undefined) this.#parts++;
    return part;
  }

  /** Encodes the way from the slabs into `mapped`; the layout is empty afterwards. */
  encodeFromSlabs(encoder: GPUCommandEncoder, mapped: GPUBuffer): void {
    this.#tables?.encode(encoder);
    this.#copies.encodeToStaging(encoder, this.#buffers, mapped);
    this.#clear();
  }

  /** Encodes the way from `mapped` into the slabs; the layout is empty afterwards. */
  encodeToSlabs(encoder: GPUCommandEncoder, mapped: GPUBuffer): void {
    this.#copies.encodeFromStaging(encoder, mapped, this.#buffers);
    this.#tables?.encode(encoder);
    this.#clear();
  }

  #clear(): void {
    this.#copies = new CopyRuns();
    this.#used = 0;
    this.#parts = 0;
  }

  /** Whole runs, through the kernels. */
  #addRuns(plan: BoxPlan, slot: SlotLocation, firstRun: number): StagedPart | undefined {
    const at = wholeVectors(this.#used);
    const runsThatFit = Math.floor((this.#packedCapacity - at) / plan.runBytes);
    const runs = Math.min(plan.runs - firstRun, runsThatFit);
    if (runs <= 0 || this.#tables === undefined || this.#tables.full) return undefined;
    this.#tables.add(plan, slot, at, firstRun, runs);
    const bytes = runs * plan.runBytes;
    this.#used = wholeVectors(at + bytes);
    this.#copies.add(this.#buffers.length - 1, at, at, this.#used - at);
    return { at, bytes };
  }

  /** Any part of any run, by copies. */
  #addBytes(plan: BoxPlan, slot: SlotLocation, from: number): StagedPart | undefined {
    const at = this.#used;
    const end = Math.min(plan.boxBytes, from + this.#capacity - at);
    if (end <= from) return undefined;
    for (let done = from; done < end; ) {
      const inRun = done % plan.runBytes;
      const bytes = Math.min(plan.runBytes - inRun, end - done);
      const offset = slot.offsetBytes + runOffsetBytes(plan, (done - inRun) / plan.runBytes) + inRun;
      this.#copies.add(slot.slab, offset, at + done - from, bytes);
      done += bytes;
    }
    this.#used = at + end - from;
    return { at, bytes: end - from };
  }
}

function wholeVectors(bytes: number): number {
  return Math.ceil(bytes / VECTOR_BYTES) * VECTOR_BYTES;
}
