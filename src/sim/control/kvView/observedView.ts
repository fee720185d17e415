/**
 * Where KV lies as the instances told it. The router reads all that was sent so far when it makes a decision
 * and the last reading is as old as the interval; in between it knows what it knew. That is what a full copy
 * of every cache at those times would show, at the cost of the changes alone.
 */

import type { InstanceProbe } from '../instances.ts';
import type { PlainState } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { PrefixPlace } from '../routerState.ts';
import { type CacheView, PrefixDirectories } from './cacheView.ts';
import { EventLog } from './eventLog.ts';

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
