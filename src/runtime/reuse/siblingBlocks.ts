/**
 * Blocks by the block before them, with their tokens: what a prompt that departs within a block can take its
 * first tokens from. It holds so many blocks at most, and forgets the one that came first.
 */

import { elementAt, type KeyElements } from '../keys/index.ts';

interface Sibling {
  readonly key: Uint32Array;
  readonly tokens: Uint32Array;
  readonly parent: string;
}

export interface LongestSibling {
  readonly key: Uint32Array;
  /** Tokens from the front that are the same. */
  readonly tokens: number;
}

export class SiblingBlocks {
  readonly #limit: number;
  /** By key, in the order in which they came. */
  readonly #blocks: Map<string, Sibling> = new Map();
  readonly #byParent: Map<string, Set<string>> = new Map();

  constructor(limit: number) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#blocks.size;
  }

  /** @param parent name of the block before, in its domain */
  add(parent: string, name: string, key: Uint32Array, tokens: Uint32Array): void {
    if (this.#blocks.has(name)) return;
    this.#blocks.set(name, { key, tokens, parent });
    const siblings = this.#byParent.get(parent);
    if (siblings === undefined) this.#byParent.set(parent, new Set([name]));
    else siblings.add(name);
    if (this.#blocks.size <= this.#limit) return;
    const [first] = this.#blocks.keys();
    this.delete(first);
  }

  delete(name: string): void {
    const block = this.#blocks.get(name);
    if (block === undefined) return;
    this.#blocks.delete(name);
    const siblings = this.#byParent.get(block.parent);
    siblings?.delete(name);
    if (siblings?.size === 0) this.#byParent.delete(block.parent);
  }

  /**
   * The block behind `parent` that begins most like the tokens from `from` on, over at most `most` of them.
   * @param isUsable whether the block with this key can be taken from
   */
  longest(
    parent: string,
    tokens: KeyElements,
    from: number,
    most: number,
    isUsable: (key: Uint32Array) => boolean,
  ): LongestSibling | null {
    let best: LongestSibling | null = null;
    for (const name of this.#byParent.get(parent) ?? []) {
      const sibling = this.#blocks.get(name) as Sibling; // listed as long as it is there
      const limit = Math.min(most, sibling.tokens.length);
      let same = 0;
      while (same < limit && sibling.tokens[same] === elementAt(tokens, from + same)) same++;
      if (same > (best?.tokens ?? 0) && isUsable(sibling.key)) best = { key: sibling.key, tokens: same };
    }
    return best;
  }
}
