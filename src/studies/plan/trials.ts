/**
 * Runs the trials of a plan on workers, many at once. Results come in the order of the trials, so threads change nothing but
 * the time.
 */

import { isUnanswered, type TaskRunner } from '../../io/workerPool.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';
import { planSimulation, type SimulationPlan } from '../../sim/build/plan.ts';
import { fromFields } from '../../sim/description/readers.ts';
import type { LatencyBackend } from '../../sim/latency/latencyNames.ts';
import { type DeploymentChoice, deploymentFile, modelOfTime } from './choice.ts';
import type { CheckedQuestion } from './question.ts';
import { measuredTargets, type TargetMeasured } from './targets.ts';
import type { TrialResult, TrialTasks } from './trial.ts';

/** A deployment with the settings of its run. */
export interface PlanTrial {
  readonly choice: DeploymentChoice;
  /** Most requests; undefined for as many as the workload has. */
  readonly requests: number | undefined;
  readonly seed: number;
  /** Factor of the rate of requests. Default 1. */
  readonly load?: number;
  /** Default: the question's. */
  readonly latencyModel?: LatencyBackend;
}

export interface Tried {
  readonly trial: PlanTrial;
  readonly result: TrialResult;
  readonly targets: readonly TargetMeasured[];
  /** Whether every request was served and every target met. */
  readonly meets: boolean;
  /** Largest ratio of a figure to its bound: 1 is on the bound, 2 twice as long. */
  readonly excess: number;
}

/** Name of a trial's deployment in errors; it is never written to a file. */
const DEPLOYMENT_NAME = 'deployment.yaml';
/** Most requests of a full run, unless more are asked for. */
export const FULL_MAX = 6000;
/** The answer of a run that has none when its time is over. */
const TIME_IS_OVER = Symbol('time is over');
/** A timer of Node holds no longer. */
const MOST_TIMER_MS = 2 ** 31 - 1;
/** `excess` of a run that served nothing: worse than every run that did. */
const NOTHING_SERVED = 1e6;

export class Trials {
  readonly question: CheckedQuestion;
  /** Whether the rate stays the same, so that a growing queue is a failure. */
  isSteady = false;
  /** Number of simulations that were run. */
  count = 0;
  /** Runs that had not ended when the time was over. */
  readonly calledOff: PlanTrial[] = [];
  readonly #runner: TaskRunner<TrialTasks>;
  readonly #onDone: (trial: Tried) => void;

  constructor(question: CheckedQuestion, runner: TaskRunner<TrialTasks>, onDone: (trial: Tried) => void) {
    this.question = question;
    this.#runner = runner;
    this.#onDone = onDone;
  }

  /** The trial as plain data. @throws TKV_CONFIG, TKV_CAPACITY as `simulate` of that deployment would */
  planOf({ choice, requests, seed, load = 1, latencyModel }: PlanTrial): SimulationPlan {
    const { question } = this;
    const { workload } = question;
    const time = modelOfTime(latencyModel ?? question.latencyModel, choice.gpu);
    const text = deploymentFile(choice, question, { seed, requests: requests ?? FULL_MAX }, time);
    const plan = planSimulation(
      fromFields({
        file: DEPLOYMENT_NAME,
        seed,
        workload: {
          ...(requests === undefined ? {} : { requests }),
          ...(workload.preset === undefined ? {} : { preset: workload.preset }),
          ...(workload.preset === undefined || workload.rate === undefined ? {} : { rate: workload.rate }),
          ...(workload.file === undefined ? {} : { file: workload.file }),
        },
      }),
      text,
    );
    return load === 1 ? plan : { ...plan, workload: { ...plan.workload, load } };
  }

  /**
   * @param leftMs time until the results must be there: runs that have not ended by then are called off
   * @returns undefined for a run that was called off
   * @throws {TierKVError} of the simulator, where a trial cannot run
   */
  async run(trials: readonly PlanTrial[], leftMs: () => number): Promise<(Tried | undefined)[]> {
    const { promise: over, resolve: end } = Promise.withResolvers<typeof TIME_IS_OVER>();
    const timer = setTimeout(() => end(TIME_IS_OVER), Math.min(MOST_TIMER_MS, Math.max(0, leftMs())));
    try {
      return await Promise.all(trials.map((trial) => this.#tried(trial, leftMs, over)));
    } finally {
      clearTimeout(timer);
    }
  }

  async #tried(
    trial: PlanTrial,
    leftMs: () => number,
    over: Promise<typeof TIME_IS_OVER>,
  ): Promise<Tried | undefined> {
    const isOver = (): boolean => leftMs() <= 0;
    const run = this.#runner.run(
      'trial',
      () => ({ plan: this.planOf(trial) }),
      isOver,
      () => Math.min(MOST_TIMER_MS, Math.max(1, leftMs())),
    );
    // workers elsewhere go on with a run that was called off
    const answer = await Promise.race([run, over]);
    const isLate =
      answer === TIME_IS_OVER ||
      (answer === undefined ? isOver() : isUnanswered(answer) && answer.unanswered === 'out of time');
    if (isLate || answer === undefined) {
      run.catch(() => {});
      if (!isLate) throw new TierKVError('TKV_STATE', 'the plan was stopped. Ask again.');
      this.calledOff.push(trial);
      return undefined;
    }
    this.count++;
    if (isUnanswered(answer)) {
      throw new TierKVError('TKV_CAPACITY', `a simulation ended early: ${answer.message}. Give it memory.`);
    }
    if ('error' in answer) throw configError('workload', answer.error.message, 'Change it.');
    const tried = this.#judged(trial, answer);
    this.#onDone(tried);
    return tried;
  }

  #judged(trial: PlanTrial, result: TrialResult): Tried {
    const targets = measuredTargets(this.question.targets, result.figures);
    const served = result.completed / Math.max(1, result.injected);
    const worst = Math.max(...targets.map(({ ms, boundMs }) => ms / boundMs));
    const grows = this.isSteady && isGrowing(result);
    const isWhole = result.completed === result.injected && result.injected > 0;
    return {
      trial,
      result,
      targets,
      meets: isWhole && !grows && targets.every(({ meets }) => meets),
      excess: result.completed === 0 ? NOTHING_SERVED : Math.max(worst, grows ? 1.001 : 0) / served,
    };
  }
}

/**
 * Whether clearly more requests are in the system at the last arrival than at half of them. Then the deployment does not
 * keep up, and a longer run would miss every target.
 */
export function isGrowing({ inFlightHalf, inFlightEnd }: TrialResult): boolean {
  return inFlightEnd > 1.3 * inFlightHalf + 4 * Math.sqrt(inFlightHalf) + 8;
}
