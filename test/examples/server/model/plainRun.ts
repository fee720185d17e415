/**
 * What the answers have to be: the model alone, one request at a time, with blocks of its own for each, no
 * manager, no scheduler and nothing that is shared. And a recorder that says what an engine's logits were.
 */

import { createHash } from 'node:crypto';
import type { GenerationRequest } from '../../../../examples/server/engine/answer.ts';
import { openCheckpoint } from '../../../../examples/server/engine/checkpoint/index.ts';
import { Decoder } from '../../../../examples/server/engine/model/index.ts';
import { sampleToken } from '../../../../examples/server/engine/sampling.ts';
import { tinyModelDirectory } from '../../../../examples/server/tinyModel/make.ts';
import type { LiveDevice } from '../../../../src/backends/webgpu/device.ts';
import { kvLayout } from '../../../../src/index.ts';
import { sharedLiveDevice } from '../../../sharedDevice.ts';

/** Tokens of an answer, and a digest of the logits from which each was drawn. */
export interface Traced {
  readonly tokens: number[];
  readonly logits: string[];
}

export function digestOf(logits: Float32Array): string {
  const bytes = new Uint8Array(logits.buffer, logits.byteOffset, logits.byteLength);
  return createHash('sha1').update(bytes).digest('hex');
}

const contextTokens = 512;
const blockTokens = 16;

export class PlainRun implements AsyncDisposable {
  readonly #live: LiveDevice;
  readonly #slab: GPUBuffer;
  readonly #decoder: Decoder;
  readonly #blockBytes: number;

  private constructor(live: LiveDevice, slab: GPUBuffer, decoder: Decoder, blockBytes: number) {
    this.#live = live;
    this.#slab = slab;
    this.#decoder = decoder;
    this.#blockBytes = blockBytes;
  }

  static async open(): Promise<PlainRun> {
    const checkpoint = openCheckpoint(tinyModelDirectory);
    const { layers, kvHeads, headDim } = checkpoint.config;
    const layout = kvLayout({ layers, kvHeads, headDim, dtype: 'f32', blockTokens });
    const live = await sharedLiveDevice();
    const size = (contextTokens / blockTokens) * layout.blockBytes;
    const slab = live.device.createBuffer({ size, usage: 0x80 | 0x8 });
    const limits = { rows: contextTokens, samples: 1, entries: contextTokens, contextTokens };
    const decoder = await Decoder.open(live, checkpoint, layout, [slab], limits);
    checkpoint.tensors.close();
    return new PlainRun(live, slab, decoder, layout.blockBytes);
  }

  /** The whole prompt in one step, then a token a step. Whatever lay in the blocks before is NaN. */
  async answer({ prompt, maxTokens, sampling, ignoreEnd }: GenerationRequest): Promise<Traced> {
    const poison = new Float32Array(this.#slab.size / 4).fill(Number.NaN);
    this.#live.device.queue.writeBuffer(this.#slab, 0, poison);
    const tokens = [...prompt];
    const logits: string[] = [];
    for (let from = 0; tokens.length < prompt.length + maxTokens; from = tokens.length - 1) {
      const blocks = Math.ceil(tokens.length / blockTokens);
      const row = await this.#decoder.run({
        tokens: Uint32Array.from(tokens.slice(from)),
        rows: Uint32Array.from(tokens.slice(from).flatMap((_, i) => [from + i, 0, 0, 0])),
        entries: Uint32Array.from(Array.from({ length: blocks }, (_, i) => [0, i * this.#blockBytes]).flat()),
        samples: Uint32Array.of(tokens.length - 1 - from),
      });
      logits.push(digestOf(row));
      const token = sampleToken(row, sampling, tokens.length - prompt.length);
      tokens.push(token);
      if (!ignoreEnd && (token === 0 || token === 2)) break;
    }
    return { tokens: tokens.slice(prompt.length), logits };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#slab.destroy();
  }
}
