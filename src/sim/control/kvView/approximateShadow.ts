/**
 * The shadow that sees nothing but the router's own decisions: the blocks of a routed prompt are believed to
 * be in HBM of its instance from then on, and what a tier has no room for, least recently used first, in the
 * tier below; what leaves the last tier is gone. The capacities are the instance's, or a limit of the
 * router's own memory for the whole instance.
 */

import { wordsPerKey } from '../../../runtime/keys/index.ts';
import type { InstanceProbe } from '../instances.ts';
import type { PlainState } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { PrefixPlace, ShadowName, ShadowView } from '../routerState.ts';
import { type CacheView, InstanceKeys } from './cacheView.ts';

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
