/**
 * What proposes candidates and what a search remembers: variation of parents, search over the numbers of
 * one bundle, the choice of the winner on validation, and the state that is written after each generation.
 */

import { parseJson } from '../../runtime/boundedJson.ts';
import { configError, type TierKVError } from '../../runtime/errors.ts';
import { requireShapes } from '../../runtime/options.ts';
import type { GoRandom } from '../../sim/random/goRand.ts';
import type { PolicyBundle, PolicySlot } from '../bundle/policyBundle.ts';
import { contentHash } from '../bundle/presets.ts';
import type { Evaluation, Evaluator, SuiteName } from '../fitness/evaluation.ts';
import { affordable, evaluateWithin, oneSeedEach, type SearchBudget, type Within } from './budget.ts';
import { askCma, type CmaState, cmaSpread, newCma, tellCma } from './cmaEs.ts';
import {
  askStrategy,
  newStrategy,
  type StrategyState,
  strategySpread,
  tellStrategy,
} from './evolutionStrategy.ts';
import {
  type Candidate,
  contentKey,
  type Individual,
  kindOf,
  NumberSpace,
  nameOfSpec,
  type Origin,
  ofManyKinds,
  type SlotGuides,
  varyBundle,
} from './individual.ts';
import {
  type BySetting,
  barsOf,
  bestOfEach,
  caseScoresOf,
  leadersOf,
  type Rung,
  standingOf,
} from './racing.ts';
import { type BranchState, type IslandsState, pickElite } from './selection.ts';

/** What callers must pass, by the names of parameters. */
const shapes = {
  ranking: [{ id: 'text', generation: 'number' }],
  count: 'number',
  slots: ['text'],
  finalists: [{ id: 'text', generation: 'number' }],
  presets: [{ id: 'text', generation: 'number' }],
  evaluator: { caseIds: 'function' },
  chosen: { id: 'text', generation: 'number' },
  text: 'text',
  plan: { seed: 'number', population: 'number' },
  field: 'text',
} as const;

// Candidates by variation: parents from the islands of the archive, from the Pareto population, from the
// branch that tolerates regressions, and from the leaders of each setting.

/** Share of children that are changed in two places at once. */
const COMPOUND = 0.25;
/** At most this many leaders of a setting may be parents. */
const LEADERS = 8;
/** At most this many of them may have the same structure, so that parents differ. */
const OF_ONE_KIND = 2;

export class Breeding {
  readonly #state: SearchState;
  readonly #guides: SlotGuides;
  readonly #find: (id: string) => Individual;
  /** By setting, the best there first. */
  readonly #leaders: readonly (readonly Individual[])[];

