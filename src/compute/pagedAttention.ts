/**
 * Attention over paged blocks: writes K and V of a step's rows into their blocks, and attends over them.
 * Decode and prefill rows use the same kernels, so a token's result has the same bits in every batch and
 * chunk.
 *
 *     const attention = await PagedAttention.open({ device, slabs, layout, qHeads: 8, rowsMax: 64, ... });
 *     const bound = attention.bind(qkv, attended);           once for each pair of buffers
 *     attention.setStep({ rows, entries });                  once a step
 *     for each layer: attention.write(pass, layer, bound), attention.attend(pass, layer, bound)
 *
 * `setStep` writes through the queue, so the encoder of a step must be submitted before the next `setStep`.
 */

import { BufferUsage, writeWords } from '../backends/webgpu/device.ts';
import { configError, invariant, requireInteger } from '../runtime/errors.ts';
import type { KVLayout } from '../runtime/geometry/layout.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import {
  type AttentionKernel,
  attentionKernel,
  blockConstants,
  dispatchMany,
  type EntryLimits,
  type KVFormat,
  kernelText,
  kvFormat,
  type PagedPipeline,
  type PipelineSpec,
  pagedPipeline,
  requireDevicePool,
  requireEntry,
} from './kernelText.ts';

const LANES = 64;
/** Invocations of a workgroup of shaders/attend.wgsl. */
const ATTEND_LANES = 16;
/** Bytes between two dynamic offsets of uniforms. No device asks for more. */
const UNIFORM_BYTES = 256;

const { STORAGE, COPY_DST } = BufferUsage;
const UNIFORM = 0x40;

/** Bind groups of the source and of the result. */
export interface BoundTensors {
  readonly source: GPUBindGroup;
  readonly queries: GPUBindGroup;
  readonly attended: GPUBindGroup;
}

interface Pipelines {
  readonly write: PagedPipeline;
  readonly attend: PagedPipeline;
  readonly reduce: PagedPipeline;
}

/** Attention over paged blocks on a GPU: writes K and V of a step, and attends. */
export class PagedAttention implements Disposable {
  readonly shape: AttentionShape;
  readonly #device: GPUDevice;
  readonly #pipelines: Pipelines;
  readonly #tables: GPUBuffer;
  readonly #partials: GPUBuffer;
  readonly #work: GPUBuffer;
  readonly #layers: GPUBuffer;
  readonly #readSlabs: GPUBindGroup;
  readonly #writeSlabs: GPUBindGroup;
  #batches: readonly StepBatch[] = [];
  #rows = 0;

  private constructor(config: AttentionConfig, shape: AttentionShape, pipelines: Pipelines) {
    const { device, slabs } = config;
    this.#device = device;
    this.shape = shape;
    this.#pipelines = pipelines;
    const buffer = (name: string, size: number, usage: number): GPUBuffer =>
      device.createBuffer({ label: `tierkv.attention.${name}`, size, usage });
    const { limits, format } = shape;
    this.#tables = buffer('tables', shape.tableWords * 4, STORAGE | COPY_DST);
    this.#partials = buffer('partials', shape.partialBytes, STORAGE | COPY_DST | BufferUsage.COPY_SRC);
    // The first entry is for `write`, which covers all rows at once.
    this.#work = buffer('work', (1 + limits.rowsMax) * UNIFORM_BYTES, UNIFORM | COPY_DST);
    this.#layers = buffer('layers', format.layout.layers * UNIFORM_BYTES, UNIFORM | COPY_DST);
    const places = new Uint32Array((format.layout.layers * UNIFORM_BYTES) / 4);
    for (let layer = 0; layer < format.layout.layers; layer++) {
      places[(layer * UNIFORM_BYTES) / 4] = (layer * format.layout.layerStrideBytes) / format.unitBytes;
    }
    this.#upload(this.#layers, places, 0);
    const bindSlabs = (layout: GPUBindGroupLayout): GPUBindGroup =>
      device.createBindGroup({
        layout,
        entries: slabs.map((slab, binding) => ({ binding, resource: { buffer: slab } })),
      });
    this.#readSlabs = bindSlabs(pipelines.attend.layouts[1]);
    this.#writeSlabs = bindSlabs(pipelines.write.layouts[1]);
  }

