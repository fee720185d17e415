/**
 * What a kernel over slabs is made of: each of its items lies in one slab of a pool. Slots of a pool may lie
 * in several GPUBuffers while a kernel binds one, so a table of items is sorted by slab, with one dispatch
 * for each slab. What the kernel sees:
 *
 *     @group(0) @binding(0)   the slab
 *     @group(0) @binding(1)   array of items, `itemWords` words each
 *     @group(0) @binding(2)   array of results, `resultWords` words an item, zero before; none for 0 words
 *     @group(1) @binding(i)   buffers of the kernel's own, if it has any
 *
 * Item `workgroup_id.y` is this workgroup's, and its results have the same index. `num_workgroups.x`
 * workgroups work on each item of a slab: as many as the most that one of them asks for.
 */

import type { LiveDevice } from '../device/liveDevice.ts';

export type BufferAccess = 'read' | 'write';

export interface KernelSpec {
  /** For labels and errors. */
  readonly name: string;
  /** WGSL, for example of `shaderSource`. */
  readonly code: string;
  readonly entryPoint: string;
  /** Values of the code's `override` constants. */
  readonly constants?: Readonly<Record<string, number>>;
  readonly slab: BufferAccess;
  /** 32-bit words of one item, 1 or more. */
  readonly itemWords: number;
  /** 32-bit words of one item's results, 0 or more. */
  readonly resultWords: number;
  /** How the kernel uses its own buffers, in the order of their bindings. Default: it has none. */
  readonly own?: readonly BufferAccess[];
}

/** A kernel of one device, over the slabs of one pool. */
export interface CompiledKernel {
  readonly spec: KernelSpec;
  readonly live: LiveDevice;
  readonly slabs: readonly GPUBuffer[];
  readonly label: string;
  readonly pipeline: GPUComputePipeline;
  /** Of group 0. */
  readonly layout: GPUBindGroupLayout;
}
