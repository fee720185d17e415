/** A search from its first generation, or from where it was stopped, to the report. */

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { DirectoryLock } from '../../backends/file/directoryLock.ts';
import { makeDirectory, writeResultJson, writeText } from '../../io/files/results.ts';
import { renderSvg } from '../../io/printing/chart.ts';
import { startProgressBar } from '../../io/printing/progress.ts';
import { formatCounted } from '../../io/printing/text.ts';
import { SimulationEvaluator } from '../../policy/evaluate/evaluator.ts';
import { openPolicy, refuseUnbound } from '../../policy/evaluate/openPolicy.ts';
import { loadPlan, planScales, refuseIdleScaling } from '../../policy/evaluate/plans.ts';
import { type PolicyBundle, type PolicySlot, policySlots } from '../../policy/evolve/bundle/policyBundle.ts';
import { baseline } from '../../policy/evolve/bundle/presets.ts';
import type { EvaluationPlan } from '../../policy/evolve/fitness/evaluation.ts';
import { isMetricName, metricDescriptions } from '../../policy/evolve/fitness/objectives.ts';
import {
  choose,
  finalistsOf,
  type GenerationRecord,
  judge,
  readState,
  type SearchPlan,
  type SearchState,
} from '../../policy/evolve/search/breeding.ts';
import { SearchBudget, TimeIsUp } from '../../policy/evolve/search/budget.ts';
import { expectedCases, Search } from '../../policy/evolve/search/search.ts';
import { firstPolicies, slotGuides } from '../../policy/evolve/search/seeds.ts';
import { openRunner } from '../../policy/workers/openRunner.ts';
import { configError, TierKVError, unknownName } from '../../runtime/errors.ts';
import { printText } from '../output.ts';
import { reportTo } from '../reportOption.ts';
import type { EvolveOptions } from './command.ts';
import {
  archiveChart,
  comparisonCsv,
  fitnessChart,
  frontChart,
  lineageText,
  reportOf,
  reportText,
} from './report.ts';

/** Heap of a worker thread. */
const HEAP_MIB = 1024;
const MIGRATE_EVERY = 5;
const BINS = 8;

function slotsOf(text: string | undefined, plan: EvaluationPlan): readonly PolicySlot[] {
  if (text === undefined) return plan.slots;
  const asked = named(text);
  if (asked.includes('autoScale') && !planScales(plan)) {
    const remedy = 'Leave it out, or take --plan scaling.';
    throw configError('--slots', 'has autoScale, and the plan scales no instances', remedy);
  }
  return asked;
}

function named(text: string): PolicySlot[] {
  return text.split(',').map((name) => {
    const slot = policySlots.find((each) => each === name.trim());
    if (slot === undefined) throw unknownName('--slots', name, policySlots);
    return slot;
  });
}

/** Metrics that divide the archive; a run gives each of them. @throws TKV_CONFIG with the nearest one */
function featuresOf(text: string): string[] {
  return text.split(',').map((each) => {
    const name = each.trim();
    if (isMetricName(name)) return name;
    throw unknownName(
      '--features',
      name,
      metricDescriptions.map((known) => known.name),
    );
  });
}

function planOf(options: EvolveOptions, slots: readonly PolicySlot[], measured: string): SearchPlan {
  return {
    seed: options.seed,
    population: options.population,
    slots,
    islands: options.islands,
    migrateEvery: MIGRATE_EVERY,
    features: featuresOf(options.features),
    bins: BINS,
    measured,
  };
}

/** @throws TKV_CONFIG where policies come with a search that began without them, or would decide nothing */
function givenPolicies({ policies, slot, resume }: EvolveOptions, plan: EvaluationPlan): PolicyBundle[] {
  if (resume && policies.length > 0) {
    throw configError(
      'policy',
      'comes with --resume',
      'Leave it out: the state has what the search began with.',
    );
  }
  return policies.map((name) => {
    const bundle = openPolicy(name, slot);
    refuseIdleScaling(bundle, plan);
    return { ...baseline, ...bundle, name };
  });
}

