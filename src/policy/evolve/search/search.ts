/**
 * A search for better policy bundles. Each generation has candidates of two emitters: CMA-ES moves numbers, and variation draws
 * parents from a MAP-Elites archive with islands. Some generations try a list to its end besides. All candidates are
 * evaluated together on the train suite, and both emitters learn from the answers.
 *
 * What comes out depends on the plan, the presets and the evaluations, and not on how many workers gave them.
 */

import { configError } from '../../../runtime/errors.ts';
import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { GoRandom, partitionSeed } from '../../../sim/random/goRand.ts';
import type { PolicyBundle } from '../bundle/policyBundle.ts';
import { type Evaluation, type Evaluator, settingOf } from '../fitness/evaluation.ts';
import {
  askNumeric,
  fromIslands,
  type GenerationRecord,
  type NumericContext,
  newNumeric,
  type SearchPlan,
  type SearchState,
  STATE_VERSION,
  tellNumeric,
} from './breeding.ts';
import { evaluateWithin, oneSeedEach, type SearchBudget, type Within } from './budget.ts';
import {
  bundlesWithOneMoreTerm,
  type Candidate,
  contentKey,
  echoOf,
  type Individual,
  individualOf,
  type SlotGuides,
} from './individual.ts';
import {
  behaviourOf,
  bestOfEach,
  caseScoresOf,
  type Rung,
  race,
  rungsOf,
  rungsWithBars,
  standingOf,
} from './racing.ts';
import { crossings, presetsInContext } from './seeds.ts';
import {
  cellOf,
  type FeatureAxis,
  hypervolume,
  migrate,
  newIslands,
  offer,
  paretoRanks,
  qdScore,
} from './selection.ts';

const MIGRANTS = 2;
/** Most crossings of presets that the first generation tries, as a multiple of the population. */
const CROSSINGS = 3;
/** Generations between two that add every term to the best program; generation 3 is the first. */
const TERMS_EVERY = 8;

/** A search over policy bundles, generation by generation. */
export class Search {
  #state: SearchState;
  /** The state after the last generation, as JSON. */
  #text = '';
  readonly #evaluator: Evaluator;
  readonly #guides: SlotGuides;
  readonly #book: Book;

  private constructor(state: SearchState, evaluator: Evaluator, guides: SlotGuides) {
    this.#state = state;
    this.#evaluator = evaluator;
    this.#guides = guides;
    this.#book = new Book(state.individuals);
  }

  /**
   * Evaluates the presets: generation 0.
   * @param budget time of the search; presets and seeds that exceed the share for presets are left out
   * @throws TKV_CONFIG where every preset fails
   */
  static async begin(
    plan: SearchPlan,
    presets: readonly PolicyBundle[],
    evaluator: Evaluator,
    guides: SlotGuides,
    signal?: AbortSignal,
    budget?: SearchBudget,
  ): Promise<Search> {
    checkInputs(
      { plan, presets },
      { plan: is.fields({ seed: is.number(), population: is.number() }), presets: is.list(is.object()) },
    );
    checkInputs({ evaluator, guides }, { evaluator: is.fields({ caseIds: is.func() }), guides: is.object() });
    const within = { signal, budget, phase: 'presets' } as const;
    const { state, individuals } = await beginState(plan, presets, evaluator, within);
    const search = new Search(state, evaluator, guides);
    individuals.forEach((individual, i) => {
      if (!search.#book.byId.has(individual.id)) search.#keep(individual, i % plan.islands);
    });
    search.#close(individuals);
    search.#settle();
    return search;
  }

  /**
   * Continues from a state that `readState` returned.
   * @throws TKV_CONFIG where the train suite differs from the one that the search began with
   */
  static resume(state: SearchState, evaluator: Evaluator, guides: SlotGuides): Search {
    checkInputs({ state }, { state: is.fields({ version: is.number(), generation: is.number() }) });
    checkInputs({ evaluator, guides }, { evaluator: is.fields({ caseIds: is.func() }), guides: is.object() });
    const known = new Set(evaluator.caseIds('train'));
    if (!state.rungs[state.rungs.length - 1].cases.every((id) => known.has(id))) {
      throw configError(
        'train',
        'has other cases than when the search began',
        'Give it the same plan again.',
      );
    }
    const search = new Search(state, evaluator, guides);
    search.#settle();
    return search;
  }

  /** Goes on from what JSON keeps of the state, as a resumed search does, so that both go on alike. */
  #settle(): void {
    this.#text = JSON.stringify(this.#state);
    this.#state = JSON.parse(this.#text) as SearchState;
  }