  /** @param ranking the individuals that ran on all cases */
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

// After the search: the best of train are scored on validation, the best of these is chosen, and the hidden
// suite compares it with the presets. No result of the hidden suite goes back into the search.

/** Share of the finalists that may be of one kind. */
const SHARE_OF_ONE_KIND = 1 / 3;
/**
 * Presets of each setting that finalists meet on validation, since each of them may be the best there.
 */
const RIVALS = 5;

export interface Chosen {
  readonly individual: Individual;
  readonly train: number;
  readonly validation: number;
  /** On validation, over the best preset of each setting there. */
  readonly leads: BySetting;
}

/** @param ranking the best first */
export function finalistsOf(
  ranking: readonly Individual[],
  count: number,
  slots: readonly PolicySlot[],
): Individual[] {
  requireShapes({ ranking, count, slots }, shapes);
  return ofManyKinds(ranking, count, Math.ceil(SHARE_OF_ONE_KIND * count), slots);
}

/**
 * @param finalists by their scores on train, the best first; not empty
 * @param budget leaves out seeds and finalists that do not fit into its share for validation
 */
export async function choose(
  finalists: readonly Individual[],
  presets: readonly Individual[],
  evaluator: Evaluator,
  signal?: AbortSignal,
  budget?: SearchBudget,
): Promise<{ readonly chosen: Chosen; readonly all: readonly Chosen[] }> {
  requireShapes({ finalists, presets, evaluator }, shapes);
  const within = { signal, budget, phase: 'validation' } as const;
  const asked = [...finalists, ...bestOfEach(presets, RIVALS)];
  const { evaluations, cases } = await onSuite(asked, 'validation', evaluator, within);
  const rivals = evaluations
    .slice(finalists.length)
    .filter((evaluation) => evaluation !== undefined && evaluation.error === undefined)
    .map((evaluation) => caseScoresOf(evaluation as Evaluation));
  const bars = rivals.length === 0 ? {} : barsOf(rivals, cases);
  const all = finalists.flatMap((individual, i): Chosen[] => {
    const evaluation = evaluations[i];
    if (evaluation === undefined) return [];
    const { score, leads } = standingOf(evaluation, bars);
    return [{ individual, train: individual.score, validation: score, leads }];
  });
  return { chosen: all.reduce((a, b) => (b.validation > a.validation ? b : a)), all };
}

/** The first of them runs in any case, if need be on one seed of each setting. */
async function onSuite(
  asked: readonly Individual[],
  suite: SuiteName,
  evaluator: Evaluator,
  within: Within,
): Promise<{ readonly evaluations: readonly (Evaluation | undefined)[]; readonly cases: readonly string[] }> {
  const { budget, signal } = within;
  const all = evaluator.caseIds(suite);
  const bundles = asked.map(({ bundle }) => bundle);
  if (budget === undefined) {
    return { evaluations: await evaluator.evaluate(bundles, suite, signal), cases: all };
  }
  const one = oneSeedEach(all);
  const [first] = await budget.measure(2 * one.length, () =>
    evaluator.evaluate(bundles.slice(0, 1), suite, signal, one),
  );
  const cases = affordable(all, bundles.length, within);
  if (cases !== undefined) {
    const evaluations = await evaluateWithin(evaluator, bundles, suite, within, cases);
    if (evaluations[0] !== undefined) return { evaluations, cases };
  }
  const rest = await evaluateWithin(evaluator, bundles.slice(1), suite, within, one);
  return { evaluations: [first, ...rest], cases: one };
}

export interface Judged {
  readonly individual: Individual;
  readonly hidden: Evaluation;
}

/**
 * The chosen one and the presets on the hidden suite, in this order.
 * @param budget leaves out seeds and presets that do not fit into what is left of it
 */
export async function judge(
  chosen: Individual,
  presets: readonly Individual[],
  evaluator: Evaluator,
  signal?: AbortSignal,
  budget?: SearchBudget,
): Promise<readonly Judged[]> {
  requireShapes({ chosen, presets, evaluator }, shapes);
  const all = [chosen, ...presets.filter(({ id }) => id !== chosen.id)];
  const within = { signal, budget, phase: 'judging' } as const;
  const { evaluations } = await onSuite(all, 'hidden', evaluator, within);
  return all.flatMap((individual, i) => {
    const hidden = evaluations[i];
    return hidden === undefined ? [] : [{ individual, hidden }];
  });
}

// Search over the numbers of one bundle by CMA-ES or the evolution strategy. When it has settled, or nothing
// got better for some generations, it starts again on another bundle, first on one of a new structure.

interface NumericState {
  readonly method: 'cma' | 'strategy';
  /** Points of a generation. */
  readonly population: number;
  /** Bundle whose numbers it moves; null before the first start and without such a bundle. */
  base: string | null;
  cma: CmaState | null;
  strategy: StrategyState | null;
  best: number;
  /** Generations since the best was found. */
  idle: number;
}

const SIGMA = 0.2;
const SETTLED = 0.004;
const IDLE_MAX = 5;
/** Structures among which the next start is chosen, and how many of one kind. */
const CHOICE = 6;
const RUNS_OF_ONE_KIND = 3;

export function newNumeric(method: NumericState['method'], population: number): NumericState {
  return { method, population, base: null, cma: null, strategy: null, best: 0, idle: 0 };
}

export interface NumericContext {
  readonly guides: SlotGuides;
  readonly slots: readonly PolicySlot[];
  find(id: string): Individual;
  /** All that ran, the best first. */
  readonly ranking: readonly Individual[];
  /** How often each structure was started on, by any emitter; counted on. */
  readonly starts: Record<string, number>;
}

function spaceOf(bundle: PolicyBundle, guides: SlotGuides, slots: readonly PolicySlot[]): NumberSpace {
  return new NumberSpace(bundle, guides, slots, 'inUse');
}

function isSettled({ cma, strategy, idle }: NumericState): boolean {
  if (idle > IDLE_MAX) return true;
  if (cma !== null) return cmaSpread(cma) < SETTLED;
  return strategy !== null && strategySpread(strategy) < SETTLED;
}

/** Text that is equal for bundles that differ by numbers in use only. */
function structureOf(bundle: PolicyBundle, guides: SlotGuides, slots: readonly PolicySlot[]): string {
  const space = spaceOf(bundle, guides, slots);
  return contentHash(contentKey(space.at(new Array(space.dimensions).fill(0.5))));
}

/** The best bundle of each structure; among the first of them the one that was started on least often. */
function start(state: NumericState, { guides, slots, ranking, starts }: NumericContext): void {
  const seen = new Map<string, Individual>();
  const ofKind = new Map<string, number>();
  for (const individual of ranking) {
    if (seen.size === CHOICE) break;
    const kind = kindOf(individual.bundle, slots);
    const structure = structureOf(individual.bundle, guides, slots);
    const before = ofKind.get(kind) ?? 0;
    if (before === RUNS_OF_ONE_KIND || seen.has(structure)) continue;
    if (spaceOf(individual.bundle, guides, slots).dimensions === 0) continue;
    ofKind.set(kind, before + 1);
    seen.set(structure, individual);
  }
  let chosen: readonly [string, Individual] | undefined;
  for (const entry of seen) {
    const count = starts[entry[0]] ?? 0;
    if (chosen === undefined || count < (starts[chosen[0]] ?? 0)) chosen = entry;
  }
  state.cma = null;
  state.strategy = null;
  state.base = null;
  if (chosen === undefined) return;
  const [structure, { id, bundle, score }] = chosen;
  const space = spaceOf(bundle, guides, slots);
  starts[structure] = (starts[structure] ?? 0) + 1;
  state.base = id;
  state.best = score;
  state.idle = 0;
  if (state.method === 'cma') state.cma = newCma(space.point, SIGMA, state.population, space.leastDeviation);
  else state.strategy = newStrategy(space.point, SIGMA, state.population, space.leastDeviation);
}

/** Its candidates of this generation with their points; none where no bundle has numbers. */
export function askNumeric(
  state: NumericState,
  context: NumericContext,
  random: GoRandom,
): { readonly candidates: readonly Candidate[]; readonly points: readonly (readonly number[])[] } {
  if (state.base === null || isSettled(state)) start(state, context);
  if (state.base === null) return { candidates: [], points: [] };
  const { id, bundle } = context.find(state.base);
  const space = spaceOf(bundle, context.guides, context.slots);
  let points: number[][] = [];
  if (state.cma !== null) points = askCma(state.cma, random);
  else if (state.strategy !== null) points = askStrategy(state.strategy, random);
  const changes = [`numbers by ${state.method === 'cma' ? 'CMA-ES' : 'the evolution strategy'}`];
  const candidates = points.map((point): Candidate => {
    return { bundle: space.at(point), origin: state.method, parents: [id], changes };
  });
  return { candidates, points };
}

/** @param scores of the points, in their order */
export function tellNumeric(
  state: NumericState,
  points: readonly (readonly number[])[],
  scores: readonly number[],
): void {
  if (points.length === 0) return;
  if (state.cma !== null) tellCma(state.cma, points, scores);
  else if (state.strategy !== null) tellStrategy(state.strategy, scores);
  const best = Math.max(...scores);
  state.idle = best > state.best ? 0 : state.idle + 1;
  state.best = Math.max(state.best, best);
}

// All that a search knows, as plain data. It is written after each generation and read again after a kill;
// numbers survive JSON to the last bit, and streams of random numbers are named by seed, generation and use,
// so that a search that goes on gives what one that was never interrupted gives.

export const STATE_VERSION = 4;

export interface SearchPlan {
  readonly seed: number;
  /** Candidates of a generation. */
  readonly population: number;
  readonly slots: readonly PolicySlot[];
  readonly islands: number;
  /** Generations between migrations. */
  readonly migrateEvery: number;
  /** Metrics that divide the archive. `policy_nodes` is the size of a bundle. */
  readonly features: readonly string[];
  readonly bins: number;
  /** Worse steps in a row that the restart branch goes along with. */
  readonly tolerance: number;
  /** Hash of all that scores rest on: workloads, baseline, objectives, tierkv itself. */
  readonly measured?: string;
}

/** What one generation came to. */
export interface GenerationRecord {
  readonly generation: number;
  /** Evaluations since the start; what was known already is not counted. */
  readonly evaluations: number;
  readonly failures: number;
  /** Best score so far among the individuals that ran on all cases, and in this generation. */
  readonly best: number;
  readonly bestOfGeneration: number;
  readonly medianOfGeneration: number;
  /** Volume that the Pareto front covers above the reference, null over more than four objectives. */
  readonly hypervolume: number | null;
  readonly qdScore: number;
  readonly filledCells: number;
}

export interface SearchState {
  readonly version: number;
  readonly plan: SearchPlan;
  readonly objectiveNames: readonly string[];
  /** Cases of train on which candidates race, and the best preset of each setting on them. */
  readonly rungs: readonly Rung[];
  generation: number;
  evaluations: number;
  /** All that were evaluated, in the order in which they were. */
  readonly individuals: Individual[];
  readonly history: GenerationRecord[];
  readonly numeric: NumericState[];
  /** How often each structure of bundles was started on by those. */
  readonly starts: Record<string, number>;
  readonly archive: IslandsState;
  /** Ids of the population from which the Pareto emitter draws, the best first. */
  front: string[];
  branch: BranchState;
  /** Below it a point covers no volume. */
  readonly reference: readonly number[];
}

/**
 * The state of a text that `JSON.stringify` of a state gave.
 * @throws TKV_CONFIG unless it is a state of this version and of the plan `plan`
 */
export function readState(text: string, plan: SearchPlan, field: string): SearchState {
  requireShapes({ text, plan, field }, shapes);
  const remedy = 'Give the directory of a search, or start a new one in another.';
  const error = (problem: string): TierKVError => configError(field, problem, remedy);
  const state = parseJson(text, error, Number.POSITIVE_INFINITY, 'is not JSON') as SearchState;
  if (state?.version !== STATE_VERSION || !Array.isArray(state.individuals)) {
    const remedy = 'Start a new search in another directory.';
    throw configError(field, `holds no state of version ${STATE_VERSION}`, remedy);
  }
  for (const name of Object.keys(plan) as (keyof SearchPlan)[]) {
    const [before, now] = [JSON.stringify(state.plan[name]), JSON.stringify(plan[name])];
    if (before === now) continue;
    if (name === 'measured') {
      const what = 'has other workloads, another baseline or other objectives than when the search began';
      const remedy =
        'Give back the files of the plan as they were, or start a new search in another directory.';
      throw configError('plan', `${what}, or tierkv itself is another one`, remedy);
    }
    throw configError(name, `is ${now}, and was ${before} when the search began`, 'Give it the same again.');
  }
  return state;
}
