/**
 * First in, first out: the replica that came into its tier longest ago, however often it was used since. A
 * baseline, and the shortest example of a policy.
 */

import type { EvictionPolicy, PolicyWorld } from './evictionPolicy.ts';
import { RankedReplicas } from './parts/index.ts';

export class Fifo implements EvictionPolicy {
  readonly #world: PolicyWorld;
  readonly #ranked: RankedReplicas;
  /** When the replica came, and in which use of its slot. */
  readonly #arrival: Float64Array;
  readonly #generation: Uint32Array;
  #arrivals = 0;

  constructor(world: PolicyWorld) {
    this.#world = world;
    this.#ranked = new RankedReplicas(world);
    this.#arrival = new Float64Array(world.base[world.tiers]);
    this.#generation = new Uint32Array(world.base[world.tiers]);
  }

  enter(replica: number, tier: number, sizeClass: number): void {
    const generation = this.#world.generationOf(replica);
    if (this.#generation[replica] !== generation) {
      this.#generation[replica] = generation;
      this.#arrival[replica] = ++this.#arrivals;
    }
    this.#ranked.enter(replica, tier, sizeClass, this.#arrival[replica]);
  }

  leave(replica: number, tier: number, sizeClass: number): void {
    this.#ranked.leave(replica, tier, sizeClass);
  }

  touch(): void {}

  victim(tier: number): number {
    return this.#ranked.first(tier);
  }

  victimOfClass(tier: number, sizeClass: number): number {
    return this.#ranked.firstOfClass(tier, sizeClass);
  }

  forgotten(): void {}

  dump(tier: number): number[] {
    return this.#ranked.dump(tier);
  }

  checkIntegrity(): void {
    this.#ranked.checkIntegrity();
  }
}
