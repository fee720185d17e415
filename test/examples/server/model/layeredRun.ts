/**
 * The model on a runtime whose layers are units of their own, by `begin`, `readyLayers`, `seal` and `step`: the
 * first layers of a prompt are computed while the KV of the next ones is still on its way. Streams run at
 * once, and take turns at the device. Who is interrupted recovers, who finds no room begins again.
 */

import { openCheckpoint } from '../../../../examples/server/engine/checkpoint/index.ts';
import type { GenerationRequest } from '../../../../examples/server/engine/index.ts';
import {
  Decoder,
  type DecoderGroup,
  type GroupPlaces,
} from '../../../../examples/server/engine/model/index.ts';
import { sampleToken } from '../../../../examples/server/engine/sampling.ts';
import { tinyModelDirectory } from '../../../../examples/server/tinyModel/make.ts';
import { NO_TOKEN } from '../../../../src/compute/index.ts';
import {
  KVRuntime,
  type KVRuntimeConfig,
  type KVSequence,
  kvLayout,
  TierKVError,
} from '../../../../src/index.ts';
import { sharedDevice } from '../../../sharedDevice.ts';
import { digestOf, type Traced } from './plainRun.ts';

export const blockTokens = 16;
const contextTokens = 512;

/** A group's blocks could not be brought; the sequence is to be recovered. */
class Interrupted extends Error {}

/** Where the rows of a step of one sequence lie in a group; `open` are blocks that may be written. */
function placesOf(from: number, end: number, entries: Uint32Array, open: readonly number[]): GroupPlaces {
  const rows = new Uint32Array(4 * (end - from));
  const written = new Uint32Array(rows.length);
  for (let position = from; position < end; position++) {
    const at = 4 * (position - from);
    rows[at] = position;
    written[at] = open.includes(Math.floor(position / blockTokens)) ? position : NO_TOKEN;
  }
  return { rows, written, entries };
}

export interface LayeredCounts {
  /** Prefills whose first group was computed while a later one was on its way. */
  overlapped: number;
  interrupted: number;
  begunAgain: number;
  forks: number;
}

export class LayeredRun implements AsyncDisposable {
  readonly kv: KVRuntime;
  readonly counts: LayeredCounts = { overlapped: 0, interrupted: 0, begunAgain: 0, forks: 0 };
  readonly #groups: readonly DecoderGroup[];
  #decoder: Decoder;
  #devicesLost = 0;
  #turn: Promise<unknown> = Promise.resolve();

  private constructor(kv: KVRuntime, groups: readonly DecoderGroup[], decoder: Decoder) {
    this.kv = kv;
    this.#groups = groups;
    this.#decoder = decoder;
  }

  static async open(config: Omit<KVRuntimeConfig, 'layout' | 'model' | 'layerGroups'>): Promise<LayeredRun> {
    const checkpoint = openCheckpoint(tinyModelDirectory);
    const { layers, kvHeads, headDim } = checkpoint.config;
    checkpoint.tensors.close();
    const shape = { kvHeads, headDim, dtype: 'f32', blockTokens } as const;
    const layout = kvLayout({ ...shape, layers });
    const groups = Array.from({ length: layers }, (_, first) => ({
      first,
      end: first + 1,
      layout: kvLayout({ ...shape, layers: 1 }),
    }));
    const layerGroups = groups.map(({ first, end }) => ({ first, end }));
    const kv = await KVRuntime.open({
      device: sharedDevice,
      ...config,
      layout,
      layerGroups,
      model: 'tiny layers@1',
    });
    return new LayeredRun(kv, groups, await openDecoder(kv, groups));
  }

  /** @param forkAt go on in a fork of the sequence once the answer has this number of tokens */
  async answer(request: GenerationRequest, forkAt = 0): Promise<Traced> {
    const { prompt, maxTokens } = request;
    const tokens = [...prompt];
    const logits: string[] = [];
    const take = (row: Float32Array): boolean => {
      logits.push(digestOf(row));
      const token = sampleToken(row, request.sampling, tokens.length - prompt.length);
      tokens.push(token);
      return token === 0 || token === 2 || tokens.length === prompt.length + maxTokens;
    };
    for (let priority = 1; ; priority = 0) {
      const { tenant } = request;
      let sequence = await this.kv.begin(tokens, { tenant, wait: true, priority, arriving: true });
      const first = await this.#prefill(sequence);
      let isDone = first !== undefined && take(first);
      while (first !== undefined && !isDone) {
        if (forkAt > 0 && tokens.length - prompt.length === forkAt) {
          const forked = await this.kv.fork(sequence).catch(() => 'full' as const);
          if (typeof forked === 'string') break;
          this.kv.release(sequence);
          sequence = forked;
          this.counts.forks++;
        }
        const [end] = await this.kv.step([{ sequence, tokens: tokens.slice(-1) }]);
        if (end !== 'done') break;
        const row = await this.#unlessInterrupted(() => this.#compute(sequence, sequence.length - 1));
        if (row === undefined) break;
        isDone = take(row);
      }
      if (isDone) await this.kv.seal(sequence);
      this.kv.release(sequence);
      if (isDone) return { tokens: tokens.slice(prompt.length), logits };
      this.counts.begunAgain++;
    }
  }

