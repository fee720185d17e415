/**
 * Which instances hold each block key, for all instances at once. One walk along a prompt's keys says how
 * many leading blocks each instance has; what it costs depends on the instances that hold some, and not on
 * how many there are. A router asks for the same prompt once for each candidate, so the last answer is kept
 * until the prompt or a directory is another.
 */

import { wordsPerKey } from '../../../runtime/keys/index.ts';
import type { RequestView } from '../request.ts';
import type { PrefixPlace } from '../routerState.ts';
import { KeyTable } from './keyTable.ts';

const NONE = -1;

export class KeyDirectory {
  readonly #table: KeyTable = new KeyTable();
  /** By slot of the table: the only instance that holds the key, NONE, or `-2 - list` for several. */
  #holder: Int32Array = new Int32Array(this.#table.slots).fill(NONE);
  readonly #lists: number[][] = [];
  readonly #freeLists: number[] = [];
  /** Keys that each instance holds. */
  readonly #sizes: number[] = [];
  /** Changes so far. */
  changes = 0;

  /** Keys that the instance holds. */
  size(instance: number): number {
    return this.#sizes[instance] ?? 0;
  }

  /** The instance holds the key from now on, if it did not before. */
  add(instance: number, source: Uint32Array, at: number): void {
    const slot = this.#table.findOrAdd(source, at);
    if (this.#holder.length < this.#table.slots) {
      const longer = new Int32Array(this.#table.slots).fill(NONE);
      longer.set(this.#holder);
      this.#holder = longer;
    }
    const holder = this.#holder[slot];
    if (holder === instance) return;
    if (holder === NONE) this.#holder[slot] = instance;
    else if (holder >= 0) this.#holder[slot] = -2 - this.#listOf(holder, instance);
    else if (this.#lists[-2 - holder].includes(instance)) return;
    else this.#lists[-2 - holder].push(instance);
    this.#sizes[instance] = this.size(instance) + 1;
    this.changes++;
  }

  /** The instance holds the key no more, if it did. */
  remove(instance: number, source: Uint32Array, at: number): void {
    const slot = this.#table.find(source, at);
    if (slot !== NONE) this.#removeFrom(slot, instance);
  }

  /** The instance is gone, with all its keys. */
  removeInstance(instance: number): void {
    if (this.size(instance) === 0) return;
    for (let slot = 0; slot < this.#holder.length; slot++) {
      if (this.#holder[slot] !== NONE) this.#removeFrom(slot, instance);
    }
  }

  #removeFrom(slot: number, instance: number): void {
    const holder = this.#holder[slot];
    if (holder >= 0) {
      if (holder !== instance) return;
      this.#holder[slot] = NONE;
      this.#table.remove(slot);
    } else {
      const list = this.#lists[-2 - holder];
      const place = list.indexOf(instance);
      if (place === -1) return;
      list[place] = list[list.length - 1];
      list.pop();
      if (list.length === 1) {
        this.#holder[slot] = list[0];
        this.#freeLists.push(-2 - holder);
      }
    }
    this.#sizes[instance]--;
    this.changes++;
  }

  #listOf(first: number, second: number): number {
    const list = this.#freeLists.pop() ?? this.#lists.length;
    this.#lists[list] = [first, second];
    return list;
  }

  /** Calls `each` for the instances that hold the key, in no order. @returns whether there are any */
  forHolders(source: Uint32Array, at: number, each: (instance: number) => void): boolean {
    const slot = this.#table.find(source, at);
    if (slot === NONE) return false;
    const holder = this.#holder[slot];
    if (holder >= 0) each(holder);
    else {
      const list = this.#lists[-2 - holder];
      for (let i = 0; i < list.length; i++) each(list[i]);
    }
    return true;
  }

  /** The keys, four words each, and beside them how many instances hold each, and which. */
  snapshot(): { readonly keys: Uint32Array; readonly holders: Int32Array } {
    const keys = new Uint32Array(this.#table.size * wordsPerKey);
    const holders: number[] = [];
    let to = 0;
    for (let slot = 0; slot < this.#holder.length; slot++) {
      const holder = this.#holder[slot];
      if (holder === NONE) continue;
      const at = slot * wordsPerKey;
      keys.set(this.#table.words.subarray(at, at + wordsPerKey), to);
      to += wordsPerKey;
      const list = holder >= 0 ? [holder] : this.#lists[-2 - holder];
      holders.push(list.length, ...list);
    }
    return { keys, holders: Int32Array.from(holders) };
  }

  restore({ keys, holders }: { readonly keys: Uint32Array; readonly holders: Int32Array }): void {
    this.clear();
    for (let at = 0, from = 0; at < keys.length; at += wordsPerKey) {
      for (let left = holders[from++]; left > 0; left--) this.add(holders[from++], keys, at);
    }
  }

  clear(): void {
    this.#table.clear();
    this.#holder.fill(NONE);
    this.#lists.length = 0;
    this.#freeLists.length = 0;
    this.#sizes.length = 0;
    this.changes++;
  }
}

/** A directory, and the tier that its keys count for. */
export interface PrefixLayer {
  readonly directory: KeyDirectory;
  readonly tier: number;
}

/** Where the leading blocks of a prompt are, by instance: each block in the first layer that has it. */
export class LeadingBlocks {
  readonly #layers: readonly PrefixLayer[];
  readonly #tiers: number;
  readonly #nowhere: PrefixPlace;
  #request: RequestView | null = null;
  #changes = -1;
  /** Instances that have any, and by instance, how many, and how many in each tier. */
  #some: number[] = [];
  readonly #blocks: number[] = [];
  readonly #byTier: number[] = [];

  constructor(layers: readonly PrefixLayer[]) {
    this.#layers = layers;
    this.#tiers = layers.reduce((most, { tier }) => Math.max(most, tier + 1), 0);
    this.#nowhere = { blocks: 0, byTier: new Array<number>(this.#tiers).fill(0) };
  }

  blocks(request: RequestView, instance: number): number {
    this.#know(request);
    return this.#blocks[instance] ?? 0;
  }

  /** The place may be shared between callers, who do not change it. */
  place(request: RequestView, instance: number): PrefixPlace {
    this.#know(request);
    const blocks = this.#blocks[instance] ?? 0;
    if (blocks === 0) return this.#nowhere;
    const first = instance * this.#tiers;
    return { blocks, byTier: this.#byTier.slice(first, first + this.#tiers) };
  }

  #know(request: RequestView): void {
    let changes = 0;
    for (const { directory } of this.#layers) changes += directory.changes;
    if (request === this.#request && changes === this.#changes) return;
    this.#request = request;
    this.#changes = changes;
    for (const instance of this.#some) this.#blocks[instance] = 0;
    this.#some = [];
    const { promptBlocks } = request;
    if (promptBlocks === 0 || this.#layers.every(({ directory }) => directory.changes === 0)) return;
    const { words } = request.keys;
    for (let block = 0; block < promptBlocks; block++) {
      let goesOn = false;
      for (const { directory, tier } of this.#layers) {
        directory.forHolders(words, block * wordsPerKey, (instance) => {
          if ((this.#blocks[instance] ?? 0) !== block) return;
          this.#count(instance, tier, block);
          goesOn = true;
        });
      }
      if (!goesOn) return;
    }
  }

  #count(instance: number, tier: number, before: number): void {
    const first = instance * this.#tiers;
    if (before === 0) {
      this.#some.push(instance);
      while (this.#blocks.length <= instance) this.#blocks.push(0);
      while (this.#byTier.length < first + this.#tiers) this.#byTier.push(0);
      for (let t = 0; t < this.#tiers; t++) this.#byTier[first + t] = 0;
    }
    this.#blocks[instance] = before + 1;
    this.#byTier[first + tier]++;
  }
}