  /**
   * @throws TKV_CONFIG naming the field that does not fit the layout or the device; TKV_DEVICE if the device
   * does not compile the kernels
   */
  static async open(config: AttentionConfig): Promise<PagedAttention> {
    const shape = attentionShape(config);
    const specs = pipelineSpecs(config, shape);
    const compiled = await Promise.all(specs.map((spec) => pagedPipeline(config.device, spec)));
    const [write, attend, reduce] = compiled;
    return new PagedAttention(config, shape, { write, attend, reduce });
  }

  /** Buffer of the partial results of a batch; for tests, which poison it. */
  get partials(): GPUBuffer {
    return this.#partials;
  }

  /**
   * @param source `[row][source.rowStride]` floats: Q, K and V of each row (`AttentionConfig.source`)
   * @param attended receives `[row][qHeads][headDim]` floats
   */
  bind(source: GPUBuffer, attended: GPUBuffer): BoundTensors {
    const { write, attend, reduce } = this.#pipelines;
    const group = (
      { layouts }: PagedPipeline,
      buffers: Readonly<Record<number, GPUBuffer>>,
      layers: boolean,
    ): GPUBindGroup => {
      const uniforms = { 1: this.#work, ...(layers ? { 4: this.#layers } : {}) };
      const entries = [
        { binding: 0, resource: { buffer: this.#tables } },
        ...Object.entries(uniforms).map(([binding, buffer]) => ({
          binding: Number(binding),
          resource: { buffer, size: 16 },
        })),
        ...Object.entries(buffers).map(([binding, buffer]) => ({
          binding: Number(binding),
          resource: { buffer },
        })),
      ];
      return this.#device.createBindGroup({ layout: layouts[0], entries });
    };
    return {
      source: group(write, { 2: source }, true),
      queries: group(attend, { 2: source, 3: this.#partials }, true),
      attended: group(reduce, { 2: this.#partials, 3: attended }, false),
    };
  }

  /**
   * Sets the rows of the following calls of `write` and `attend`.
   * @throws TKV_CONFIG naming the row or entry that is out of bounds; the rows set before then stay
   */
  setStep(step: StepRows): void {
    const { limits, itemsAt, entriesAt } = this.shape;
    const { rows, items, batches } = stepTables(step, limits);
    this.#upload(this.#tables, rows, 0);
    this.#upload(this.#tables, items, itemsAt * 4);
    this.#upload(this.#tables, step.entries, entriesAt * 4);
    const work = new Uint32Array(((1 + batches.length) * UNIFORM_BYTES) / 4);
    work.set([0, 0, 0, rows.length / ROW_WORDS]);
    batches.forEach((batch, i) => {
      const words = [batch.firstItem, batch.items, batch.firstRow, batch.rows];
      work.set(words, ((1 + i) * UNIFORM_BYTES) / 4);
    });
    this.#upload(this.#work, work, 0);
    this.#batches = batches;
    this.#rows = rows.length / ROW_WORDS;
  }

  /** Records the writing of K and V of the rows from the source into their blocks. One dispatch. */
  write(pass: GPUComputePassEncoder, layer: number, { source }: BoundTensors): void {
    if (this.#rows === 0) return;
    const { format } = this.shape;
    const lanes = this.#rows * 2 * format.layout.kvHeads * (format.scaled ? 1 : format.headDim4);
    pass.setPipeline(this.#pipelines.write.pipeline);
    pass.setBindGroup(0, source, [0, this.#layerOffset(layer)]);
    pass.setBindGroup(1, this.#writeSlabs);
    dispatchMany(pass, Math.ceil(lanes / LANES));
  }

  /**
   * Records the attention of each row over its sequence's blocks. Two dispatches, or more if the partial
   * results do not fit into their buffer at once.
   */
  attend(pass: GPUComputePassEncoder, layer: number, { queries, attended }: BoundTensors): void {
    const { qHeads, format, kernel, headsAtOnce } = this.shape;
    const lanes = kernel === 'lanes' ? ATTEND_LANES : 1;
    const layerOffset = this.#layerOffset(layer);
    this.#batches.forEach(({ items, rows }, i) => {
      const offset = (1 + i) * UNIFORM_BYTES;
      if (items > 0) {
        pass.setPipeline(this.#pipelines.attend.pipeline);
        pass.setBindGroup(0, queries, [offset, layerOffset]);
        pass.setBindGroup(1, this.#readSlabs);
        dispatchMany(pass, Math.ceil((items * qHeads) / headsAtOnce / lanes));
      }
      pass.setPipeline(this.#pipelines.reduce.pipeline);
      pass.setBindGroup(0, attended, [offset]);
      dispatchMany(pass, Math.ceil((rows * qHeads * format.headDim4) / LANES));
    });
  }

  [Symbol.dispose](): void {
    for (const buffer of [this.#tables, this.#partials, this.#work, this.#layers]) buffer.destroy();
  }

  #layerOffset(layer: number): number {
    requireInteger('layer', layer, 0, this.shape.format.layout.layers - 1);
    return layer * UNIFORM_BYTES;
  }

  #upload(buffer: GPUBuffer, words: Uint32Array, offset: number): void {
    if (words.length === 0) return;
    writeWords(
      this.#device.queue,
      buffer,
      new Uint8Array(words.buffer, words.byteOffset, words.byteLength),
      offset,
    );
  }
}

function pipelineSpecs(
  config: AttentionConfig,
  shape: AttentionShape,
): [PipelineSpec, PipelineSpec, PipelineSpec] {
  const { format, limits, source, qHeads } = shape;
  const { layout, headDim4, unitBytes } = format;
  const count = config.slabs.length;
  const writeFile = format.scaled ? 'writeKvScaled' : 'writeKv';
  const attendFile = shape.kernel === 'lanes' ? 'attend' : 'attendShared';
  invariant(layout.rowBytes % unitBytes === 0, 'a row must be whole units');
  const paged = { ...blockConstants(format), entriesAt: shape.entriesAt };
  const storage = { type: 'read-only-storage' } as const;
  const written = { type: 'storage' } as const;
  const uniform = { type: 'uniform', hasDynamicOffset: true } as const;
  const write: PipelineSpec = {
    name: writeFile,
    code: kernelText(writeFile, { format, slabs: count, access: 'read_write' }),
    constants: {
      ...paged,
      kvHeads: layout.kvHeads,
      sourceStride: source.rowStride / 4,
      sourceHead: source.headStride / 4,
      kOffset: source.kOffset / 4,
      vOffset: source.vOffset / 4,
    },
    own: { 0: storage, 1: uniform, 2: storage, 4: uniform },
    slabs: [{ count, type: 'storage' }],
  };
  const attend: PipelineSpec = {
    name: attendFile,
    code: kernelText(attendFile, { format, slabs: count, heads: shape.headsAtOnce, access: 'read' }),
    constants: {
      ...paged,
      itemsAt: shape.itemsAt,
      qHeads,
      group: qHeads / layout.kvHeads,
      queryStride: source.rowStride / 4,
      queryOffset: source.qOffset / 4,
      scale: shape.scale * Math.LOG2E,
      window: limits.window,
      heads: shape.headsAtOnce,
    },
    own: { 0: storage, 1: uniform, 2: storage, 3: written, 4: uniform },
    slabs: [{ count, type: 'read-only-storage' }],
  };
  const reduce: PipelineSpec = {
    name: 'reduceSplits',
    code: kernelText('reduceSplits', { format, slabs: count, access: 'none' }),
    constants: { headDim4, qHeads, outStride: qHeads * headDim4 },
    own: { 0: storage, 1: uniform, 2: storage, 3: written },
  };
  return [write, attend, reduce];
}

// ---- configuration, checked against the layout and the device, and the sizes that follow from it

/** Where Q, K and V of a row lie in the source, in floats. All must be multiples of 4. */
interface SourceShape {
  readonly rowStride: number;
  /** Distance between heads of K, and of V. Heads of Q follow each other without gaps. */
  readonly headStride: number;
  readonly qOffset: number;
  readonly kOffset: number;
  readonly vOffset: number;
}

const sourceShapeTable = optionTable(
  {
    rowStride: is.passed(),
    headStride: is.passed(),
    qOffset: is.passed(),
    kOffset: is.passed(),
    vOffset: is.passed(),
  } satisfies Kinds<SourceShape>,
  'TKV_CONFIG',
);

/** Configuration of `PagedAttention.open`: device, pool, layout and the shape of the model. */
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
  /** Number of tokens that a row sees, up to and with its own. Default 0: all. */
  readonly window?: number;
  /** Factor of dot products. Default 1 / sqrt(headDim). */
  readonly scale?: number;
  /** Default: `[row][Q heads, K heads, V heads][headDim]`. */
  readonly source?: SourceShape;
  /**
   * Default: chosen by the device (`attentionKernel`). A sequence must use one kernel only, since their
   * results differ in the last bits.
   */
  readonly kernel?: AttentionKernel;
  /** Bytes for partial results. A step that needs more takes more dispatches. Default 32 MiB. */
  readonly partialBytesMax?: number;
}

const attentionConfigTable = optionTable(
  {
    device: is.passed(),
    slabs: is.passed(),
    layout: is.passed(),
    qHeads: is.integer(1),
    rowsMax: is.integer(1),
    entriesMax: is.integer(1),
    contextTokens: is.integer(1, 2 ** 30),
    window: is.optional(is.integer(0, 2 ** 30), 0),
    scale: is.optional(is.positive()),
    source: is.optional(sourceShapeTable),
    kernel: is.optional(is.passed()),
    partialBytesMax: is.optional(is.integer(1), 32 * 2 ** 20),
  } satisfies Kinds<AttentionConfig>,
  'TKV_CONFIG',
);

interface AttentionShape {
  readonly format: KVFormat;
  readonly qHeads: number;
  readonly kernel: AttentionKernel;
  /** Query heads that an invocation (`lanes`) or a workgroup (`workgroups`) handles. */
  readonly headsAtOnce: number;
  readonly scale: number;
  readonly source: SourceShape;
  readonly limits: TableLimits;
  /** Where items and entries begin in the tables, and the length of the tables. In words. */
  readonly itemsAt: number;
  readonly entriesAt: number;
  readonly tableWords: number;
  readonly partialBytes: number;
}

/** Storage buffers that a kernel binds beside the slabs: tables, queries, partial results. */
const OTHER_BUFFERS = 3;
/**
 * Most vectors of Q in the text of the `lanes` kernel, over all slabs for which its loop is repeated. A
 * software device compiles this number in a second or two, and takes far longer for twice as many.
 */
const LANE_VECTORS = 64;

/** @throws TKV_CONFIG naming the field */
function attentionShape(config: AttentionConfig): AttentionShape {
  const read = attentionConfigTable.read(config, 'config');
  const { device, slabs, layout, qHeads, rowsMax, entriesMax, contextTokens, window } = read;
  requireDevicePool(config);
  const format = kvFormat(layout, device.features);
  const slabsMax = device.limits.maxStorageBuffersPerShaderStage - OTHER_BUFFERS;
  if (slabs.length < 1 || slabs.length > slabsMax) {
    const problem = `are ${slabs.length}, but a kernel of this device binds 1 to ${slabsMax}`;
    throw configError('slabs', problem, 'Raise slabBytesMax of the pool, so that it has fewer buffers.');
  }
  if (qHeads % layout.kvHeads !== 0) {
    const problem = `is ${qHeads}, not a multiple of the ${layout.kvHeads} KV heads`;
    throw configError('qHeads', problem, 'Give each KV head the same number of query heads.');
  }
  const { scale = 1 / Math.sqrt(format.headDim) } = read;
  const source = read.source ?? packedSource(qHeads, layout.kvHeads, format.headDim);
  for (const [name, value] of Object.entries(source)) {
    requireInteger(`source.${name}`, value, 0);
    if (value % 4 !== 0) throw configError(`source.${name}`, `is ${value}`, 'Use a multiple of 4 floats.');
  }
  const rowSplits = splitsMax({ contextTokens, window });
  const itemBytes = qHeads * (format.headDim4 + 1) * 16;
  const wantedBytes = read.partialBytesMax;
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
    slabBytes: slabs.map(({ size }) => size),
    blockBytes: layout.blockBytes,
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

// ---- tables of a step
//
// A row is one token of one sequence, at its position. It attends to the tokens up to its own, within the
// window. It is cut into items, one for each split that it sees: 128 tokens at absolute positions. So the
// order of additions depends on the row's position and the window, never on the batch or the chunks of a
// prompt.
//
// Partial results of items take memory, so a step is cut into batches of whole rows whose items fit.

/** Tokens of one split. shaders/pagedRows.wgsl has the same number. */
const SPLIT_TOKENS = 128;
/** Position of a padding row: nothing is written for it, and it attends to nothing. */
export const NO_TOKEN = 0xffffffff;
const ROW_WORDS = 4;

interface StepRows {
  /**
   * `[row][4]`: position or `NO_TOKEN`, first entry of the sequence's block table, two unused words.
   */
  readonly rows: Uint32Array;
  /** `[entry][2]`: slab and offset in bytes of a block. The tables of the sequences follow each other. */
  readonly entries: Uint32Array;
}

/** The rows that one dispatch of each kernel covers, and their items. */
interface StepBatch {
  readonly firstRow: number;
  readonly rows: number;
  readonly firstItem: number;
  readonly items: number;
}

interface TableLimits extends EntryLimits {
  readonly rowsMax: number;
  readonly entriesMax: number;
  /** Most tokens that a row sees. */
  readonly contextTokens: number;
  readonly blockTokens: number;
  readonly window: number;
  /** Most items of a batch, whose partial results must fit. */
  readonly batchItems: number;
}

interface StepTables {
  /** `[row][4]`: position, first entry, first item, number of items. */
  readonly rows: Uint32Array<ArrayBuffer>;
  /** `[item][2]`: row, split. */
  readonly items: Uint32Array<ArrayBuffer>;
  readonly batches: readonly StepBatch[];
}

/** Most splits that a row can see. A window may begin in the middle of a split. */
function splitsMax({ contextTokens, window }: Pick<TableLimits, 'contextTokens' | 'window'>): number {
  const all = Math.ceil(contextTokens / SPLIT_TOKENS);
  return window === 0 ? all : Math.min(all, Math.ceil(window / SPLIT_TOKENS) + 1);
}

/**
 * @throws TKV_CONFIG naming table and place of a number out of bounds, at which a kernel would read foreign
 * bytes
 */
function stepTables(step: StepRows, limits: TableLimits): StepTables {
  const count = checkedRows(step, limits);
  const rows = new Uint32Array(count * ROW_WORDS);
  const items: number[] = [];
  const batches: StepBatch[] = [];
  let firstRow = 0;
  let firstItem = 0;
  const close = (row: number): void => {
    const length = items.length / 2;
    if (row > firstRow)
      batches.push({ firstRow, rows: row - firstRow, firstItem, items: length - firstItem });
    firstRow = row;
    firstItem = length;
  };
  for (let row = 0; row < count; row++) {
    const position = step.rows[row * ROW_WORDS];
    const [first, end] = splitsOf(position, limits.window);
    if (items.length / 2 + end - first - firstItem > limits.batchItems) close(row);
    rows.set([position, step.rows[row * ROW_WORDS + 1], items.length / 2, end - first], row * ROW_WORDS);
    for (let split = first; split < end; split++) items.push(row, split);
  }
  close(count);
  return { rows, items: Uint32Array.from(items), batches };
}

/** The half-open range of splits that a row sees. */
function splitsOf(position: number, window: number): [first: number, end: number] {
  if (position === NO_TOKEN) return [0, 0];
  const seen = window === 0 ? 0 : Math.max(0, position + 1 - window);
  return [Math.floor(seen / SPLIT_TOKENS), Math.floor(position / SPLIT_TOKENS) + 1];
}

function checkedRows({ rows, entries }: StepRows, limits: TableLimits): number {
  const count = rows.length / ROW_WORDS;
  requireInteger('rows.length / 4', count, 0, limits.rowsMax);
  const blocks = entries.length / 2;
  requireInteger('entries.length / 2', blocks, 0, limits.entriesMax);
  for (let entry = 0; entry < blocks; entry++) requireEntry(entries, entry, limits);
  for (let row = 0; row < count; row++) {
    const position = rows[row * ROW_WORDS];
    if (position === NO_TOKEN) continue;
    requireInteger(`rows[${row}] position`, position, 0, limits.contextTokens - 1);
    const block = rows[row * ROW_WORDS + 1] + Math.floor(position / limits.blockTokens);
    requireInteger(`rows[${row}] last entry`, block, 0, blocks - 1);
  }
  return count;
}
