/**
 * A search for better policy bundles. Each generation asks several emitters for candidates: CMA-ES and an
 * evolution strategy move numbers; variation draws parents from a MAP-Elites archive with islands, and from a
 * Pareto population kept by NSGA-II; a branch that tolerates regressions makes compound changes. All
 * candidates are evaluated together on the train suite, and every emitter learns from the answers.
 *
 * What comes out depends on the plan, the presets and the evaluations, and not on how many workers gave them.
 */

import { configError } from '../../../runtime/errors.ts';
import { GoRandom, partitionSeed } from '../../../sim/random/index.ts';
import type { PolicyBundle } from '../../bundle/policyBundle.ts';
import type { Evaluator } from '../../fitness/evaluation.ts';
import {
  type Candidate,
  contentKey,
  type Individual,
  individualOf,
  type SlotGuides,
} from '../bundles/index.ts';
import {
  cellOf,
  elitesOf,
  hypervolume,
  migrate,
  newBranch,
  newIslands,
  offer,
  qdScore,
  stepBranch,
  survivors,
} from '../selection/index.ts';
import { Breeding } from './breeding.ts';
import { axesOf, referenceOf } from './measures.ts';
import { askNumeric, type NumericContext, newNumeric, tellNumeric } from './numericEmitter.ts';
import { type GenerationRecord, type SearchPlan, type SearchState, STATE_VERSION } from './state.ts';

/** Shares of a generation; what is left goes to variation from the archive. */
const shares = { cma: 0.35, strategy: 0.15, pareto: 0.15, branch: 0.1 } as const;
const MIGRANTS = 2;

export class Search {
  #state: SearchState;
  readonly #evaluator: Evaluator;
  readonly #guides: SlotGuides;
  /** Individuals by content, and by id. */
  readonly #known: Map<string, Individual> = new Map();
  readonly #byId: Map<string, Individual> = new Map();

  private constructor(state: SearchState, evaluator: Evaluator, guides: SlotGuides) {
    this.#state = state;
    this.#evaluator = evaluator;
    this.#guides = guides;
    for (const individual of state.individuals) this.#remember(individual);
  }

