/** What the router remembers of where it sent requests, as far as a policy reads it. */

import { makeScorer, type PlainState, type RoutingContext, type Scorer } from '../../sim/control/index.ts';
import { type MemoryName, memoryOf } from '../features/index.ts';

export class RouterMemory {
  readonly #scorers: ReadonlyMap<MemoryName, { readonly scorer: Scorer; values: Float64Array }>;

  constructor(names: readonly MemoryName[]) {
    this.#scorers = new Map(
      // none of these goes by the tokens of a block
      names.map((name) => [name, { scorer: makeScorer(name, 0), values: new Float64Array(16) }]),
    );
  }

  /** The memories that these features of instances are read from. */
  static of(features: readonly string[]): RouterMemory {
    const wanted = new Set(
      features.filter((name) => Object.hasOwn(memoryOf, name)).map((name) => memoryOf[name]),
    );
    return new RouterMemory([...wanted]);
  }

  /** Before a decision. */
  ask(context: RoutingContext): void {
    const count = context.candidates.length;
    for (const entry of this.#scorers.values()) {
      if (entry.values.length < count) entry.values = new Float64Array(2 * count);
      entry.scorer.score(context, entry.values);
    }
  }

  /** What the memory says of the candidate, in [0, 1]; 0 for one that nobody reads. */
  of(name: MemoryName, candidate: number): number {
    return this.#scorers.get(name)?.values[candidate] ?? 0;
  }

  routed(context: RoutingContext, instance: number): void {
    for (const { scorer } of this.#scorers.values()) scorer.routed?.(context, instance);
  }

  removed(instance: number): void {
    for (const { scorer } of this.#scorers.values()) scorer.removed?.(instance);
  }

  snapshot(): PlainState {
    return [...this.#scorers.values()].map(({ scorer }) => scorer.snapshot());
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as readonly PlainState[];
    [...this.#scorers.values()].forEach(({ scorer }, i) => {
      scorer.restore(saved[i]);
    });
  }
}
