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
  bundlesWithOneMoreTerm,
  type Candidate,
  type Individual,
  type SlotGuides,
} from '../bundles/index.ts';
import { cellOf, elitesOf, migrate, offer, stepBranch, survivors } from '../selection/index.ts';
import { crossings } from '../start/crossings.ts';
import { presetsInContext } from '../start/inContext.ts';
import { answersTo } from './answers.ts';
import { beginState, shareOf, shares } from './beginning.ts';
import { Book } from './book.ts';
import { Breeding } from './breeding.ts';
import type { Budget } from './budget.ts';
import { recordOf } from './measures.ts';
import { askNumeric, type NumericContext, tellNumeric } from './numericEmitter.ts';
import type { GenerationRecord, SearchPlan, SearchState } from './state.ts';

const MIGRANTS = 2;
/** Crossings of presets, in populations; they come with the first generation. */
const CROSSINGS = 3;
/** From the third generation on, so often one tries all terms that the best might lack. */
const TERMS_EVERY = 8;

export class Search {
  #state: SearchState;
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
   * @param budget leaves out presets, and seeds, that do not fit into its share for them
   * @throws TKV_CONFIG where none of them runs
   */
  static async begin(
    plan: SearchPlan,
    presets: readonly PolicyBundle[],
    evaluator: Evaluator,
    guides: SlotGuides,
    signal?: AbortSignal,
    budget?: Budget,
  ): Promise<Search> {
    const within = { signal, budget, phase: 'presets' } as const;
    const { state, individuals } = await beginState(plan, presets, evaluator, within);
    const search = new Search(state, evaluator, guides);
    individuals.forEach((individual, i) => {
      if (!search.#book.has(individual.id)) search.#keep(individual, [i % plan.islands]);
    });
    search.#close(individuals);
    return search;
  }

  /**
   * Goes on from a state that `readState` returned.
   * @throws TKV_CONFIG where the train suite is not the one that it began with
   */
  static resume(state: SearchState, evaluator: Evaluator, guides: SlotGuides): Search {
    const known = new Set(evaluator.caseIds('train'));
    if (!state.rungs[state.rungs.length - 1].cases.every((id) => known.has(id))) {
      throw configError(
        'train',
        'has other cases than when the search began',
        'Give it the same plan again.',
      );
    }
    return new Search(state, evaluator, guides);
  }

  /** What it knows now; to be written, not changed. */
  get state(): SearchState {
    return this.#state;
  }

  get record(): GenerationRecord {
    return this.#state.history[this.#state.history.length - 1];
  }

  /**
   * Those that ran on all cases, without echoes, the best first; equal ones in the order in which they were
   * found.
   */
  get ranking(): readonly Individual[] {
    const { individuals, rungs } = this.#state;
    const all = rungs[rungs.length - 1].cases.length;
    return individuals
      .filter(({ error, cases, echoOf }) => error === undefined && cases === all && echoOf === undefined)
      .sort((a, b) => b.score - a.score);
  }

  find(id: string): Individual {
    return this.#book.find(id);
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
    const count = (share: number): number => shareOf(plan, share);
    const breeding = new Breeding(this.#state, this.#guides, context.find, context.ranking);
    const pareto = breeding.fromFront(count(shares.pareto), stream('pareto'));
    const branch = breeding.fromBranch(count(shares.branch), stream('branch'));
    const tried = this.#systematic(generation);
    const crossed =
      tried.length > 0 ? tried : breeding.fromLeaders(count(shares.crossing), stream('crossing'));
    const taken = asked.reduce(
      (sum, { candidates }) => sum + candidates.length,
      pareto.length + branch.length + count(shares.crossing),
    );
    const islands = breeding.fromIslands(Math.max(2, plan.population - taken), stream('variation'));
    const candidates = [
      ...asked.flatMap((each) => each.candidates),
      ...pareto,
      ...branch,
      ...islands.map(({ candidate }) => candidate),
      ...crossed,
    ];
    const { rungs } = this.#state;
    const answers = await answersTo(candidates, generation, this.#book, rungs, this.#evaluator, signal);
    const found = answers.individuals;
    this.#state.evaluations += answers.evaluations;

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
      const island = islands[i - islandsAt]?.island ?? i % plan.islands;
      this.#keep(individual, [island]);
    });
    this.#walk(found.slice(branchAt, islandsAt));
    this.#close(found);
  }

  /**
   * What some generations try in every way there is: presets put together, each of them within the best of
   * that, and each term that the best program of a slot might lack.
   */
  #systematic(generation: number): Candidate[] {
    const { individuals, plan } = this.#state;
    const ran = individuals.filter(({ error, origin }) => error === undefined && origin === 'preset');
    if (generation === 1) return crossings(ran, plan.slots, CROSSINGS * plan.population);
    if (generation === 2) return presetsInContext(this.ranking[0], ran, plan.slots);
    if (generation % TERMS_EVERY !== 3) return [];
    return bundlesWithOneMoreTerm(this.ranking, plan.slots, this.#guides);
  }

  /** Puts it into the book and offers it to the archive. */
  #keep(individual: Individual, islands: readonly number[]): void {
    const { archive, individuals } = this.#state;
    if (!this.#book.has(individual.id)) {
      individuals.push(individual);
      this.#book.enter(individual);
    }
    if (individual.error !== undefined) return;
    const cell = cellOf(archive.axes, individual.metrics);
    for (const island of islands) {
      offer(archive.islands[island], cell, { id: individual.id, score: individual.score });
    }
  }

  /** NSGA-II keeps its population; the generation goes into the history. */
  #close(found: readonly Individual[]): void {
    const { plan, front, history } = this.#state;
    const ran = found.filter(({ error, echoOf }) => error === undefined && echoOf === undefined);
    const ids = [...new Set([...front, ...ran.map(({ id }) => id)])];
    const points = ids.map((id) => this.find(id).objectives);
    this.#state.front = survivors(points, plan.population).map((i) => ids[i]);
    const objectives = this.#state.front.map((id) => this.find(id).objectives);
    history.push(recordOf(this.#state, found, this.ranking[0].score, objectives));
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