  /** Evaluates the presets: generation 0. @throws TKV_CONFIG where none of them runs */
  static async begin(
    plan: SearchPlan,
    presets: readonly PolicyBundle[],
    evaluator: Evaluator,
    guides: SlotGuides,
    signal?: AbortSignal,
  ): Promise<Search> {
    const evaluations = await evaluator.evaluate(presets, 'train', signal);
    const individuals = presets.map((bundle, i) => {
      return individualOf({ bundle, origin: 'preset', parents: [], changes: [] }, 0, evaluations[i]);
    });
    const ran = individuals.filter(({ error }) => error === undefined);
    if (ran.length === 0) {
      const problem = individuals[0]?.error?.message ?? 'there are none';
      throw configError('presets', `do not run (${problem})`, 'Begin with one policy that runs.');
    }
    const best = ran.reduce((a, b) => (b.score > a.score ? b : a));
    const count = (share: number): number => Math.max(2, Math.round(share * plan.population));
    const state: SearchState = {
      version: STATE_VERSION,
      plan,
      objectiveNames: evaluator.objectiveNames,
      generation: 0,
      evaluations: presets.length,
      individuals: [],
      history: [],
      numeric: [
        newNumeric('cma', Math.max(4, count(shares.cma))),
        newNumeric('strategy', count(shares.strategy)),
      ],
      starts: {},
      archive: newIslands(axesOf(plan, ran), plan.islands),
      front: [],
      branch: newBranch({ id: best.id, score: best.score }, plan.tolerance),
      reference: referenceOf(ran),
    };
    const search = new Search(state, evaluator, guides);
    individuals.forEach((individual, i) => {
      if (!search.#byId.has(individual.id)) search.#keep(individual, [i % plan.islands]);
    });
    search.#close(individuals);
    return search;
  }

  /** Goes on from a state that `readState` returned. */
  static resume(state: SearchState, evaluator: Evaluator, guides: SlotGuides): Search {
    return new Search(state, evaluator, guides);
  }

  /** What it knows now; to be written, not changed. */
  get state(): SearchState {
    return this.#state;
  }

  get record(): GenerationRecord {
    return this.#state.history[this.#state.history.length - 1];
  }

  /** All that ran, the best first; equal ones in the order in which they were found. */
  get ranking(): readonly Individual[] {
    return this.#state.individuals
      .filter(({ error }) => error === undefined)
      .sort((a, b) => b.score - a.score);
  }

  find(id: string): Individual {
    const found = this.#byId.get(id);
    if (found === undefined) throw new Error(`the search knows no bundle ${id}`);
    return found;
  }

  /** One generation. An abort leaves the state where the last one ended. */
  async step(signal?: AbortSignal): Promise<GenerationRecord> {
    const { plan } = this.#state;
    const before = JSON.stringify(this.#state);
    try {
      await this.#generation(signal);
    } catch (error) {
      this.#state = JSON.parse(before) as SearchState;
      throw error;
    }
    if (this.#state.generation % plan.migrateEvery === 0) migrate(this.#state.archive, MIGRANTS);
    // what a search that is resumed would read
    this.#state = JSON.parse(JSON.stringify(this.#state)) as SearchState;
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
      find: (id) => this.find(id),
      ranking: this.ranking,
      starts: this.#state.starts,
    };
    const asked = numeric.map((state) => askNumeric(state, context, stream(state.method)));
    const count = (share: number): number => Math.max(2, Math.round(share * plan.population));
    const breeding = new Breeding(this.#state, this.#guides, (id) => this.find(id));
    const pareto = breeding.fromFront(count(shares.pareto), stream('pareto'));
    const branch = breeding.fromBranch(count(shares.branch), stream('branch'));
    const taken = asked.reduce(
      (sum, { candidates }) => sum + candidates.length,
      pareto.length + branch.length,
    );
    const islands = breeding.fromIslands(Math.max(2, plan.population - taken), stream('variation'));
    const candidates = [
      ...asked.flatMap((each) => each.candidates),
      ...pareto,
      ...branch,
      ...islands.map(({ candidate }) => candidate),
    ];
    const found = await this.#evaluate(candidates, generation, signal);

    let at = 0;
    numeric.forEach((state, i) => {
      const { points } = asked[i];
      tellNumeric(
        state,
        points,
        found.slice(at, at + points.length).map(({ score }) => score),
      );
      at += points.length;
    });
    const branchAt = at + pareto.length;
    const islandsAt = branchAt + branch.length;
    this.#state.generation = generation;
    found.forEach((individual, i) => {
      const island = i >= islandsAt ? islands[i - islandsAt].island : i % plan.islands;
      this.#keep(individual, [island]);
    });
    this.#walk(found.slice(branchAt, islandsAt));
    this.#close(found);
  }

  /** Answers in the order of the candidates; what is known is not evaluated again. */
  async #evaluate(
    candidates: readonly Candidate[],
    generation: number,
    signal?: AbortSignal,
  ): Promise<Individual[]> {
    const keys = candidates.map(({ bundle }) => contentKey(bundle));
    const fresh = new Map<string, Candidate>();
    candidates.forEach((candidate, i) => {
      if (this.#known.has(keys[i]) || fresh.has(keys[i])) return;
      fresh.set(keys[i], { ...candidate, bundle: this.#labelled(candidate, generation) });
    });
    const asked = [...fresh.values()];
    const evaluations = await this.#evaluator.evaluate(
      asked.map(({ bundle }) => bundle),
      'train',
      signal,
    );
    this.#state.evaluations += asked.length;
    const answers = new Map<string, Individual>();
    [...fresh].forEach(([key, candidate], i) => {
      answers.set(key, individualOf(candidate, generation, evaluations[i]));
    });
    return keys.map((key) => {
      const individual = answers.get(key) ?? this.#known.get(key);
      if (individual === undefined) throw new Error('a candidate has no answer');
      return individual;
    });
  }

  /** The bundle with where it comes from. */
  #labelled({ bundle, parents, changes }: Candidate, generation: number): PolicyBundle {
    const { name: _, ...unnamed } = bundle;
    const [parentId] = parents;
    return { ...unnamed, generation, ...(parentId === undefined ? {} : { parentId }), mutations: changes };
  }

  #remember(individual: Individual): void {
    this.#known.set(contentKey(individual.bundle), individual);
    this.#byId.set(individual.id, individual);
  }

  /** Puts it into the books and offers it to the archive. */
  #keep(individual: Individual, islands: readonly number[]): void {
    const { archive, individuals } = this.#state;
    if (!this.#byId.has(individual.id)) {
      individuals.push(individual);
      this.#remember(individual);
    }
    if (individual.error !== undefined) return;
    const cell = cellOf(archive.axes, individual.metrics);
    for (const island of islands) {
      offer(archive.islands[island], cell, { id: individual.id, score: individual.score });
    }
  }

  /** NSGA-II keeps its population; the generation goes into the history. */
  #close(found: readonly Individual[]): void {
    const { plan, front, history, archive, reference } = this.#state;
    const ran = found.filter(({ error }) => error === undefined);
    const ids = [...new Set([...front, ...ran.map(({ id }) => id)])];
    const points = ids.map((id) => this.find(id).objectives);
    this.#state.front = survivors(points, plan.population).map((i) => ids[i]);
    const scores = ran.map(({ score }) => score).sort((a, b) => a - b);
    const best = scores[scores.length - 1] ?? -Number.MAX_VALUE;
    const cells = new Set(archive.islands.flatMap((grid) => Object.keys(grid)));
    history.push({
      generation: this.#state.generation,
      evaluations: this.#state.evaluations,
      failures: found.length - ran.length,
      best: Math.max(best, history[history.length - 1]?.best ?? -Number.MAX_VALUE),
      bestOfGeneration: best,
      medianOfGeneration: scores[Math.floor(scores.length / 2)] ?? -Number.MAX_VALUE,
      hypervolume:
        reference.length > 4
          ? null
          : hypervolume(
              this.#state.front.map((id) => this.find(id).objectives),
              reference,
            ),
      qdScore: qdScore(archive, history[0]?.medianOfGeneration ?? scores[0] ?? 0),
      filledCells: cells.size,
    });
  }

  /**
   * The branch goes on from the best of its candidates; it starts again from one island's best after the
   * other.
   */
  #walk(tried: readonly Individual[]): void {
    const { branch, archive } = this.#state;
    const ran = tried.filter(({ error }) => error === undefined);
    const best = ran.length === 0 ? undefined : ran.reduce((a, b) => (b.score > a.score ? b : a));
    const island = archive.islands[branch.restarts % archive.islands.length];
    const restartAt = elitesOf(island)[0] ?? branch.best;
    stepBranch(branch, best && { id: best.id, score: best.score }, restartAt);
  }
}
