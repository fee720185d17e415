/**
 * What an embedder says of attention, checked against the layout and the device, and the sizes that follow.
 */

import { configError, requireInteger, requirePositive } from '../runtime/errors.ts';
import type { KVLayout } from '../runtime/geometry/index.ts';
import { optionNames, requireOptions } from '../runtime/options.ts';
import { type KVFormat, kvFormat, requireDevicePool } from './format.ts';
import { type AttentionKernel, attentionKernel } from './kernelChoice.ts';
import { ROW_WORDS, splitsMax, type TableLimits } from './stepTables.ts';

/** Where Q, K and V of a row lie in the source, in floats; all multiples of 4. */
export interface SourceShape {
  readonly rowStride: number;
  /** From head to head of K, and of V. Heads of Q lie one behind the other. */
  readonly headStride: number;
  readonly qOffset: number;
  readonly kOffset: number;
  readonly vOffset: number;
}

export const sourceShapeNames: readonly string[] = optionNames<SourceShape>({
  rowStride: true,
  headStride: true,
  qOffset: true,
  kOffset: true,
  vOffset: true,
});

export interface AttentionConfig {
  readonly device: GPUDevice;
  /** The pool's buffers, to which the entries of block tables refer. */
  readonly slabs: readonly GPUBuffer[];
  readonly layout: KVLayout;
  /** Query heads: a multiple of `layout.kvHeads`. Heads that share a KV head are neighbours. */
  readonly qHeads: number;
  /** Most rows of a step. */
  readonly rowsMax: number;
  /** Most entries of a step's block tables, over all its sequences. */
  readonly entriesMax: number;
  /** Most tokens of a sequence. */
  readonly contextTokens: number;
  /** Tokens that a row sees, its own the last. Default 0: all. */
  readonly window?: number;
  /** What dot products are multiplied by. Default 1 / sqrt(headDim). */
  readonly scale?: number;
  /** Default: `[row][Q heads, K heads, V heads][headDim]`. */
  readonly source?: SourceShape;
  /**
   * Default: by the device's adapter, see `attentionKernel`. A sequence must keep to one: their bits differ.
   */
  readonly kernel?: AttentionKernel;
  /** Room for partial results. A step that needs more takes more dispatches. Default 32 MiB. */
  readonly partialBytesMax?: number;
}

export const attentionConfigNames: readonly string[] = optionNames<AttentionConfig>({
  device: true,
  slabs: true,
  layout: true,
  qHeads: true,
  rowsMax: true,
  entriesMax: true,
  contextTokens: true,
  window: true,
  scale: true,
  source: true,
  kernel: true,
  partialBytesMax: true,
});

export interface AttentionShape {
  readonly format: KVFormat;
  readonly qHeads: number;
  readonly kernel: AttentionKernel;
  /** Query heads that an invocation (`lanes`) or a workgroup (`workgroups`) serves. */
  readonly headsAtOnce: number;
  readonly scale: number;
  readonly source: SourceShape;
  readonly limits: TableLimits;
  /** Where items and entries begin in the tables, in words, and how long the tables are. */
  readonly itemsAt: number;
  readonly entriesAt: number;
  readonly tableWords: number;
  readonly partialBytes: number;
}

/** Storage buffers that a kernel binds beside the slabs: tables, queries, partial results. */
const OTHER_BUFFERS = 3;
/**
 * Vectors of Q that the text of the kernel of lanes has at most, over all the slabs for which its loop is
 * repeated. A software device takes a second or two to compile so many, and far longer for twice as many.
 */
const LANE_VECTORS = 64;

/** @throws TKV_CONFIG naming the field */
export function attentionShape(config: AttentionConfig): AttentionShape {
  requireOptions(config, attentionConfigNames, 'config', 'TKV_CONFIG');
  const { device, slabs, layout } = config;
  requireDevicePool(config);
  if (config.source !== undefined) requireOptions(config.source, sourceShapeNames, 'source', 'TKV_CONFIG');
  const format = kvFormat(layout, device.features);
  const slabsMax = device.limits.maxStorageBuffersPerShaderStage - OTHER_BUFFERS;
  if (slabs.length < 1 || slabs.length > slabsMax) {
    const problem = `are ${slabs.length}, but a kernel of this device binds 1 to ${slabsMax}`;
    throw configError('slabs', problem, 'Raise slabBytesMax of the pool, so that it has fewer buffers.');
  }
  const qHeads = requireInteger('qHeads', config.qHeads, 1);
  if (qHeads % layout.kvHeads !== 0) {
    const problem = `is ${qHeads}, no multiple of the ${layout.kvHeads} KV heads`;
    throw configError('qHeads', problem, 'Give each KV head the same number of query heads.');
  }
  const rowsMax = requireInteger('rowsMax', config.rowsMax, 1);
  const entriesMax = requireInteger('entriesMax', config.entriesMax, 1);
  const contextTokens = requireInteger('contextTokens', config.contextTokens, 1, 2 ** 30);
  const window = requireInteger('window', config.window ?? 0, 0, 2 ** 30);
  const scale = requirePositive('scale', config.scale ?? 1 / Math.sqrt(format.headDim));
  const source = config.source ?? packedSource(qHeads, layout.kvHeads, format.headDim);
  for (const [name, value] of Object.entries(source)) {
    requireInteger(`source.${name}`, value, 0);
    if (value % 4 !== 0) throw configError(`source.${name}`, `is ${value}`, 'Use a multiple of 4 floats.');
  }
  const rowSplits = splitsMax({ contextTokens, window });
  const itemBytes = qHeads * (format.headDim4 + 1) * 16;
  const wantedBytes = requireInteger('partialBytesMax', config.partialBytesMax ?? 32 * 2 ** 20, 1);
  const roomBytes = Math.min(wantedBytes, device.limits.maxStorageBufferBindingSize);
  const batchItems = Math.min(rowsMax * rowSplits, Math.max(rowSplits, Math.floor(roomBytes / itemBytes)));
  const itemsAt = rowsMax * ROW_WORDS;
  const entriesAt = itemsAt + 2 * rowsMax * rowSplits;
  const limits = {
    rowsMax,
    entriesMax,
    contextTokens,
    window,
    blockTokens: layout.blockTokens,
    slabs: slabs.length,
    unitBytes: format.unitBytes,
    batchItems,
  };
  const tableWords = entriesAt + 2 * entriesMax;
  const partialBytes = batchItems * itemBytes;
  const kernel = attentionKernel(config.kernel, device, format.headDim);
  const laneHeads = Math.max(1, Math.floor(LANE_VECTORS / (format.headDim4 * slabs.length)));
  const headsMax = kernel === 'lanes' ? laneHeads : 8;
  const headsAtOnce = divisorUpTo(qHeads / layout.kvHeads, headsMax);
  return {
    format,
    qHeads,
    kernel,
    headsAtOnce,
    scale,
    source,
    limits,
    itemsAt,
    entriesAt,
    tableWords,
    partialBytes,
  };
}

function packedSource(qHeads: number, kvHeads: number, headDim: number): SourceShape {
  return {
    rowStride: (qHeads + 2 * kvHeads) * headDim,
    headStride: headDim,
    qOffset: 0,
    kOffset: qHeads * headDim,
    vOffset: (qHeads + kvHeads) * headDim,
  };
}

/** The largest divisor of `value` that is at most `limit`. */
function divisorUpTo(value: number, limit: number): number {
  let divisor = Math.min(value, limit);
  while (value % divisor !== 0) divisor--;
  return divisor;
}