  /** The state after the last generation. Callers write it and must not change it. */
  get state(): SearchState {
    return this.#state;
  }

  get record(): GenerationRecord {
    return this.#state.history[this.#state.history.length - 1];
  }

  /**
   * Individuals that ran on all cases, the best first. Echoes are left out; equal scores stand in the order in which
   * they were found.
   */
  get ranking(): readonly Individual[] {
    const { individuals, rungs } = this.#state;
    const all = rungs[rungs.length - 1].cases.length;
    return individuals
      .filter(({ error, cases, echoOf }) => error === undefined && cases === all && echoOf === undefined)
      .sort((a, b) => b.score - a.score);
  }

  /** Runs one generation. An abort leaves the state as the generation before left it. */
  async step(signal?: AbortSignal): Promise<GenerationRecord> {
    const { plan } = this.#state;
    try {
      await this.#generation(signal);
    } catch (error) {
      this.#state = JSON.parse(this.#text) as SearchState;
      throw error;
    }
    if (this.#state.generation % plan.migrateEvery === 0) migrate(this.#state.archive, MIGRANTS);
    this.#settle();
    return this.record;
  }

  async #generation(signal?: AbortSignal): Promise<void> {
    const { plan, numeric } = this.#state;
    const generation = this.#state.generation + 1;
    const stream = (use: string): GoRandom =>
      new GoRandom(partitionSeed(BigInt(plan.seed), `search/${generation}/${use}`));
    const context: NumericContext = {
      guides: this.#guides,
      slots: plan.slots,
      find: (id) => this.#book.find(id),
      ranking: this.ranking,
      starts: this.#state.starts,
    };
    const asked = askNumeric(numeric, context, stream('cma'));
    const rest = Math.max(2, plan.population - asked.candidates.length);
    const islands = fromIslands(rest, this.#state, this.#guides, context.find, stream('variation'));
    const listed = this.#systematic(generation);
    const candidates = [...asked.candidates, ...listed, ...islands.map(({ candidate }) => candidate)];
    const found = await this.#individualsOf(candidates, generation, signal);

    const { points } = asked;
    tellNumeric(
      numeric,
      points,
      found.slice(0, points.length).map(({ score }) => score),
    );
    this.#state.generation = generation;
    const islandsAt = points.length + listed.length;
    found.forEach((individual, i) => {
      this.#keep(individual, islands[i - islandsAt]?.island ?? i % plan.islands);
    });
    this.#close(found);
  }

  /** Individuals in the order of the candidates. A bundle that is in the book is not evaluated again; all others race. */
  async #individualsOf(
    candidates: readonly Candidate[],
    generation: number,
    signal?: AbortSignal,
  ): Promise<Individual[]> {
    const { byContent, byBehaviour } = this.#book;
    const keys = candidates.map(({ bundle }) => contentKey(bundle));
    const fresh = new Map<string, Candidate>();
    candidates.forEach((candidate, i) => {
      if (byContent.has(keys[i]) || fresh.has(keys[i])) return;
      fresh.set(keys[i], { ...candidate, bundle: labelled(candidate, generation) });
    });
    const asked = [...fresh.values()].map(({ bundle }) => bundle);
    const known = new Set(byBehaviour.keys());
    const raced = await race(asked, this.#state.rungs, this.#evaluator, known, signal);
    this.#state.evaluations += asked.length;
    const answers = new Map(byContent);
    const firsts = new Map(byBehaviour);
    [...fresh].forEach(([key, candidate], i) => {
      const { evaluation, behaviour, isEcho } = raced[i];
      const first = isEcho ? firsts.get(behaviour) : undefined;
      const individual =
        first === undefined
          ? individualOf(candidate, generation, evaluation, raced[i])
          : echoOf(first, candidate, generation, evaluation.policyId);
      answers.set(key, individual);
      if (!firsts.has(behaviour)) firsts.set(behaviour, individual);
    });
    return keys.map((key) => answers.get(key) as Individual);
  }

  /**
   * Candidates of the generations that try a list to its end: crossings of presets (1), each preset within the best
   * bundle (2), each term added to the best program of a slot (3, 11, 19, ...).
   */
  #systematic(generation: number): Candidate[] {
    const { individuals, plan } = this.#state;
    const ran = individuals.filter(({ error, origin }) => error === undefined && origin === 'preset');
    if (generation === 1) return crossings(ran, plan.slots, CROSSINGS * plan.population);
    if (generation === 2) return presetsInContext(this.ranking[0], ran, plan.slots);
    if (generation % TERMS_EVERY !== 3) return [];
    return bundlesWithOneMoreTerm(this.ranking, plan.slots, this.#guides);
  }

  /** Enters an individual into the book and offers it to an island of the archive. */
  #keep(individual: Individual, island: number): void {
    const { archive, individuals } = this.#state;
    if (!this.#book.byId.has(individual.id)) {
      individuals.push(individual);
      this.#book.enter(individual);
    }
    if (individual.error !== undefined) return;
    const cell = cellOf(archive.axes, individual.metrics);
    offer(archive.islands[island], cell, { id: individual.id, score: individual.score });
  }

