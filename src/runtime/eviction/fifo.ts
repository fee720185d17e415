/**
 * First in, first out: the replica that came into its tier longest ago goes first, however often it was used since. A
 * baseline, and the shortest example of a policy.
 */

import { firstRows, grown, rowsFor } from '../growing.ts';
import type { StateVisitor } from '../snapshot.ts';
import type { EvictionWorld } from './evictionPolicy.ts';
import { RankedPolicy } from './rankedPolicy.ts';

export class Fifo extends RankedPolicy {
  readonly #world: EvictionWorld;
  /** When the replica came, and the generation of its slot then. */
  #arrival: Float64Array;
  #generation: Uint32Array;
  #arrivals = 0;

  constructor(world: EvictionWorld) {
    super(world);
    this.#world = world;
    const rows = firstRows(world.base[world.tiers], world.whole);
    this.#arrival = new Float64Array(rows);
    this.#generation = new Uint32Array(rows);
  }

  protected rankOf(replica: number): number {
    const generation = this.#world.generationOf(replica);
    if (replica >= this.#arrival.length) this.#grow(replica);
    if (this.#generation[replica] !== generation) {
      this.#generation[replica] = generation;
      this.#arrival[replica] = ++this.#arrivals;
    }
    return this.#arrival[replica];
  }

  #grow(replica: number): void {
    const { base, tiers } = this.#world;
    const rows = rowsFor(replica, this.#arrival.length, base[tiers]);
    this.#arrival = grown(this.#arrival, rows);
    this.#generation = grown(this.#generation, rows);
  }

  override visitState(visitor: StateVisitor): void {
    super.visitState(visitor);
    this.#arrival = visitor.growing(this.#arrival);
    this.#generation = visitor.growing(this.#generation);
    this.#arrivals = visitor.number(this.#arrivals);
  }
}
