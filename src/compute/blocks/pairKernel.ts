/** A kernel over pairs of blocks: its table, and how it is recorded. */

import { BufferUsage } from '../../backends/webgpu/device/gpuConstants.ts';
import { writeWords } from '../../backends/webgpu/device/hostBytes.ts';
import { configError, requireInteger } from '../../runtime/errors.ts';
import { dispatchMany, type PagedPipeline, pagedPipeline } from '../pipelines.ts';
import { type BlockPair, PAIR_WORDS, type PairLimits, pairTable } from './blockPairs.ts';

const LANES = 64;
const UNIFORM = 0x40;
const { STORAGE, COPY_DST } = BufferUsage;

export interface PairKernelSpec {
  readonly name: string;
  readonly code: string;
  readonly constants: Readonly<Record<string, number>>;
  readonly limits: PairLimits;
  /** Invocations of a pair. */
  readonly pairLanes: number;
  /** The slabs that it binds, one group for each pool. */
  readonly pools: readonly { readonly slabs: readonly GPUBuffer[]; readonly type: GPUBufferBindingType }[];
}

export class PairKernel implements Disposable {
  readonly #device: GPUDevice;
  readonly #spec: PairKernelSpec;
  readonly #pipeline: GPUComputePipeline;
  readonly #groups: readonly GPUBindGroup[];
  readonly #table: GPUBuffer;
  readonly #count: GPUBuffer;
  #pairs = 0;

  private constructor(device: GPUDevice, spec: PairKernelSpec, { pipeline, layouts }: PagedPipeline) {
    this.#device = device;
    this.#spec = spec;
    this.#pipeline = pipeline;
    const buffer = (name: string, size: number, usage: number): GPUBuffer =>
      device.createBuffer({ label: `tierkv.${spec.name}.${name}`, size, usage: usage | COPY_DST });
    this.#table = buffer('pairs', spec.limits.pairsMax * PAIR_WORDS * 4, STORAGE);
    this.#count = buffer('count', 16, UNIFORM);
    const buffers = [[this.#table, this.#count], ...spec.pools.map(({ slabs }) => slabs)];
    this.#groups = buffers.map((bound, group) => {
      const entries = bound.map((each, binding) => ({ binding, resource: { buffer: each } }));
      return device.createBindGroup({ layout: layouts[group], entries });
    });
  }

  /** @throws TKV_CONFIG when the device binds fewer slabs; TKV_DEVICE when it does not compile the kernel */
  static async open(device: GPUDevice, spec: PairKernelSpec): Promise<PairKernel> {
    const { name, code, constants, pools, limits, pairLanes } = spec;
    const count = pools.reduce((sum, { slabs }) => sum + slabs.length, 0);
    const slabsMax = device.limits.maxStorageBuffersPerShaderStage - 1;
    if (pools.some(({ slabs }) => slabs.length === 0) || count > slabsMax) {
      const problem = `are ${count}, but a kernel of this device binds ${pools.length} to ${slabsMax}`;
      throw configError('slabs', problem, 'Raise slabBytesMax of the pool, so that it has fewer buffers.');
    }
    requireInteger('pairsMax', limits.pairsMax, 1, Math.floor((2 ** 32 - 1) / pairLanes));
    const pipeline = await pagedPipeline(device, {
      name,
      code,
      constants,
      own: { 0: { type: 'read-only-storage' }, 1: { type: 'uniform' } },
      slabs: pools.map(({ slabs, type }) => ({ count: slabs.length, type })),
    });
    return new PairKernel(device, spec, pipeline);
  }

  setPairs(pairs: readonly BlockPair[]): void {
    const words = pairTable(pairs, this.#spec.limits);
    const { queue } = this.#device;
    if (words.length > 0) writeWords(queue, this.#table, new Uint8Array(words.buffer), 0);
    writeWords(queue, this.#count, new Uint8Array(Uint32Array.of(pairs.length, 0, 0, 0).buffer), 0);
    this.#pairs = pairs.length;
  }

  record(pass: GPUComputePassEncoder): void {
    if (this.#pairs === 0) return;
    pass.setPipeline(this.#pipeline);
    this.#groups.forEach((group, i) => {
      pass.setBindGroup(i, group);
    });
    dispatchMany(pass, Math.ceil((this.#pairs * this.#spec.pairLanes) / LANES));
  }

  [Symbol.dispose](): void {
    this.#table.destroy();
    this.#count.destroy();
  }
}
