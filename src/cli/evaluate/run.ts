/** The runs of `tierkv evaluate`. */

import { writeResultJson, writeText } from '../../io/files/results.ts';
import { startProgressBar } from '../../io/printing/progress.ts';
import type { PoolLimits } from '../../io/workerPool.ts';
import { SimulationEvaluator } from '../../policy/evaluate/evaluator.ts';
import { openPolicy } from '../../policy/evaluate/openPolicy.ts';
import { loadPlan, type PlanChanges, planScales } from '../../policy/evaluate/plans.ts';
import type { PolicyBundle } from '../../policy/evolve/bundle/policyBundle.ts';
import { presets } from '../../policy/evolve/bundle/presets.ts';
import { type Evaluation, type SuiteName, suiteNames } from '../../policy/evolve/fitness/evaluation.ts';
import { GAIN_MIN } from '../../policy/evolve/fitness/objectives.ts';
import { hypervolume } from '../../policy/evolve/search/selection.ts';
import { defaultSummary, summaryStrategies } from '../../policy/evolve/summary.ts';
import { traceLevels } from '../../policy/evolve/trace/records.ts';
import { configError } from '../../runtime/errors.ts';
import { latencyBackends } from '../../sim/latency/latencyNames.ts';
import { hasOwnCoefficients } from '../../sim/latency/makeModel.ts';
import { inFlags, numberWithin, type OptionValues, oneOf } from '../flags.ts';
import { printText } from '../output.ts';
import { reportTo } from '../reportOption.ts';
import { withRunner } from '../workersOption.ts';
import {
  evaluationTable,
  failureLines,
  frontsOf,
  pairVerdicts,
  type RankedBundle,
  rankingTable,
  sensitivityText,
  settingsTable,
  type World,
} from './page.ts';

/** Options by the changes of a plan. */
const planFlags = { latencyModels: '--latency', seeds: '--seeds' };

interface Named {
  readonly name: string;
  readonly bundle: PolicyBundle;
}

/** Seeds of `--workloads perturbed`. */
const perturbedSeeds = [201, 202, 203, 204, 205, 206];

export async function runEvaluate(
  asked: readonly string[],
  options: OptionValues,
  limits: PoolLimits,
  server: string | undefined,
): Promise<void> {
  if (asked.length === 0 && options.presets === true) {
    process.stdout.write(`${['baseline', ...presets.keys()].join('\n')}\n`);
    return;
  }
  if (asked.length === 0) {
    throw configError('policy', 'is missing', 'Name a bundle, a program or a preset; --presets lists them.');
  }
  const named = asked.map((name): Named => ({ name, bundle: openPolicy(name, String(options.slot)) }));
  if (options.presets === true) {
    const scales = planScales(loadPlan(String(options.plan)));
    for (const [name, bundle] of presets) {
      if (scales || bundle.autoScale === undefined) named.push({ name, bundle });
    }
  }
  const suite = oneOf('--suite', String(options.suite), suiteNames);
  using bar = startProgressBar('simulations');
  const seeds = options.seeds === undefined ? {} : { seeds: seedsOf(String(options.seeds)) };
  const say = (line: string): void => bar.notice(line);
  // each world has an evaluator of its own, and all share the folder of results
  const said = new Set<string>();
  const sayOnce = (line: string): void => {
    if (!said.has(line)) say(line);
    said.add(line);
  };
  await withRunner(server, limits, say, async (runner, signal) => {
    const open = (changes: PlanChanges = {}): SimulationEvaluator =>
      new SimulationEvaluator({
        runner,
        plan: inFlags(planFlags, () => loadPlan(String(options.plan), { ...seeds, ...changes })),
        limits,
        ...(typeof options.cache === 'string' ? { cacheFolder: options.cache } : {}),
        progress: (ended, known) => bar.update({ share: ended / known, done: ended }),
        say: sayOnce,
      });
    if (options.latency !== undefined || options.workloads !== undefined) {
      await sensitivity(named, suite, options, open, signal);
      return;
    }
    const evaluator = open();
    const evaluations = await evaluator.evaluate(
      named.map(({ bundle }) => bundle),
      suite,
      signal,
    );
    const text = await pageOf(named, evaluations, suite, evaluator, options);
    signal.throwIfAborted();
    writeResults(named, evaluations, evaluator, options, text);
    if (typeof options.report !== 'string') return;
    const { evaluationReport } = await import('../../observe/report/evaluationReport.ts');
    const policies = named.map(({ name }, i) => ({ name, evaluation: evaluations[i] }));
    const { objectiveNames } = evaluator;
    const { summary } = text;
    await reportTo(options.report, (command) =>
      evaluationReport({ policies, suite, objectiveNames, summary, command }),
    );
  });
}

