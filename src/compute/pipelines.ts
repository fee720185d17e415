/** Pipelines over paged blocks: group 0 holds the kernel's own buffers, group 1 and on the slabs. */

import { TierKVError } from '../runtime/errors.ts';

const COMPUTE_STAGE = 0x4;
const WORKGROUPS_MAX = 65535;

export type Bindings = Readonly<Record<number, GPUBufferBindingLayout>>;

export interface PipelineSpec {
  readonly name: string;
  readonly code: string;
  readonly constants: Readonly<Record<string, number>>;
  /** Of group 0, by number. */
  readonly own: Bindings;
  /** Groups 1 and on, one for each pool. Default: none. */
  readonly slabs?: readonly { readonly count: number; readonly type: GPUBufferBindingType }[];
}

export interface PagedPipeline {
  readonly pipeline: GPUComputePipeline;
  readonly layouts: readonly GPUBindGroupLayout[];
}

/** @throws TKV_DEVICE when the device does not compile the kernel */
export async function pagedPipeline(device: GPUDevice, spec: PipelineSpec): Promise<PagedPipeline> {
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
    const pipeline = await device.createComputePipelineAsync({
      label,
      layout: device.createPipelineLayout({ label, bindGroupLayouts: layouts }),
      compute: { module, constants: { ...constants } },
    });
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

/** Dispatches `groups` workgroups, in two dimensions where one has not room for them. */
export function dispatchMany(pass: GPUComputePassEncoder, groups: number): void {
  const rows = Math.ceil(groups / WORKGROUPS_MAX);
  pass.dispatchWorkgroups(rows > 1 ? Math.ceil(groups / rows) : groups, rows);
}
