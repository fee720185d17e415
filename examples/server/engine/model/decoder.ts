/**
 * The decoder on one device: a step computes some rows, each a token of some sequence at its position, writes
 * their K and V into the sequences' blocks, and gives the logits of the rows that sample. One encoder a step.
 *
 *     embed -> per layer: norm, QKV, rope, write K and V, attend, output +=, norm, gate and up, SwiGLU, down +=
 *           -> norm of the rows that sample -> head -> logits
 *
 * A row's result does not depend on the rows beside it: see the kernels. What a step gave is known to be good
 * when `run` is fulfilled: the device took all its commands, and `notFinite` names the rows whose K, V or
 * result hold a NaN or an infinity.
 */

import { PagedAttention } from '../../../../src/compute/index.ts'; // in your project: 'tierkv/compute'
import { type KVLayout, TierKVError } from '../../../../src/index.ts';
import type { Checkpoint, ModelConfig } from '../checkpoint/index.ts';
import { type BufferNeed, DeviceBuffers, ErrorScopes, requireWithin } from './deviceBuffers.ts';
import { gpuMapRead, gpuUsage } from './gpuUsage.ts';
import { compileKernels, type Kernels, type Product } from './kernels.ts';
import { ropeTurns } from './ropeTurns.ts';
import { paddedVocabulary, uploadWeights, type Weights, weightNeeds } from './weights.ts';

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
  readonly #buffers: StepBuffers;
  readonly #groups: readonly GroupAttention[];
  readonly #embed: Dispatch;
  /** By group. */
  readonly #layers: readonly (readonly Dispatch[])[];
  readonly #finalNorm: Bound;
  readonly #head: Dispatch;
  readonly #finiteX: Dispatch;
  #notFinite: number[] = [];

  private constructor(
    on: DecoderDevice,
    checkpoint: Checkpoint,
    buffers: StepBuffers,
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
    const { counts, x, normed, qkv, attended, gateUp, active, logits, marks } = buffers;
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
        bind(kernels.finiteKv, (2 * kvHeads * headDim) / 4 / 32, qkv, marks, counts),
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
    this.#finiteX = bind(kernels.finiteX, hidden / 4 / 32, x, marks, counts);
  }

  /** Rows of the last step whose K, V or result hold a NaN or an infinity, in order. */
  get notFinite(): readonly number[] {
    return this.#notFinite;
  }

  /**
   * @param slabs of the pool whose blocks the layout describes
   * @param groups where layers lie in blocks of their own; by default all are in one
   * @throws TKV_CONFIG naming what the attention kernels cannot do on this device, or the tensor or setting
   * that is above a limit of it; TKV_DEVICE naming what the device does not give
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
    const { config } = checkpoint;
    requireWithin(device.limits, [...weightNeeds(config), ...stepNeeds(config, limits)]);
    const { heads, window } = config;
    const scopes = new ErrorScopes(device, (start) => on.waitFor(start));
    const attentionOf = (group: DecoderGroup): Promise<PagedAttention> =>
      on.waitFor(() =>
        PagedAttention.open({
          device,
          slabs,
          layout: group.layout,
          qHeads: heads,
          window,
          rowsMax: limits.rows,
          entriesMax: limits.entries,
          contextTokens: limits.contextTokens,
        }),
      );
    const attentions: GroupAttention[] = [];
    for (const group of groups) {
      const reading = await attentionOf(group);
      const writing = groups.length === 1 ? reading : await attentionOf(group);
      attentions.push({ ...group, reading, writing });
    }
    const kernels = await compileKernels(device, config, (start) => on.waitFor(start));
    const memory = new DeviceBuffers(device, (start) => on.waitFor(start));
    const buffers = makeBuffers(memory, config, limits);
    const weights = uploadWeights(memory, checkpoint);
    await memory.given();
    scopes.open();
    let decoder: Decoder;
    try {
      decoder = new Decoder(on, checkpoint, buffers, kernels, weights, attentions);
      writeTurns(device, buffers.turns, config, limits);
    } finally {
      scopes.close();
    }
    const error = await scopes.error();
    if (error !== undefined) throw refusedBy(error, 'to bind the model');
    return decoder;
  }

  /**
   * Submits a step. Its work is in the queue when the call returns.
   * @param placesOf where there are groups: their places, which may be waited for while the device computes
   * the group before. What it rejects with ends the step
   * @returns the logits of the rows that sample, one vocabulary behind the other. Rejects when the device is
   * lost, and with TKV_DEVICE when it refused a command of the step: the step brought nothing then
   */
  async run(step: DecoderStep, placesOf?: (group: number) => Promise<GroupPlaces>): Promise<Float32Array> {
    const scopes = new ErrorScopes(this.#device, this.#waitFor);
    const { readback } = this.#buffers;
    const rows = step.tokens.length;
    const samples = step.samples.length;
    this.#notFinite = [];
    try {
      await this.#submit(step, scopes, placesOf);
    } finally {
      scopes.close();
    }
    const bytes = this.#buffers.markBytes + samples * this.#columns * 4;
    await this.#waitFor(() => readback.mapAsync(gpuMapRead, 0, bytes));
    try {
      const error = await scopes.error();
      if (error !== undefined) throw refusedBy(error, 'a step');
      const marks = new Uint32Array(readback.getMappedRange(0, this.#buffers.markBytes));
      for (let row = 0; row < rows; row++) if (marks[row] !== 0) this.#notFinite.push(row);
      const logits = new Float32Array(samples * this.#vocabulary);
      if (samples === 0) return logits;
      const padded = new Float32Array(
        readback.getMappedRange(this.#buffers.markBytes, bytes - this.#buffers.markBytes),
      );
      for (let i = 0; i < samples; i++) {
        const from = i * this.#columns;
        logits.set(padded.subarray(from, from + this.#vocabulary), i * this.#vocabulary);
      }
      return logits;
    } finally {
      readback.unmap();
    }
  }

  /** Scopes are open when it returns; they are closed while it waits. */
  async #submit(
    step: DecoderStep,
    scopes: ErrorScopes,
    placesOf: ((group: number) => Promise<GroupPlaces>) | undefined,
  ): Promise<void> {
    const { queue } = this.#device;
    const buffers = this.#buffers;
    const rows = step.tokens.length;
    const samples = step.samples.length;
    scopes.open();
    queue.writeBuffer(buffers.tokens, 0, new Uint32Array(step.tokens));
    queue.writeBuffer(
      buffers.positions,
      0,
      Uint32Array.from(step.tokens, (_, row) => step.rows[4 * row]),
    );
    queue.writeBuffer(buffers.samples, 0, new Uint32Array(step.samples));
    queue.writeBuffer(buffers.counts, 0, Uint32Array.of(rows, samples, 0, 0));
    let encoder = this.#device.createCommandEncoder({ label: 'step' });
    encoder.clearBuffer(buffers.marks);
    let pass = encoder.beginComputePass();
    dispatch(pass, this.#embed, rows);
    for (const [g, { reading, writing }] of this.#groups.entries()) {
      if (placesOf === undefined) reading.setStep(step);
      else {
        pass.end();
        queue.submit([encoder.finish()]);
        scopes.close();
        const { rows: read, written, entries } = await placesOf(g);
        scopes.open();
        reading.setStep({ rows: read, entries });
        writing.setStep({ rows: written, entries });
        encoder = this.#device.createCommandEncoder({ label: `step, group ${g}` });
        pass = encoder.beginComputePass();
      }
      for (const each of this.#layers[g]) dispatch(pass, each, rows);
    }
    dispatch(pass, this.#finiteX, rows);
    if (samples > 0) {
      dispatch(pass, this.#finalNorm, samples);
      dispatch(pass, this.#head, samples);
    }
    pass.end();
    const { marks, logits, readback, markBytes } = buffers;
    encoder.copyBufferToBuffer(marks, 0, readback, 0, markBytes);
    if (samples > 0) {
      encoder.copyBufferToBuffer(logits, 0, readback, markBytes, samples * this.#columns * 4);
    }
    queue.submit([encoder.finish()]);
  }
}

function refusedBy(error: GPUError, what: string): TierKVError {
  const [line] = error.message.split('\n');
  return new TierKVError('TKV_DEVICE', `The device refused ${what} (${line}).`, {
    cause: error,
  });
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

/** Words of each buffer of a step, and what makes it so large. */
function stepWords(config: ModelConfig, limits: DecoderLimits) {
  const { hidden, heads, kvHeads, headDim, ffn, vocabulary } = config;
  const { rows, samples, contextTokens } = limits;
  const columns = paddedVocabulary(vocabulary);
  const marks = 2 * Math.ceil(rows / 2); // what is mapped begins at multiples of eight bytes
  return {
    tokens: ['tokens', rows, 'stepTokens'],
    positions: ['positions', rows, 'stepTokens'],
    samples: ['rows that sample', samples, 'maxSequences'],
    marks: ['rows that are not finite', marks, 'stepTokens'],
    turns: ['rotary angles', contextTokens * headDim, 'contextTokens'],
    x: ['x', rows * hidden, 'stepTokens'],
    normed: ['normed x', Math.max(rows, samples) * hidden, 'stepTokens'],
    qkv: ['q, k, v', rows * (heads + 2 * kvHeads) * headDim, 'stepTokens'],
    attended: ['attended', rows * heads * headDim, 'stepTokens'],
    gateUp: ['gate, up', rows * 2 * ffn, 'stepTokens'],
    active: ['activations', rows * ffn, 'stepTokens'],
    logits: ['logits', samples * columns, 'maxSequences'],
    readback: ['logits to read', marks + samples * columns, 'maxSequences'],
  } as const;
}

/** What a step takes on a device, with the setting that makes each buffer so large. */
export function stepNeeds(config: ModelConfig, limits: DecoderLimits): BufferNeed[] {
  const need = (label: string, words: number, field: string, isBound = true): BufferNeed => ({
    label,
    bytes: words * 4,
    isBound,
    field,
    what: `the buffer "${label}" takes`,
    remedy: `Lower ${field}, or take another device with TIERKV_ADAPTER`,
  });
  const { readback, ...bound } = stepWords(config, limits);
  return [
    ...Object.values(bound).map(([label, words, field]) => need(label, words, field)),
    need(readback[0], readback[1], readback[2], false),
    need('block tables of all requests', 2 * limits.entries, 'maxSequences'),
  ];
}

type StepBuffers = ReturnType<typeof makeBuffers>;

function makeBuffers(memory: DeviceBuffers, config: ModelConfig, limits: DecoderLimits) {
  const { STORAGE, COPY_DST, COPY_SRC, UNIFORM, MAP_READ } = gpuUsage;
  const words = stepWords(config, limits);
  const make = (name: keyof typeof words, usage: number = STORAGE | COPY_DST): GPUBuffer =>
    memory.make(words[name][0], Math.max(16, words[name][1] * 4), usage);
  return {
    tokens: make('tokens'),
    positions: make('positions'),
    samples: make('samples'),
    counts: memory.make('counts', 16, UNIFORM | COPY_DST),
    marks: make('marks', STORAGE | COPY_DST | COPY_SRC),
    turns: make('turns'),
    x: make('x'),
    normed: make('normed'),
    qkv: make('qkv'),
    attended: make('attended'),
    gateUp: make('gateUp'),
    active: make('active'),
    logits: make('logits', STORAGE | COPY_SRC),
    readback: make('readback', MAP_READ | COPY_DST),
    /** Marks stand in front of the logits in what is read back. */
    markBytes: words.marks[1] * 4,
  };
}

function writeTurns(device: GPUDevice, buffer: GPUBuffer, config: ModelConfig, limits: DecoderLimits): void {
  const turns = ropeTurns(config, limits.contextTokens);
  const part = 2 ** 20; // words; larger writes get a staging buffer of their own
  for (let at = 0; at < turns.length; at += part) {
    const end = Math.min(at + part, turns.length);
    device.queue.writeBuffer(buffer, at * 4, turns.slice(at, end));
  }
}
