/// <reference types="@webgpu/types" preserve="true" />

/**
 * Makes the WGSL and the pipelines of the kernels over paged blocks, and chooses the attention kernel. Each
 * vector of a head is a variable with a name, since indexed arrays are slow on software devices, and a kernel
 * names each slab that it reads. So marked lines of a shader are repeated:
 *
 *     var outDIM = vec4<f32>(); // each dim          once for each vector of a head, with its number for DIM
 *     ... // each slab                               once for each slab, with its number for SLAB; likewise
 *                                                    HEAD, and TARGET for each slab of a second pool
 *     ... // each head // each dim                   once for each vector of each head
 *     // each slab {   to   // each slab }           the lines between, once for each slab
 *     ... // scaled                                  only if the format has a scale in each row; likewise
 *     // scaled {   to   // scaled }                 the lines between
 */

import { governed } from '../backends/webgpu/device.ts';
import { compiledOnce, shaderSource } from '../backends/webgpu/kernels.ts';
import { isSoftwareAdapter } from '../backends/webgpu/selfTest.ts';
import { computeShaders } from '../backends/webgpu/shaderTexts.ts';
import { configError, requireInteger, TierKVError } from '../runtime/errors.ts';
import {
  type KVLayout,
  type KVLayoutConfig,
  kvLayout,
  requireKVLayout,
  requirePairedLayout,
} from '../runtime/geometry/layout.ts';
import * as is from '../runtime/kinds.ts';
import { checkInputs } from '../runtime/options.ts';

interface TextShape {
  readonly format: KVFormat;
  readonly slabs: number;
  /** Query heads of an invocation or workgroup. Default 1. */
  readonly heads?: number;
  /** How the kernel uses the slabs; `none` if it does not use them. */
  readonly access: 'read' | 'read_write' | 'none';
}

/** The code of `shaders/NAME.wgsl`, which reads or writes tokens, with the shared files before it. */
export function kernelText(name: string, { format, slabs, heads = 1, access }: TextShape): string {
  const { enable, files, scaled, headDim4 } = format;
  const repeats = { dim: headDim4, head: heads, slab: slabs };
  const own = shaderSource(computeShaders, 'pagedRows');
  if (access === 'none') return expandText(`${own}\n${shaderSource(computeShaders, name)}`, scaled, repeats);
  const shared = `${own}\n${shaderSource(computeShaders, ...files, 'pagedSlabs')}`.replaceAll(
    'ACCESS',
    access,
  );
  return `${enable}${expandText(`${shared}\n${shaderSource(computeShaders, name)}`, scaled, repeats)}`;
}

/** The code that copies blocks within one pool, in units of `unitBytes`. */
export function copyText(unitBytes: 4 | 8 | 16, slabs: number): string {
  const stored = { 4: 'u32', 8: 'vec2<u32>', 16: 'vec4<u32>' }[unitBytes];
  const text = `alias Stored = ${stored};\n${shaderSource(computeShaders, 'blockPairs', 'copyBlocks')}`;
  return expandText(text, false, { slab: slabs });
}

/** The code that converts blocks of one pool into blocks of another pool. */
export function conversionText(from: KVFormat, slabs: number, to: KVFormat, targets: number): string {
  const renamed = ({ files }: KVFormat, side: string): string =>
    shaderSource(computeShaders, ...files.filter((file) => file !== 'halfBits')).replaceAll(
      /\b(Stored|valueOf|storedOf|scaleOf|inverseOf|scaledOf|storedScale)\b/g,
      (word) => (word === 'Stored' ? `${side}Stored` : `${side.toLowerCase()}${capitalised(word)}`),
    );
  const bits = [from, to].some(({ files }) => files.includes('halfBits'))
    ? shaderSource(computeShaders, 'halfBits')
    : '';
  const kernel = to.scaled ? 'convertBlocksScaled' : 'convertBlocks';
  const own = shaderSource(computeShaders, 'blockPairs', 'convertSlabs', kernel);
  const text = [bits, renamed(from, 'From'), renamed(to, 'To'), own].join('\n');
  const enable = from.enable || to.enable;
  return `${enable}${expandText(text, from.scaled, { slab: slabs, target: targets })}`;
}

function capitalised(word: string): string {
  return `${word[0].toUpperCase()}${word.slice(1)}`;
}

