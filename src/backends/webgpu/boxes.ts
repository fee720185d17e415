/**
 * The gather and scatter kernels, which move boxes of many short runs, and the choice between kernels and
 * copies. Each kernel has a form for vectors of 16 bytes and a form for words, since a slot or a run may
 * begin at any word. An item is a part of a box, as shaders/boxes.wgsl declares it, in the units of its form.
 */

import { BufferUsage, type LiveDevice } from './device.ts';
import { type KernelSpec, type KernelTable, SlabKernel, shaderSource } from './kernels.ts';
import { storeShaders } from './shaderTexts.ts';
import { type BoxPath, type BoxPlan, inUnitsOf, type SlotLocation } from './types.ts';

export const VECTOR_BYTES = 16;

const boxForms = ['vectors', 'words'] as const;
type BoxForm = (typeof boxForms)[number];

const unitBytes: Record<BoxForm, number> = { vectors: VECTOR_BYTES, words: 4 };

/** How the work of a box is divided among invocations. */
export interface BoxKernelShape {
  /** Invocations of a workgroup, and how many of them at most share a run. Both are powers of two. */
  readonly workgroupSize: number;
  readonly sharersMax: number;
  /** Vectors or words that an invocation moves, if there are enough. */
  readonly unitsPerInvocation: number;
}

/**
 * For a CPU, which is fastest if an invocation walks along a run. On a GPU neighbours should touch
 * neighbours.
 */
export const softwareBoxShape: BoxKernelShape = { workgroupSize: 16, sharersMax: 1, unitsPerInvocation: 128 };
export const hardwareBoxShape: BoxKernelShape = { workgroupSize: 64, sharersMax: 64, unitsPerInvocation: 8 };

interface DirectionKernels extends Readonly<Record<BoxForm, SlabKernel>> {
  readonly shape: BoxKernelShape;
}

interface BoxKernels {
  readonly gather: DirectionKernels;
  readonly scatter: DirectionKernels;
}

/** @throws TKV_DEVICE if the device does not compile the kernels */
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
      code: shaderSource(storeShaders, 'boxes', direction),
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

function formOf(plan: BoxPlan, slot: SlotLocation): BoxForm {
  return inUnitsOf(plan, VECTOR_BYTES, slot.offsetBytes) ? 'vectors' : 'words';
}

/** The eight words of an item: `runs` runs from run `firstRun` on, packed from byte `packedAt` on. */
function boxItemWords(
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

function boxWorkgroups(shape: BoxKernelShape, plan: BoxPlan, form: BoxForm, runs: number): number {
  const runUnits = plan.runBytes / unitBytes[form];
  const sharers = Math.min(shape.sharersMax, 2 ** (31 - Math.clz32(runUnits)));
  const unitsPerSharer = Math.ceil(runUnits / sharers);
  const runsPerInvocation = Math.max(1, Math.floor(shape.unitsPerInvocation / unitsPerSharer));
  return Math.ceil(runs / ((shape.workgroupSize / sharers) * runsPerInvocation));
}

// ---- the boxes of one batch
//
// A kernel cannot use a mappable buffer, so packed bytes go through one buffer between both:
//
//     gather    slabs --kernel--> packed --one copy--> a mapped buffer
//     scatter   a mapped buffer --one copy--> packed --kernel--> slabs
//
// The packed buffer serves all batches of both directions. Each batch is submitted before the next is
// encoded, so the queue orders them.

/** Most boxes in one batch. */
const ITEMS_MAX = 4096;

export class BoxTables {
  readonly packed: GPUBuffer;
  readonly #shape: BoxKernelShape;
  readonly #tables: readonly KernelTable[];
  readonly #own: readonly GPUBindGroup[];

  /** @param kernels a kernel for each of `boxForms`, all of one direction */
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

  /** Adds `runs` runs of a box from run `firstRun` on. @param packedAt byte offset, a multiple of 16 */
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

/** A buffer of packed bytes for mapped buffers of `stagingBytes`. */
export function packedBuffer(live: LiveDevice, label: string, stagingBytes: number): GPUBuffer {
  return live.device.createBuffer({
    label: `${label}.packed`,
    size: Math.max(VECTOR_BYTES, stagingBytes - (stagingBytes % VECTOR_BYTES)),
    usage: BufferUsage.STORAGE | BufferUsage.COPY_SRC | BufferUsage.COPY_DST,
  });
}

// ---- kernels or copies, one copy a run
//
// A copy command costs the same however short it is. A kernel pass costs once a batch, and then by the byte.
// So copies win if runs are long, and if there are few of them.
//
// `bench/kv/boxes.ts` compares the two. On the software device they are even at runs of 1 to 2 KiB, and at
// about twenty runs a call. On an NVIDIA H200 a copy command costs 3 to 5 microseconds: the kernel takes half
// the time at runs of 8 KiB, and both are even at 64 KiB.

interface BoxPathRule {
  /** Boxes are copied if their runs have at least this many bytes. */
  readonly copiedRunBytes: number;
  /** Boxes are copied if the call has at most this number of runs. */
  readonly copiedRuns: number;
}

export const softwareRule: BoxPathRule = { copiedRunBytes: 2048, copiedRuns: 16 };
export const hardwareRule: BoxPathRule = { copiedRunBytes: 65536, copiedRuns: 16 };

/** @param items number of boxes in the call, assumed to be alike */
export function choosePath(rule: BoxPathRule, plan: BoxPlan, items: number): BoxPath {
  const long = plan.runBytes >= rule.copiedRunBytes;
  const few = plan.runs * items <= rule.copiedRuns;
  return long || few ? 'copies' : 'kernel';
}

/** Offset of run `run` in the container, in bytes. */
export function runOffsetBytes(plan: BoxPlan, run: number): number {
  const inLayer = run % plan.runsPerLayer;
  const layer = (run - inLayer) / plan.runsPerLayer;
  return plan.firstOffsetBytes + layer * plan.layerStrideBytes + inLayer * plan.runStrideBytes;
}
