/**
 * The emitters of a search and its memory: variation of parents, search over the numbers of one bundle, the choice
 * of the winner on validation, and the state that is written after each generation.
 */

import { parseJson } from '../../../runtime/boundedJson.ts';
import { configError, type TierKVError } from '../../../runtime/errors.ts';
import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import type { GoRandom } from '../../../sim/random/goRand.ts';
import type { PolicyBundle, PolicySlot } from '../bundle/policyBundle.ts';
import { contentHash } from '../bundle/presets.ts';
import type { Evaluation, Evaluator, SuiteName } from '../fitness/evaluation.ts';
import { affordable, evaluateWithin, oneSeedEach, type SearchBudget, type Within } from './budget.ts';
import { askCma, type CmaState, cmaSpread, newCma, tellCma } from './cmaEs.ts';
import {
  type Candidate,
  contentKey,
  type Individual,
  kindOf,
  NumberSpace,
  ofManyKinds,
  type SlotGuides,
  varyBundle,
} from './individual.ts';
import { type BySetting, barsOf, bestOfEach, caseScoresOf, type Rung, standingOf } from './racing.ts';
import { type IslandsState, pickElite } from './selection.ts';

/** Shape of each parameter of the exported functions, by its name. */
const inputs = {
  ranking: is.list(is.fields({ id: is.text(), generation: is.number() })),
  count: is.number(),
  slots: is.list(is.text()),
  finalists: is.list(is.fields({ id: is.text(), generation: is.number() })),
  presets: is.list(is.fields({ id: is.text(), generation: is.number() })),
  evaluator: is.fields({ caseIds: is.func() }),
  chosen: is.fields({ id: is.text(), generation: is.number() }),
  text: is.text(),
  plan: is.fields({ seed: is.number(), population: is.number() }),
  field: is.text(),
};

// Candidates by variation. Their parents come from the islands of the archive.

/** Share of children that are changed in two places at once: some changes help only together. */
const COMPOUND = 0.25;
/** Tries for each child: a draw may change nothing. */
const TRIES = 4;

/** Children of elites, at most `count`; the islands take turns. @returns each with the island that it is of */
export function fromIslands(
  count: number,
  { archive: { islands }, plan: { slots } }: SearchState,
  guides: SlotGuides,
  find: (id: string) => Individual,
  random: GoRandom,
): { candidate: Candidate; island: number }[] {
  const made: { candidate: Candidate; island: number }[] = [];
  for (let i = 0; i < TRIES * count && made.length < count; i++) {
    const island = i % islands.length;
    const elite = pickElite(islands[island], random);
    const mate = pickElite(islands[island], random);
    if (elite === undefined) continue;
    const changes = random.float64() < COMPOUND ? 2 : 1;
    const parent = find(elite.id);
    const other = mate && find(mate.id);
    const child = varyBundle(parent.bundle, other?.bundle, changes, { slots, guides, random });
    if (child === undefined) continue;
    const parents = child.usesOther && other !== undefined ? [parent.id, other.id] : [parent.id];
    const { bundle } = child;
    made.push({ candidate: { bundle, origin: 'variation', parents, changes: child.changes }, island });
  }
  return made;
}

// After the search: the best individuals of train run on validation, the best of these is the winner, and the hidden
// suite compares it with the presets. No result of the hidden suite goes back into the search.

/** Largest share of the finalists that may be of one kind. */
const SHARE_OF_ONE_KIND = 1 / 3;
/** Presets of each setting that run on validation beside the finalists: train does not tell which is the best there. */
const RIVALS = 5;

export interface Chosen {
  readonly individual: Individual;
  readonly train: number;
  readonly validation: number;
  /** Lead over the best preset of each setting, on validation. */
  readonly leads: BySetting;
}

/** The first `count` of the ranking that decide differently, at most a third of one kind. */
export function finalistsOf(
  ranking: readonly Individual[],
  count: number,
  slots: readonly PolicySlot[],
): Individual[] {
  checkInputs({ ranking, count, slots }, inputs);
  return ofManyKinds(ranking, count, Math.ceil(SHARE_OF_ONE_KIND * count), slots);
}

/**
 * Scores finalists on validation.
 * @param finalists by their scores on train, the best first; not empty
 * @param budget time of the search; seeds and finalists that exceed the share for validation are left out
 * @returns the finalist with the best score there, and all that ran
 */