/** Keeps or drops the text marked as scaled, and repeats the marked lines. */
function expandText(text: string, scaled: boolean, repeats: Readonly<Record<string, number>>): string {
  const kept = scaled
    ? text.replaceAll(/ *\/\/ scaled( [{}])?$/gm, '')
    : text.replaceAll(/^ *\/\/ scaled \{\n[\s\S]*?^ *\/\/ scaled \}$\n?|^.*\/\/ scaled$\n?/gm, '');
  return Object.entries(repeats).reduce(
    (expanded, [what, times]) => repeatMarked(expanded, what, times),
    kept,
  );
}

function repeatMarked(text: string, what: string, times: number): string {
  const name = what.toUpperCase();
  const region = new RegExp(`^ *// each ${what} \\{\\n([\\s\\S]*?)^ *// each ${what} \\}$`, 'gm');
  const line = new RegExp(`^(.*) // each ${what}$`, 'gm');
  const repeated = (_: string, part: string): string =>
    Array.from({ length: times }, (_, i) => part.replaceAll(name, String(i))).join('\n');
  return text.replaceAll(region, repeated).replaceAll(line, repeated);
}

// ---- choice of the attention kernel
//
// Both kernels keep the promises of docs/reference/compute.md, and their results differ in the last bits. So
// the choice depends on the device alone, never on a step.
//
//     lanes        an invocation for each split and a few query heads of a KV head, without barrier and
//                  workgroup memory: for software devices, where both are slow
//     workgroups   a workgroup of 128 for each split and the query heads of a KV head, with 7.5 KiB of
//                  workgroup memory: for hardware, where an invocation has few registers

/** Which attention kernel runs: `lanes` works everywhere, `workgroups` on GPUs. */
export type AttentionKernel = 'lanes' | 'workgroups';

/** The fields of a `GPUDevice` that the kernels read. */
export interface KernelDevice {
  /** Missing in old browsers. */
  readonly adapterInfo?: GPUAdapterInfo;
  readonly limits: Pick<
    GPUSupportedLimits,
    'maxComputeInvocationsPerWorkgroup' | 'maxComputeWorkgroupSizeX' | 'maxComputeWorkgroupStorageSize'
  >;
}

/** Needs of shaders/attendShared.wgsl: invocations and memory of a workgroup, and the largest head. */
const WORKGROUP = { lanes: 128, bytes: 7680, headDimMax: 512 };

/**
 * `wished` or, if undefined, `workgroups` on hardware that can run it, else `lanes`.
 * @throws TKV_CONFIG if `wished` is not a kernel, or cannot run here
 */
export function attentionKernel(
  wished: AttentionKernel | undefined,
  device: KernelDevice,
  headDim: number,
): AttentionKernel {
  checkInputs(
    { wished, device, headDim },
    { wished: is.optional(is.text()), device: is.fields({ limits: is.object() }), headDim: is.number() },
  );
  const obstacle = obstacleToWorkgroups(device, headDim);
  if (wished === undefined) {
    const isHardware = device.adapterInfo !== undefined && !isSoftwareAdapter(device.adapterInfo);
    return isHardware && obstacle === '' ? 'workgroups' : 'lanes';
  }
  if (wished !== 'lanes' && wished !== 'workgroups') {
    throw configError(
      'kernel',
      `is ${String(wished)}`,
      'Use lanes or workgroups, or leave it to the device.',
    );
  }
  if (wished === 'workgroups' && obstacle !== '') {
    throw configError('kernel', `is workgroups, but ${obstacle}`, 'Use lanes.');
  }
  return wished;
}

/** Why the device cannot run `workgroups`; empty if it can. */
function obstacleToWorkgroups({ limits }: KernelDevice, headDim: number): string {
  const { lanes, bytes, headDimMax } = WORKGROUP;
  if (headDim > headDimMax) return `heads have ${headDim} elements, more than ${headDimMax}`;
  const size = Math.min(limits.maxComputeInvocationsPerWorkgroup, limits.maxComputeWorkgroupSizeX);
  if (size < lanes) return `the device has workgroups of ${size}, not of ${lanes}`;
  const room = limits.maxComputeWorkgroupStorageSize;
  if (room < bytes) return `a workgroup of the device has ${room} bytes, not ${bytes}`;
  return '';
}

