/**
 * Copies blocks within a pool, and converts blocks into the format of another pool, in passes of the caller.
 * Formats are f32, f16, and int8 with a scale for each token and head; pools differ in nothing else. A
 * conversion gives the same bytes as writing the same numbers into the target's format.
 *
 *     const conversion = await BlockConversion.open({ device, from, to, pairsMax: 64 });
 *     conversion.setPairs([{ from, to }]);             once a step
 *     conversion.record(pass);                         one dispatch for all of them
 *
 * `setPairs` writes through the queue, so the encoder of a step must be submitted before the next `setPairs`.
 */

import { BufferUsage, writeWords } from '../backends/webgpu/device.ts';
import { configError, requireInteger } from '../runtime/errors.ts';
import type { KVLayout } from '../runtime/geometry/layout.ts';
import { requirePairedLayout } from '../runtime/geometry/layout.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import {
  conversionText,
  copyText,
  dispatchMany,
  type KVFormat,
  kvFormat,
  type PagedPipeline,
  pagedPipeline,
  requireDevicePool,
} from './kernelText.ts';

// ---- work on pairs of blocks

abstract class PairedBlocks implements Disposable {
  readonly #kernel: PairKernel;

  protected constructor(kernel: PairKernel) {
    this.#kernel = kernel;
  }

  /**
   * Sets the pairs of the next `record`.
   * @throws TKV_CONFIG naming the pair that is out of bounds, or whose target another pair reads or writes;
   * the pairs set before then stay
   */
  setPairs(pairs: readonly BlockPair[]): void {
    this.#kernel.setPairs(pairs);
  }

  /** Records one dispatch, or none without pairs. */
  record(pass: GPUComputePassEncoder): void {
    this.#kernel.record(pass);
  }

  [Symbol.dispose](): void {
    this.#kernel[Symbol.dispose]();
  }
}

/** A pool: its buffers and the layout of its blocks. */
export interface BlockPool {
  readonly slabs: readonly GPUBuffer[];
  readonly layout: KVLayout;
}

const blockPoolTable = optionTable(
  { slabs: is.passed(), layout: is.passed() } satisfies Kinds<BlockPool>,
  'TKV_CONFIG',
);

/** Configuration of `BlockConversion.open`. */
export interface BlockConversionConfig {
  readonly device: GPUDevice;
  readonly from: BlockPool;
  /** Another pool: no buffer may be one of `from`. */
  readonly to: BlockPool;
  /** Most pairs of a step. */
  readonly pairsMax: number;
}

const blockConversionConfigTable = optionTable(
  {
    device: is.passed(),
    from: is.passed(),
    to: is.passed(),
    pairsMax: is.passed(),
  } satisfies Kinds<BlockConversionConfig>,
  'TKV_CONFIG',
);

/** Converts blocks between two layouts on the GPU, such as f16 and 8-bit integers. */
export class BlockConversion extends PairedBlocks {
  /** @throws TKV_CONFIG naming the field; TKV_DEVICE if the device does not compile the kernel */
  static async open(config: BlockConversionConfig): Promise<BlockConversion> {
    const { device, from, to, pairsMax } = blockConversionConfigTable.read(config, 'config');
    for (const [field, pool] of [
      ['from', from],
      ['to', to],
    ] as const) {
      blockPoolTable.read(pool, field);
      requireDevicePool(
        { device, ...pool },
        { device: 'device', slabs: `${field}.slabs`, layout: `${field}.layout` },
      );
    }
    const source = kvFormat(from.layout, device.features);
    const target = kvFormat(to.layout, device.features);
    requireSameShape(source, target);
    if (to.slabs.some((slab) => from.slabs.includes(slab))) {
      throw configError('to.slabs', 'has a buffer of from.slabs', 'Convert into another pool.');
    }
    const { blockTokens, blockBytes, rowBytes } = from.layout;
    const blockRows = blockBytes / rowBytes;
    const side = ({ slabs, layout }: BlockPool, { unitBytes }: KVFormat) => {
      return { slabs, blockBytes: layout.blockBytes, unitBytes };
    };
    const kernel = await PairKernel.open(device, {
      name: 'convertBlocks',
      code: conversionText(source, from.slabs.length, target, to.slabs.length),
      constants: {
        blockTokens,
        blockRows,
        headDim4: source.headDim4,
        fromRowUnits: rowBytes / source.unitBytes,
        toRowUnits: to.layout.rowBytes / target.unitBytes,
      },
      limits: { from: side(from, source), to: side(to, target), blockTokens, pairsMax },
      pairLanes: blockRows * (target.scaled ? 1 : target.headDim4),
      pools: [
        { slabs: from.slabs, type: 'read-only-storage' },
        { slabs: to.slabs, type: 'storage' },
      ],
    });
    return new BlockConversion(kernel);
  }
}

