/**
 * Least frequently used first: the replica whose content was used by the fewest requests since the manager
 * knows it, and of equal ones the one that was let go longest ago. A count is lost with its content, so a
 * block that returns begins anew.
 */

import type { EvictionPolicy, PolicyWorld, Visit } from './evictionPolicy.ts';
import { RankedReplicas } from './parts/index.ts';

export class Lfu implements EvictionPolicy {
  readonly #ranked: RankedReplicas;
  /** By content: requests that used it. A replica keeps the rank with which it entered. */
  readonly #uses: Float64Array;

  constructor(world: PolicyWorld) {
    this.#ranked = new RankedReplicas(world);
    this.#uses = new Float64Array(world.contents);
  }

  enter(replica: number, tier: number, sizeClass: number, content: number): void {
    this.#ranked.enter(replica, tier, sizeClass, this.#uses[content]);
  }

  leave(replica: number, tier: number, sizeClass: number): void {
    this.#ranked.leave(replica, tier, sizeClass);
  }

  touch(content: number, _visit: Visit): void {
    this.#uses[content]++;
  }

  victim(tier: number): number {
    return this.#ranked.first(tier);
  }

  victimOfClass(tier: number, sizeClass: number): number {
    return this.#ranked.firstOfClass(tier, sizeClass);
  }

  forgotten(content: number): void {
    this.#uses[content] = 0;
  }

  dump(tier: number): number[] {
    return this.#ranked.dump(tier);
  }

  checkIntegrity(): void {
    this.#ranked.checkIntegrity();
  }
}