// ---- formats: how K and V are stored in a block, and the WGSL that reads and writes them
//
// Kernels work in units of 4 elements, and compute in 32-bit floats in every format.
//
//     f32    4 floats a unit
//     f16    4 halves a unit; a device with `shader-f16` reads them directly, any other unpacks them
//     i8     4 integers a unit; behind the D integers of each row is its scale, a 32-bit float, so that the
//            scale of a token and head moves with its row. The layout's headDim is D + 4 (`int8Layout`)

/** Bytes of a row's scale in the format i8. */
const SCALE_BYTES = 4;

export interface KVFormat {
  readonly layout: KVLayout;
  /** Elements of one head's K, without its scale. */
  readonly headDim: number;
  /** The same in vectors of 4 elements. */
  readonly headDim4: number;
  readonly unitBytes: number;
  /** Whether a row ends with its scale. */
  readonly scaled: boolean;
  /** Files of `shaders/` that define the unit's type; `enable` is WGSL that must come first. */
  readonly files: readonly string[];
  readonly enable: string;
}

/** Checks device, slabs and layout, which every kernel needs. @throws TKV_CONFIG naming what is missing */
export function requireDevicePool(
  { device, slabs, layout }: DevicePoolParts,
  fields: Readonly<Record<keyof DevicePoolParts, string>> = {
    device: 'device',
    slabs: 'slabs',
    layout: 'layout',
  },
): void {
  is.object().read(device, fields.device, 'TKV_CONFIG');
  is.object().read(device.limits, `${fields.device}.limits`, 'TKV_CONFIG');
  is.array("Pass the pool's buffers.").read(slabs, fields.slabs, 'TKV_CONFIG');
  requireKVLayout(layout, fields.layout);
}

interface DevicePoolParts {
  readonly device: GPUDevice;
  readonly slabs: readonly GPUBuffer[];
  readonly layout: KVLayout;
}

/**
 * The layout of blocks in which K and V are 8-bit integers with one scale for each token and head.
 * @param config as of `kvLayout`; its headDim is the elements of a head, a multiple of 4
 * @throws TKV_CONFIG like `kvLayout`
 */
export function int8Layout(config: Omit<KVLayoutConfig, 'dtype'>): KVLayout {
  is.object().read(config, 'config', 'TKV_CONFIG');
  return kvLayout({ ...config, headDim: config.headDim + SCALE_BYTES, dtype: 'i8' });
}

/** @throws TKV_CONFIG if kernels do not support blocks of this layout */
export function kvFormat(layout: KVLayout, features: GPUSupportedFeatures): KVFormat {
  checkInputs(
    { layout, features },
    {
      layout: is.fields({ valueDim: is.number(), version: is.number() }),
      features: is.fields({ has: is.func() }),
    },
  );
  requirePairedLayout(layout, 'a kernel');
  const scaled = layout.dtype === 'i8';
  const headDim = layout.headDim - (scaled ? SCALE_BYTES : 0);
  if (headDim < 4 || headDim % 4 !== 0) {
    const of = scaled ? ' with the 4 bytes of its scale' : '';
    const remedy = 'Kernels read vectors of 4 elements: pad heads to a multiple of 4.';
    throw configError('layout.headDim', `is ${layout.headDim}${of}`, remedy);
  }
  const unitBytes = 4 * layout.bytesPerElement;
  const common = { layout, headDim, headDim4: headDim / 4, unitBytes, scaled, enable: '' };
  switch (layout.dtype) {
    case 'f32':
      return { ...common, files: ['kvF32'] };
    case 'f16':
      return features.has('shader-f16')
        ? { ...common, files: ['halfBits', 'kvF16'], enable: 'enable f16;\n' }
        : { ...common, files: ['halfBits', 'kvF16Packed'] };
    case 'i8':
      return { ...common, files: ['kvInt8'] };
    default:
      throw configError(
        'layout.dtype',
        `is ${layout.dtype}, which attention kernels do not read`,
        'Use f32, f16 or int8Layout.',
      );
  }
}

/** Limits that each entry of a block table is checked against. */
export interface EntryLimits {
  /** Bytes of each slab, and of a block. */
  readonly slabBytes: readonly number[];
  readonly blockBytes: number;
  /** Bytes of a unit: offsets must be multiples of it. */
  readonly unitBytes: number;
}

