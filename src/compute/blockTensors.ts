/**
 * K and V of one sequence as a dense tensor of 32-bit floats, gathered from its blocks and scattered into
 * them, in any format of blocks. The tensor is `[token][K, V][KV head][headDim]`, in a buffer of exactly its
 * size: other libraries read a buffer from its first byte and copy all of it, so they are never given a slab.
 */

import { BufferUsage, MapMode, writeWords } from '../backends/webgpu/device.ts';
import { configError, requireInteger, TierKVError } from '../runtime/errors.ts';
import type { KVLayout } from '../runtime/geometry/layout.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import {
  blockConstants,
  dispatchMany,
  type KVFormat,
  kernelText,
  kvFormat,
  type PagedPipeline,
  pagedPipeline,
  requireDevicePool,
  requireEntry,
} from './kernelText.ts';

const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = BufferUsage;
const UNIFORM = 0x40;
const LANES = 64;
const ROW_WORDS = 4;

/** Configuration of `BlockTensors.open`. */
export interface BlockTensorsConfig {
  readonly device: GPUDevice;
  readonly slabs: readonly GPUBuffer[];
  readonly layout: KVLayout;
  /** Most tokens of a tensor. */
  readonly tokensMax: number;
}

const blockTensorsConfigTable = optionTable(
  {
    device: is.passed(),
    slabs: is.passed(),
    layout: is.passed(),
    tokensMax: is.integer(1),
  } satisfies Kinds<BlockTensorsConfig>,
  'TKV_CONFIG',
);

/** The blocks of a sequence, and one layer of them. */
export interface BlockRange {
  readonly layer: number;
  /** `[block][2]`: slab and offset in bytes, like `DeviceBlockTable.entries`. */
  readonly entries: Uint32Array;
  /** Number of tokens, from the sequence's first on. */
  readonly tokens: number;
}

/** Reads and writes blocks on the GPU as tensors. */
export class BlockTensors {
  readonly device: GPUDevice;
  readonly #config: BlockTensorsConfig;
  readonly #format: KVFormat;
  readonly #read: PagedPipeline;
  readonly #write: PagedPipeline;
  readonly #readSlabs: GPUBindGroup;
  readonly #writeSlabs: GPUBindGroup;

  private constructor(
    config: BlockTensorsConfig,
    format: KVFormat,
    read: PagedPipeline,
    write: PagedPipeline,
  ) {
    this.device = config.device;
    this.#config = config;
    this.#format = format;
    this.#read = read;
    this.#write = write;
    const entries = config.slabs.map((buffer, binding) => ({ binding, resource: { buffer } }));
    this.#readSlabs = config.device.createBindGroup({ layout: read.layouts[1], entries });
    this.#writeSlabs = config.device.createBindGroup({ layout: write.layouts[1], entries });
  }

  /**
   * @throws TKV_CONFIG if kernels do not support the layout; TKV_DEVICE if the device does not compile them
   */
  static async open(config: BlockTensorsConfig): Promise<BlockTensors> {
    blockTensorsConfigTable.read(config, 'config');
    requireDevicePool(config);
    const { device, layout, slabs, tokensMax } = config;
    const slabsMax = device.limits.maxStorageBuffersPerShaderStage - 2;
    requireInteger('slabs.length', slabs.length, 1, slabsMax);
    const format = kvFormat(layout, device.features);
    const { headDim4 } = format;
    const entriesAt = tokensMax * ROW_WORDS;
    const paged = { ...blockConstants(format), entriesAt, kvHeads: layout.kvHeads };
    const kvVectors = layout.kvHeads * headDim4;
    const source = { sourceStride: 2 * kvVectors, sourceHead: headDim4, kOffset: 0, vOffset: kvVectors };
    const storage = { type: 'read-only-storage' } as const;
    const uniform = { type: 'uniform' } as const;
    const count = slabs.length;
    const writeFile = format.scaled ? 'writeKvScaled' : 'writeKv';
    const [read, write] = await Promise.all([
      pagedPipeline(device, {
        name: 'readKv',
        code: kernelText('readKv', { format, slabs: count, access: 'read' }),
        constants: paged,
        own: { 0: storage, 1: uniform, 2: { type: 'storage' }, 4: uniform },
        slabs: [{ count, type: 'read-only-storage' }],
      }),
      pagedPipeline(device, {
        name: writeFile,
        code: kernelText(writeFile, { format, slabs: count, access: 'read_write' }),
        constants: { ...paged, ...source },
        own: { 0: storage, 1: uniform, 2: storage, 4: uniform },
        slabs: [{ count, type: 'storage' }],
      }),
    ]);
    return new BlockTensors(config, format, read, write);
  }