function writeResults(
  named: readonly Named[],
  evaluations: readonly Evaluation[],
  evaluator: SimulationEvaluator,
  options: OptionValues,
  page: { readonly text: string; readonly summary: string | undefined },
): void {
  const fronts = frontsOf(evaluations);
  const results = evaluations.map((evaluation, i) => ({
    name: named[i].name,
    ...evaluation,
    objectiveNames: evaluator.objectiveNames,
    ...(fronts[i] === undefined ? {} : { front: fronts[i] }),
  }));
  const ran = evaluations.filter(({ error }) => error === undefined);
  const report = {
    results,
    // down to the lowest gain that there is, in each objective
    hypervolume: hypervolume(
      ran.map(({ objectives }) => objectives),
      evaluator.objectiveNames.map(() => GAIN_MIN),
    ),
    ...(page.summary === undefined ? {} : { summary: page.summary }),
  };
  writeReport(report, options, page.text);
}

function writeReport(report: object, options: OptionValues, text: string): void {
  if (typeof options.json === 'string') writeResultJson(options.json, 'evaluate', report);
  printText(text);
}

function tablesOf(entries: readonly RankedBundle[], objectiveNames: readonly string[]): string {
  return `${rankingTable(entries, objectiveNames)}${settingsTable(entries)}`;
}

/** The page: one policy told, or a ranking of several. */
async function pageOf(
  named: readonly Named[],
  evaluations: readonly Evaluation[],
  suite: SuiteName,
  evaluator: SimulationEvaluator,
  options: OptionValues,
): Promise<{ readonly text: string; readonly summary: string | undefined }> {
  const { objectiveNames } = evaluator;
  const ranking =
    named.length === 1
      ? ''
      : tablesOf(
          named.map(({ name }, i) => ({ name, evaluation: evaluations[i] })),
          objectiveNames,
        );
  const failures = failureLines(named.map(({ name }, i) => ({ name, evaluation: evaluations[i] })));
  if (failures !== '') process.exitCode = 2;
  const first = evaluations.findIndex(({ error }) => error === undefined);
  if (first < 0) return { text: `${ranking}${failures}`, summary: failures.trimEnd() };
  const { bundle, name } = named[first];
  const evaluation = evaluations[first];
  const { cases = [] } = evaluation;
  const worst = cases.reduce((a, b) => (b.score < a.score ? b : a));
  const told = await evaluator.explain(bundle, suite, String(options.case ?? worst.id), {
    summary: {
      ...defaultSummary,
      strategy: oneOf('--summary', String(options.summary), summaryStrategies),
      maxTokens: whole(options, 'maxTokens', '--max-tokens', 100, 20_000),
    },
    regrets: whole(options, 'regrets', '--regrets', 0, 10_000),
    level:
      options.trace === undefined
        ? 'minimal'
        : oneOf('--trace-level', String(options.traceLevel), traceLevels),
  });
  const table = evaluationTable(evaluation, objectiveNames);
  if ('error' in told) {
    process.exitCode = 2;
    const failure = `${name} ran, and explaining its case failed: ${told.error.message}`;
    return { text: `${ranking}${failures}${name} on ${suite}\n${table}\n${failure}\n`, summary: failure };
  }
  const { summary, trace } = told.explanation;
  if (typeof options.trace === 'string') writeText(options.trace, `${trace.join('\n')}\n`);
  return { text: `${ranking}${failures}${name} on ${suite}\n${table}\n${summary}`, summary };
}

