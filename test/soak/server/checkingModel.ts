/**
 * A model for the server of docs/guide/embedding.md that writes KV which can be told from any other
 * (rows.ts), and reads back what attention would see: all blocks after a prefill and at some decode steps,
 * the last block at each.
 */

import type { KVLayout } from '../../../src/index.ts';
import type { SeededRandom } from '../../../src/testing/index.ts';
import type { Model, Running } from '../../examples/serverOfDocs.ts';
import { nextToken, prefixHashes, Rows } from './rows.ts';

const MAP_READ = 0x1;
const COPY_DST = 0x8;

export interface Compared {
  tokensCompared: number;
  wrongTokens: number;
  /** Tokens whose KV a prefill wrote, and tokens that it found. */
  prefilled: number;
  found: number;
  /** The first few wrong ones, for people. */
  readonly wrong: string[];
}

interface Look {
  readonly running: Running;
  readonly hashes: Uint32Array;
  /** The first block that is read; all behind it are too. */
  readonly from: number;
}

export class CheckingModel implements Model {
  readonly compared: Compared = { tokensCompared: 0, wrongTokens: 0, prefilled: 0, found: 0, wrong: [] };
  readonly #layout: KVLayout;
  readonly #device: () => GPUDevice;
  readonly #random: SeededRandom;
  readonly #rows: Rows;
  /** Share of decode steps of a sequence after which all of its blocks are read. */
  readonly #wholeShare: number;
  readonly #spoiled: number;

  /** @param spoiled share of tokens whose KV is written wrong, to see that it is found */
  constructor(
    layout: KVLayout,
    device: () => GPUDevice,
    random: SeededRandom,
    wholeShare: number,
    spoiled: number,
  ) {
    this.#layout = layout;
    this.#device = device;
    this.#random = random;
    this.#rows = new Rows(layout);
    this.#wholeShare = wholeShare;
    this.#spoiled = spoiled;
  }

  async prefill(running: Running, open: readonly number[]): Promise<number> {
    const { blockTokens } = this.#layout;
    const { tenant, tokens, length, cachedTokens } = running.sequence;
    const hashes = prefixHashes(tenant, tokens.words, length);
    for (const block of open) {
      const from = Math.max(block * blockTokens, cachedTokens);
      const to = Math.min(length, (block + 1) * blockTokens);
      this.#write(running, hashes, from, to);
      this.compared.prefilled += Math.max(0, to - from);
    }
    this.compared.found += cachedTokens;
    await this.#compare([{ running, hashes, from: 0 }]);
    return nextToken(hashes[length - 1]);
  }

  async decode(batch: readonly Running[]): Promise<number[]> {
    const looks = batch.map((running) => {
      const { tenant, tokens, length, blocks } = running.sequence;
      const hashes = prefixHashes(tenant, tokens.words, length);
      this.#write(running, hashes, length - 1, length);
      return { running, hashes, from: this.#random.chance(this.#wholeShare) ? 0 : blocks - 1 };
    });
    await this.#compare(looks);
    return looks.map(({ hashes }) => nextToken(hashes[hashes.length - 1]));
  }

  #write({ slots }: Running, hashes: Uint32Array, from: number, to: number): void {
    if (from >= to) return;
    const { buffer, offsetBytes } = slots[Math.floor(from / this.#layout.blockTokens)];
    for (const run of this.#rows.runs(hashes, from, to)) {
      if (this.#spoiled > 0 && this.#random.chance(this.#spoiled)) run.bytes[0] ^= 1;
      this.#device().queue.writeBuffer(buffer, offsetBytes + run.offsetBytes, run.bytes);
    }
  }

  /** All is submitted before the first wait: the slots are those of the device that is there now. */
  async #compare(looks: readonly Look[]): Promise<void> {
    const { blockBytes, blockTokens } = this.#layout;
    const device = this.#device();
    const blocks = looks.reduce((sum, { running, from }) => sum + running.sequence.blocks - from, 0);
    const read = device.createBuffer({ size: blocks * blockBytes, usage: MAP_READ | COPY_DST });
    const encoder = device.createCommandEncoder();
    let at = 0;
    for (const { running, from } of looks) {
      for (let i = from; i < running.sequence.blocks; i++, at += blockBytes) {
        const { buffer, offsetBytes } = running.slots[i];
        encoder.copyBufferToBuffer(buffer, offsetBytes, read, at, blockBytes);
      }
    }
    device.queue.submit([encoder.finish()]);
    try {
      await read.mapAsync(MAP_READ);
      const bytes = read.getMappedRange();
      at = 0;
      for (const { running, hashes, from } of looks) {
        for (let i = from; i * blockTokens < hashes.length; i++, at += blockBytes) {
          this.#count(running, hashes, i, new Uint32Array(bytes, at, blockBytes / 4));
        }
      }
    } finally {
      read.destroy();
    }
  }

  #count({ sequence }: Running, hashes: Uint32Array, index: number, block: Uint32Array): void {
    const { compared } = this;
    const { blockTokens } = this.#layout;
    compared.tokensCompared += Math.min(blockTokens, hashes.length - index * blockTokens);
    const wrong = this.#rows.wrongTokens(block, hashes, index);
    if (wrong === 0) return;
    compared.wrongTokens += wrong;
    if (compared.wrong.length < 10) {
      const { tenant, cachedTokens, blocks } = sequence;
      compared.wrong.push(
        `${wrong} tokens in block ${index} of ${blocks}, tenant ${tenant}, ${cachedTokens} tokens were cached`,
      );
    }
  }
}