  /** `[tokens, 2, KV heads, headDim]` */
  shapeOf({ tokens }: BlockRange): [number, number, number, number] {
    return [tokens, 2, this.#config.layout.kvHeads, this.#format.headDim];
  }

  /** Gathers K and V of the range into a new buffer, and submits the work. The caller destroys the buffer. */
  gather(range: BlockRange): GPUBuffer {
    const bytes = this.#bytesOf(range);
    const dense = this.device.createBuffer({
      label: 'tierkv.tensor',
      size: bytes,
      usage: STORAGE | COPY_SRC,
    });
    this.#run(this.#read, this.#readSlabs, range, dense, this.#format.headDim4);
    return dense;
  }

  /** Writes `dense`, from its first byte on, into the range's blocks, and submits the work. */
  scatter(range: BlockRange, dense: GPUBuffer): void {
    const bytes = this.#bytesOf(range);
    if (dense.size < bytes) {
      throw configError(
        'dense',
        `has ${dense.size} bytes, not ${bytes}`,
        "Give a buffer of the tensor's size.",
      );
    }
    const lanes = this.#format.scaled ? 1 : this.#format.headDim4;
    this.#run(this.#write, this.#writeSlabs, range, dense, lanes);
  }

  /** Like `gather`, into host memory. @throws TKV_DEVICE if the device is lost */
  async read(range: BlockRange): Promise<Float32Array<ArrayBuffer>> {
    const dense = this.gather(range);
    const landing = this.device.createBuffer({ size: dense.size, usage: MAP_READ | COPY_DST });
    try {
      const encoder = this.device.createCommandEncoder();
      encoder.copyBufferToBuffer(dense, 0, landing, 0, dense.size);
      this.device.queue.submit([encoder.finish()]);
      await landing.mapAsync(MapMode.READ);
      return new Float32Array(landing.getMappedRange().slice(0));
    } catch (cause) {
      throw new TierKVError('TKV_DEVICE', 'The device is gone. Open another with openDevice.', { cause });
    } finally {
      dense.destroy();
      landing.destroy();
    }
  }

  /** Like `scatter`, from host memory. */
  write(range: BlockRange, values: Float32Array): void {
    const bytes = this.#bytesOf(range);
    if (values.byteLength !== bytes) {
      const problem = `has ${values.length} numbers, not ${bytes / 4}`;
      throw configError('values', problem, `Give [${this.shapeOf(range)}].`);
    }
    const dense = this.device.createBuffer({ size: bytes, usage: STORAGE | COPY_DST });
    writeWords(this.device.queue, dense, new Uint8Array(values.buffer, values.byteOffset, bytes), 0);
    this.scatter(range, dense);
    dense.destroy();
  }

  #bytesOf(range: BlockRange): number {
    const { layout, tokensMax, slabs } = this.#config;
    requireInteger('layer', range.layer, 0, layout.layers - 1);
    requireInteger('tokens', range.tokens, 1, tokensMax);
    const blocks = Math.ceil(range.tokens / layout.blockTokens);
    requireInteger('entries.length / 2', range.entries.length / 2, blocks);
    const { blockBytes } = layout;
    const limits = {
      slabBytes: slabs.map(({ size }) => size),
      blockBytes,
      unitBytes: this.#format.unitBytes,
    };
    for (let entry = 0; entry < blocks; entry++) requireEntry(range.entries, entry, limits);
    return this.shapeOf(range).reduce((product, size) => product * size, 4);
  }

  #run(kernel: PagedPipeline, slabs: GPUBindGroup, range: BlockRange, dense: GPUBuffer, lanes: number): void {
    const { device } = this;
    const { layout, tokensMax } = this.#config;
    const { tokens, entries } = range;
    const tables = new Uint32Array(tokensMax * ROW_WORDS + entries.length);
    for (let token = 0; token < tokens; token++) tables[token * ROW_WORDS] = token;
    tables.set(entries, tokensMax * ROW_WORDS);
    const place = (range.layer * layout.layerStrideBytes) / this.#format.unitBytes;
    const filled = (words: Uint32Array, usage: number): GPUBuffer => {
      const buffer = device.createBuffer({ size: words.byteLength, usage: usage | COPY_DST });
      writeWords(device.queue, buffer, new Uint8Array(words.buffer), 0);
      return buffer;
    };
    const own = { 0: filled(tables, STORAGE), 1: filled(Uint32Array.of(0, 0, 0, tokens), UNIFORM) };
    const layer = filled(Uint32Array.of(place, 0, 0, 0), UNIFORM);
    const entriesOf = Object.entries({ ...own, 2: dense, 4: layer }).map(([binding, buffer]) => ({
      binding: Number(binding),
      resource: { buffer },
    }));
    const encoder = device.createCommandEncoder({ label: 'tierkv.tensor' });
    const pass = encoder.beginComputePass();
    pass.setPipeline(kernel.pipeline);
    pass.setBindGroup(0, device.createBindGroup({ layout: kernel.layouts[0], entries: entriesOf }));
    pass.setBindGroup(1, slabs);
    dispatchMany(pass, Math.ceil((tokens * 2 * layout.kvHeads * lanes) / LANES));
    pass.end();
    device.queue.submit([encoder.finish()]);
    for (const buffer of [own[0], own[1], layer]) buffer.destroy();
  }
}
