/**
 * KV that can be told from any other: the bytes of a token's rows follow from its tenant and from all tokens
 * up to it, as in a real model, and fill every layer, head, K and V. A request that reads a row that another
 * tenant, another prompt or another position wrote, or one that was never written, sees it.
 */

import type { KVLayout } from '../../../src/index.ts';

function mix(x: number): number {
  let y = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  y = Math.imul(y ^ (y >>> 13), 0xc2b2ae35);
  return (y ^ (y >>> 16)) >>> 0;
}

/** Of each token: a hash of the tenant and the tokens up to it. */
export function prefixHashes(tenant: string, tokens: ArrayLike<number>, count: number): Uint32Array {
  let hash = 0x9e3779b9;
  for (let i = 0; i < tenant.length; i++) hash = mix(hash ^ tenant.charCodeAt(i));
  return Uint32Array.from({ length: count }, (_, i) => {
    hash = mix(hash ^ Math.imul(tokens[i] + 1, 0x9e3779b1));
    return hash;
  });
}

/** The token that a model without weights says next. */
export function nextToken(hashOfAll: number): number {
  return mix(hashOfAll ^ 0x51ed270b) % 50_000;
}

/** A part of a block whose bytes lie together: the rows of consecutive tokens for one layer, head, K or V. */
export interface Run {
  readonly offsetBytes: number;
  readonly bytes: Uint32Array<ArrayBuffer>;
}

export class Rows {
  readonly #blockTokens: number;
  readonly #rowBytes: number;
  /** Where the rows of each layer, head, K and V begin in a block. */
  readonly #starts: number[] = [];
  /** Number of the first of them in the whole block. */
  readonly #firstPart: number;

  /** @param layers of the layer group whose units these are; in a unit, layers count from its first */
  constructor(layout: KVLayout, layers: { first: number; end: number } = { first: 0, end: layout.layers }) {
    this.#blockTokens = layout.blockTokens;
    this.#rowBytes = layout.rowBytes;
    this.#firstPart = layers.first * layout.kvHeads * 2;
    for (let layer = 0; layer < layers.end - layers.first; layer++) {
      for (let head = 0; head < layout.kvHeads; head++) {
        const start = layer * layout.layerStrideBytes + head * layout.headStrideBytes;
        this.#starts.push(start, start + layout.kvStrideBytes);
      }
    }
  }

  /** The rows of the sequence's tokens from `from` up to `to`, which lie in one block. */
  runs(hashes: Uint32Array, from: number, to: number): Run[] {
    const words = this.#rowBytes / 4;
    const first = from % this.#blockTokens;
    return this.#starts.map((start, part) => {
      const bytes = new Uint32Array((to - from) * words);
      for (let at = from; at < to; at++) {
        for (let word = 0; word < words; word++)
          bytes[(at - from) * words + word] = wordOf(hashes[at], this.#firstPart + part, word);
      }
      return { offsetBytes: start + first * this.#rowBytes, bytes };
    });
  }

  /**
   * How many tokens of the block have a wrong word.
   * @param block the words of the sequence's block `index`
   */
  wrongTokens(block: Uint32Array, hashes: Uint32Array, index: number): number {
    const words = this.#rowBytes / 4;
    const from = index * this.#blockTokens;
    const to = Math.min(hashes.length, from + this.#blockTokens);
    let wrong = 0;
    for (let at = from; at < to; at++) if (!this.#isRight(block, hashes[at], at - from, words)) wrong++;
    return wrong;
  }

  #isRight(block: Uint32Array, hash: number, row: number, words: number): boolean {
    for (let part = 0; part < this.#starts.length; part++) {
      const start = this.#starts[part] / 4 + row * words;
      for (let word = 0; word < words; word++) {
        if (block[start + word] !== wordOf(hash, this.#firstPart + part, word)) return false;
      }
    }
    return true;
  }
}

function wordOf(hash: number, part: number, word: number): number {
  const x = Math.imul(hash ^ Math.imul((part << 8) + word + 1, 0x9e3779b1), 0x85ebca6b);
  return (x ^ (x >>> 15)) >>> 0;
}
