/**
 * The shadow that sees nothing but the router's own decisions: the blocks of a routed prompt are believed to
 * be in HBM of its instance from then on, and what a tier has no room for, least recently used first, in the
 * tier below; what leaves the last tier is gone. The capacities are the instance's, or a limit of the
 * router's own memory for the whole instance.
 */

import { invariant } from '../../runtime/errors.ts';
import { keyToHex, wordsPerKey } from '../../runtime/keys/keyChain.ts';
import type { ShadowConfig } from './controlPlane.ts';
import type { InstanceProbe, PlainState, RequestView, SnapshotState } from './policy.ts';
import type { PrefixPlace, PrefixView, ShadowName, ShadowView } from './routerState.ts';

export class ApproximateShadow implements CacheView, ShadowView {
  readonly model: ShadowName = 'approximate';
  readonly readsEvents: boolean = false;
  readonly #limitBlocks: number;
  readonly #keys: InstanceKeys = new InstanceKeys();

  /** @param limitBlocks one tier of so many blocks an instance; 0 for the instance's own tiers */
  constructor(limitBlocks: number) {
    this.#limitBlocks = limitBlocks;
  }

  added(probe: InstanceProbe): void {
    this.#keys.add(probe.instance, this.#limitBlocks > 0 ? [this.#limitBlocks] : probe.capacityBlocks);
  }

  removed(instance: number): void {
    this.#keys.remove(instance);
  }

  event(): void {}

  refresh(): void {}

  routed(request: RequestView, instance: number): void {
    const keys = this.#keys.get(instance);
    if (keys === undefined) return;
    const words = request.keys.words;
    for (let block = 0; block < request.promptBlocks; block++) {
      const at = block * wordsPerKey;
      for (let tier = 1; tier < keys.tiers; tier++) keys.remove(tier, words, at);
      keys.touch(0, words, at);
      for (let tier = 0; tier < keys.tiers; tier++) {
        if (keys.size(tier) <= keys.capacityBlocks[tier]) break;
        keys.sinkOldest(tier);
      }
    }
  }

  hbmBlocks(request: RequestView, instance: number): number {
    return this.#keys.hbmBlocks(request, instance);
  }

  place(request: RequestView, instance: number): PrefixPlace {
    return this.#keys.place(request, instance);
  }

  utilization(instance: number, tier: number): number {
    return utilizationOf(this.#keys, instance, tier);
  }

  blocks(instance: number, tier: number): number {
    return this.#keys.get(instance)?.size(tier) ?? 0;
  }

  evictionQueue(instance: number, tier: number, most: number): readonly string[] {
    return this.#keys.get(instance)?.oldestKeys(tier, most) ?? [];
  }

  snapshot(): PlainState {
    return this.#keys.snapshot();
  }

  restore(state: PlainState): void {
    this.#keys.restore(state);
  }
}

export function utilizationOf(keys: InstanceKeys, instance: number, tier: number): number {
  const own = keys.get(instance);
  if (own === undefined || tier >= own.tiers) return 0;
  return Math.min(1, own.size(tier) / own.capacityBlocks[tier]);
}

// What a view of the instances' caches is told. A view belongs to the router: it learns of instances, of
// their cache events, and of the router's own decisions, and of nothing else.

export interface CacheView extends PrefixView, SnapshotState {
  /** Whether `event` is of any use to it. */
  readonly readsEvents: boolean;
  added(probe: InstanceProbe): void;
  removed(instance: number): void;
  event(instance: number, tier: number, stored: boolean, key: Uint32Array, nowUs: number): void;
  /** Brings the view up to `nowUs`, as far as what it knows is due. */
  refresh(nowUs: number): void;
  /** The request goes to that instance. */
  routed(request: RequestView, instance: number, nowUs: number): void;
}

/** Prefixes of prompts in the tiers of all instances. Instances that are not known hold nothing. */
export class PrefixDirectories {
  /** By tier: as many as the instance with the most tiers has. */
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

  has(instance: number): boolean {
    return this.#capacityBlocks.has(instance);
  }

  remove(instance: number): void {
    this.#capacityBlocks.delete(instance);
    for (const directory of this.tiers) directory.removeInstance(instance);
  }

