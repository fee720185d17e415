/**
 * Candidates by variation: parents from the islands of the archive, from the Pareto population, and from the
 * branch that tolerates regressions.
 */

import type { GoRandom } from '../../../sim/random/index.ts';
import {
  type Candidate,
  type Individual,
  type Origin,
  type SlotGuides,
  varyBundle,
} from '../bundles/index.ts';
import { pickElite } from '../selection/index.ts';
import type { SearchState } from './state.ts';

/** Share of children that are changed in two places at once. */
const COMPOUND = 0.25;

export class Breeding {
  readonly #state: SearchState;
  readonly #guides: SlotGuides;
  readonly #find: (id: string) => Individual;

  constructor(state: SearchState, guides: SlotGuides, find: (id: string) => Individual) {
    this.#state = state;
    this.#guides = guides;
    this.#find = find;
  }

  #child(
    parent: Individual,
    other: Individual | undefined,
    count: number,
    origin: Origin,
    random: GoRandom,
  ): Candidate | undefined {
    const { slots } = this.#state.plan;
    const child = varyBundle(parent.bundle, other?.bundle, count, { slots, guides: this.#guides, random });
    if (child === undefined) return undefined;
    const parents = child.usesOther && other !== undefined ? [parent.id, other.id] : [parent.id];
    return { bundle: child.bundle, origin, parents, changes: child.changes };
  }

  fromIslands(count: number, random: GoRandom): { candidate: Candidate; island: number }[] {
    const { islands } = this.#state.archive;
    const made: { candidate: Candidate; island: number }[] = [];
    for (let i = 0; i < 4 * count && made.length < count; i++) {
      const island = i % islands.length;
      const parent = pickElite(islands[island], random);
      const other = pickElite(islands[island], random);
      if (parent === undefined) continue;
      const changes = random.float64() < COMPOUND ? 2 : 1;
      const mate = other === undefined ? undefined : this.#find(other.id);
      const candidate = this.#child(this.#find(parent.id), mate, changes, 'variation', random);
      if (candidate !== undefined) made.push({ candidate, island });
    }
    return made;
  }

  /** Parents by tournament; the population stands in the order of rank and crowding. */
  fromFront(count: number, random: GoRandom): Candidate[] {
    const { front } = this.#state;
    if (front.length === 0) return [];
    const draw = (): Individual =>
      this.#find(front[Math.min(random.intn(front.length), random.intn(front.length))]);
    const made: Candidate[] = [];
    for (let i = 0; i < 4 * count && made.length < count; i++) {
      const candidate = this.#child(draw(), draw(), 1, 'pareto', random);
      if (candidate !== undefined) made.push(candidate);
    }
    return made;
  }

  fromBranch(count: number, random: GoRandom): Candidate[] {
    const { branch, front } = this.#state;
    const made: Candidate[] = [];
    for (let i = 0; i < 4 * count && made.length < count; i++) {
      const other = front.length === 0 ? undefined : this.#find(front[random.intn(front.length)]);
      const candidate = this.#child(
        this.#find(branch.current.id),
        other,
        1 + random.intn(2),
        'branch',
        random,
      );
      if (candidate !== undefined) made.push(candidate);
    }
    return made;
  }
}
