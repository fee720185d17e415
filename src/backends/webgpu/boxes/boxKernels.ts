/**
 * The gather and scatter kernels, each in a form for whole vectors of 16 bytes and one for words: a slot may
 * begin at any word, and so may the runs of a box. An item is a part of a box, as shaders/boxes.wgsl declares
 * it, in the units of its form.
 */

import type { LiveDevice } from '../device/liveDevice.ts';
import type { KernelSpec } from '../kernels/kernelSpec.ts';
import { shaderSource } from '../kernels/shaders.ts';
import { SlabKernel } from '../kernels/slabKernel.ts';
import type { SlotLocation } from '../types.ts';
import { type BoxPlan, inUnitsOf } from './boxPlan.ts';

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
