/**
 * The decoder on one device: a step computes some rows, each a token of some sequence at its position, writes
 * their K and V into the sequences' blocks, and gives the logits of the rows that sample. One encoder a step.
 *
 *     embed -> per layer: norm, QKV, rope, write K and V, attend, output +=, norm, gate and up, SwiGLU, down +=
 *           -> norm of the rows that sample -> head -> logits
 *
 * A row's result does not depend on the rows beside it: see the kernels.
 */

import { PagedAttention } from '../../../../src/compute/index.ts'; // in your project: 'tierkv/compute'
import type { KVLayout } from '../../../../src/index.ts';
import type { Checkpoint } from '../checkpoint/index.ts';
import { gpuMapRead, gpuUsage } from './gpuUsage.ts';
import { compileKernels, type Kernels, type Product } from './kernels.ts';
import { ropeTurns } from './ropeTurns.ts';
import { paddedVocabulary, uploadWeights, type Weights } from './weights.ts';

/** A device, and how to wait for it: a `KVRuntime` is one. */
export interface DecoderDevice {
  readonly device: GPUDevice;
  waitFor<T>(start: () => Promise<T>): Promise<T>;
}

export interface DecoderLimits {
  /** Most rows of a step. */
  readonly rows: number;
  /** Most rows that sample. */
  readonly samples: number;
  /** Most block table entries of a step, over all its sequences. */
  readonly entries: number;
  /** Most tokens of a sequence. */
  readonly contextTokens: number;
}

/** Layers [first, end) whose K and V lie in blocks of their own, and the layout of these. */
export interface DecoderGroup {
  readonly first: number;
  readonly end: number;
  readonly layout: KVLayout;
}

/** Where the K and V of a group's layers lie in a step. */
export interface GroupPlaces {
  /** As in the step. */
  readonly rows: Uint32Array;
  /** The same, but `NO_TOKEN` in place of a position whose K and V are there and not to be written. */
  readonly written: Uint32Array;
  readonly entries: Uint32Array;
}

export interface DecoderStep {
  readonly tokens: Uint32Array;
  /** [row]: position, first entry of its sequence's table, 0, 0. */
  readonly rows: Uint32Array;
  /** [entry]: slab, offset in bytes. */
  readonly entries: Uint32Array;
  /** Rows whose logits are wanted. */
  readonly samples: Uint32Array;
}

interface GroupAttention extends DecoderGroup {
  readonly reading: PagedAttention;
  /** Another one only where some rows attend and are not written. */
  readonly writing: PagedAttention;
}

type Bound = readonly [pipeline: GPUComputePipeline, group: GPUBindGroup, columns: number];
/** Workgroups over all rows, a product whose tile depends on how many there are, or calls of their own. */
type Dispatch =
  | Bound
  | ((pass: GPUComputePassEncoder) => void)
  | { readonly tiles: readonly { readonly rows: number; readonly bound: Bound }[] };

export class Decoder {
  readonly #device: GPUDevice;
  readonly #waitFor: DecoderDevice['waitFor'];
  readonly #columns: number;
  readonly #vocabulary: number;
  readonly #buffers: ReturnType<typeof makeBuffers>;
  readonly #groups: readonly GroupAttention[];
  readonly #embed: Dispatch;
  /** By group. */
  readonly #layers: readonly (readonly Dispatch[])[];
  readonly #finalNorm: Bound;
  readonly #head: Dispatch;