  hbmBlocks(request: RequestView, instance: number): number {
    return this.#hbm.blocks(request, instance);
  }

  place(request: RequestView, instance: number): PrefixPlace {
    const capacityBlocks = this.#capacityBlocks.get(instance);
    if (capacityBlocks === undefined) return { blocks: 0, byTier: [] };
    const place = this.#all.place(request, instance);
    if (place.byTier.length === capacityBlocks.length) return place;
    return { blocks: place.blocks, byTier: place.byTier.slice(0, capacityBlocks.length) };
  }

  snapshot(): PlainState {
    return {
      instances: [...this.#capacityBlocks].map(([instance, capacityBlocks]) => ({
        instance,
        capacityBlocks,
      })),
      tiers: this.tiers.map((directory) => directory.snapshot()),
    };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as unknown as {
      readonly instances: readonly { instance: number; capacityBlocks: readonly number[] }[];
      readonly tiers: readonly ReturnType<KeyDirectory['snapshot']>[];
    };
    this.#capacityBlocks.clear();
    for (const { instance, capacityBlocks } of saved.instances) this.add(instance, capacityBlocks);
    saved.tiers.forEach((tier, i) => {
      this.tiers[i].restore(tier);
    });
  }
}

/** The same with the order in which each instance used its keys, for those that predict evictions. */
export class InstanceKeys {
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

  get(instance: number): TierKeys | undefined {
    return this.#byInstance.get(instance);
  }

  hbmBlocks(request: RequestView, instance: number): number {
    return this.#directories.hbmBlocks(request, instance);
  }

  place(request: RequestView, instance: number): PrefixPlace {
    return this.#directories.place(request, instance);
  }

  snapshot(): PlainState {
    return [...this.#byInstance].map(([instance, keys]) => ({
      instance,
      capacityBlocks: keys.capacityBlocks,
      tiers: keys.snapshot(),
    }));
  }

  restore(state: PlainState): void {
    for (const instance of this.#byInstance.keys()) this.remove(instance);
    // the state is what `snapshot` made
    type Saved = { instance: number; capacityBlocks: readonly number[]; tiers: readonly Uint32Array[] };
    for (const { instance, capacityBlocks, tiers } of state as unknown as readonly Saved[]) {
      this.add(instance, capacityBlocks);
      this.#byInstance.get(instance)?.restore(tiers);
    }
  }
}

//  Cache events that were sent and are not known to the router yet, in order.

/** Numbers of an event: its time, and `instance * 2^8 + tier * 2 + stored`. */
const FIELDS = 2;
const INSTANCE_UNIT = 256;

export interface EventLogState {
  readonly events: Float64Array;
  readonly keys: Uint32Array;
}

export class EventLog {
  #events: Float64Array = new Float64Array(64 * FIELDS);
  #keys: Uint32Array = new Uint32Array(64 * wordsPerKey);
  #first = 0;
  #end = 0;

  get size(): number {
    return this.#end - this.#first;
  }