export async function evolve(options: EvolveOptions, signal: AbortSignal): Promise<void> {
  const budget = options.minutes === Infinity ? undefined : new SearchBudget(60_000 * options.minutes);
  const suites = loadPlan(options.plan);
  const slots = slotsOf(options.slots, suites);
  const known = firstPolicies(slots);
  const first = [...givenPolicies(options, suites), ...(budget === undefined ? known : slotsInTurn(known))];
  await refuseUnbound(first);
  using bar = startProgressBar('simulations');
  const progress = new SearchProgress(budget);
  const limits = { workers: options.workers, wallMs: options.wallMs, heapMiB: HEAP_MIB };
  const runner = await openRunner(options.server, limits, (line) => bar.notice(line));
  const evaluator = new SimulationEvaluator({
    plan: suites,
    limits,
    runner,
    progress: (done, asked) => bar.update(progress.at(done, asked)),
  });
  let directory: SearchDirectory | undefined;
  try {
    const plan = planOf(options, slots, evaluator.identity());
    directory = await SearchDirectory.open(options.out);
    const saved = directory.load(plan, options.resume);
    const expected = expectedCases(options.population, first.length, options.finalists, evaluator);
    const left = Math.max(0, options.generations - (saved?.generation ?? 0));
    progress.total =
      (saved === undefined ? expected.presets : 0) + left * expected.generation + expected.judging;
    if (saved === undefined) progress.begin('presets', expected.presets);
    const search =
      saved === undefined
        ? await Search.begin(plan, first, evaluator, slotGuides, signal, budget)
        : Search.resume(saved, evaluator, slotGuides);
    if (saved === undefined) directory.save(search.state);
    const presetCount = search.state.individuals.filter(({ origin }) => origin === 'preset').length;
    bar.say(`${formatCounted(presetCount, 'policies')} to begin with, best ${search.record.best.toFixed(4)}`);
    while (search.state.generation < options.generations) {
      const note = `generation ${search.state.generation + 1}, best ${search.record.best.toFixed(4)}`;
      progress.begin(note, expected.generation);
      const record = await generation(search, signal, budget);
      if (record === undefined) break;
      directory.save(search.state);
      bar.say(
        `generation ${record.generation}: best ${record.best.toFixed(4)}, ` +
          `${formatCounted(record.evaluations, 'evaluations')}, ${record.failures} of this generation failed`,
      );
    }
    progress.begin('judging', expected.judging);
    await conclude(search, evaluator, options, directory, signal, first.length, budget);
  } finally {
    directory?.close();
    await runner.close();
  }
}

/** How far a search is: by its time where that is limited, else by the simulations that its phases ask for. */
class SearchProgress {
  readonly #budget: SearchBudget | undefined;
  /** Simulations that the search is expected to ask for. */
  total = 0;
  #note = '';
  /** Simulations that earlier phases were expected to ask for, and that this phase is. */
  #before = 0;
  #expected = 0;
  /** Simulations that had ended when this phase began, and that have ended now. */
  #from = 0;
  #done = 0;

  constructor(budget: SearchBudget | undefined) {
    this.#budget = budget;
  }

  begin(note: string, expected: number): void {
    this.#note = note;
    this.#before += this.#expected;
    this.#expected = expected;
    this.#from = this.#done;
  }

