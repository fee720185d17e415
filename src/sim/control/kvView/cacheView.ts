/**
 * What a view of the instances' caches is told. A view belongs to the router: it learns of instances, of
 * their cache events, and of the router's own decisions, and of nothing else.
 */

import type { InstanceProbe } from '../instances.ts';
import type { PlainState, Stateful } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { PrefixPlace, PrefixView } from '../routerState.ts';
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

/** Keys by instance, and lookups in them. Instances that are not known hold nothing. */
export class InstanceKeys {
  readonly #byInstance = new Map<number, TierKeys>();

  add(instance: number, capacityBlocks: readonly number[]): void {
    this.#byInstance.set(instance, new TierKeys(capacityBlocks));
  }

  remove(instance: number): void {
    this.#byInstance.delete(instance);
  }

  get(instance: number): TierKeys | undefined {
    return this.#byInstance.get(instance);
  }

  hbmBlocks(request: RequestView, instance: number): number {
    return this.#byInstance.get(instance)?.hbmBlocks(request) ?? 0;
  }

  place(request: RequestView, instance: number): PrefixPlace {
    return this.#byInstance.get(instance)?.place(request) ?? { blocks: 0, byTier: [] };
  }

  snapshot(): PlainState {
    return [...this.#byInstance].map(([instance, keys]) => ({
      instance,
      capacityBlocks: keys.capacityBlocks,
      tiers: keys.snapshot(),
    }));
  }

  restore(state: PlainState): void {
    this.#byInstance.clear();
    // the state is what `snapshot` made
    type Saved = { instance: number; capacityBlocks: readonly number[]; tiers: readonly Uint32Array[] };
    for (const { instance, capacityBlocks, tiers } of state as unknown as readonly Saved[]) {
      this.add(instance, capacityBlocks);
      this.#byInstance.get(instance)?.restore(tiers);
    }
  }
}
