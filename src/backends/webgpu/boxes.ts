/**
 * The gather and scatter kernels, each in a form for whole vectors of 16 bytes and one for words: a slot may
 * begin at any word, and so may the runs of a box. An item is a part of a box, as shaders/boxes.wgsl declares
 * it, in the units of its form.
 */

import { BufferUsage, type LiveDevice } from './device.ts';
import { type KernelSpec, type KernelTable, SlabKernel, shaderSource } from './kernels.ts';
import { type BoxPath, type BoxPlan, inUnitsOf, type SlotLocation } from './types.ts';

export const VECTOR_BYTES = 16;

export const boxForms = ['vectors', 'words'] as const;
export type BoxForm = (typeof boxForms)[number];

const unitBytes: Record<BoxForm, number> = { vectors: VECTOR_BYTES, words: 4 };

/** How the work of a box is spread over the device. */
export interface BoxKernelShape {
  /** Invocations of a workgroup, and of these how many at most share a run: powers of two. */
  readonly workgroupSize: number;
  readonly sharersMax: number;
  /** Vectors, or words, that an invocation moves where there are enough. */
  readonly unitsPerInvocation: number;
}

/** A CPU likes an invocation that walks along a run, a GPU neighbours that touch neighbours. */
export const softwareBoxShape: BoxKernelShape = { workgroupSize: 16, sharersMax: 1, unitsPerInvocation: 128 };
export const hardwareBoxShape: BoxKernelShape = { workgroupSize: 64, sharersMax: 64, unitsPerInvocation: 8 };

export interface DirectionKernels extends Readonly<Record<BoxForm, SlabKernel>> {
  readonly shape: BoxKernelShape;
}

export interface BoxKernels {
  readonly gather: DirectionKernels;
  readonly scatter: DirectionKernels;
}

/** @throws TKV_DEVICE when the device does not compile the kernels */
export async function openBoxKernels(
  live: LiveDevice,
  slabs: readonly GPUBuffer[],
  label: string,
  shape: BoxKernelShape = live.adapter.software ? softwareBoxShape : hardwareBoxShape,
): Promise<BoxKernels> {
  const { workgroupSize, sharersMax } = shape;
  const open = (direction: 'gather' | 'scatter', form: BoxForm): Promise<SlabKernel> => {
    const spec: KernelSpec = {
      name: `${direction}.${form}`,
      code: shaderSource('boxes', direction),
      entryPoint: form,
      constants: { workgroupSize, sharersMax },
      slab: direction === 'gather' ? 'read' : 'write',
      itemWords: 8,
      resultWords: 0,
      own: [direction === 'gather' ? 'write' : 'read'],
    };
    return SlabKernel.open(live, slabs, spec, label);
  };
  const both = async (direction: 'gather' | 'scatter'): Promise<DirectionKernels> => {
    const [vectors, words] = await Promise.all([open(direction, 'vectors'), open(direction, 'words')]);
    return { shape, vectors, words };
  };
  const [gather, scatter] = await Promise.all([both('gather'), both('scatter')]);
  return { gather, scatter };
}

export function formOf(plan: BoxPlan, slot: SlotLocation): BoxForm {
  return inUnitsOf(plan, VECTOR_BYTES, slot.offsetBytes) ? 'vectors' : 'words';
}

/** The eight words of an item: `runs` runs from number `firstRun` on, packed from byte `packedAt` on. */
export function boxItemWords(
  plan: BoxPlan,
  slot: SlotLocation,
  form: BoxForm,
  packedAt: number,
  firstRun: number,
  runs: number,
): number[] {
  const unit = unitBytes[form];
  return [
    (slot.offsetBytes + plan.firstOffsetBytes) / unit,
    packedAt / unit,
    firstRun,
    runs,
    plan.runBytes / unit,
    plan.runsPerLayer,
    plan.runStrideBytes / unit,
    plan.layerStrideBytes / unit,
  ];
}

export function boxWorkgroups(shape: BoxKernelShape, plan: BoxPlan, form: BoxForm, runs: number): number {
  const runUnits = plan.runBytes / unitBytes[form];
  const sharers = Math.min(shape.sharersMax, 2 ** (31 - Math.clz32(runUnits)));
  const unitsPerSharer = Math.ceil(runUnits / sharers);
  const runsPerInvocation = Math.max(1, Math.floor(shape.unitsPerInvocation / unitsPerSharer));
  return Math.ceil(runs / ((shape.workgroupSize / sharers) * runsPerInvocation));
}

// The gather or the scatter kernel over boxes of one batch, each in a form for whole vectors and one for
// words. On the other side of the kernels stands one buffer of packed bytes, since a kernel cannot use a
// mappable buffer:
//
//     gather    slabs --kernel--> packed --one copy--> a mapped buffer
//     scatter   a mapped buffer --one copy--> packed --kernel--> slabs
//
// The packed buffer serves all batches of both directions: each batch is submitted before the next is
// encoded, so the order of the queue keeps them apart.

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

// Whether boxes go through the kernels or by copies, one for each of their runs. A copy command costs the
// same however short it is; a kernel pass costs once a batch, and then by the byte. So copies win where runs
// are long, and where there are few of them in all. A box of one run is copied: its block has no other run
// that could share the work.
//
// `bench/kv/boxes.ts` compares the two. On the software device they are even between runs of 1 and of 2 KiB,
// and at some twenty runs a call. The rule for GPUs is a guess from the price of a command and the speed of a
// link, not measured yet.

export interface BoxPathRule {
  /** Runs of so many bytes and more are copied. */
  readonly copiedRunBytes: number;
  /** A call of so many runs and fewer is copied. */
  readonly copiedRuns: number;
}

export const softwareRule: BoxPathRule = { copiedRunBytes: 2048, copiedRuns: 16 };
export const hardwareRule: BoxPathRule = { copiedRunBytes: 65536, copiedRuns: 16 };

/** @param items how many the call has; they are taken to be alike */
export function choosePath(rule: BoxPathRule, plan: BoxPlan, items: number): BoxPath {
  if (plan.runs === 1) return 'copies';
  const long = plan.runBytes >= rule.copiedRunBytes;
  const few = plan.runs * items <= rule.copiedRuns;
  return long || few ? 'copies' : 'kernel';
}