  at(done: number, asked: number): { readonly share: number; readonly done: number; readonly note: string } {
    this.#done = done;
    const phase = Math.max(this.#expected, asked - this.#from);
    const within = (this.#expected * (done - this.#from)) / phase;
    const share = this.#budget?.usedShare ?? (this.#before + within) / this.total;
    return { share, done, note: this.#note };
  }
}

/** One of each slot after the other: a short time shall not go to one slot alone. */
function slotsInTurn(policies: readonly PolicyBundle[]): PolicyBundle[] {
  const bySlot = Map.groupBy(policies, ({ name = '' }) => name.split('/')[0]);
  const longest = Math.max(...[...bySlot.values()].map(({ length }) => length));
  return Array.from({ length: longest }, (_, i) =>
    [...bySlot.values()].flatMap((of) => of.slice(i, i + 1)),
  ).flat();
}

/** Undefined where the time is up before it ends; then the search stands where the one before has ended. */
async function generation(
  search: Search,
  signal: AbortSignal,
  budget: SearchBudget | undefined,
): Promise<GenerationRecord | undefined> {
  if (budget === undefined) return search.step(signal);
  if (budget.leftMs('generations') === 0) return undefined;
  try {
    return await budget.during('generations', (end) => search.step(AbortSignal.any([signal, end])));
  } catch (error) {
    if (error instanceof TimeIsUp) return undefined;
    throw error;
  }
}

async function conclude(
  search: Search,
  evaluator: SimulationEvaluator,
  options: EvolveOptions,
  directory: SearchDirectory,
  signal: AbortSignal,
  first: number,
  budget: SearchBudget | undefined,
): Promise<void> {
  const { plan, individuals } = search.state;
  const presets = individuals.filter(({ origin }) => origin === 'preset');
  const finalists = finalistsOf(search.ranking, options.finalists, plan.slots);
  const { chosen, all } = await choose(finalists, presets, evaluator, signal, budget);
  const judged = await judge(chosen.individual, presets, evaluator, signal, budget);
  const report = reportOf(search, chosen, all, judged, evaluator.plan);
  directory.writeJson('best.json', chosen.individual.bundle);
  directory.writeJson('report.json', report);
  directory.write('comparison.csv', comparisonCsv(report));
  directory.write('lineage.jsonl', lineageText(search.state));
  if (options.plots) {
    directory.write('fitness.svg', await renderSvg(fitnessChart(search.state)));
    directory.write('archive.svg', await renderSvg(archiveChart(search.state)));
    directory.write('pareto.svg', await renderSvg(frontChart(search.state)));
  }
  if (options.json !== undefined) writeResultJson(options.json, 'evolve', report);
  const { rungs } = search.state;
  const seeds = rungs[rungs.length - 1].cases.length;
  const leftOut =
    budget === undefined
      ? undefined
      : `--minutes ${options.minutes} left room for ${presets.length} of ${first} first policies on ${seeds} of ` +
        `${evaluator.caseIds('train').length} cases of train, and for ${formatCounted(judged.length, 'policies')} on ` +
        `${Object.keys(report.winner.cases).length} of ${evaluator.caseIds('hidden').length} hidden ones`;
  const isWhole =
    presets.length === first &&
    judged.length > presets.length &&
    Object.keys(report.winner.cases).length === evaluator.caseIds('hidden').length;
  if (options.report !== undefined) {
    const { searchReport } = await import('../../observe/report/searchReport.ts');
    const tried = search.state.individuals.filter(({ error }) => error === undefined);
    await reportTo(options.report, (command) =>
      searchReport({
        outcome: report,
        individuals: tried,
        command,
        folder: options.out,
        ...(leftOut === undefined || isWhole ? {} : { leftOut }),
      }),
    );
  }
  printText(reportText(report, presets.length));
  if (leftOut !== undefined) printText(`${leftOut}\n`);
}

//  The directory of a search: its state, written whole or not at all, and what it ends with.

class SearchDirectory {
  readonly #folder: string;
  readonly #lock: DirectoryLock;

  private constructor(folder: string, lock: DirectoryLock) {
    this.#folder = folder;
    this.#lock = lock;
  }

  /**
   * One process at a time: two would write over each other's state.
   * @throws TKV_IO where the folder cannot be made, TKV_LOCKED while another search has it
   */
  static async open(folder: string): Promise<SearchDirectory> {
    makeDirectory(folder, '--out');
    try {
      return new SearchDirectory(folder, await DirectoryLock.acquire(folder, undefined));
    } catch (error) {
      if (!(error instanceof TierKVError) || error.code !== 'TKV_LOCKED') throw error;
      const problem = `--out is ${folder}, and another search that runs has it`;
      const remedy = 'Name another directory, or wait for its end.';
      throw new TierKVError('TKV_LOCKED', `${problem}. ${remedy}`, {
        field: '--out',
        path: folder,
        cause: error,
      });
    }
  }

  close(): void {
    this.#lock.release();
  }

  path(name: string): string {
    return path.join(this.#folder, name);
  }

  /**
   * The state that an earlier run left.
   * @throws TKV_CONFIG where one is asked for and missing, or is there and would be overwritten
   */
  load(plan: SearchPlan, resume: boolean): SearchState | undefined {
    const file = this.path('state.json');
    if (!existsSync(file)) {
      if (!resume) return undefined;
      throw configError('--resume', `finds no state in ${this.#folder}`, 'Leave it out to begin there.');
    }
    if (!resume) {
      const remedy = 'Add --resume to go on, or name another directory.';
      throw configError('--out', `holds a search already (${this.#folder})`, remedy);
    }
    return readState(readFileSync(file, 'utf8'), plan, file);
  }

  save(state: SearchState): void {
    writeText(this.path('state.json'), `${JSON.stringify(state)}\n`);
  }

  write(name: string, text: string): void {
    writeText(this.path(name), text);
  }

  writeJson(name: string, value: unknown): void {
    this.write(name, `${JSON.stringify(value, undefined, 2)}\n`);
  }
}