  /** Ends a generation: the front takes in what came, and the history gets a record. */
  #close(found: readonly Individual[]): void {
    const { front, history } = this.#state;
    const ran = found.filter(({ error, echoOf }) => error === undefined && echoOf === undefined);
    const ids = [...new Set([...front, ...ran.map(({ id }) => id)])];
    const ranks = paretoRanks(ids.map((id) => this.#book.find(id).objectives));
    this.#state.front = ids.filter((_, i) => ranks[i] === 0);
    const objectives = this.#state.front.map((id) => this.#book.find(id).objectives);
    history.push(recordOf(this.#state, found, this.ranking[0].score, objectives));
  }
}

// Generation 0: the presets run on train and give the bars that candidates are compared with.

/** Share of the population for CMA-ES; variation gets the rest. */
const CMA_SHARE = 0.25;
/** Fewest points of a generation of CMA-ES. */
const CMA_LEAST = 4;

/** Presets of each setting that go on to the next rung: few seeds do not tell which of them is the best there. */
const RIVALS = 6;

/**
 * Simulations of a generation, as a multiple of its population on the first rung: the mean of whole searches, with
 * further rungs and with generations that try every way.
 */
const PER_GENERATION = 2;

/** Simulations that the phases of a search ask for, about: its progress is told by them. */
export function expectedCases(
  population: number,
  first: number,
  finalists: number,
  evaluator: Pick<Evaluator, 'caseIds'>,
): { readonly presets: number; readonly generation: number; readonly judging: number } {
  const train = evaluator.caseIds('train');
  const [rung] = rungsOf(train);
  const rivals = Math.min(first, RIVALS * new Set(train.map(settingOf)).size);
  return {
    presets: first * rung.length + rivals * (train.length - rung.length),
    generation: PER_GENERATION * population * rung.length,
    judging:
      (finalists + rivals) * evaluator.caseIds('validation').length +
      (1 + first) * evaluator.caseIds('hidden').length,
  };
}

interface PresetRun {
  readonly evaluation: Evaluation;
  /** Number of the last rung on which the preset ran. */
  readonly rung: number;
  readonly behaviour: string;
}

/**
 * Races the presets. The best `RIVALS` of each setting go on to the next rung.
 * @returns a hole in `runs` for each preset for which the budget left no time
 */
async function racePresets(
  presets: readonly PolicyBundle[],
  evaluator: Evaluator,
  within: Within,
): Promise<{ readonly rungs: readonly Rung[]; readonly runs: readonly (PresetRun | undefined)[] }> {
  const all = evaluator.caseIds('train');
  const first = await firstThatRuns(presets, evaluator, within);
  let cases = first === undefined ? rungsOf(all) : affordableRungs(all, presets.length, within);
  const runs: PresetRun[] = new Array(presets.length);
  let running: readonly number[] = presets.map((_, i) => i);
  let whole: readonly Evaluation[] = [];
  for (const [rung, ids] of cases.entries()) {
    const asked = running.map((i) => presets[i]);
    const evaluations = [...(await evaluateWithin(evaluator, asked, 'train', within, ids))];
    if (rung === 0 && first !== undefined && cases.length === 1 && ids.length === first.cases.length) {
      evaluations[first.index] ??= first.evaluation;
    }
    const ended = evaluations.filter((evaluation) => evaluation !== undefined);
    const ran = ended.filter(({ error }) => error === undefined);
    if (ran.length === 0 && rung > 0 && ended.length === 0) {
      cases = cases.slice(0, rung); // the time is up: the rung before becomes the last
      break;
    }
    whole = ran;
    if (whole.length === 0) {
      const problem = ended[0]?.error?.message ?? 'the list of presets is empty';
      throw configError('presets', `do not run (${problem})`, 'Begin with one policy that runs.');
    }
    for (const [place, i] of running.entries()) {
      const evaluation = evaluations[place];
      if (evaluation === undefined) continue;
      runs[i] = { evaluation, rung, behaviour: runs[i]?.behaviour ?? behaviourOf(evaluation) };
    }
    const left = running.filter((_, place) => evaluations[place] !== undefined);
    const means = left.map((i) => ({ i, leads: standingOf(runs[i].evaluation, {}).leads }));
    running = bestOfEach(means, RIVALS).map(({ i }) => i);
  }
  return { rungs: rungsWithBars(cases, whole.map(caseScoresOf)), runs };
}

interface FirstRun {
  readonly index: number;
  readonly evaluation: Evaluation;
  readonly cases: readonly string[];
}

/**
 * With a budget: runs one preset on one seed of each setting, whatever the time. The second preset measures the time
 * of a case, since the first one also waits for the evaluator's threads to start.
 */
async function firstThatRuns(
  presets: readonly PolicyBundle[],
  evaluator: Evaluator,
  within: Within,
): Promise<FirstRun | undefined> {
  const { budget, signal } = within;
  if (budget === undefined) return undefined;
  const cases = oneSeedEach(evaluator.caseIds('train'));
  let problem = 'the list of presets is empty';
  for (const [index, bundle] of presets.entries()) {
    // the baseline runs beside it
    const [evaluation] = await budget.measure(2 * cases.length, () =>
      evaluator.evaluate([bundle], 'train', signal, cases),
    );
    if (evaluation.error === undefined) {
      const next = presets.slice(index + 1, index + 2);
      if (next.length > 0 && budget.leftMs('presets') > 0) {
        await budget.measure(cases.length, () => evaluateWithin(evaluator, next, 'train', within, cases));
      }
      return { index, evaluation, cases };
    }
    problem = evaluation.error.message;
  }
  throw configError('presets', `do not run (${problem})`, 'Begin with one policy that runs.');
}

/**
 * The rungs that fit into the time: all presets run on the first, and the presets that may be best somewhere run on the
 * others. If two seeds of each setting do not fit, one seed, for as many presets as the time allows.
 */
function affordableRungs(all: readonly string[], presets: number, { budget, phase }: Within): string[][] {
  const ladder = rungsOf(all);
  const settings = new Set(all.map(settingOf)).size;
  const left = budget?.casesLeft(phase) ?? Infinity;
  const rivals = Math.min(presets, RIVALS * settings);
  const cost = (rungs: readonly string[][]): number =>
    presets * rungs[0].length + (1 + rivals) * rungs[rungs.length - 1].length;
  for (let count = ladder.length; count > 0; count--) {
    const rungs = ladder.slice(0, count);
    if (cost(rungs) <= left) return rungs;
  }
  return [[...oneSeedEach(all)]];
}

/**
 * A state without individuals, and the presets as individuals.
 * @throws TKV_CONFIG where every preset fails
 */
async function beginState(
  plan: SearchPlan,
  presets: readonly PolicyBundle[],
  evaluator: Evaluator,
  within: Within,
): Promise<{ readonly state: SearchState; readonly individuals: readonly Individual[] }> {
  const raced = await racePresets(presets, evaluator, within);
  const { rungs } = raced;
  const bundles = presets.filter((_, i) => raced.runs[i] !== undefined);
  const runs = raced.runs.filter((run) => run !== undefined);
  const standings = runs.map(({ evaluation, rung }) => standingOf(evaluation, rungs[rung].bars));
  const ranOnAll = ({ evaluation, rung }: PresetRun): boolean =>
    evaluation.error === undefined && rung === rungs.length - 1;
  const onAll = standings.filter((_, i) => ranOnAll(runs[i]));
  // a preset that was stopped ran on few seeds, which may flatter it: it gets the lowest full score at most
  const most = Math.min(...onAll.map(({ score }) => score));
  const individuals = bundles.map((bundle, i) => {
    const candidate = { bundle, origin: 'preset', parents: [], changes: [] } as const;
    const standing = standings[i];
    const score = ranOnAll(runs[i]) ? standing.score : Math.min(most, standing.score);
    return individualOf(candidate, 0, runs[i].evaluation, {
      ...standing,
      score,
      behaviour: runs[i].behaviour,
    });
  });
  const ran = individuals.filter(({ error }) => error === undefined);
  const state: SearchState = {
    version: STATE_VERSION,
    plan,
    objectiveNames: evaluator.objectiveNames,
    rungs,
    generation: 0,
    evaluations: runs.length,
    individuals: [],
    history: [],
    numeric: newNumeric(Math.max(CMA_LEAST, Math.round(CMA_SHARE * plan.population))),
    starts: {},
    archive: newIslands(axesOf(plan, ran), plan.islands),
    front: [],
    reference: referenceOf(ran),
  };
  return { state, individuals };
}

/** The bundle with its generation, its first parent and its changes. */
function labelled({ bundle, parents, changes }: Candidate, generation: number): PolicyBundle {
  const { name: _, ...unnamed } = bundle;
  const [parentId] = parents;
  return { ...unnamed, generation, ...(parentId === undefined ? {} : { parentId }), mutations: changes };
}

// All evaluated individuals by content, by id and by behaviour.

class Book {
  /** Individuals by the `contentKey` of their bundle. */
  readonly byContent: Map<string, Individual> = new Map();
  readonly byId: Map<string, Individual> = new Map();
  /** The first individual of each behaviour. */
  readonly byBehaviour: Map<string, Individual> = new Map();

  constructor(individuals: readonly Individual[]) {
    for (const individual of individuals) this.enter(individual);
  }

  enter(individual: Individual): void {
    const { bundle, id, behaviour } = individual;
    this.byContent.set(contentKey(bundle), individual);
    this.byId.set(id, individual);
    if (behaviour !== '' && !this.byBehaviour.has(behaviour)) this.byBehaviour.set(behaviour, individual);
  }

  find(id: string): Individual {
    const found = this.byId.get(id);
    if (found === undefined) throw new Error(`the search knows no bundle ${id}`);
    return found;
  }
}

// The record of a generation, and its measures: the axes of the archive and the reference of the hypervolume. Both
// are taken once, from the better half of the presets; the worse half would stretch them over regions that no
// search visits.

function betterHalf(presets: readonly Individual[]): Individual[] {
  return [...presets].sort((a, b) => b.score - a.score).slice(0, Math.ceil(presets.length / 2));
}

/** Axes over the range of the presets' values, extended by half of it at both ends. Sizes begin at 0. */
function axesOf({ features, bins }: SearchPlan, presets: readonly Individual[]): FeatureAxis[] {
  return features.map((name) => {
    if (name === 'policy_nodes') {
      const largest = Math.max(...presets.map(({ metrics }) => metrics[name] ?? 0));
      return { name, min: 0, max: 2 * largest + 40, bins };
    }
    const values = betterHalf(presets)
      .map(({ metrics }) => metrics[name] ?? 0)
      .filter(Number.isFinite);
    const low = Math.min(...values);
    const high = Math.max(...values);
    const margin = high > low ? (high - low) / 2 : Math.max(0.5, Math.abs(high) / 2);
    return { name, min: low - margin, max: high + margin, bins };
  });
}

/** In each objective the worst value of a preset, less a tenth of the range. */
function referenceOf(presets: readonly Individual[]): number[] {
  const better = betterHalf(presets);
  return better[0].objectives.map((_, m) => {
    const values = better.map(({ objectives }) => objectives[m]);
    const low = Math.min(...values);
    return low - 0.1 * (Math.max(...values) - low || 1);
  });
}

/**
 * The history's record of a generation.
 * @param found individuals of this generation
 * @param best the best score so far
 * @param front objectives of the individuals that none dominates
 */
function recordOf(
  { generation, evaluations, archive, history, reference }: SearchState,
  found: readonly Individual[],
  best: number,
  front: readonly (readonly number[])[],
): GenerationRecord {
  const ran = found.filter(({ error }) => error === undefined);
  const scores = ran.map(({ score }) => score).sort((a, b) => a - b);
  return {
    generation,
    evaluations,
    failures: found.length - ran.length,
    best,
    bestOfGeneration: scores[scores.length - 1] ?? -Number.MAX_VALUE,
    medianOfGeneration: scores[Math.floor(scores.length / 2)] ?? -Number.MAX_VALUE,
    hypervolume: reference.length > 4 ? null : hypervolume(front, reference),
    qdScore: qdScore(archive, history[0]?.medianOfGeneration ?? scores[0] ?? 0),
    filledCells: new Set(archive.islands.flatMap((grid) => Object.keys(grid))).size,
  };
}