  /** @returns undefined when what was lost finds no room any more */
  async #prefill(sequence: KVSequence): Promise<Float32Array | undefined> {
    let row = await this.#unlessInterrupted(() => this.#computeAsLayersCome(sequence));
    while (row === undefined || (await this.kv.seal(sequence)) === 'interrupted') {
      this.counts.interrupted++;
      try {
        await this.kv.recover(sequence);
      } catch (error) {
        if (error instanceof TierKVError && error.code === 'TKV_FULL') return undefined;
        throw error;
      }
      row = await this.#unlessInterrupted(() => this.#compute(sequence, sequence.cachedTokens));
    }
    return row;
  }

  /** In its turn. @returns undefined when blocks of the sequence were lost before it was submitted */
  async #unlessInterrupted(act: () => Promise<Float32Array>): Promise<Float32Array | undefined> {
    try {
      return await this.#alone(act);
    } catch (error) {
      const isLost = error instanceof TierKVError && error.code === 'TKV_STATE';
      if (isLost || error instanceof Interrupted) return undefined;
      throw error;
    }
  }

  #computeAsLayersCome(sequence: KVSequence): Promise<Float32Array> {
    const from = sequence.cachedTokens;
    let wasComing = false;
    return this.#run(sequence, from, async (group) => {
      if (group === 0) wasComing = sequence.groups.slice(1).some(({ table }) => table.pending > 0);
      const layers = await this.kv.readyLayers(sequence, group);
      if (layers === 'interrupted') throw new Interrupted();
      const isComing = sequence.groups.slice(group + 1).some(({ table }) => table.pending > 0);
      if (group === 0 && wasComing && isComing) this.counts.overlapped++;
      return placesOf(from, sequence.length, layers.blockTable.entries, layers.open);
    });
  }

  /** All layers of the tokens from `from` on; everything is in place. */
  #compute(sequence: KVSequence, from: number): Promise<Float32Array> {
    const open = this.kv.openBlocks(sequence);
    return this.#run(sequence, from, async (group) => {
      const { entries } = this.kv.deviceBlockTable(sequence, group);
      const own = open.filter((unit) => unit.group === group).map(({ index }) => index);
      return placesOf(from, sequence.length, entries, own);
    });
  }

  async #run(
    sequence: KVSequence,
    from: number,
    places: (group: number) => Promise<GroupPlaces>,
  ): Promise<Float32Array> {
    const { words, length } = sequence.tokens;
    if (this.kv.devicesLost !== this.#devicesLost) {
      this.#devicesLost = this.kv.devicesLost;
      this.#decoder = await openDecoder(this.kv, this.#groups);
    }
    const { rows } = placesOf(from, length, new Uint32Array(), []);
    const step = {
      tokens: words.slice(from, length),
      rows,
      entries: new Uint32Array(),
      samples: Uint32Array.of(length - 1 - from),
    };
    return this.#decoder.run(step, places);
  }

  /** One after the other: the decoder's buffers are those of one step. */
  #alone<T>(act: () => Promise<T>): Promise<T> {
    const result = this.#turn.then(act);
    this.#turn = result.catch(() => {});
    return result;
  }

  async close(): Promise<number> {
    const saved = await this.kv.save();
    await this.kv.close();
    return saved;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kv.close();
  }
}

async function openDecoder(kv: KVRuntime, groups: readonly DecoderGroup[]): Promise<Decoder> {
  const checkpoint = openCheckpoint(tinyModelDirectory);
  const { layers, kvHeads, headDim } = checkpoint.config;
  const layout = kvLayout({ layers, kvHeads, headDim, dtype: 'f32', blockTokens });
  const limits = { rows: contextTokens, samples: 1, entries: contextTokens / blockTokens, contextTokens };
  const decoder = await Decoder.open(kv, checkpoint, layout, kv.stores.hbm.slabs, limits, groups);
  checkpoint.tensors.close();
  return decoder;
}
