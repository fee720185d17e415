/**
 * The memory of an engine as plain data: the pages in which it differs from the engine when it was new. All
 * that a JavaScript policy can remember lies there, so nothing of it is hidden.
 */

import type { PlainState } from '../../control/policy.ts';

const PAGE_WORDS = 1024;

export interface Image {
  readonly [part: string]: PlainState;
  /** Numbers of the pages, ascending. */
  readonly pages: Uint32Array;
  /** Their contents, one after the other. */
  readonly words: Uint32Array;
}

export class ImageMemory {
  readonly #memory: WebAssembly.Memory;
  /** The memory as it was when the engine was new, up to the last word that is not 0. */
  readonly #pristine: Uint32Array;

  constructor(memory: WebAssembly.Memory) {
    this.#memory = memory;
    const words = Math.ceil(this.lastUsed() / 4 / PAGE_WORDS) * PAGE_WORDS;
    this.#pristine = new Uint32Array(memory.buffer).slice(0, words);
  }

  /** Bytes of the engine when it was new. */
  get end(): number {
    return this.#pristine.length * 4;
  }

  /** Bytes up to the last that is not 0. */
  lastUsed(): number {
    const words = new Uint32Array(this.#memory.buffer);
    let length = words.length;
    while (length > 0 && words[length - 1] === 0) length--;
    return length * 4;
  }

  static readonly empty: Image = { pages: new Uint32Array(), words: new Uint32Array() };

  save(): Image {
    const words = new Uint32Array(this.#memory.buffer);
    const pages: number[] = [];
    for (let start = 0; start < words.length; start += PAGE_WORDS) {
      if (this.#differs(words, start)) pages.push(start / PAGE_WORDS);
    }
    const contents = new Uint32Array(pages.length * PAGE_WORDS);
    pages.forEach((page, i) => {
      contents.set(words.subarray(page * PAGE_WORDS, (page + 1) * PAGE_WORDS), i * PAGE_WORDS);
    });
    return { pages: Uint32Array.from(pages), words: contents };
  }

  load({ pages, words }: Image): void {
    const all = new Uint32Array(this.#memory.buffer);
    all.set(this.#pristine);
    all.fill(0, this.#pristine.length);
    pages.forEach((page, i) => {
      all.set(words.subarray(i * PAGE_WORDS, (i + 1) * PAGE_WORDS), page * PAGE_WORDS);
    });
  }

  #differs(words: Uint32Array, start: number): boolean {
    const before = this.#pristine;
    const end = start + PAGE_WORDS;
    if (start >= before.length) {
      for (let i = start; i < end; i++) if (words[i] !== 0) return true;
      return false;
    }
    for (let i = start; i < end; i++) if (words[i] !== before[i]) return true;
    return false;
  }
}