function seedsOf(text: string): number[] {
  const seeds = [...new Set(text.split(',').map((each) => (each.trim() === '' ? Number.NaN : Number(each))))];
  if (seeds.every((seed) => Number.isSafeInteger(seed) && seed >= 0)) return seeds;
  throw configError(
    '--seeds',
    `is ${JSON.stringify(text)}`,
    'Give whole numbers from 0, separated by commas.',
  );
}

function whole(options: OptionValues, name: string, flag: string, min: number, max: number): number {
  return numberWithin(options, name, flag, { min, max, whole: true }) ?? min;
}

/** The same policies in several worlds. */
async function sensitivity(
  named: readonly Named[],
  suite: SuiteName,
  options: OptionValues,
  open: (changes: PlanChanges) => SimulationEvaluator,
  signal: AbortSignal,
): Promise<void> {
  const baselineToo: Named = { name: 'baseline', bundle: openPolicy('baseline') };
  const all = named.some(({ name }) => name === 'baseline') ? named : [...named, baselineToo];
  const worlds: World[] = [];
  const failed = new Map<string, RankedBundle>();
  const worldless = await allFailures(named, suite, open, signal);
  for (const entry of worldless) failed.set(entry.name, entry);
  const changes = worldsOf(options);
  for (const [name, change] of worldless.length > 0 ? [] : changes) {
    const evaluations = await open(change).evaluate(
      all.map(({ bundle }) => bundle),
      suite,
      signal,
    );
    const scores = evaluations.map(({ error, score }) => (error === undefined ? score : undefined));
    worlds.push({ name, scores });
    for (const [i, evaluation] of evaluations.entries()) {
      const entry = { name: all[i].name, evaluation };
      if (evaluation.error !== undefined && !failed.has(entry.name)) failed.set(entry.name, entry);
    }
  }
  if (failed.size > 0) process.exitCode = 2;
  const names = all.map(({ name }) => name);
  const report = {
    policies: names,
    worlds: worlds.map(({ name, scores }) => ({ name, scores: scores.map((score) => score ?? null) })),
    pairs: pairVerdicts(names, worlds),
  };
  const table = worlds.length === 0 ? '' : sensitivityText(names, worlds);
  writeReport(report, options, `${table}${failureLines([...failed.values()])}`);
}

/** The failures where no policy can be run; none of the worlds is simulated then. */
async function allFailures(
  named: readonly Named[],
  suite: SuiteName,
  open: (changes: PlanChanges) => SimulationEvaluator,
  signal: AbortSignal,
): Promise<readonly RankedBundle[]> {
  const evaluator = open({});
  const bundles = named.map(({ bundle }) => bundle);
  const checked = await Promise.all(bundles.map((bundle) => evaluator.check(bundle)));
  if (!checked.every((each) => 'error' in each)) return [];
  const evaluations = await evaluator.evaluate(bundles, suite, signal);
  return evaluations.map((evaluation, i) => ({ name: named[i].name, evaluation }));
}

function worldsOf(options: OptionValues): [string, PlanChanges][] {
  const worlds: [string, PlanChanges][] = [];
  if (options.latency !== undefined) {
    const asked = String(options.latency);
    const models = asked === 'all' ? latencyBackends.filter(hasOwnCoefficients) : asked.split(',');
    for (const model of models) {
      oneOf('--latency', model, latencyBackends);
      worlds.push([`${model}`, { latencyModels: [model] }]);
    }
  }
  if (options.workloads !== undefined) {
    oneOf('--workloads', String(options.workloads), ['perturbed']);
    worlds.push(['as written', { perturbation: 0 }]);
    for (const seed of perturbedSeeds)
      worlds.push([`perturbed ${seed}`, { seeds: [seed], perturbation: 0.2 }]);
  }
  return worlds;
}