function requireSameShape(from: KVFormat, to: KVFormat): void {
  for (const field of ['layers', 'kvHeads', 'blockTokens'] as const) {
    if (from.layout[field] === to.layout[field]) continue;
    const problem = `is ${to.layout[field]}, but ${from.layout[field]} in from.layout`;
    throw configError(`to.layout.${field}`, problem, 'Give layouts that differ in their dtype alone.');
  }
  if (from.headDim !== to.headDim) {
    const problem = `is of ${to.headDim} elements, but of ${from.headDim} in from.layout`;
    throw configError('to.layout.headDim', problem, 'Give layouts that differ in their dtype alone.');
  }
  if (from.layout.dtype === to.layout.dtype) {
    const problem = `is ${to.layout.dtype}, as in from.layout`;
    throw configError('to.layout.dtype', problem, 'There is nothing to convert: copy the bytes.');
  }
}

// ---- copies within a pool: the block that a fork or a rollback continues, in the step that continues it
//
//     const copies = await BlockCopies.open({ device, slabs, layout, pairsMax: 64 });
//     copies.setPairs([{ from, to, tokens: 5 }]);      once a step
//     copies.record(pass);                             one dispatch for all of them
//
// `setPairs` writes through the queue, so the encoder of a step must be submitted before the next `setPairs`.

/** Configuration of `BlockCopies.open`. */
export interface BlockCopiesConfig {
  readonly device: GPUDevice;
  /** The pool's buffers. */
  readonly slabs: readonly GPUBuffer[];
  /** Layout of the blocks, of any dtype: bits are copied. */
  readonly layout: KVLayout;
  /** Most pairs of a step. */
  readonly pairsMax: number;
}

const blockCopiesConfigTable = optionTable(
  {
    device: is.passed(),
    slabs: is.passed(),
    layout: is.passed(),
    pairsMax: is.passed(),
  } satisfies Kinds<BlockCopiesConfig>,
  'TKV_CONFIG',
);

/** Copies blocks within a pool on the GPU, in a pass of the caller. */
export class BlockCopies extends PairedBlocks {
  /** @throws TKV_CONFIG naming the field; TKV_DEVICE if the device does not compile the kernel */
  static async open(config: BlockCopiesConfig): Promise<BlockCopies> {
    blockCopiesConfigTable.read(config, 'config');
    requireDevicePool(config);
    const { device, slabs, layout, pairsMax } = config;
    requirePairedLayout(layout, 'a copy by rows');
    const { rowBytes, blockBytes, blockTokens } = layout;
    const unitBytes = ([16, 8, 4] as const).find((bytes) => rowBytes % bytes === 0) ?? 4;
    const rowUnits = rowBytes / unitBytes;
    const blockRows = blockBytes / rowBytes;
    const side = { slabs, blockBytes, unitBytes };
    const kernel = await PairKernel.open(device, {
      name: 'copyBlocks',
      code: copyText(unitBytes, slabs.length),
      constants: { blockTokens, fromRowUnits: rowUnits, blockRows },
      limits: { from: side, to: side, blockTokens, pairsMax },
      pairLanes: blockRows * rowUnits,
      pools: [{ slabs, type: 'storage' }],
    });
    return new BlockCopies(kernel);
  }
}

// ---- tables of pairs
//
// Within a step a block is either read by any number of pairs or written by one pair. So the order of the
// pairs does not matter.

/** Where a block begins: the index of a slab and the offset in it, as `DevicePool.locate` gives them. */
export interface PairedPlace {
  readonly slab: number;
  readonly offsetBytes: number;
}

export interface BlockPair {
  readonly from: PairedPlace;
  readonly to: PairedPlace;
  /** Number of tokens to copy, from the block's first on; the bytes of the others stay. Default: all. */
  readonly tokens?: number;
}

/** Limits of the `from` places, or of the `to` places. */
interface PairSide {
  readonly slabs: readonly GPUBuffer[];
  readonly blockBytes: number;
  /** Bytes of a unit: offsets must be multiples of it. */
  readonly unitBytes: number;
}

