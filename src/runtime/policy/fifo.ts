/**
 * First in, first out: the replica that came into its tier longest ago, however often it was used since. A
 * baseline, and the shortest example of a policy.
 */

import type { StateVisitor } from '../snapshot/index.ts';
import type { PolicyWorld } from './evictionPolicy.ts';
import { RankedPolicy } from './parts/index.ts';

export class Fifo extends RankedPolicy {
  readonly #world: PolicyWorld;
  /** When the replica came, and in which use of its slot. */
  readonly #arrival: Float64Array;
  readonly #generation: Uint32Array;
  #arrivals = 0;

  constructor(world: PolicyWorld) {
    super(world);
    this.#world = world;
    this.#arrival = new Float64Array(world.base[world.tiers]);
    this.#generation = new Uint32Array(world.base[world.tiers]);
  }

  protected rankOf(replica: number): number {
    const generation = this.#world.generationOf(replica);
    if (this.#generation[replica] !== generation) {
      this.#generation[replica] = generation;
      this.#arrival[replica] = ++this.#arrivals;
    }
    return this.#arrival[replica];
  }

  override visitState(visitor: StateVisitor): void {
    super.visitState(visitor);
    visitor.array(this.#arrival);
    visitor.array(this.#generation);
    this.#arrivals = visitor.number(this.#arrivals);
  }
}
