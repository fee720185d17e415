import { wordsPerKey } from '../../runtime/keys/keyChain.ts';
import type { StateVisitor } from '../../runtime/snapshot.ts';
import { KeyLru, KeyTable } from './keyTables.ts';
import type { RequestView } from './policy.ts';
import type { PrefixPlace, PrefixView } from './routerState.ts';

// Which instances hold each block key, for all instances at once. One walk along a prompt's keys says how
// many leading blocks each instance has; what it costs depends on the instances that hold some, and not on
// how many there are. A router asks for the same prompt once for each candidate, so the last answer is kept
// until the prompt or a directory is another.

const NONE = -1;

export class KeyDirectory {
  readonly #table: KeyTable = new KeyTable();
  /** Holder of a key by slot of the table: the only instance that holds it, NONE, or `-2 - list` for several. */
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
  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => this.#holders(),
      ({ keys, holders }) => {
        this.clear();
        for (let at = 0, from = 0; at < keys.length; at += wordsPerKey) {
          for (let left = holders[from++]; left > 0; left--) this.add(holders[from++], keys, at);
        }
      },
    );
  }

  /** All keys, and for each of them how many instances hold it and which. */
  #holders(): { readonly keys: Uint32Array; readonly holders: Int32Array } {
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
interface PrefixLayer {
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

//  Directories of the tiers of all instances.

/** Prefixes of prompts in the tiers of all instances. Instances that are not known hold nothing. */
export class PrefixDirectories {
  /** Directories by tier, up to the number of tiers that any instance has. */
  readonly tiers: KeyDirectory[] = [];
  readonly #capacityBlocks = new Map<number, readonly number[]>();
  readonly #before: readonly PrefixLayer[];
  #hbm: LeadingBlocks = new LeadingBlocks([]);
  #all: LeadingBlocks = new LeadingBlocks([]);

  /** @param before layers that are asked before the tiers, when all of them are */
  constructor(before: readonly PrefixLayer[] = []) {
    this.#before = before;
  }

  add(instance: number, capacityBlocks: readonly number[]): void {
    this.#capacityBlocks.set(instance, capacityBlocks);
    if (this.tiers.length >= capacityBlocks.length) return;
    while (this.tiers.length < capacityBlocks.length) this.tiers.push(new KeyDirectory());
    const layers = this.tiers.map((directory, tier) => ({ directory, tier }));
    this.#hbm = new LeadingBlocks(layers.slice(0, 1));
    this.#all = new LeadingBlocks([...this.#before, ...layers]);
  }

  knows(instance: number): boolean {
    return this.#capacityBlocks.has(instance);
  }

  remove(instance: number): void {
    this.#capacityBlocks.delete(instance);
    for (const directory of this.tiers) directory.removeInstance(instance);
  }

  topBlocks(request: RequestView, instance: number): number {
    return this.#hbm.blocks(request, instance);
  }

  place(request: RequestView, instance: number): PrefixPlace {
    const capacityBlocks = this.#capacityBlocks.get(instance);
    if (capacityBlocks === undefined) return { blocks: 0, byTier: [] };
    const place = this.#all.place(request, instance);
    if (place.byTier.length === capacityBlocks.length) return place;
    return { blocks: place.blocks, byTier: place.byTier.slice(0, capacityBlocks.length) };
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => [...this.#capacityBlocks].map(([instance, capacityBlocks]) => ({ instance, capacityBlocks })),
      (saved) => {
        this.#capacityBlocks.clear();
        for (const { instance, capacityBlocks } of saved) this.add(instance, capacityBlocks);
      },
    );
    for (const tier of this.tiers) tier.visitState(visitor);
  }
}

/** The same with the order in which each instance used its keys, for views that predict evictions. */
export class InstanceKeys implements PrefixView {
  readonly #directories: PrefixDirectories;
  readonly #byInstance = new Map<number, TierKeys>();

  /** @param before layers that are asked before the tiers, when all of them are */
  constructor(before: readonly PrefixLayer[] = []) {
    this.#directories = new PrefixDirectories(before);
  }