interface PairLimits {
  readonly from: PairSide;
  readonly to: PairSide;
  readonly blockTokens: number;
  readonly pairsMax: number;
}

const PAIR_WORDS = 5;

/**
 * `[pair][5]`: from slab, from unit, to slab, to unit, tokens.
 * @throws TKV_CONFIG naming the pair that is out of bounds, or whose target another pair reads or writes
 */
function pairTable(pairs: readonly BlockPair[], limits: PairLimits): Uint32Array<ArrayBuffer> {
  requireInteger('pairs.length', pairs.length, 0, limits.pairsMax);
  const words = new Uint32Array(pairs.length * PAIR_WORDS);
  pairs.forEach(({ from, to, tokens = limits.blockTokens }, i) => {
    requireInteger(`pairs[${i}].tokens`, tokens, 0, limits.blockTokens);
    const fromUnit = unitOf(`pairs[${i}].from`, from, limits.from);
    const toUnit = unitOf(`pairs[${i}].to`, to, limits.to);
    words.set([from.slab, fromUnit, to.slab, toUnit, tokens], i * PAIR_WORDS);
  });
  requireApart(pairs, limits);
  return words;
}

function unitOf(field: string, { slab, offsetBytes }: PairedPlace, side: PairSide): number {
  requireInteger(`${field}.slab`, slab, 0, side.slabs.length - 1);
  requireInteger(`${field}.offsetBytes`, offsetBytes, 0, side.slabs[slab].size - side.blockBytes);
  if (offsetBytes % side.unitBytes !== 0) {
    const problem = `is ${offsetBytes}, not a multiple of ${side.unitBytes} bytes, the unit of the kernel`;
    throw configError(`${field}.offsetBytes`, problem, 'Give the place of a block of the pool.');
  }
  return offsetBytes / side.unitBytes;
}

/** @throws TKV_CONFIG if a target overlaps another target or a source */
function requireApart(pairs: readonly BlockPair[], { from, to }: PairLimits): void {
  const targets = pairs.map(({ to: place }, pair) => ({ buffer: to.slabs[place.slab], place, pair }));
  const before = (a: PairedPlace, b: PairedPlace): number => a.slab - b.slab || a.offsetBytes - b.offsetBytes;
  targets.sort((a, b) => before(a.place, b.place) || a.pair - b.pair);
  targets.forEach(({ place, pair }, i) => {
    const next = targets[i + 1];
    if (next?.place.slab !== place.slab) return;
    if (next.place.offsetBytes < place.offsetBytes + to.blockBytes) {
      const problem = `overlaps pairs[${pair}].to`;
      throw configError(`pairs[${next.pair}].to`, problem, 'Write a block in one pair of a step only.');
    }
  });
  pairs.forEach(({ from: source }, i) => {
    const slab = to.slabs.indexOf(from.slabs[source.slab]);
    if (slab === -1) return;
    // Finds the last target that begins before the source ends.
    let [low, high] = [0, targets.length];
    const end = { slab, offsetBytes: source.offsetBytes + from.blockBytes };
    while (low < high) {
      const middle = (low + high) >> 1;
      if (before(targets[middle].place, end) < 0) low = middle + 1;
      else high = middle;
    }
    const target = targets[low - 1];
    if (target?.place.slab !== slab) return;
    if (target.place.offsetBytes + to.blockBytes > source.offsetBytes) {
      const problem = `overlaps pairs[${target.pair}].to`;
      throw configError(`pairs[${i}].from`, problem, 'Read it in another step than the one that writes it.');
    }
  });
}

// ---- a kernel over pairs of blocks, with its table

const LANES = 64;
const UNIFORM = 0x40;
const { STORAGE, COPY_DST } = BufferUsage;

interface PairKernelSpec {
  readonly name: string;
  readonly code: string;
  readonly constants: Readonly<Record<string, number>>;
  readonly limits: PairLimits;
  readonly pairLanes: number;
  /** Slabs that the kernel binds, one group a pool. */
  readonly pools: readonly { readonly slabs: readonly GPUBuffer[]; readonly type: GPUBufferBindingType }[];
}

class PairKernel implements Disposable {
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

  /** @throws TKV_CONFIG if a kernel cannot bind all slabs; TKV_DEVICE if the device does not compile it */
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
