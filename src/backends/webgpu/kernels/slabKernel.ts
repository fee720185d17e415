/**
 * A kernel over slabs (kernelSpec.ts), compiled for one device. `table` makes room for the items of a
 * dispatch:
 *
 *     const kernel = await SlabKernel.open(live, store.slabs, spec);
 *     const table = kernel.table(1024);
 *     table.add(slab, workgroups, ...words);
 *     table.encode(encoder, { own, resultsTo });
 */

import { invariant, TierKVError } from '../../../runtime/errors.ts';
import { ShaderStage } from '../device/gpuConstants.ts';
import type { LiveDevice } from '../device/liveDevice.ts';
import type { CompiledKernel, KernelSpec } from './kernelSpec.ts';
import { KernelTable, resultBytesMax } from './kernelTable.ts';

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

  /** @param slabs `HbmStore.slabs` @throws TKV_DEVICE when the device does not compile the kernel */
  static async open(
    live: LiveDevice,
    slabs: readonly GPUBuffer[],
    spec: KernelSpec,
    prefix: string = 'tierkv',
  ): Promise<SlabKernel> {
    const { device } = live;
    const label = `${prefix}.${spec.name}`;
    try {
      const layouts = groupLayouts(device, spec, label);
      const pipeline = await device.createComputePipelineAsync({
        label,
        layout: device.createPipelineLayout({ label, bindGroupLayouts: layouts }),
        compute: {
          module: device.createShaderModule({ label, code: spec.code }),
          entryPoint: spec.entryPoint,
          constants: { ...spec.constants },
        },
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

  /** @param itemsMax items that the table has room for, from 1 to 65535 */
  table(itemsMax: number): KernelTable {
    return new KernelTable(this, itemsMax);
  }

  /** Bytes that the results of a full table take at most: what a buffer for them must hold. */
  resultBytesMax(itemsMax: number): number {
    return resultBytesMax(this, itemsMax);
  }

  /** Binds the kernel's own buffers, in the order of `spec.own`; once, for `KernelTable.encode`. */
  bindOwn(buffers: readonly GPUBuffer[]): GPUBindGroup {
    const layout = this.#ownLayout;
    invariant(layout !== undefined, () => `the kernel ${this.spec.name} has buffers of its own`);
    return this.live.device.createBindGroup({
      label: `${this.label}.own`,
      layout,
      entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })),
    });
  }
}

const bindingTypes = { read: 'read-only-storage', write: 'storage' } as const;

/** Of group 0 and, where the kernel has buffers of its own, of group 1. */
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