  add(instance: number, capacityBlocks: readonly number[]): void {
    this.#directories.add(instance, capacityBlocks);
    this.#byInstance.set(instance, new TierKeys(instance, capacityBlocks, this.#directories.tiers));
  }

  remove(instance: number): void {
    this.#directories.remove(instance);
    this.#byInstance.delete(instance);
  }

  tiersOf(instance: number): TierKeys | undefined {
    return this.#byInstance.get(instance);
  }

  topBlocks(request: RequestView, instance: number): number {
    return this.#directories.topBlocks(request, instance);
  }

  place(request: RequestView, instance: number): PrefixPlace {
    return this.#directories.place(request, instance);
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () =>
        [...this.#byInstance].map(([instance, keys]) => {
          return { instance, capacityBlocks: keys.capacityBlocks, tiers: keys.inOrder() };
        }),
      (saved) => {
        for (const instance of this.#byInstance.keys()) this.remove(instance);
        for (const { instance, capacityBlocks, tiers } of saved) {
          this.add(instance, capacityBlocks);
          this.#byInstance.get(instance)?.fill(tiers);
        }
      },
    );
  }
}

// The keys that are believed to lie in each tier of an instance, in the order of their last use. The
// directories of all instances are told of each change.

class TierKeys {
  readonly capacityBlocks: readonly number[];
  /** Keys by tier, HBM first. */
  readonly #tiers: readonly KeyLru[];
  readonly #instance: number;
  readonly #directories: readonly KeyDirectory[];

  /** @param directories one for each tier, or more */
  constructor(instance: number, capacityBlocks: readonly number[], directories: readonly KeyDirectory[]) {
    this.capacityBlocks = capacityBlocks;
    this.#tiers = capacityBlocks.map(() => new KeyLru());
    this.#instance = instance;
    this.#directories = directories;
  }

  get tiers(): number {
    return this.#tiers.length;
  }

  /** Keys in the tier; 0 for one that the instance has not. */
  size(tier: number): number {
    return this.#tiers[tier]?.size ?? 0;
  }

  /** The fastest tier that holds the key, or -1. */
  tierOf(words: Uint32Array, at: number): number {
    for (let tier = 0; tier < this.#tiers.length; tier++) if (this.#tiers[tier].has(words, at)) return tier;
    return -1;
  }

  /** Puts the key in, or makes it the one used last. */
  touch(tier: number, words: Uint32Array, at: number): void {
    this.#tiers[tier].touch(words, at);
    this.#directories[tier].add(this.#instance, words, at);
  }

  /** Makes the key the one used last if it is there. */
  refresh(tier: number, words: Uint32Array, at: number): void {
    this.#tiers[tier].refresh(words, at);
  }

  remove(tier: number, words: Uint32Array, at: number): void {
    if (this.#tiers[tier].remove(words, at)) this.#directories[tier].remove(this.#instance, words, at);
  }

  /** Moves the key used longest ago one tier down, or out of the last one. */
  sinkOldest(tier: number): void {
    const from = this.#tiers[tier];
    const slot = from.oldest();
    const at = slot * wordsPerKey;
    if (tier + 1 < this.#tiers.length) this.touch(tier + 1, from.words, at);
    this.#directories[tier].remove(this.#instance, from.words, at);
    from.removeSlot(slot);
  }

  /** Keys of the tier as hexadecimal digits, the one used longest ago first. */
  oldestKeys(tier: number, most: number): string[] {
    return this.#tiers[tier]?.oldestKeys(most) ?? [];
  }

  /** Keys of each tier in the order of their last use. */
  inOrder(): readonly Uint32Array[] {
    return this.#tiers.map((tier) => tier.inOrder());
  }

  /** Puts keys that `inOrder` gave into tiers without keys. */
  fill(state: readonly Uint32Array[]): void {
    state.forEach((words, tier) => {
      for (let at = 0; at < words.length; at += wordsPerKey) this.touch(tier, words, at);
    });
  }
}
