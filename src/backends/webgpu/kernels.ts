/**
 * Kernels over the slabs of a pool: their description, their tables of items, their compilation, and the
 * kernels over whole slots. A kernel binds one slab at a time, so a table sorts its items by slab and makes
 * one dispatch a slab. A kernel sees:
 *
 *     @group(0) @binding(0)   the slab
 *     @group(0) @binding(1)   array of items, `itemWords` words each
 *     @group(0) @binding(2)   array of results, `resultWords` words an item, zeroed; absent for 0 words
 *     @group(1) @binding(i)   the kernel's own buffers, if it has any
 *
 * A workgroup works on item `workgroup_id.y`, whose results have the same index. Each item of a slab gets
 * `num_workgroups.x` workgroups: the largest number that an item of the dispatch asks for.
 */

import { invariant, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { BufferUsage, type LiveDevice, ShaderStage, writeWords } from './device.ts';
import { storeShaders } from './shaderTexts.ts';
import type { SlotLocation } from './types.ts';

type BufferAccess = 'read' | 'write';

export interface KernelSpec {
  /** Name for labels and errors. */
  readonly name: string;
  /** WGSL, for example from `shaderSource`. */
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

// ---- kernels as they were compiled for a device, kept for as long as it lives
//
// The self-test of a device and each pool on it run the same kernels, and so do all runtimes and decoders that share a device:
// the device compiles each of them once. On a software device that is most of the time that opening takes.

const byDevice = new WeakMap<GPUDevice, Map<string, Promise<unknown>>>();

/**
 * @param about everything that the result depends on; it is compared as JSON
 * @param compile called for the first of equal kernels; what failed is tried again by the next
 */
export function compiledOnce<T>(device: GPUDevice, about: unknown, compile: () => Promise<T>): Promise<T> {
  let kernels = byDevice.get(device);
  if (kernels === undefined) {
    kernels = new Map();
    byDevice.set(device, kernels);
  }
  const key = JSON.stringify(about);
  const found = kernels.get(key);
  if (found !== undefined) return found as Promise<T>;
  const made = compile();
  kernels.set(key, made);
  made.catch(() => kernels.delete(key));
  return made;
}

/** A kernel compiled for one device and the slabs of one pool. */
interface CompiledKernel {
  readonly spec: KernelSpec;
  readonly live: LiveDevice;
  readonly slabs: readonly GPUBuffer[];
  readonly label: string;
  readonly pipeline: GPUComputePipeline;
  /** Layout of group 0. */
  readonly layout: GPUBindGroupLayout;
}

// ---- tables of items
//
// Items are added in any order. They are sorted by slab when encoded, and the items of a slab begin at a row
// that a dynamic offset can address:
//
//     rows     0 .. 2         16 .. 20            (for items of 4 words: 16 rows are 256 bytes)
//            +---------+----+--------------+--
//            | slab 0  |    | slab 3       |      dispatch(workgroups, 3)   dispatch(workgroups, 5)
//            +---------+----+--------------+--
//
// Buffers and bind groups are made once and reused. `encode` writes the items through the queue, so the
// encoder must be submitted before the table is encoded again. Use several tables for several dispatches in
// one encoder.

/** Words between two dynamic offsets. No WebGPU device asks for more. */
const OFFSET_WORDS = 64;
const WORKGROUPS_MAX = 65535;

interface EncodeOptions {
  /** The kernel's own buffers (`SlabKernel.bindOwn`). */
  readonly own?: GPUBindGroup;
  /** Buffer for the results, from byte 0 on, of `SlabKernel.resultBytesMax` bytes. Default: dropped. */
  readonly resultsTo?: GPUBuffer;
}

export class KernelTable {
  readonly itemsMax: number;
  readonly #kernel: CompiledKernel;
  readonly #rowsPerOffset: number;
  readonly #items: GPUBuffer;
  readonly #results: GPUBuffer | undefined;
  readonly #groups: readonly GPUBindGroup[];
  readonly #slabOf: Uint32Array;
  readonly #words: Uint32Array;
  readonly #sorted: Uint32Array<ArrayBuffer>;
  /** For each slab: its items, its first row, and the workgroups of its largest item. */
  readonly #count: Uint32Array;
  readonly #row: Uint32Array;
  readonly #workgroups: Uint32Array;
  #length = 0;

  /** Call `SlabKernel.table` instead. */
  constructor(kernel: CompiledKernel, itemsMax: number) {
    invariant(itemsMax >= 1 && itemsMax <= WORKGROUPS_MAX, 'a table must have 1 to 65535 items');
    this.#kernel = kernel;
    this.itemsMax = itemsMax;
    const { itemWords, resultWords } = kernel.spec;
    const slabs = kernel.slabs.length;
    this.#rowsPerOffset = rowsPerOffset(kernel);
    const rowsMax = itemsMax + this.#rowsPerOffset * slabs;
    // A binding has the same size at every dynamic offset, so a whole table must fit behind the last row.
    const rows = rowsMax + itemsMax;
    const { device } = kernel.live;
    this.#items = device.createBuffer({
      label: `${kernel.label}.items`,
      size: rows * itemWords * 4,
      usage: BufferUsage.STORAGE | BufferUsage.COPY_DST,
    });
    if (resultWords > 0) {
      this.#results = device.createBuffer({
        label: `${kernel.label}.results`,
        size: rows * resultWords * 4,
        usage: BufferUsage.STORAGE | BufferUsage.COPY_SRC | BufferUsage.COPY_DST,
      });
    }
    this.#groups = kernel.slabs.map((slab) => this.#bind(slab));
    this.#slabOf = new Uint32Array(itemsMax);
    this.#words = new Uint32Array(itemsMax * itemWords);
    this.#sorted = new Uint32Array(rowsMax * itemWords);
    this.#count = new Uint32Array(slabs);
    this.#row = new Uint32Array(slabs);
    this.#workgroups = new Uint32Array(slabs);
  }

  get length(): number {
    return this.#length;
  }

  get full(): boolean {
    return this.#length === this.itemsMax;
  }

  /**
   * @param slab index of the slab in which the item lies
   * @param workgroups number of workgroups for the item, 1 or more
   * @param words the item's words, `itemWords` of them
   */
  add(slab: number, workgroups: number, ...words: readonly number[]): void {
    const { itemWords } = this.#kernel.spec;
    invariant(!this.full && words.length === itemWords, 'an item fits into its table');
    const index = this.#length++;
    this.#slabOf[index] = slab;
    this.#words.set(words, index * itemWords);
    this.#count[slab]++;
    this.#workgroups[slab] = Math.max(this.#workgroups[slab], Math.min(WORKGROUPS_MAX, workgroups));
  }

  /**
   * Encodes the kernel over all items, one dispatch a slab, and empties the table.
   *
   * @returns index of each item's first result word in `resultsTo`, in the order of `add`
   */
  encode(encoder: GPUCommandEncoder, { own, resultsTo }: EncodeOptions = {}): Uint32Array {
    const positions = new Uint32Array(this.#length);
    if (this.#length === 0) return positions;
    const { live, label, pipeline, spec, slabs } = this.#kernel;
    const rows = this.#sort(positions);
    const sorted = new Uint8Array(this.#sorted.buffer, 0, rows * spec.itemWords * 4);
    writeWords(live.device.queue, this.#items, sorted, 0);
    const resultBytes = rows * spec.resultWords * 4;
    if (this.#results !== undefined) encoder.clearBuffer(this.#results, 0, resultBytes);
    const pass = encoder.beginComputePass({ label });
    pass.setPipeline(pipeline);
    if (own !== undefined) pass.setBindGroup(1, own);
    for (let slab = 0; slab < slabs.length; slab++) {
      if (this.#count[slab] === 0) continue;
      const offsets = [this.#row[slab] * spec.itemWords * 4, this.#row[slab] * spec.resultWords * 4];
      pass.setBindGroup(0, this.#groups[slab], spec.resultWords > 0 ? offsets : offsets.slice(0, 1));
      pass.dispatchWorkgroups(this.#workgroups[slab], this.#count[slab]);
    }
    pass.end();
    if (this.#results !== undefined && resultsTo !== undefined) {
      encoder.copyBufferToBuffer(this.#results, 0, resultsTo, 0, resultBytes);
    }
    this.#length = 0;
    this.#count.fill(0);
    this.#workgroups.fill(0);
    return positions;
  }

  destroy(): void {
    this.#items.destroy();
    this.#results?.destroy();
  }

  /** Sorts the items into rows by slab. @returns number of rows */
  #sort(positions: Uint32Array): number {
    const { itemWords, resultWords } = this.#kernel.spec;
    let rows = 0;
    this.#count.forEach((count, slab) => {
      this.#row[slab] = rows;
      rows += Math.ceil(count / this.#rowsPerOffset) * this.#rowsPerOffset;
    });
    const next = this.#row.slice();
    for (let index = 0; index < this.#length; index++) {
      const row = next[this.#slabOf[index]]++;
      positions[index] = row * resultWords;
      for (let word = 0; word < itemWords; word++) {
        this.#sorted[row * itemWords + word] = this.#words[index * itemWords + word];
      }
    }
    return rows;
  }

  #bind(slab: GPUBuffer): GPUBindGroup {
    const { live, layout, spec } = this.#kernel;
    const entries: GPUBindGroupEntry[] = [
      { binding: 0, resource: { buffer: slab } },
      { binding: 1, resource: { buffer: this.#items, size: this.itemsMax * spec.itemWords * 4 } },
    ];
    if (this.#results !== undefined) {
      const size = this.itemsMax * spec.resultWords * 4;
      entries.push({ binding: 2, resource: { buffer: this.#results, size } });
    }
    return live.device.createBindGroup({ label: `${slab.label}.${spec.name}`, layout, entries });
  }
}

function resultBytesMax(kernel: CompiledKernel, itemsMax: number): number {
  return (itemsMax + rowsPerOffset(kernel) * kernel.slabs.length) * kernel.spec.resultWords * 4;
}

/** Rows between two dynamic offsets, for items and results alike. */
function rowsPerOffset({ spec }: CompiledKernel): number {
  return Math.max(rowsTo(spec.itemWords), rowsTo(spec.resultWords));
}

/**
 * Rows of `words` words between two multiples of 256 bytes: a power of two, so the larger of two serves both.
 */
function rowsTo(words: number): number {
  let rows = 1;
  while ((rows * words) % OFFSET_WORDS !== 0) rows *= 2;
  return rows;
}

// ---- texts of shaders, which are part of the program (shaderTexts.ts) so that a bundle needs no other file

/**
 * The texts of the named files, joined: the shared files first, then the kernel.
 * @throws TKV_INPUT naming the unknown shader
 */
export function shaderSource(texts: Readonly<Record<string, string>>, ...names: readonly string[]): string {
  checkInputs({ texts, names }, { texts: is.object(), names: is.list(is.text()) });
  return names
    .map((name) => {
      if (Object.hasOwn(texts, name)) return texts[name];
      const known = Object.keys(texts).join(', ');
      throw new TierKVError('TKV_INPUT', `Unknown shader ${String(name)}. Use one of ${known}.`, {
        field: 'names',
      });
    })
    .join('\n');
}

// ---- compiled kernels
//
//     const kernel = await SlabKernel.open(live, store.slabs, spec);
//     const table = kernel.table(1024);
//     table.add(slab, workgroups, ...words);
//     table.encode(encoder, { own, resultsTo });

export class SlabKernel implements CompiledKernel {
  readonly spec: KernelSpec;
  readonly live: LiveDevice;
  readonly slabs: readonly GPUBuffer[];
  readonly pipeline: GPUComputePipeline;
  readonly layout: GPUBindGroupLayout;
  readonly label: string;
  readonly #ownLayout: GPUBindGroupLayout | undefined;

  private constructor(
    spec: KernelSpec,
    live: LiveDevice,
    slabs: readonly GPUBuffer[],
    label: string,
    pipeline: GPUComputePipeline,
    layouts: readonly GPUBindGroupLayout[],
  ) {
    this.spec = spec;
    this.live = live;
    this.slabs = slabs;
    this.label = label;
    this.pipeline = pipeline;
    this.layout = layouts[0];
    this.#ownLayout = layouts[1];
  }

  /** @param slabs `HbmStore.slabs` @throws TKV_DEVICE if the device does not compile the kernel */
  static async open(
    live: LiveDevice,
    slabs: readonly GPUBuffer[],
    spec: KernelSpec,
    prefix: string = 'tierkv',
  ): Promise<SlabKernel> {
    checkInputs(
      { live, slabs, spec, prefix },
      {
        live: is.fields({ errorsOf: is.func() }),
        slabs: is.list(is.fields({ mapAsync: is.func() })),
        spec: is.fields({ name: is.text(), code: is.text() }),
        prefix: is.optional(is.text()),
      },
    );
    const { device } = live;
    const label = `${prefix}.${spec.name}`;
    try {
      const { pipeline, layouts } = await compiledOnce(device, ['slab', spec], async () => {
        const layouts = groupLayouts(device, spec, label);
        const descriptor: GPUComputePipelineDescriptor = {
          label,
          layout: device.createPipelineLayout({ label, bindGroupLayouts: layouts }),
          compute: {
            module: device.createShaderModule({ label, code: spec.code }),
            entryPoint: spec.entryPoint,
            constants: { ...spec.constants },
          },
        };
        const pipeline = await live.waitFor(() => device.createComputePipelineAsync(descriptor));
        return { pipeline, layouts };
      });
      return new SlabKernel(spec, live, slabs, label, pipeline, layouts);
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      const why = live.lostReason || message.split('\n')[0];
      throw new TierKVError(
        'TKV_DEVICE',
        `The kernel ${spec.name} does not compile on ${live.adapter.name} (${why}). ` +
          'Correct its code, or choose another adapter with TIERKV_ADAPTER.',
        { field: 'TIERKV_ADAPTER', cause },
      );
    }
  }

  /** @param itemsMax most items of the table, from 1 to 65535 */
  table(itemsMax: number): KernelTable {
    return new KernelTable(this, itemsMax);
  }

  /** Most bytes of the results of a full table: the size of a buffer for them. */
  resultBytesMax(itemsMax: number): number {
    return resultBytesMax(this, itemsMax);
  }

  /** Binds the kernel's own buffers, in the order of `spec.own`, for `KernelTable.encode`. */
  bindOwn(buffers: readonly GPUBuffer[]): GPUBindGroup {
    const layout = this.#ownLayout;
    invariant(layout !== undefined, () => `the kernel ${this.spec.name} must have own buffers`);
    return this.live.device.createBindGroup({
      label: `${this.label}.own`,
      layout,
      entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })),
    });
  }
}

const bindingTypes = { read: 'read-only-storage', write: 'storage' } as const;

function groupLayouts(device: GPUDevice, spec: KernelSpec, label: string): GPUBindGroupLayout[] {
  const { slab, resultWords, own = [] } = spec;
  const layout = (name: string, buffers: readonly GPUBufferBindingLayout[]): GPUBindGroupLayout =>
    device.createBindGroupLayout({
      label: name,
      entries: buffers.map((buffer, binding) => ({ binding, visibility: ShaderStage.COMPUTE, buffer })),
    });
  const results = { type: 'storage', hasDynamicOffset: true } as const;
  const items = layout(label, [
    { type: bindingTypes[slab] },
    { type: 'read-only-storage', hasDynamicOffset: true },
    ...(resultWords > 0 ? [results] : []),
  ]);
  if (own.length === 0) return [items];
  const ownBuffers = own.map((access) => ({ type: bindingTypes[access] }));
  return [items, layout(`${label}.own`, ownBuffers)];
}

// ---- kernels over whole slots: digest, fill with a pattern, count the words that differ from the pattern
//
// An item is (word offset in the slab, words, two seeds), as shaders/slots.wgsl declares it. Results are two
// words. The results of a fill are zeros; the slot is full once they have arrived.

export type SlotKernel = 'digest' | 'fill' | 'check';

/** How the work of a slot is divided among invocations. */
export interface SlotKernelShape {
  /** Invocations of a workgroup, a power of two. */
  readonly workgroupSize: number;
  /** Vectors of 16 bytes that an invocation handles in a large slot. */
  readonly vectorsPerInvocation: number;
  /** Whether each invocation adds its sum to the result (`scattered`), or each workgroup once (`reduced`). */
  readonly digest: 'scattered' | 'reduced';
}

/** For a CPU, which switches invocations at every barrier and gains nothing from wide workgroups. */
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

  /** @throws TKV_DEVICE if the device does not compile the kernels */
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

  /** Most bytes of the results of a full table, for any of the kernels. */
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
    code: shaderSource(storeShaders, 'slots', kernel),
    entryPoint: kernel === 'digest' ? shape.digest : 'scattered',
    constants: { workgroupSize: shape.workgroupSize },
    slab: kernel === 'fill' ? 'write' : 'read',
    itemWords: 4,
    resultWords: 2,
  };
}