/**
 * @param entries `[entry][2]`: slab and offset in bytes of a block
 * @throws TKV_CONFIG naming the entry that is not the place of a block: a kernel would read or write foreign bytes there
 */
export function requireEntry(entries: Uint32Array, entry: number, limits: EntryLimits): void {
  const { slabBytes, blockBytes, unitBytes } = limits;
  const slab = entries[2 * entry];
  const offset = entries[2 * entry + 1];
  if (slab < slabBytes.length && offset + blockBytes <= slabBytes[slab] && offset % unitBytes === 0) return;
  requireInteger(`entries[${entry}] slab`, slab, 0, slabBytes.length - 1);
  requireInteger(`entries[${entry}] offset`, offset, 0, slabBytes[slab] - blockBytes);
  throw configError(
    `entries[${entry}] offset`,
    `is ${offset}, not a multiple of ${unitBytes} bytes, the unit of the kernel`,
    `Choose block and page sizes that are multiples of ${unitBytes}.`,
  );
}

/** Constants of kernels over paged blocks, in units of the format. */
export function blockConstants({ layout, headDim4, unitBytes }: KVFormat): Record<string, number> {
  return {
    blockTokens: layout.blockTokens,
    rowUnits: layout.rowBytes / unitBytes,
    kvUnits: layout.kvStrideBytes / unitBytes,
    headUnits: layout.headStrideBytes / unitBytes,
    unitBytes,
    headDim4,
  };
}

// ---- pipelines: group 0 has the kernel's own buffers, the groups from 1 on have the slabs

const COMPUTE_STAGE = 0x4;
const WORKGROUPS_MAX = 65535;

type Bindings = Readonly<Record<number, GPUBufferBindingLayout>>;

export interface PipelineSpec {
  readonly name: string;
  readonly code: string;
  readonly constants: Readonly<Record<string, number>>;
  /** Buffers of group 0, by number. */
  readonly own: Bindings;
  /** Slabs of the groups from 1 on, one group a pool. Default: none. */
  readonly slabs?: readonly { readonly count: number; readonly type: GPUBufferBindingType }[];
}

export interface PagedPipeline {
  readonly pipeline: GPUComputePipeline;
  readonly layouts: readonly GPUBindGroupLayout[];
}

/** @throws TKV_DEVICE if the device does not compile the kernel */
export function pagedPipeline(device: GPUDevice, spec: PipelineSpec): Promise<PagedPipeline> {
  return compiledOnce(device, ['paged', spec], () => compile(device, spec));
}

async function compile(device: GPUDevice, spec: PipelineSpec): Promise<PagedPipeline> {
  const { name, code, constants, own, slabs = [] } = spec;
  const label = `tierkv.${name}`;
  const layout = (bindings: Bindings): GPUBindGroupLayout =>
    device.createBindGroupLayout({
      label,
      entries: Object.entries(bindings).map(([binding, buffer]) => ({
        binding: Number(binding),
        visibility: COMPUTE_STAGE,
        buffer,
      })),
    });
  const pools = slabs.map(({ count, type }) => ({ ...Array.from({ length: count }, () => ({ type })) }));
  const layouts = [own, ...pools].map(layout);
  const module = device.createShaderModule({ label, code });
  try {
    const descriptor: GPUComputePipelineDescriptor = {
      label,
      layout: device.createPipelineLayout({ label, bindGroupLayouts: layouts }),
      compute: { module, constants: { ...constants } },
    };
    const pipeline = await governed(() => device.createComputePipelineAsync(descriptor));
    return { pipeline, layouts };
  } catch (cause) {
    const errors = (await module.getCompilationInfo()).messages.filter(({ type }) => type === 'error');
    const ofPipeline = cause instanceof Error ? cause.message : String(cause);
    const message = errors[0] === undefined ? ofPipeline : `line ${errors[0].lineNum}: ${errors[0].message}`;
    throw new TierKVError(
      'TKV_DEVICE',
      `The kernel ${name} does not compile (${message.split('\n')[0]}). Choose another device.`,
      { field: 'device', cause },
    );
  }
}

/** Dispatches `groups` workgroups, in two dimensions if they exceed the limit of one. */
export function dispatchMany(pass: GPUComputePassEncoder, groups: number): void {
  const rows = Math.ceil(groups / WORKGROUPS_MAX);
  pass.dispatchWorkgroups(rows > 1 ? Math.ceil(groups / rows) : groups, rows);
}