export async function choose(
  finalists: readonly Individual[],
  presets: readonly Individual[],
  evaluator: Evaluator,
  signal?: AbortSignal,
  budget?: SearchBudget,
): Promise<{ readonly chosen: Chosen; readonly all: readonly Chosen[] }> {
  checkInputs({ finalists, presets, evaluator }, inputs);
  const within = { signal, budget, phase: 'validation' } as const;
  const beside = bestOfEach(presets, RIVALS).sort((a, b) => b.score - a.score);
  // leads need a preset to be compared with
  const sure = beside.length > 0 ? [0, finalists.length] : [0];
  const { evaluations, cases } = await onSuite(
    [...finalists, ...beside],
    'validation',
    evaluator,
    within,
    sure,
  );
  const rivals = evaluations
    .slice(finalists.length)
    .filter((evaluation) => evaluation !== undefined)
    .filter(({ error }) => error === undefined)
    .map(caseScoresOf);
  const bars = rivals.length === 0 ? {} : barsOf(rivals, cases);
  const all = finalists.flatMap((individual, i): Chosen[] => {
    const evaluation = evaluations[i];
    if (evaluation === undefined) return [];
    const { score, leads } = standingOf(evaluation, bars);
    return [{ individual, train: individual.score, validation: score, leads }];
  });
  return { chosen: all.reduce((a, b) => (b.validation > a.validation ? b : a)), all };
}

/**
 * Runs bundles on a suite.
 * @param sure places of the bundles that run in any case; without time for more, on one seed of each setting
 */
async function onSuite(
  asked: readonly Individual[],
  suite: SuiteName,
  evaluator: Evaluator,
  within: Within,
  sure: readonly number[],
): Promise<{ readonly evaluations: readonly (Evaluation | undefined)[]; readonly cases: readonly string[] }> {
  const { budget, signal } = within;
  const all = evaluator.caseIds(suite);
  const bundles = asked.map(({ bundle }) => bundle);
  if (budget === undefined) {
    return { evaluations: await evaluator.evaluate(bundles, suite, signal), cases: all };
  }
  const one = oneSeedEach(all);
  const first = sure.map((i) => bundles[i]);
  // the baseline runs beside them
  const firsts = await budget.measure((1 + sure.length) * one.length, () =>
    evaluator.evaluate(first, suite, signal, one),
  );
  const cases = affordable(all, bundles.length, within);
  if (cases !== undefined) {
    const evaluations = await evaluateWithin(evaluator, bundles, suite, within, cases);
    if (sure.every((i) => evaluations[i] !== undefined)) return { evaluations, cases };
  }
  const evaluations = [...(await evaluateWithin(evaluator, bundles, suite, within, one))];
  for (const [k, i] of sure.entries()) evaluations[i] = firsts[k];
  return { evaluations, cases: one };
}

export interface Judged {
  readonly individual: Individual;
  readonly hidden: Evaluation;
}

/**
 * Runs the winner and the presets on the hidden suite. The answers stand in this order.
 * @param budget time of the search; seeds and presets that exceed the rest of it are left out
 */
export async function judge(
  chosen: Individual,
  presets: readonly Individual[],
  evaluator: Evaluator,
  signal?: AbortSignal,
  budget?: SearchBudget,
): Promise<readonly Judged[]> {
  checkInputs({ chosen, presets, evaluator }, inputs);
  const all = [chosen, ...presets.filter(({ id }) => id !== chosen.id)];
  const within = { signal, budget, phase: 'judging' } as const;
  const { evaluations } = await onSuite(all, 'hidden', evaluator, within, [0]);
  return all.flatMap((individual, i) => {
    const hidden = evaluations[i];
    return hidden === undefined ? [] : [{ individual, hidden }];
  });
}

// Search over the numbers of one bundle by CMA-ES. After it has settled, or found nothing better for some generations, it
// starts again on another bundle, first on one of a new structure.

interface NumericState {
  /** Points of a generation. */
  readonly population: number;
  /** Id of the bundle whose numbers it moves; null before the first start, and where every bundle lacks numbers. */
  base: string | null;
  cma: CmaState | null;
  /** Best score since the last start. */
  best: number;
  /** Generations since that score was found. */
  idle: number;
}

/** First step size, in units of the cube's edge. */
const SIGMA = 0.2;
/** Step size, in units of the cube's edge, below which a run has settled. */
const SETTLED = 0.004;
/** Most generations in a row without a better score. */
const IDLE_MAX = 5;
/** Structures among which the next start is chosen. */
const CHOICE = 6;
/** Most structures of one kind among them. */
const RUNS_OF_ONE_KIND = 3;

export function newNumeric(population: number): NumericState {
  return { population, base: null, cma: null, best: 0, idle: 0 };
}

export interface NumericContext {
  readonly guides: SlotGuides;
  readonly slots: readonly PolicySlot[];
  find(id: string): Individual;
  /** Individuals that ran on all cases, the best first. */
  readonly ranking: readonly Individual[];
  /** Number of starts on each structure. `askNumeric` adds to it. */
  readonly starts: Record<string, number>;
}

function spaceOf(bundle: PolicyBundle, guides: SlotGuides, slots: readonly PolicySlot[]): NumberSpace {
  return new NumberSpace(bundle, guides, slots, 'inUse');
}

function isSettled({ cma, idle }: NumericState): boolean {
  return idle > IDLE_MAX || (cma !== null && cmaSpread(cma) < SETTLED);
}

