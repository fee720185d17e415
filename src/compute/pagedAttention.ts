/**
 * Attention over paged blocks: writes K and V of a step's rows into their blocks, and attends over them.
 * Decode and prefill rows go through the same kernels, so a token's result has the same bits whichever batch
 * or chunk it came in.
 *
 *     const attention = await PagedAttention.open({ device, slabs, layout, qHeads: 8, rowsMax: 64, ... });
 *     const bound = attention.bind(qkv, attended);           once for each pair of buffers
 *     attention.setStep({ rows, entries });                  once a step
 *     for each layer: attention.write(pass, layer, bound), attention.attend(pass, layer, bound)
 *
 * `setStep` writes through the queue, so the encoder of a step must be submitted before the next `setStep`.
 */

import { BufferUsage } from '../backends/webgpu/device/gpuConstants.ts';
import { writeWords } from '../backends/webgpu/device/hostBytes.ts';
import { invariant, requireInteger } from '../runtime/errors.ts';
import { type AttentionConfig, type AttentionShape, attentionShape } from './attentionShape.ts';
import { blockConstants } from './format.ts';
import { kernelText } from './kernelText.ts';
import { dispatchMany, type PagedPipeline, type PipelineSpec, pagedPipeline } from './pipelines.ts';
import { ROW_WORDS, type StepBatch, type StepRows, stepTables } from './stepTables.ts';

const LANES = 64;
/** Of a workgroup of shaders/attend.wgsl. */
const ATTEND_LANES = 16;
/** Dynamic offsets of uniforms are multiples of this; no device asks for more. */
const UNIFORM_BYTES = 256;

const { STORAGE, COPY_DST } = BufferUsage;
const UNIFORM = 0x40;

/** The buffers of a step, bound. */
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
    // The first place is for `write`, which covers all rows at once.
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
   * @throws TKV_CONFIG naming the field that does not fit the layout or the device; TKV_DEVICE when it does
   * not compile the kernels
   */
  static async open(config: AttentionConfig): Promise<PagedAttention> {
    const shape = attentionShape(config);
    const specs = pipelineSpecs(config, shape);
    const compiled = await Promise.all(specs.map((spec) => pagedPipeline(config.device, spec)));
    const [write, attend, reduce] = compiled;
    return new PagedAttention(config, shape, { write, attend, reduce });
  }

  /** The partial results of the items of a batch; for tests, which poison them. */
  get partials(): GPUBuffer {
    return this.#partials;
  }

  /**
   * @param source `[row][source.rowStride]` floats, with Q, K and V of each row (`AttentionConfig.source`)
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
   * Which rows the calls of `write` and `attend` that follow are about.
   * @throws TKV_CONFIG naming the row or entry that is out of bounds; nothing is changed then
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

  /** Records: K and V of the rows go from the source into their blocks. One dispatch. */
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
   * Records: each row attends over its sequence's blocks. Two dispatches, unless partial results lack room.
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
  invariant(layout.rowBytes % unitBytes === 0, 'a row is whole units');
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
