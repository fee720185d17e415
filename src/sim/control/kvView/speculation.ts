/** Blocks of routed prompts that are believed to be in HBM until their events come, or a time has passed. */

import { wordsPerKey } from '../../../runtime/keys/index.ts';
import type { PlainState, Stateful } from '../policy.ts';
import type { RequestView } from '../request.ts';
import { KeyDirectory } from './keyDirectory.ts';
import { KeyLru } from './keyLru.ts';

interface Beliefs {
  /** In order of their ends: all last equally long, so the order of their last use is that of their ends. */
  readonly keys: KeyLru;
  /** By slot. */
  endUs: Float64Array;
}

export class Speculation implements Stateful {
  /** The instances of which each key is believed. */
  readonly directory: KeyDirectory = new KeyDirectory();
  readonly #ttlUs: number;
  readonly #byInstance = new Map<number, Beliefs>();
  /** No belief ends before this. */
  #firstEndUs = Infinity;

  constructor(ttlUs: number) {
    this.#ttlUs = ttlUs;
  }

  believe(request: RequestView, instance: number, nowUs: number): void {
    const words = request.keys.words;
    for (let block = 0; block < request.promptBlocks; block++) {
      this.#add(instance, words, block * wordsPerKey, nowUs + this.#ttlUs);
    }
  }

  settled(instance: number, words: Uint32Array, at: number): void {
    if (this.#byInstance.get(instance)?.keys.remove(words, at)) this.directory.remove(instance, words, at);
  }

  expire(nowUs: number): void {
    if (nowUs < this.#firstEndUs) return;
    this.#firstEndUs = Infinity;
    for (const [instance, { keys, endUs }] of this.#byInstance) {
      for (let slot = keys.oldest(); slot !== -1 && endUs[slot] <= nowUs; slot = keys.oldest()) {
        this.directory.remove(instance, keys.words, slot * wordsPerKey);
        keys.removeSlot(slot);
      }
      if (keys.size > 0) this.#firstEndUs = Math.min(this.#firstEndUs, endUs[keys.oldest()]);
    }
  }

  removed(instance: number): void {
    this.#byInstance.delete(instance);
    this.directory.removeInstance(instance);
  }

  size(instance: number): number {
    return this.#byInstance.get(instance)?.keys.size ?? 0;
  }

  #add(instance: number, words: Uint32Array, at: number, endUs: number): void {
    let beliefs = this.#byInstance.get(instance);
    if (beliefs === undefined) {
      beliefs = { keys: new KeyLru(), endUs: new Float64Array(64) };
      this.#byInstance.set(instance, beliefs);
    }
    const slot = beliefs.keys.touch(words, at);
    this.directory.add(instance, words, at);
    if (slot >= beliefs.endUs.length) {
      const longer = new Float64Array(beliefs.endUs.length * 2);
      longer.set(beliefs.endUs);
      beliefs.endUs = longer;
    }
    beliefs.endUs[slot] = endUs;
    this.#firstEndUs = Math.min(this.#firstEndUs, endUs);
  }

  snapshot(): PlainState {
    const believed = [...this.#byInstance].filter(([, { keys }]) => keys.size > 0);
    return believed.map(([instance, { keys, endUs }]) => {
      const ends = new Float64Array(keys.size);
      let i = 0;
      for (let slot = keys.oldest(); slot !== -1; slot = keys.newerThan(slot)) ends[i++] = endUs[slot];
      return { instance, keys: keys.snapshot(), ends };
    });
  }

  restore(state: PlainState): void {
    this.#byInstance.clear();
    this.directory.clear();
    // the state is what `snapshot` made
    type Saved = { instance: number; keys: Uint32Array; ends: Float64Array };
    for (const { instance, keys, ends } of state as unknown as readonly Saved[]) {
      ends.forEach((endUs, i) => {
        this.#add(instance, keys, i * wordsPerKey, endUs);
      });
    }
  }
}
