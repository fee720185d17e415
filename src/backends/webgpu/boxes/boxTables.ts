/**
 * The gather or the scatter kernel over boxes of one batch, each in a form for whole vectors and one for
 * words. On the other side of the kernels stands one buffer of packed bytes, since a kernel cannot use a
 * mappable buffer:
 *
 *     gather    slabs --kernel--> packed --one copy--> a mapped buffer
 *     scatter   a mapped buffer --one copy--> packed --kernel--> slabs
 *
 * The packed buffer serves all batches of both directions: each batch is submitted before the next is
 * encoded, so the order of the queue keeps them apart.
 */

import { BufferUsage } from '../device/gpuConstants.ts';
import type { LiveDevice } from '../device/liveDevice.ts';
import type { KernelTable } from '../kernels/kernelTable.ts';
import type { SlabKernel } from '../kernels/slabKernel.ts';
import type { SlotLocation } from '../types.ts';
import {
  type BoxKernelShape,
  boxForms,
  boxItemWords,
  boxWorkgroups,
  type DirectionKernels,
  formOf,
  VECTOR_BYTES,
} from './boxKernels.ts';
import type { BoxPlan } from './boxPlan.ts';

/** Boxes in one batch at most. */
const ITEMS_MAX = 4096;

export class BoxTables {
  readonly packed: GPUBuffer;
  readonly #shape: BoxKernelShape;
  readonly #tables: readonly KernelTable[];
  readonly #own: readonly GPUBindGroup[];

  /** @param kernels one for each of `boxForms`, all of one direction */
  constructor(kernels: DirectionKernels, packed: GPUBuffer, itemsMax: number = ITEMS_MAX) {
    const byForm: readonly SlabKernel[] = boxForms.map((form) => kernels[form]);
    this.packed = packed;
    this.#shape = kernels.shape;
    this.#tables = byForm.map((kernel) => kernel.table(itemsMax));
    this.#own = byForm.map((kernel) => kernel.bindOwn([packed]));
  }

  get full(): boolean {
    return this.#tables.some((table) => table.full);
  }

  /** Runs of a box from number `firstRun` on, packed from byte `packedAt` on, a multiple of a vector. */
  add(plan: BoxPlan, slot: SlotLocation, packedAt: number, firstRun: number, runs: number): void {
    const form = formOf(plan, slot);
    const words = boxItemWords(plan, slot, form, packedAt, firstRun, runs);
    const workgroups = boxWorkgroups(this.#shape, plan, form, runs);
    this.#tables[boxForms.indexOf(form)].add(slot.slab, workgroups, ...words);
  }

  /** Encodes the kernels over all boxes; the tables are empty afterwards. */
  encode(encoder: GPUCommandEncoder): void {
    this.#tables.forEach((table, form) => {
      table.encode(encoder, { own: this.#own[form] });
    });
  }

  destroy(): void {
    for (const table of this.#tables) table.destroy();
  }
}

/** The buffer of packed bytes for mapped buffers of `stagingBytes`. */
export function packedBuffer(live: LiveDevice, label: string, stagingBytes: number): GPUBuffer {
  return live.device.createBuffer({
    label: `${label}.packed`,
    size: Math.max(VECTOR_BYTES, stagingBytes - (stagingBytes % VECTOR_BYTES)),
    usage: BufferUsage.STORAGE | BufferUsage.COPY_SRC | BufferUsage.COPY_DST,
  });
}