/** Digest that is equal for bundles that differ only in numbers in use. */
function structureOf(space: NumberSpace): string {
  return contentHash(contentKey(space.at(new Array(space.dimensions).fill(0.5))));
}

/** Starts on the best bundle of a structure: of the first `CHOICE` structures, the one with the fewest starts. */
function start(state: NumericState, { guides, slots, ranking, starts }: NumericContext): void {
  const seen = new Map<string, Individual>();
  const ofKind = new Map<string, number>();
  for (const individual of ranking) {
    if (seen.size === CHOICE) break;
    const kind = kindOf(individual.bundle, slots);
    const before = ofKind.get(kind) ?? 0;
    if (before === RUNS_OF_ONE_KIND) continue;
    const space = spaceOf(individual.bundle, guides, slots);
    const structure = structureOf(space);
    if (space.dimensions === 0 || seen.has(structure)) continue;
    ofKind.set(kind, before + 1);
    seen.set(structure, individual);
  }
  const chosen = [...seen].sort(([a], [b]) => (starts[a] ?? 0) - (starts[b] ?? 0)).at(0);
  state.cma = null;
  state.base = null;
  if (chosen === undefined) return;
  const [structure, { id, bundle, score }] = chosen;
  const space = spaceOf(bundle, guides, slots);
  starts[structure] = (starts[structure] ?? 0) + 1;
  state.base = id;
  state.best = score;
  state.idle = 0;
  state.cma = newCma(space.point, SIGMA, state.population, space.leastDeviation);
}

/** The emitter's candidates of this generation, and their points; none where every bundle lacks numbers. */
export function askNumeric(
  state: NumericState,
  context: NumericContext,
  random: GoRandom,
): { readonly candidates: readonly Candidate[]; readonly points: readonly (readonly number[])[] } {
  if (state.base === null || isSettled(state)) start(state, context);
  if (state.base === null || state.cma === null) return { candidates: [], points: [] };
  const { id, bundle } = context.find(state.base);
  const space = spaceOf(bundle, context.guides, context.slots);
  const points = askCma(state.cma, random);
  const changes = ['numbers by CMA-ES'];
  const candidates = points.map((point): Candidate => {
    return { bundle: space.at(point), origin: 'cma', parents: [id], changes };
  });
  return { candidates, points };
}

/** @param scores scores of the points, in their order */
export function tellNumeric(
  state: NumericState,
  points: readonly (readonly number[])[],
  scores: readonly number[],
): void {
  if (points.length === 0 || state.cma === null) return;
  tellCma(state.cma, points, scores);
  const best = Math.max(...scores);
  state.idle = best > state.best ? 0 : state.idle + 1;
  state.best = Math.max(state.best, best);
}

// The state of a search as plain data: written after each generation and read again after a kill. JSON keeps numbers
// to the last bit, and seed, generation and use name each stream of random numbers, so a resumed search ends as one
// that was never interrupted.

export const STATE_VERSION = 5;

/** Settings of a `Search`: seed, population, slots and islands. */
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
  /** Hash of everything that scores depend on: workloads, baseline, objectives, tierkv itself. */
  readonly measured?: string;
}

/** Figures of one generation. */
export interface GenerationRecord {
  readonly generation: number;
  /** Evaluations since the start, without bundles that were in the book. */
  readonly evaluations: number;
  readonly failures: number;
  /** Best score so far, of individuals that ran on all cases. */
  readonly best: number;
  readonly bestOfGeneration: number;
  readonly medianOfGeneration: number;
  /** Volume that the Pareto front dominates above the reference; null for more than four objectives. */
  readonly hypervolume: number | null;
  readonly qdScore: number;
  readonly filledCells: number;
}

export interface SearchState {
  readonly version: number;
  readonly plan: SearchPlan;
  readonly objectiveNames: readonly string[];
  /** Rungs of the race on train: their cases, and the score of the best preset of each setting on these cases. */
  readonly rungs: readonly Rung[];
  generation: number;
  evaluations: number;
  /** All evaluated individuals in the order of their evaluation. */
  readonly individuals: Individual[];
  readonly history: GenerationRecord[];
  readonly numeric: NumericState;
  /** Number of starts of `numeric` on each structure of bundles. */
  readonly starts: Record<string, number>;
  readonly archive: IslandsState;
  /** Ids of the individuals that no other one dominates in all objectives. */
  front: string[];
  /** Reference point of the hypervolume: a point below it in some objective adds no volume. */
  readonly reference: readonly number[];
}

/**
 * Reads a state that `JSON.stringify` wrote.
 * @param field names the text in errors, as its file
 * @throws TKV_CONFIG for another version of the state, and for another plan than `plan`
 */
export function readState(text: string, plan: SearchPlan, field: string): SearchState {
  checkInputs({ text, plan, field }, inputs);
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
