/**
 * The shadow that follows cache events, each known a fixed time after it was sent. With speculation it also
 * believes, for a while, that the blocks of a prompt it has just routed are where it sent them: that covers
 * the time until their events come, in which requests with the same prefix would go elsewhere. Within a tier
 * the blocks that the router has not used for longest are expected to be evicted next.
 */

import { wordsPerKey } from '../../../runtime/keys/index.ts';
import type { InstanceProbe } from '../instances.ts';
import type { PlainState } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { PrefixPlace, ShadowName, ShadowView } from '../routerState.ts';
import { utilizationOf } from './approximateShadow.ts';
import { type CacheView, InstanceKeys } from './cacheView.ts';
import { EventLog } from './eventLog.ts';
import { Speculation } from './speculation.ts';

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
