/**
 * Candidates by variation: parents from the islands of the archive, from the Pareto population, from the
 * branch that tolerates regressions, and from those that lead in one setting each.
 */

import type { GoRandom } from '../../../sim/random/index.ts';
import type { PolicyBundle } from '../../bundle/policyBundle.ts';
import {
  type Candidate,
  type Individual,
  nameOfSpec,
  type Origin,
  ofManyKinds,
  type SlotGuides,
  varyBundle,
} from '../bundles/index.ts';
import { leadersOf } from '../racing/index.ts';
import { pickElite } from '../selection/index.ts';
import type { SearchState } from './state.ts';

/** Share of children that are changed in two places at once. */
const COMPOUND = 0.25;
/** Of each setting so many may be parents for what they do there, and so many of one kind. */
const LEADERS = 8;
const OF_ONE_KIND = 2;

export class Breeding {
  readonly #state: SearchState;
  readonly #guides: SlotGuides;
  readonly #find: (id: string) => Individual;
  /** By setting, the best there first. */
  readonly #leaders: readonly (readonly Individual[])[];

  /** @param ranking those that ran on all cases */
  constructor(
    state: SearchState,
    guides: SlotGuides,
    find: (id: string) => Individual,
    ranking: readonly Individual[],
  ) {
    this.#state = state;
    this.#guides = guides;
    this.#find = find;
    const { slots } = state.plan;
    this.#leaders = leadersOf(ranking).map((ranked) => ofManyKinds(ranked, LEADERS, OF_ONE_KIND, slots));
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

  /** One that leads somewhere, more often one of the first; undefined where nothing ran on all cases. */
  #leader(random: GoRandom): Individual | undefined {
    if (this.#leaders.length === 0) return undefined;
    const leaders = this.#leaders[random.intn(this.#leaders.length)];
    return leaders[Math.min(random.intn(leaders.length), random.intn(leaders.length))];
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
    const { branch } = this.#state;
    const made: Candidate[] = [];
    for (let i = 0; i < 4 * count && made.length < count; i++) {
      const parent = this.#find(branch.current.id);
      const candidate = this.#child(parent, this.#leader(random), 1 + random.intn(2), 'branch', random);
      if (candidate !== undefined) made.push(candidate);
    }
    return made;
  }

  /**
   * What leads in one setting with slots of what leads in another one, so that the search need not find both
   * again in one line of descent. Half of them are changed besides.
   */
  fromLeaders(count: number, random: GoRandom): Candidate[] {
    const made: Candidate[] = [];
    for (let i = 0; i < 4 * count && made.length < count; i++) {
      const [one, other] = [this.#leader(random), this.#leader(random)];
      if (one === undefined || other === undefined || one.behaviour === other.behaviour) continue;
      const crossing = this.#crossing(one, other, random);
      if (crossing === undefined) continue;
      made.push(random.intn(2) === 0 ? crossing : this.#changed(crossing, other, random));
    }
    return made;
  }

  #crossing(one: Individual, other: Individual, random: GoRandom): Candidate | undefined {
    let { bundle } = one;
    const changes: string[] = [];
    for (const slot of this.#state.plan.slots) {
      const spec = other.bundle[slot];
      const isSame = spec === undefined || JSON.stringify(spec) === JSON.stringify(bundle[slot]);
      if (isSame || random.intn(2) === 0) continue;
      bundle = { ...bundle, [slot]: spec };
      changes.push(`${slot}: ${nameOfSpec(spec)} of the other parent`);
    }
    if (changes.length === 0) return undefined;
    return { bundle, origin: 'crossing', parents: [one.id, other.id], changes };
  }

  #changed(crossing: Candidate, other: Individual, random: GoRandom): Candidate {
    const { slots } = this.#state.plan;
    const mate: PolicyBundle = other.bundle;
    const child = varyBundle(crossing.bundle, mate, 1, { slots, guides: this.#guides, random });
    if (child === undefined) return crossing;
    return { ...crossing, bundle: child.bundle, changes: [...crossing.changes, ...child.changes] };
  }
}
