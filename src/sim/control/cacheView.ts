import { wordsPerKey } from '../../runtime/keys/keyChain.ts';
import type { Stateful, StateVisitor } from '../../runtime/snapshot.ts';
import type { ShadowConfig } from './controlPlane.ts';
import { InstanceKeys, KeyDirectory, PrefixDirectories } from './keyDirectories.ts';
import { KeyLru } from './keyTables.ts';
import type { InstanceProbe, RequestView } from './policy.ts';
import type { PrefixPlace, PrefixView, ShadowName, ShadowView } from './routerState.ts';

/**
 * The shadow that sees nothing but the router's own decisions: the blocks of a routed prompt are believed to
 * be in HBM of its instance from then on, and what a tier has no room for, least recently used first, in the
 * tier below; what leaves the last tier is gone. The capacities are the instance's, or a limit of the
 * router's own memory for the whole instance.
 */
class ApproximateShadow implements CacheView, ShadowView {
  readonly model: ShadowName = 'approximate';
  readonly readsEvents: boolean = false;
  readonly #limitBlocks: number;
  readonly #keys: InstanceKeys = new InstanceKeys();

  /** @param limitBlocks blocks of one tier for each instance; 0 for the instance's own tiers */
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
    const keys = this.#keys.tiersOf(instance);
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

  topBlocks(request: RequestView, instance: number): number {
    return this.#keys.topBlocks(request, instance);
  }

  place(request: RequestView, instance: number): PrefixPlace {
    return this.#keys.place(request, instance);
  }

  utilization(instance: number, tier: number): number {
    return utilizationOf(this.#keys, instance, tier);
  }

  blocks(instance: number, tier: number): number {
    return this.#keys.tiersOf(instance)?.size(tier) ?? 0;
  }

  evictionQueue(instance: number, tier: number, most: number): readonly string[] {
    return this.#keys.tiersOf(instance)?.oldestKeys(tier, most) ?? [];
  }

  visitState(visitor: StateVisitor): void {
    this.#keys.visitState(visitor);
  }
}

function utilizationOf(keys: InstanceKeys, instance: number, tier: number): number {
  const own = keys.tiersOf(instance);
  if (own === undefined || tier >= own.tiers) return 0;
  return Math.min(1, own.size(tier) / own.capacityBlocks[tier]);
}

//  The contract.

export interface CacheView extends PrefixView, Stateful {
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

//  Cache events that were sent and are not known to the router yet, in order.

/** Numbers of an event: its time, and `instance * 2^8 + tier * 2 + stored`. */
const FIELDS = 2;
const INSTANCE_UNIT = 256;

class EventLog {
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

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => ({
        events: this.#events.slice(this.#first * FIELDS, this.#end * FIELDS),
        keys: this.#keys.slice(this.#first * wordsPerKey, this.#end * wordsPerKey),
      }),
      ({ events, keys }) => {
        this.#events = events.slice();
        this.#keys = keys.slice();
        this.#first = 0;
        this.#end = events.length / FIELDS;
      },
    );
  }
}

// The shadow that follows cache events, each known a fixed time after it was sent. With speculation it also
// believes, for a while, that the blocks of a prompt it has just routed are where it sent them: that covers
// the time until their events come, in which requests with the same prefix would go elsewhere. Within a tier
// the blocks that the router has not used for longest are expected to be evicted next.

class EventShadow implements CacheView, ShadowView {
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
    const keys = this.#keys.tiersOf(instance);
    if (keys === undefined) return;
    const words = request.keys.words;
    for (let block = 0; block < request.promptBlocks; block++) {
      const tier = keys.tierOf(words, block * wordsPerKey);
      if (tier === -1) break;
      keys.refresh(tier, words, block * wordsPerKey);
    }
    this.#speculation?.believe(request, instance, nowUs);
  }

  topBlocks(request: RequestView, instance: number): number {
    if (this.#speculation === null) return this.#keys.topBlocks(request, instance);
    return this.place(request, instance).byTier[0] ?? 0;
  }

  place(request: RequestView, instance: number): PrefixPlace {
    return this.#keys.place(request, instance);
  }

  utilization(instance: number, tier: number): number {
    return utilizationOf(this.#keys, instance, tier);
  }

  blocks(instance: number, tier: number): number {
    const told = this.#keys.tiersOf(instance)?.size(tier) ?? 0;
    return tier === 0 ? told + (this.#speculation?.size(instance) ?? 0) : told;
  }

  evictionQueue(instance: number, tier: number, most: number): readonly string[] {
    return this.#keys.tiersOf(instance)?.oldestKeys(tier, most) ?? [];
  }

  #apply(instance: number, tier: number, stored: boolean, words: Uint32Array, at: number): void {
    const keys = this.#keys.tiersOf(instance);
    if (stored) keys?.touch(tier, words, at);
    else keys?.remove(tier, words, at);
    // what is known needs no belief; what was lost must not be believed in
    if (tier === 0) this.#speculation?.settled(instance, words, at);
  }

  visitState(visitor: StateVisitor): void {
    this.#keys.visitState(visitor);
    this.#underWay.visitState(visitor);
    this.#speculation?.visitState(visitor);
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
    if (!this.#keys.knows(instance)) return;
    const directory = this.#keys.tiers[tier];
    if (stored) directory.add(instance, words, at);
    else directory.remove(instance, words, at);
  }

  routed(): void {}

  topBlocks(request: RequestView, instance: number): number {
    return this.#keys.topBlocks(request, instance);
  }

  place(request: RequestView, instance: number): PrefixPlace {
    return this.#keys.place(request, instance);
  }

  visitState(visitor: StateVisitor): void {
    this.#keys.visitState(visitor);
    this.#unread.visitState(visitor);
    this.#readUs = visitor.number(this.#readUs);
  }
}

//  Blocks of routed prompts that are believed to be in HBM until their events come, or a time has passed.

interface Beliefs {
  /** In order of their ends: all last equally long, so they end in the order of their last use. */
  readonly keys: KeyLru;
  /** End of each belief by slot, in microseconds. */
  endUs: Float64Array;
}

class Speculation implements Stateful {
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

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => {
        const believed = [...this.#byInstance].filter(([, { keys }]) => keys.size > 0);
        return believed.map(([instance, { keys, endUs }]) => {
          const ends = new Float64Array(keys.size);
          let i = 0;
          for (let slot = keys.oldest(); slot !== -1; slot = keys.newerThan(slot)) ends[i++] = endUs[slot];
          return { instance, keys: keys.inOrder(), ends };
        });
      },
      (saved) => {
        this.#byInstance.clear();
        this.directory.clear();
        for (const { instance, keys, ends } of saved) {
          ends.forEach((endUs, i) => {
            this.#add(instance, keys, i * wordsPerKey, endUs);
          });
        }
      },
    );
  }
}

//  Shadows by name.

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
