/**
 * The evaluator that simulates every case of a suite on worker threads, and makes one score of the gains over the
 * baseline. The result does not depend on the number of threads nor on the cache.
 */

import os from 'node:os';
import { FileContents } from '../../io/files/inputs.ts';
import {
  isUnanswered,
  type PoolLimits,
  type TaskRunner,
  type Unanswered,
  WorkerPool,
} from '../../io/workerPool.ts';
import { invariant, TierKVError, unknownName } from '../../runtime/errors.ts';
import type { ValueKind } from '../../runtime/kinds.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { bindBundle } from '../evolve/binding/bind.ts';
import type { PolicyBundle } from '../evolve/bundle/policyBundle.ts';
import { contentHash, policyId } from '../evolve/bundle/presets.ts';
import { readBundle } from '../evolve/bundle/readBundle.ts';
import {
  type CaseResult,
  type Evaluation,
  type EvaluationError,
  type EvaluationPlan,
  type Evaluator,
  type SuiteCase,
  type SuiteName,
  suiteNames,
} from '../evolve/fitness/evaluation.ts';
import {
  caseScore,
  FAILED_SCORE,
  GAIN_MIN,
  gainsOf,
  metricDescriptions,
  policyNodes,
} from '../evolve/fitness/objectives.ts';
import { LOST_MS, type LostTimes, lostTimesOf, type RawMetrics } from '../evolve/fitness/rawMetrics.ts';
import { PolicyError } from '../sandbox/program.ts';
import type { TaskAnswer, Tasks } from '../workers/thread.ts';
import { CaseCache, programHash } from './caseCache.ts';
import { loadPlan, refuseIdleScaling } from './plans.ts';
import type { CaseTask, ExplainOptions, Explanation, PlannedCase, TaskResult } from './runCase.ts';

interface EvaluatorOptions {
  readonly plan: EvaluationPlan;
  readonly limits: PoolLimits;
  /** Runner of the cases. Default: threads of this process. */
  readonly runner?: TaskRunner<Tasks>;
  /** Folder that keeps results between runs. */
  readonly cacheFolder?: string;
  /** Called after each case. */
  readonly progress?: (ended: number, asked: number) => void;
  /** Told once where the folder takes no more results, as on a full disk; the evaluation goes on. */
  readonly say?: (line: string) => void;
}

type Failed = { readonly error: EvaluationError };
type CaseOutcome = { readonly metrics: RawMetrics } | Failed;

const evaluatorOptionTable = optionTable({
  plan: is.passed(),
  limits: is.passed(),
  runner: is.optional(is.passed()),
  cacheFolder: is.optional(is.passed()),
  progress: is.optional(is.func()),
  say: is.optional(is.func()),
} satisfies Kinds<EvaluatorOptions>);
const planShape: ValueKind<object> = is.fields({
  suites: is.object(),
  scoring: is.fields({ objectives: is.array() }),
  baseline: is.object(),
});

/** Scores bundles by simulations, several at once. */
export class SimulationEvaluator implements Evaluator {
  readonly objectiveNames: readonly string[];
  readonly plan: EvaluationPlan;
  readonly #runner: TaskRunner<Tasks>;
  /** The runner where none was given. */
  readonly #own: WorkerPool<Tasks> | undefined;
  readonly #wallMs: number;
  readonly #cache: CaseCache;
  readonly #progress: (ended: number, asked: number) => void;
  /** Running cases by key. A second request for the same case waits for the first. */
  readonly #running = new Map<string, Promise<CaseOutcome | undefined>>();
  #asked = 0;
  #ended = 0;

  constructor(options: EvaluatorOptions) {
    const {
      plan,
      limits,
      runner,
      cacheFolder,
      progress = () => {},
      say = () => {},
    } = evaluatorOptionTable.read(options);
    checkInputs(
      { plan, limits, runner, cacheFolder, progress, say },
      {
        plan: planShape,
        limits: is.object(),
        runner: is.optional(is.object()),
        cacheFolder: is.optional(is.text()),
        progress: is.func(),
        say: is.func(),
      },
    );
    this.plan = plan;
    this.objectiveNames = plan.scoring.objectives.map(({ name }) => name);
    this.#own = runner === undefined ? new WorkerPool<Tasks>(limits) : undefined;
    this.#runner = runner ?? (this.#own as WorkerPool<Tasks>);
    this.#wallMs = limits.wallMs;
    this.#cache = new CaseCache(cacheFolder, undefined, say);
    this.#progress = progress;
  }

