/**
 * What a view of the instances' caches is told. A view belongs to the router: it learns of instances, of
 * their cache events, and of the router's own decisions, and of nothing else.
 */

import type { InstanceProbe } from '../instances.ts';
import type { PlainState, Stateful } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { PrefixPlace, PrefixView } from '../routerState.ts';
import { KeyDirectory, LeadingBlocks, type PrefixLayer } from './keyDirectory.ts';
import { TierKeys } from './tierKeys.ts';

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