  add(timeUs: number, instance: number, tier: number, stored: boolean, key: Uint32Array): void {
    if (this.#end * FIELDS === this.#events.length) this.#makeRoom();
    this.#events[this.#end * FIELDS] = timeUs;
    this.#events[this.#end * FIELDS + 1] = instance * INSTANCE_UNIT + tier * 2 + (stored ? 1 : 0);
    for (let i = 0; i < wordsPerKey; i++) this.#keys[this.#end * wordsPerKey + i] = key[i];
    this.#end++;
  }

  /** Takes events out in order, up to those sent at `untilUs`. The words hold during the call. */
  take(
    untilUs: number,
    apply: (instance: number, tier: number, stored: boolean, words: Uint32Array, at: number) => void,
  ): void {
    while (this.#first < this.#end && this.#events[this.#first * FIELDS] <= untilUs) {
      const code = this.#events[this.#first * FIELDS + 1];
      const low = code % INSTANCE_UNIT;
      const at = this.#first++ * wordsPerKey;
      apply((code - low) / INSTANCE_UNIT, low >> 1, (low & 1) === 1, this.#keys, at);
    }
    if (this.#first === this.#end) {
      this.#first = 0;
      this.#end = 0;
    }
  }

  #makeRoom(): void {
    const size = this.size;
    const room = Math.max(64, size * 2);
    const events = new Float64Array(room * FIELDS);
    events.set(this.#events.subarray(this.#first * FIELDS, this.#end * FIELDS));
    const keys = new Uint32Array(room * wordsPerKey);
    keys.set(this.#keys.subarray(this.#first * wordsPerKey, this.#end * wordsPerKey));
    this.#events = events;
    this.#keys = keys;
    this.#first = 0;
    this.#end = size;
  }

  snapshot(): PlainState {
    return {
      events: this.#events.slice(this.#first * FIELDS, this.#end * FIELDS),
      keys: this.#keys.slice(this.#first * wordsPerKey, this.#end * wordsPerKey),
    };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const { events, keys } = state as unknown as EventLogState;
    this.#events = events.slice();
    this.#keys = keys.slice();
    this.#first = 0;
    this.#end = events.length / FIELDS;
  }
}

// The shadow that follows cache events, each known a fixed time after it was sent. With speculation it also
// believes, for a while, that the blocks of a prompt it has just routed are where it sent them: that covers
// the time until their events come, in which requests with the same prefix would go elsewhere. Within a tier
// the blocks that the router has not used for longest are expected to be evicted next.

export class EventShadow implements CacheView, ShadowView {
  readonly model: ShadowName;
  readonly readsEvents: boolean = true;
  readonly #delayUs: number;
  readonly #keys: InstanceKeys;
  readonly #underWay: EventLog = new EventLog();
  readonly #speculation: Speculation | null;

  /** @param speculativeTtlUs 0 for no speculation */
  constructor(delayUs: number, speculativeTtlUs: number) {
    this.#delayUs = delayUs;
    this.#speculation = speculativeTtlUs > 0 ? new Speculation(speculativeTtlUs) : null;
    // what is believed counts as in HBM, whatever was told
    const believed = this.#speculation?.directory;
    this.#keys = new InstanceKeys(believed === undefined ? [] : [{ directory: believed, tier: 0 }]);
    this.model = this.#speculation === null ? 'events' : 'speculative';
  }

  added(probe: InstanceProbe): void {
    this.#keys.add(probe.instance, probe.capacityBlocks);
  }

  removed(instance: number): void {
    this.#keys.remove(instance);
    this.#speculation?.removed(instance);
  }

  event(instance: number, tier: number, stored: boolean, key: Uint32Array, nowUs: number): void {
    if (this.#delayUs > 0) this.#underWay.add(nowUs, instance, tier, stored, key);
    else this.#apply(instance, tier, stored, key, 0);
  }

  refresh(nowUs: number): void {
    this.#underWay.take(nowUs - this.#delayUs, (instance, tier, stored, words, at) => {
      this.#apply(instance, tier, stored, words, at);
    });
    this.#speculation?.expire(nowUs);
  }

  routed(request: RequestView, instance: number, nowUs: number): void {
    const keys = this.#keys.get(instance);
    if (keys === undefined) return;
    const words = request.keys.words;
    for (let block = 0; block < request.promptBlocks; block++) {
      const tier = keys.tierOf(words, block * wordsPerKey);
      if (tier === -1) break;
      keys.refresh(tier, words, block * wordsPerKey);
    }
    this.#speculation?.believe(request, instance, nowUs);
  }

  hbmBlocks(request: RequestView, instance: number): number {
    if (this.#speculation === null) return this.#keys.hbmBlocks(request, instance);
    return this.place(request, instance).byTier[0] ?? 0;
  }

  place(request: RequestView, instance: number): PrefixPlace {
    return this.#keys.place(request, instance);
  }

  utilization(instance: number, tier: number): number {
    return utilizationOf(this.#keys, instance, tier);
  }

  blocks(instance: number, tier: number): number {
    const told = this.#keys.get(instance)?.size(tier) ?? 0;
    return tier === 0 ? told + (this.#speculation?.size(instance) ?? 0) : told;
  }

  evictionQueue(instance: number, tier: number, most: number): readonly string[] {
    return this.#keys.get(instance)?.oldestKeys(tier, most) ?? [];
  }

  #apply(instance: number, tier: number, stored: boolean, words: Uint32Array, at: number): void {
    const keys = this.#keys.get(instance);
    if (stored) keys?.touch(tier, words, at);
    else keys?.remove(tier, words, at);
    // what is known needs no belief; what was lost must not be believed in
    if (tier === 0) this.#speculation?.settled(instance, words, at);
  }

  snapshot(): PlainState {
    return {
      keys: this.#keys.snapshot(),
      underWay: this.#underWay.snapshot(),
      speculation: this.#speculation?.snapshot() ?? null,
    };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as { keys: PlainState; underWay: PlainState; speculation: PlainState };
    this.#keys.restore(saved.keys);
    this.#underWay.restore(saved.underWay);
    this.#speculation?.restore(saved.speculation);
  }
}

// Which instances hold each block key, for all instances at once. One walk along a prompt's keys says how
// many leading blocks each instance has; what it costs depends on the instances that hold some, and not on
// how many there are. A router asks for the same prompt once for each candidate, so the last answer is kept
// until the prompt or a directory is another.

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

//  Block keys in the order of their last use. It has no limit: whoever adds keys takes out the oldest.

export class KeyLru {
  readonly #table: KeyTable = new KeyTable();
  #older: Int32Array = new Int32Array(this.#table.slots);
  #newer: Int32Array = new Int32Array(this.#table.slots);
  #oldest = NONE;
  #newest = NONE;

  get size(): number {
    return this.#table.size;
  }

  /** Keys by slot, for what `oldest` and `touch` return. */
  get words(): Uint32Array {
    return this.#table.words;
  }

  has(source: Uint32Array, at: number): boolean {
    return this.#table.find(source, at) !== NONE;
  }

  /** Puts the key in, or moves it, to the newest place. @returns its slot */
  touch(source: Uint32Array, at: number): number {
    const before = this.#table.size;
    const slot = this.#table.findOrAdd(source, at);
    if (this.#table.size === before) {
      if (slot === this.#newest) return slot;
      this.#unlink(slot);
    } else if (this.#older.length < this.#table.slots) {
      this.#older = grown(this.#older, this.#table.slots);
      this.#newer = grown(this.#newer, this.#table.slots);
    }
    this.#older[slot] = this.#newest;
    this.#newer[slot] = NONE;
    if (this.#newest === NONE) this.#oldest = slot;
    else this.#newer[this.#newest] = slot;
    this.#newest = slot;
    return slot;
  }

  /** Moves the key to the newest place if it is there. */
  refresh(source: Uint32Array, at: number): boolean {
    if (this.#table.find(source, at) === NONE) return false;
    this.touch(source, at);
    return true;
  }

  /** Slot of the key that was used longest ago, or -1. */
  oldest(): number {
    return this.#oldest;
  }

  /** The slot used next after `slot`, or -1. */
  newerThan(slot: number): number {
    return this.#newer[slot];
  }

  removeSlot(slot: number): void {
    this.#unlink(slot);
    this.#table.remove(slot);
  }

  remove(source: Uint32Array, at: number): boolean {
    const slot = this.#table.find(source, at);
    if (slot === NONE) return false;
    this.removeSlot(slot);
    return true;
  }

  clear(): void {
    this.#table.clear();
    this.#oldest = NONE;
    this.#newest = NONE;
  }

  /** Keys as hexadecimal digits, the oldest first. */
  oldestKeys(most: number): string[] {
    const keys: string[] = [];
    for (let slot = this.#oldest; slot !== NONE && keys.length < most; slot = this.#newer[slot]) {
      keys.push(keyToHex(this.words, slot * wordsPerKey));
    }
    return keys;
  }

  /** All keys, the oldest first, four words each. */
  snapshot(): Uint32Array {
    const words = new Uint32Array(this.size * wordsPerKey);
    let to = 0;
    for (let slot = this.#oldest; slot !== NONE; slot = this.#newer[slot], to += wordsPerKey) {
      words.set(this.words.subarray(slot * wordsPerKey, (slot + 1) * wordsPerKey), to);
    }
    return words;
  }

  restore(words: Uint32Array): void {
    this.clear();
    for (let at = 0; at < words.length; at += wordsPerKey) this.touch(words, at);
  }

  #unlink(slot: number): void {
    const older = this.#older[slot];
    const newer = this.#newer[slot];
    if (older === NONE) this.#oldest = newer;
    else this.#newer[older] = newer;
    if (newer === NONE) this.#newest = older;
    else this.#older[newer] = older;
  }
}

function grown(old: Int32Array, length: number): Int32Array {
  const longer = new Int32Array(length);
  longer.set(old);
  return longer;
}

// From block keys of four words to slots: small integers that stay the same while the key is in the table,
// and are used again after it has left. Open addressing with linear probing; a removal closes the gap, so
// there are no tombstones and the layout depends on the keys alone.

const EMPTY = -1;
const FIRST_SLOTS = 64;

export class KeyTable {
  /** Keys by slot. Replaced when the table grows. */
  words: Uint32Array = new Uint32Array(FIRST_SLOTS * wordsPerKey);
  size = 0;
  #cells: Int32Array = new Int32Array(FIRST_SLOTS * 2).fill(EMPTY);
  #mask = FIRST_SLOTS * 2 - 1;
  /** Slots that were used and are free now, a stack. */
  #free: number[] = [];
  #used = 0;

  /** Slots that the table has room for; columns beside it are as long. */
  get slots(): number {
    return this.words.length / wordsPerKey;
  }

  /** Slot of the key at `source[at]`, or -1. */
  find(source: Uint32Array, at: number): number {
    return this.#cells[this.#cellOf(source, at)];
  }

  /** Slot of the key, which is put in where it was not. `size` says whether it was. */
  findOrAdd(source: Uint32Array, at: number): number {
    let cell = this.#cellOf(source, at);
    if (this.#cells[cell] !== EMPTY) return this.#cells[cell];
    if (this.size === this.slots) {
      this.#grow();
      cell = this.#cellOf(source, at);
    }
    const slot = this.#free.pop() ?? this.#used++;
    const to = slot * wordsPerKey;
    for (let i = 0; i < wordsPerKey; i++) this.words[to + i] = source[at + i];
    this.#cells[cell] = slot;
    this.size++;
    return slot;
  }

  remove(slot: number): void {
    let hole = this.#cellOf(this.words, slot * wordsPerKey);
    invariant(this.#cells[hole] === slot, 'only a key of the table can be removed');
    this.#free.push(slot);
    this.size--;
    // entries behind the hole move into it unless their own place lies between the two
    for (let cell = (hole + 1) & this.#mask; this.#cells[cell] !== EMPTY; cell = (cell + 1) & this.#mask) {
      const home = this.#homeOf(this.words, this.#cells[cell] * wordsPerKey);
      const stays = ((cell - home) & this.#mask) < ((cell - hole) & this.#mask);
      if (stays) continue;
      this.#cells[hole] = this.#cells[cell];
      hole = cell;
    }
    this.#cells[hole] = EMPTY;
  }

  clear(): void {
    this.#cells.fill(EMPTY);
    this.#free = [];
    this.#used = 0;
    this.size = 0;
  }

  #homeOf(source: Uint32Array, at: number): number {
    let h = source[at] ^ Math.imul(source[at + 1], 0x9e3779b1);
    h ^= Math.imul(source[at + 2], 0x85ebca6b) ^ Math.imul(source[at + 3], 0xc2b2ae35);
    h = Math.imul(h ^ (h >>> 15), 0x2c1b3c6d);
    return (h ^ (h >>> 13)) & this.#mask;
  }

  /** The cell that holds the key, or the empty one where it belongs. */
  #cellOf(source: Uint32Array, at: number): number {
    let cell = this.#homeOf(source, at);
    for (let slot = this.#cells[cell]; slot !== EMPTY; slot = this.#cells[cell]) {
      const from = slot * wordsPerKey;
      const words = this.words;
      if (
        words[from] === source[at] &&
        words[from + 1] === source[at + 1] &&
        words[from + 2] === source[at + 2] &&
        words[from + 3] === source[at + 3]
      ) {
        return cell;
      }
      cell = (cell + 1) & this.#mask;
    }
    return cell;
  }

  #grow(): void {
    const words = new Uint32Array(this.words.length * 2);
    words.set(this.words);
    this.words = words;
    const slots = this.#cells.filter((slot) => slot !== EMPTY);
    this.#cells = new Int32Array(this.#cells.length * 2).fill(EMPTY);
    this.#mask = this.#cells.length - 1;
    for (const slot of slots) this.#cells[this.#cellOf(words, slot * wordsPerKey)] = slot;
  }
}

// Where KV lies as the instances told it. The router reads all that was sent so far when it makes a decision
// and the last reading is as old as the interval; in between it knows what it knew. That is what a full copy
// of every cache at those times would show, at the cost of the changes alone.

export class ObservedView implements CacheView {
  readonly readsEvents: boolean = true;
  readonly #intervalUs: number;
  readonly #keys: PrefixDirectories = new PrefixDirectories();
  readonly #unread: EventLog = new EventLog();
  #readUs = 0;

  /** @param intervalUs 0 to know everything at once */
  constructor(intervalUs: number) {
    this.#intervalUs = intervalUs;
  }

  added(probe: InstanceProbe): void {
    this.#keys.add(probe.instance, probe.capacityBlocks);
  }

  removed(instance: number): void {
    this.#keys.remove(instance);
  }

  event(instance: number, tier: number, stored: boolean, key: Uint32Array, nowUs: number): void {
    if (this.#intervalUs === 0) this.#apply(instance, tier, stored, key, 0);
    else this.#unread.add(nowUs, instance, tier, stored, key);
  }

  refresh(nowUs: number): void {
    if (this.#intervalUs === 0 || nowUs - this.#readUs < this.#intervalUs) return;
    this.#readUs = nowUs;
    this.#unread.take(Infinity, (instance, tier, stored, words, at) => {
      this.#apply(instance, tier, stored, words, at);
    });
  }

  #apply(instance: number, tier: number, stored: boolean, words: Uint32Array, at: number): void {
    if (!this.#keys.has(instance)) return;
    const directory = this.#keys.tiers[tier];
    if (stored) directory.add(instance, words, at);
    else directory.remove(instance, words, at);
  }

  routed(): void {}

  hbmBlocks(request: RequestView, instance: number): number {
    return this.#keys.hbmBlocks(request, instance);
  }

  place(request: RequestView, instance: number): PrefixPlace {
    return this.#keys.place(request, instance);
  }

  snapshot(): PlainState {
    return { keys: this.#keys.snapshot(), unread: this.#unread.snapshot(), readUs: this.#readUs };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as { keys: PlainState; unread: PlainState; readUs: number };
    this.#keys.restore(saved.keys);
    this.#unread.restore(saved.unread);
    this.#readUs = saved.readUs;
  }
}

//  Blocks of routed prompts that are believed to be in HBM until their events come, or a time has passed.

interface Beliefs {
  /** In order of their ends: all last equally long, so the order of their last use is that of their ends. */
  readonly keys: KeyLru;
  /** By slot. */
  endUs: Float64Array;
}

export class Speculation implements SnapshotState {
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

// The keys that are believed to lie in each tier of an instance, in the order of their last use. The
// directories of all instances are told of each change.

export class TierKeys {
  readonly capacityBlocks: readonly number[];
  /** By tier, HBM first. */
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

  snapshot(): readonly Uint32Array[] {
    return this.#tiers.map((tier) => tier.snapshot());
  }

  /** Into tiers without keys. */
  restore(state: readonly Uint32Array[]): void {
    state.forEach((words, tier) => {
      for (let at = 0; at < words.length; at += wordsPerKey) this.touch(tier, words, at);
    });
  }
}

//  What the router believes of where KV lies: as the instances told it, late, and as it predicts.

/** The shadow of a configuration, which `checkShadowConfig` has checked; null for none. */
export function newShadow(config: ShadowConfig): (CacheView & ShadowView) | null {
  switch (config.model) {
    case 'none':
      return null;
    case 'approximate':
      return new ApproximateShadow(config.blocks);
    case 'events':
      return new EventShadow(config.eventDelayUs, 0);
    case 'speculative':
      return new EventShadow(config.eventDelayUs, config.speculativeTtlUs);
  }
}
