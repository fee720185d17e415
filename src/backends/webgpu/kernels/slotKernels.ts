/**
 * The kernels over whole slots: digest, fill with a pattern, count words that are not the pattern's. An item
 * is (word offset in the slab, words, two seeds), as shaders/slots.wgsl declares it. Results are two words;
 * those of a fill stay zero, and their arrival is the fence behind which the slot is full.
 */

import type { LiveDevice } from '../device/liveDevice.ts';
import type { SlotLocation } from '../types.ts';
import type { KernelSpec } from './kernelSpec.ts';
import type { KernelTable } from './kernelTable.ts';
import { shaderSource } from './shaders.ts';
import { SlabKernel } from './slabKernel.ts';

export type SlotKernel = 'digest' | 'fill' | 'check';

/** How the work of a slot is spread over the device. */
export interface SlotKernelShape {
  /** Invocations of a workgroup, a power of two. */
  readonly workgroupSize: number;
  /** Vectors of 16 bytes that an invocation walks in a large slot. */
  readonly vectorsPerInvocation: number;
  /** Whether each invocation adds its sum to the result, or a workgroup once for all of its own. */
  readonly digest: 'scattered' | 'reduced';
}

/** A CPU pays for every barrier by switching between invocations, and gains nothing from wide workgroups. */
export const softwareShape: SlotKernelShape = {
  workgroupSize: 16,
  vectorsPerInvocation: 64,
  digest: 'scattered',
};
export const hardwareShape: SlotKernelShape = {
  workgroupSize: 64,
  vectorsPerInvocation: 16,
  digest: 'reduced',
};

const ITEMS_MAX = 4096;

export class SlotKernels {
  readonly #shape: SlotKernelShape;
  readonly #kernels: Record<SlotKernel, SlabKernel>;

  private constructor(shape: SlotKernelShape, kernels: Record<SlotKernel, SlabKernel>) {
    this.#shape = shape;
    this.#kernels = kernels;
  }

  /** @throws TKV_DEVICE when the device does not compile the kernels */
  static async open(
    live: LiveDevice,
    slabs: readonly GPUBuffer[],
    label: string,
    shape: SlotKernelShape = live.adapter.software ? softwareShape : hardwareShape,
  ): Promise<SlotKernels> {
    const open = (kernel: SlotKernel): Promise<SlabKernel> =>
      SlabKernel.open(live, slabs, specOf(kernel, shape), label);
    const [digest, fill, check] = await Promise.all([open('digest'), open('fill'), open('check')]);
    return new SlotKernels(shape, { digest, fill, check });
  }

  /** Bytes that the results of a full table take at most, for any of the kernels. */
  get resultBytesMax(): number {
    return this.#kernels.digest.resultBytesMax(ITEMS_MAX);
  }

  table(kernel: SlotKernel, itemsMax: number = ITEMS_MAX): KernelTable {
    return this.#kernels[kernel].table(itemsMax);
  }

  /** Adds a slot of `bytes` bytes to a table that `table` made. */
  addSlot(table: KernelTable, location: SlotLocation, bytes: number, seedLo = 0, seedHi = 0): void {
    const { workgroupSize, vectorsPerInvocation } = this.#shape;
    const vectors = Math.ceil(bytes / 16) + 1;
    const workgroups = Math.ceil(vectors / (workgroupSize * vectorsPerInvocation));
    table.add(location.slab, workgroups, location.offsetBytes / 4, bytes / 4, seedLo, seedHi);
  }
}

function specOf(kernel: SlotKernel, shape: SlotKernelShape): KernelSpec {
  return {
    name: kernel,
    code: shaderSource('slots', kernel),
    entryPoint: kernel === 'digest' ? shape.digest : 'scattered',
    constants: { workgroupSize: shape.workgroupSize },
    slab: kernel === 'fill' ? 'write' : 'read',
    itemWords: 4,
    resultWords: 2,
  };
}