  caseIds(suite: SuiteName): readonly string[] {
    return this.plan.suites[suite].map(({ id }) => id);
  }

  /** Hash of everything that scores depend on: cases with their files' bytes, baseline, objectives, tierkv itself. */
  identity(): string {
    const contents = new FileContents();
    const { suites, scoring, baseline } = this.plan;
    const cases = Object.values(suites).flatMap((suite) =>
      suite.map((each) => this.#cache.caseHash(each, contents)),
    );
    return contentHash([cases, scoring, policyId(readBundle(baseline)), programHash()]);
  }

  /** @throws the signal's reason once it is aborted, TKV_CONFIG where the baseline cannot be run */
  async evaluate(
    bundles: readonly PolicyBundle[],
    suite: SuiteName,
    signal?: AbortSignal,
    ids?: readonly string[],
  ): Promise<readonly Evaluation[]> {
    const all = this.plan.suites[suite];
    const cases = ids === undefined ? all : all.filter(({ id }) => ids.includes(id));
    // programs are compiled first, so that a missing colon does not cost a run of the baseline
    const checked = await Promise.all(bundles.map((bundle) => this.check(bundle)));
    if (bundles.length > 0 && checked.every((each) => 'error' in each)) {
      return bundles.map((bundle, i) => this.#evaluation(bundle, cases, [checked[i] as Failed], []));
    }
    const contents = new FileContents();
    const baseline = await this.#cases(readBundle(this.plan.baseline), cases, contents, signal);
    const failed = baseline.find((outcome) => 'error' in outcome);
    if (failed !== undefined && 'error' in failed) {
      throw new TierKVError('TKV_CONFIG', `baseline: ${failed.error.message}`, { field: 'baseline' });
    }
    const metrics = baseline.map((outcome) => ('metrics' in outcome ? outcome.metrics : {}));
    const lost = metrics.map(slowerThanLost);
    const outcomes = await Promise.all(
      checked.map((each) =>
        'error' in each ? [each] : this.#cases(each.bundle, cases, contents, signal, lost),
      ),
    );
    return bundles.map((bundle, i) => this.#evaluation(bundle, cases, outcomes[i], metrics));
  }

  /**
   * Explains one case of a suite: its faults and their causes.
   * @throws TKV_CONFIG for a case that the suite lacks; errors of the bundle are returned in `error`
   */
  async explain(
    bundle: PolicyBundle,
    suite: SuiteName,
    caseId: string,
    options: Omit<ExplainOptions, 'baseline'>,
  ): Promise<{ readonly explanation: Explanation } | { readonly error: EvaluationError }> {
    const each = this.plan.suites[suite].find(({ id }) => id === caseId);
    if (each === undefined) {
      const known = this.plan.suites[suite].map(({ id }) => id);
      throw unknownName('case', caseId, known);
    }
    const [base] = await this.#cases(readBundle(this.plan.baseline), [each], new FileContents());
    const baseline = 'metrics' in base ? base.metrics : undefined;
    const explain = { ...options, ...(baseline === undefined ? {} : { baseline }) };
    const task = { bundle: readBundle(bundle), explain };
    const lost = slowerThanLost(baseline ?? {});
    const answer = await this.#answer(() => ({ ...task, case: this.#planOf(each, lost) }));
    if (answer === undefined)
      throw new TierKVError('TKV_STATE', 'The evaluator is closed. Open another one.');
    if ('error' in answer) return answer;
    const { explanation } = answer.result;
    invariant(explanation !== undefined, 'a task with explain is explained');
    return { explanation };
  }

  /** Ends its threads. A runner that was given to it goes on. */
  async close(): Promise<void> {
    await this.#own?.close();
  }

  /** Reads, compiles and binds a bundle without simulating. Returns the bundle as it runs, or its error. */
  async check(bundle: PolicyBundle): Promise<{ readonly bundle: PolicyBundle } | Failed> {
    try {
      const checked = readBundle(bundle);
      refuseIdleScaling(checked, this.plan);
      await bindBundle(checked);
      return { bundle: checked };
    } catch (error) {
      if (!(error instanceof TierKVError)) throw error;
      const { message, line } = error;
      const kind = error instanceof PolicyError ? error.kind : 'contract';
      return { error: { kind, message, ...(line === undefined ? {} : { line }) } };
    }
  }

  #planOf(each: SuiteCase, lost: LostTimes | undefined, contents?: FileContents): PlannedCase {
    return { ...this.#cache.planOf(each, contents), ...(lost === undefined ? {} : { lost }) };
  }

  /** In the order of the cases; after one that failed, later ones may be left out. */
  async #cases(
    bundle: PolicyBundle,
    cases: readonly SuiteCase[],
    contents: FileContents,
    signal?: AbortSignal,
    lost: readonly (LostTimes | undefined)[] = [],
  ): Promise<readonly CaseOutcome[]> {
    let failedAt = Infinity;
    const outcomes = await Promise.all(
      cases.map(async (each, i) => {
        const off = (): boolean => signal?.aborted === true || i > failedAt;
        const outcome = await this.#run(bundle, each, contents, off, lost[i]);
        if (outcome !== undefined && 'error' in outcome) failedAt = Math.min(failedAt, i);
        return outcome;
      }),
    );
    signal?.throwIfAborted();
    return outcomes.filter((outcome) => outcome !== undefined);
  }

  async #run(
    bundle: PolicyBundle,
    each: SuiteCase,
    contents: FileContents,
    off: () => boolean,
    lost: LostTimes | undefined,
  ): Promise<CaseOutcome | undefined> {
    const key = this.#cache.key(bundle, each, contents, lost);
    const known = this.#cache.get(key);
    if (known !== undefined) return { metrics: known };
    let running = this.#running.get(key);
    if (running === undefined) {
      running = this.#start(key, bundle, each, contents, off, lost).finally(() => this.#running.delete(key));
      this.#running.set(key, running);
    }
    const outcome = await running;
    // the first caller may have cancelled the run
    return outcome === undefined && !off() ? this.#run(bundle, each, contents, off, lost) : outcome;
  }

  async #start(
    key: string,
    bundle: PolicyBundle,
    each: SuiteCase,
    contents: FileContents,
    off: () => boolean,
    lost: LostTimes | undefined,
  ): Promise<CaseOutcome | undefined> {
    this.#asked++;
    const answer = await this.#answer(() => ({ bundle, case: this.#planOf(each, lost, contents) }), off);
    this.#progress(++this.#ended, this.#asked);
    if (answer === undefined || 'error' in answer) return answer;
    const { metrics } = answer.result;
    refuseChanged(contents);
    this.#cache.set(key, metrics);
    return { metrics };
  }

