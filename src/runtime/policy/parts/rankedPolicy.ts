/**
 * A policy that gives each replica one number as it enters: the lowest goes first, and of equal ones the one
 * that entered first. What it makes its numbers of is left to the policy.
 */

import type { StateVisitor } from '../../snapshot/index.ts';
import type { EvictionPolicy, PolicyWorld, Visit } from '../evictionPolicy.ts';
import { RankedReplicas } from './rankedReplicas.ts';

export abstract class RankedPolicy implements EvictionPolicy {
  readonly #ranked: RankedReplicas;

  constructor(world: PolicyWorld) {
    this.#ranked = new RankedReplicas(world);
  }

  /** The rank with which the replica enters. */
  protected abstract rankOf(replica: number, content: number): number;

  enter(replica: number, tier: number, sizeClass: number, content: number): void {
    this.#ranked.enter(replica, tier, sizeClass, this.rankOf(replica, content));
  }

  leave(replica: number, tier: number, sizeClass: number): void {
    this.#ranked.leave(replica, tier, sizeClass);
  }

  touch(_content: number, _visit: Visit): void {}

  victim(tier: number): number {
    return this.#ranked.first(tier);
  }

  victimOfClass(tier: number, sizeClass: number): number {
    return this.#ranked.firstOfClass(tier, sizeClass);
  }

  forgotten(_content: number): void {}

  dump(tier: number): number[] {
    return this.#ranked.dump(tier);
  }

  visitState(visitor: StateVisitor): void {
    this.#ranked.visitState(visitor);
  }

  checkIntegrity(): void {
    this.#ranked.checkIntegrity();
  }
}
