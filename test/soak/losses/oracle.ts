/**
 * What every byte of a sequence's KV must be, by its tenant and its tokens (server/rows.ts): written by who
 * computes it, and read back by who finds it.
 */

import type { KVLayout, KVRuntime } from '../../../src/index.ts';
import { prefixHashes, Rows } from '../server/rows.ts';

const MAP_READ = 0x1;
const COPY_DST = 0x8;

export interface Layers {
  readonly first: number;
  readonly end: number;
}

/** A slot of the device. */
export interface Place {
  readonly buffer: GPUBuffer;
  readonly offsetBytes: number;
}

export interface Compared {
  tokens: number;
  wrongTokens: number;
  /** The first few wrong ones, for people. */
  readonly wrong: string[];
}

export class Oracle {
  readonly compared: Compared = { tokens: 0, wrongTokens: 0, wrong: [] };
  readonly #kv: KVRuntime;
  readonly #layout: KVLayout;
  readonly #rows: readonly Rows[];
  readonly #unitBytes: readonly number[];

  constructor(kv: KVRuntime, layout: KVLayout, groups: readonly Layers[]) {
    this.#kv = kv;
    this.#layout = layout;
    this.#rows = groups.map((layers) => new Rows(layout, layers));
    this.#unitBytes = groups.map(({ first, end }) => (end - first) * layout.layerStrideBytes);
  }

  /** Submits the KV of tokens [from, to), which lie in the block at `place`. */
  write(tenant: string, tokens: ArrayLike<number>, from: number, to: number, place: Place, group = 0): void {
    if (from >= to) return;
    const hashes = prefixHashes(tenant, tokens, to);
    for (const { offsetBytes, bytes } of this.#rows[group].runs(hashes, from, to)) {
      this.#kv.device.queue.writeBuffer(place.buffer, place.offsetBytes + offsetBytes, bytes);
    }
  }

  /**
   * Reads the blocks at `places` back and compares the first `count` tokens. What cannot be read, since the
   * device is lost, says nothing. All is submitted before the first wait.
   */
  async compare(
    tenant: string,
    tokens: ArrayLike<number>,
    count: number,
    places: readonly Place[],
    who: string,
    group = 0,
  ): Promise<void> {
    if (places.length === 0 || count === 0) return;
    const { device } = this.#kv;
    const unitBytes = this.#unitBytes[group];
    const hashes = prefixHashes(tenant, tokens, count);
    let words: Uint32Array;
    const read = device.createBuffer({ size: places.length * unitBytes, usage: MAP_READ | COPY_DST });
    try {
      const encoder = device.createCommandEncoder();
      places.forEach(({ buffer, offsetBytes }, i) => {
        encoder.copyBufferToBuffer(buffer, offsetBytes, read, i * unitBytes, unitBytes);
      });
      device.queue.submit([encoder.finish()]);
      await this.#kv.waitFor(() => read.mapAsync(MAP_READ));
      words = new Uint32Array(read.getMappedRange().slice(0));
    } catch {
      return; // the device is lost
    } finally {
      read.destroy();
    }
    const { blockTokens } = this.#layout;
    for (let i = 0; i * blockTokens < count && i < places.length; i++) {
      const block = words.subarray((i * unitBytes) / 4, ((i + 1) * unitBytes) / 4);
      const wrong = this.#rows[group].wrongTokens(block, hashes, i);
      this.compared.tokens += Math.min(blockTokens, count - i * blockTokens);
      this.compared.wrongTokens += wrong;
      if (wrong > 0 && this.compared.wrong.length < 10) {
        const isZero = block.every((word) => word === 0) ? ', all zeros' : '';
        this.compared.wrong.push(`${wrong} tokens of block ${i} of ${who}, tenant ${tenant}${isZero}`);
      }
    }
  }
}