  async #answer(
    make: () => CaseTask,
    isCalledOff?: () => boolean,
  ): Promise<{ readonly result: TaskResult } | Failed | undefined> {
    let answer: TaskAnswer<'case'> | undefined;
    let atFault: unknown;
    const made = (): CaseTask => {
      try {
        return make();
      } catch (error) {
        atFault = error;
        throw error;
      }
    };
    try {
      answer = await this.#runner.run('case', made, isCalledOff);
    } catch (error) {
      // any other error is a failure of the runner, not of the policy
      if (error !== atFault || !(error instanceof TierKVError)) throw error;
      return { error: { kind: 'contract', message: error.message } };
    }
    if (answer === undefined || !isUnanswered(answer)) return answer;
    return { error: { kind: 'infrastructure_timeout', message: whyUnanswered(answer, this.#wallMs) } };
  }

  #evaluation(
    bundle: PolicyBundle,
    cases: readonly SuiteCase[],
    outcomes: readonly CaseOutcome[],
    baseline: readonly RawMetrics[],
  ): Evaluation {
    const { scoring } = this.plan;
    const failed = outcomes.find((outcome) => 'error' in outcome);
    if (failed !== undefined && 'error' in failed) {
      const ran = Object.keys(meanMetrics(baseline));
      const names = ran.length > 0 ? ran : metricDescriptions.map(({ name }) => name);
      return {
        policyId: idOf(bundle),
        score: FAILED_SCORE,
        objectives: scoring.objectives.map(() => GAIN_MIN),
        metrics: Object.fromEntries([...names, 'policy_nodes'].map((name) => [name, 0])),
        error: failed.error,
      };
    }
    const results = cases.map((each, i): CaseResult => {
      const outcome = outcomes[i];
      const metrics = 'metrics' in outcome ? outcome.metrics : {};
      const objectives = gainsOf(metrics, baseline[i], scoring.objectives);
      return { id: each.id, score: caseScore(metrics, objectives, scoring), objectives, metrics };
    });
    const mean = (of: (result: CaseResult) => number): number =>
      results.reduce((sum, result) => sum + of(result), 0) / results.length;
    return {
      policyId: policyId(bundle),
      score: mean(({ score }) => score),
      objectives: scoring.objectives.map((_, i) => mean(({ objectives }) => objectives[i])),
      metrics: {
        ...meanMetrics(results.map(({ metrics }) => metrics)),
        policy_nodes: policyNodes(bundle),
      },
      cases: results,
    };
  }
}

/**
 * Least times of a lost request beside a baseline; undefined where the baseline's slowest one took less than a minute.
 */
function slowerThanLost(baseline: RawMetrics): LostTimes | undefined {
  const lost = lostTimesOf(baseline);
  return Math.max(lost.ttft, lost.tpot, lost.e2e) > LOST_MS ? lost : undefined;
}

function whyUnanswered({ unanswered, message }: Unanswered, wallMs: number): string {
  if (unanswered === 'out of time') {
    return `the run took longer than ${wallMs} ms of the machine's time. Raise the limit, or do less`;
  }
  return unanswered === 'failed'
    ? `the thread of the run failed: ${message}`
    : 'the thread of the run ended before its answer';
}

/**
 * Refuses results whose files changed during the run: they would be kept under a wrong key, and compared with a baseline
 * of other files.
 * @throws TKV_INPUT with the file
 */
function refuseChanged(contents: FileContents): void {
  const file = contents.changed();
  if (file === undefined) return;
  throw new TierKVError('TKV_INPUT', `${file} changed while it was evaluated on. Run it again.`, {
    path: file,
  });
}

/** Mean of each metric over the cases that have it. */
function meanMetrics(all: readonly RawMetrics[]): RawMetrics {
  const sums = new Map<string, { sum: number; count: number }>();
  for (const metrics of all) {
    for (const [name, value] of Object.entries(metrics)) {
      const entry = sums.get(name) ?? { sum: 0, count: 0 };
      sums.set(name, { sum: entry.sum + value, count: entry.count + 1 });
    }
  }
  return Object.fromEntries([...sums].map(([name, { sum, count }]) => [name, sum / count]));
}

/** '' for a bundle that cannot be read. */
function idOf(bundle: PolicyBundle): string {
  try {
    return policyId(bundle);
  } catch {
    return '';
  }
}

// One call from a policy to its evaluation.

/** Options of `evaluate` beside policy and plan. */
export interface EvaluateOptions extends Partial<PoolLimits> {
  /** Suite of the plan. Default `train`. */
  readonly suite?: SuiteName;
  /** Folder that keeps results between runs. */
  readonly cacheFolder?: string;
  readonly signal?: AbortSignal;
  /** Told once where the folder takes no more results, as on a full disk; the evaluation goes on. */
  readonly say?: (line: string) => void;
}

const evaluateOptionTable = optionTable({
  suite: is.optional(is.oneOf(suiteNames), 'train'),
  cacheFolder: is.optional(is.name()),
  signal: is.optional(is.fields({ throwIfAborted: is.func() })),
  say: is.optional(is.func()),
  workers: is.optional(is.passed()),
  wallMs: is.optional(is.passed()),
  heapMiB: is.optional(is.passed()),
} satisfies Kinds<EvaluateOptions>);

/** Two minutes and 4 GiB for a simulation, and a thread for each core. */
function defaultLimits(): PoolLimits {
  return { workers: os.availableParallelism(), wallMs: 120_000, heapMiB: 4096 };
}

/**
 * Scores a policy on the cases of a plan, on worker threads. The result is the same for any number of threads.
 * @param plan a name of `planNames`, the path of a JSON file, or a plan
 * @returns score and metrics; a policy that cannot run has its `error` there
 * @throws the signal's reason after a stop, TKV_CONFIG for a plan or a baseline that cannot be run
 */
export async function evaluate(
  bundle: PolicyBundle,
  plan: string | EvaluationPlan = 'routing',
  options: EvaluateOptions = {},
): Promise<Evaluation> {
  checkInputs({ bundle }, { bundle: is.object() });
  const { suite, cacheFolder, signal, say, ...limits } = evaluateOptionTable.read(options);
  if (typeof plan !== 'string') checkInputs({ plan }, { plan: planShape });
  const evaluator = new SimulationEvaluator({
    plan: typeof plan === 'string' ? loadPlan(plan) : plan,
    limits: { ...defaultLimits(), ...limits },
    ...(cacheFolder === undefined ? {} : { cacheFolder }),
    ...(say === undefined ? {} : { say }),
  });
  try {
    const [evaluation] = await evaluator.evaluate([bundle], suite, signal);
    return evaluation;
  } finally {
    await evaluator.close();
  }
}