  private constructor(
    on: DecoderDevice,
    checkpoint: Checkpoint,
    buffers: ReturnType<typeof makeBuffers>,
    kernels: Kernels,
    weights: Weights,
    groups: readonly GroupAttention[],
  ) {
    const { device } = on;
    this.#device = device;
    this.#waitFor = (start) => on.waitFor(start);
    this.#vocabulary = checkpoint.config.vocabulary;
    this.#columns = paddedVocabulary(this.#vocabulary);
    this.#buffers = buffers;
    this.#groups = groups;
    const { config } = checkpoint;
    const { counts, x, normed, qkv, attended, gateUp, active, logits } = buffers;
    const bind = (pipeline: GPUComputePipeline, columns: number, ...bound: GPUBuffer[]): Bound => {
      const entries = bound.map((buffer, binding) => ({ binding, resource: { buffer } }));
      return [pipeline, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }), columns];
    };
    const product = (kernel: Product, columns: number, ...bound: GPUBuffer[]): Dispatch => ({
      tiles: kernel.map(({ rows, pipeline }) => ({ rows, bound: bind(pipeline, columns, ...bound, counts) })),
    });
    const { hidden, heads, kvHeads, headDim, ffn } = config;
    this.#embed = bind(kernels.embed, hidden / 64, weights.embedding, buffers.tokens, x, counts);
    const dispatchesOf = (i: number, { first, reading, writing }: GroupAttention): Dispatch[] => {
      const layer = weights.layers[i];
      const read = reading.bind(buffers.qkv, buffers.attended);
      const write = writing === reading ? read : writing.bind(buffers.qkv, buffers.attended);
      const norm = (weight: GPUBuffer): Bound =>
        bind(kernels.norm, 0, x, weight, normed, buffers.samples, counts);
      const qkvColumns = ((heads + 2 * kvHeads) * headDim) / 4;
      const turned = ((heads + kvHeads) * headDim) / 2;
      return [
        norm(layer.attentionNorm),
        product(kernels.qkv, qkvColumns / 32, normed, layer.qkv, qkv),
        bind(kernels.rope, turned / 32, qkv, buffers.positions, buffers.turns, counts),
        (pass) => {
          writing.write(pass, i - first, write);
          reading.attend(pass, i - first, read);
        },
        product(kernels.output, hidden / 4 / 32, attended, layer.output, x),
        norm(layer.ffnNorm),
        product(kernels.gateUp, ffn / 2 / 32, normed, layer.gateUp, gateUp),
        bind(kernels.swiglu, ffn / 4 / 32, gateUp, active, counts),
        product(kernels.down, hidden / 4 / 32, active, layer.down, x),
      ];
    };
    this.#layers = groups.map((group) =>
      Array.from({ length: group.end - group.first }, (_, i) => dispatchesOf(group.first + i, group)).flat(),
    );
    this.#finalNorm = bind(kernels.finalNorm, 0, x, weights.finalNorm, normed, buffers.samples, counts);
    this.#head = product(kernels.head, this.#columns / 4 / 32, normed, weights.head, logits);
  }

  /**
   * @param slabs of the pool whose blocks the layout describes
   * @param groups where layers lie in blocks of their own; by default all are in one
   * @throws TKV_CONFIG naming what the attention kernels cannot do on this device
   */
  static async open(
    on: DecoderDevice,
    checkpoint: Checkpoint,
    layout: KVLayout,
    slabs: readonly GPUBuffer[],
    limits: DecoderLimits,
    groups: readonly DecoderGroup[] = [{ first: 0, end: layout.layers, layout }],
  ): Promise<Decoder> {
    const { device } = on;
    const { heads, window } = checkpoint.config;
    const attentionOf = (group: DecoderGroup): Promise<PagedAttention> =>
      PagedAttention.open({
        device,
        slabs,
        layout: group.layout,
        qHeads: heads,
        window,
        rowsMax: limits.rows,
        entriesMax: limits.entries,
        contextTokens: limits.contextTokens,
      });
    const attentions: GroupAttention[] = [];
    for (const group of groups) {
      const reading = await attentionOf(group);
      const writing = groups.length === 1 ? reading : await attentionOf(group);
      attentions.push({ ...group, reading, writing });
    }
    const kernels = await compileKernels(device, checkpoint.config);
    const buffers = makeBuffers(device, checkpoint, limits);
    const weights = uploadWeights(device, checkpoint);
    return new Decoder(on, checkpoint, buffers, kernels, weights, attentions);
  }

  /**
   * Submits a step. Its work is in the queue when the call returns.
   * @param placesOf where there are groups: their places, which may be waited for while the device computes
   * the group before. What it rejects with ends the step
   * @returns the logits of the rows that sample, one vocabulary behind the other. Rejects when the device is
   * lost
   */
  async run(step: DecoderStep, placesOf?: (group: number) => Promise<GroupPlaces>): Promise<Float32Array> {
    const { queue } = this.#device;
    const buffers = this.#buffers;
    const rows = step.tokens.length;
    const samples = step.samples.length;
    queue.writeBuffer(buffers.tokens, 0, new Uint32Array(step.tokens));
    queue.writeBuffer(
      buffers.positions,
      0,
      Uint32Array.from(step.tokens, (_, row) => step.rows[4 * row]),
    );
    queue.writeBuffer(buffers.samples, 0, new Uint32Array(step.samples));
    queue.writeBuffer(buffers.counts, 0, Uint32Array.of(rows, samples, 0, 0));
    let encoder = this.#device.createCommandEncoder({ label: 'step' });
    let pass = encoder.beginComputePass();
    dispatch(pass, this.#embed, rows);
    for (const [g, { reading, writing }] of this.#groups.entries()) {
      if (placesOf === undefined) reading.setStep(step);
      else {
        pass.end();
        queue.submit([encoder.finish()]);
        const { rows: read, written, entries } = await placesOf(g);
        reading.setStep({ rows: read, entries });
        writing.setStep({ rows: written, entries });
        encoder = this.#device.createCommandEncoder({ label: `step, group ${g}` });
        pass = encoder.beginComputePass();
      }
      for (const each of this.#layers[g]) dispatch(pass, each, rows);
    }
    const bytes = samples * this.#columns * 4;
    if (samples > 0) {
      dispatch(pass, this.#finalNorm, samples);
      dispatch(pass, this.#head, samples);
    }
    pass.end();
    if (samples > 0) encoder.copyBufferToBuffer(buffers.logits, 0, buffers.readback, 0, bytes);
    queue.submit([encoder.finish()]);
    if (samples === 0) {
      await this.#waitFor(() => queue.onSubmittedWorkDone());
      return new Float32Array();
    }
    await this.#waitFor(() => buffers.readback.mapAsync(gpuMapRead, 0, bytes));
    const padded = new Float32Array(buffers.readback.getMappedRange(0, bytes));
    const logits = new Float32Array(samples * this.#vocabulary);
    for (let i = 0; i < samples; i++) {
      const from = i * this.#columns;
      logits.set(padded.subarray(from, from + this.#vocabulary), i * this.#vocabulary);
    }
    buffers.readback.unmap();
    return logits;
  }
}

/** Workgroups along x cover the columns; along y, rows or tiles of them. Norms go through rows along x. */
function dispatch(pass: GPUComputePassEncoder, work: Dispatch, rows: number): void {
  if (typeof work === 'function') {
    work(pass);
    return;
  }
  if ('tiles' in work) {
    const tile = work.tiles.find((each) => each.rows >= rows) ?? work.tiles[work.tiles.length - 1];
    const [pipeline, group, columns] = tile.bound;
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(Math.ceil(columns), Math.ceil(rows / tile.rows));
    return;
  }
  const [pipeline, group, columns] = work;
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  if (columns === 0) pass.dispatchWorkgroups(Math.ceil(rows / 4));
  else pass.dispatchWorkgroups(Math.ceil(columns), rows);
}

function makeBuffers(device: GPUDevice, { config }: Checkpoint, limits: DecoderLimits) {
  const { hidden, heads, kvHeads, headDim, ffn, vocabulary } = config;
  const { STORAGE, COPY_DST, COPY_SRC, UNIFORM, MAP_READ } = gpuUsage;
  const words = (label: string, count: number, usage: number = STORAGE | COPY_DST): GPUBuffer =>
    device.createBuffer({ label, size: Math.max(16, count * 4), usage });
  const columns = paddedVocabulary(vocabulary);
  const turns = ropeTurns(config, limits.contextTokens);
  const buffers = {
    tokens: words('tokens', limits.rows),
    positions: words('positions', limits.rows),
    samples: words('rows that sample', limits.samples),
    counts: words('counts', 4, UNIFORM | COPY_DST),
    turns: words('rotary angles', turns.length),
    x: words('x', limits.rows * hidden),
    normed: words('normed x', Math.max(limits.rows, limits.samples) * hidden),
    qkv: words('q, k, v', limits.rows * (heads + 2 * kvHeads) * headDim),
    attended: words('attended', limits.rows * heads * headDim),
    gateUp: words('gate, up', limits.rows * 2 * ffn),
    active: words('activations', limits.rows * ffn),
    logits: words('logits', limits.samples * columns, STORAGE | COPY_SRC),
    readback: words('logits to read', limits.samples * columns, MAP_READ | COPY_DST),
  };
  const part = 2 ** 20; // words; larger writes get a staging buffer of their own
  for (let at = 0; at < turns.length; at += part) {
    const end = Math.min(at + part, turns.length);
    device.queue.writeBuffer(buffers.turns, at * 4, turns.slice(at, end));
  }
  return buffers;
}
