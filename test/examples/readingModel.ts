/**
 * A model without weights for the server of docs/guide/embedding.md. The KV of a token is its number, and the next
 * token is a sum over the KV of all tokens before it, read back from the device. So one wrong or missing row
 * changes the whole answer.
 */

import type { KVLayout, KVSequence } from '../../src/index.ts';

interface Running {
  readonly sequence: KVSequence;
  readonly slots: readonly { readonly buffer: GPUBuffer; readonly offsetBytes: number }[];
}

const MAP_READ = 0x1;
const COPY_DST = 0x8;

/** The token that follows, as every right run has it. */
export function nextToken(tokens: ArrayLike<number>): number {
  let sum = 7;
  for (let i = 0; i < tokens.length; i++) sum = (sum * 31 + tokens[i]) >>> 0;
  return sum % 50_000;
}

export class ReadingModel {
  /** Tokens whose KV `prefill` wrote. */
  prefilled = 0;
  /** Called before each decode. */
  beforeDecode: () => void = () => {};
  readonly #layout: KVLayout;
  readonly #device: () => GPUDevice;

  constructor(layout: KVLayout, device: () => GPUDevice) {
    this.#layout = layout;
    this.#device = device;
  }

  async prefill(running: Running, open: readonly number[]): Promise<number> {
    const { blockTokens } = this.#layout;
    const { length, cachedTokens } = running.sequence;
    for (const block of open) {
      const end = Math.min(length, (block + 1) * blockTokens);
      for (let at = Math.max(block * blockTokens, cachedTokens); at < end; at++) {
        this.#write(running, at);
        this.prefilled++;
      }
    }
    return nextToken(await this.#read(running));
  }

  async decode(batch: readonly Running[]): Promise<number[]> {
    this.beforeDecode();
    for (const running of batch) this.#write(running, running.sequence.length - 1);
    return (await Promise.all(batch.map((running) => this.#read(running)))).map(nextToken);
  }

  #write({ sequence, slots }: Running, at: number): void {
    const { blockTokens, rowBytes } = this.#layout;
    const { buffer, offsetBytes } = slots[Math.floor(at / blockTokens)];
    const row = new Uint32Array([sequence.tokens.words[at]]);
    this.#device().queue.writeBuffer(buffer, offsetBytes + (at % blockTokens) * rowBytes, row);
  }

  /** What attention sees: the rows of all tokens, as the device has them. */
  async #read({ sequence, slots }: Running): Promise<number[]> {
    const { blockTokens, rowBytes, kvStrideBytes } = this.#layout;
    const device = this.#device();
    const usage = MAP_READ | COPY_DST;
    const read = device.createBuffer({ size: slots.length * kvStrideBytes, usage });
    const encoder = device.createCommandEncoder();
    slots.forEach(({ buffer, offsetBytes }, i) => {
      encoder.copyBufferToBuffer(buffer, offsetBytes, read, i * kvStrideBytes, kvStrideBytes);
    });
    device.queue.submit([encoder.finish()]);
    await read.mapAsync(MAP_READ);
    const words = new Uint32Array(read.getMappedRange());
    const tokens = Array.from({ length: sequence.length }, (_, at) => {
      const row = Math.floor(at / blockTokens) * kvStrideBytes + (at % blockTokens) * rowBytes;
      return words[row / 4];
    });
    read.destroy();
    return tokens;
  }
}
