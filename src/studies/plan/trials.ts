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
import type { JudgedTime, TrialResult, TrialTasks } from './trial.ts';

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
  /** Requests a second that were asked for; undefined where the workload says none. */
  readonly askedPerS: number | undefined;
  /** Whether every request was served, as many came as were asked for, and every target was met. */
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
/** Share of the asked rate that has to come: fewer are other traffic than was asked for. */
const RATE_REACHED = 0.9;
/** A timer of Node holds no longer. */
const MOST_TIMER_MS = 2 ** 31 - 1;
/** `excess` of a run that served nothing: worse than every run that did. */
const NOTHING_SERVED = 1e6;

export class Trials {
  readonly question: CheckedQuestion;
  /** Whether the rate stays the same, so that a growing queue is a failure. */
  isSteady = false;
  /** The pauses of a conversation in seconds; what comes before they have passed is not judged. 0: all is judged. */
  pausesS = 0;
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

  /** The same trial with more requests a second. Conversations need as much longer runs to come to their rate. */
  atLoad(trial: PlanTrial, load: number): PlanTrial {
    const { requests } = trial;
    if (this.pausesS === 0 || requests === undefined) return { ...trial, load };
    return { ...trial, load, requests: Math.ceil(requests * load) };
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
      () => ({ plan: this.planOf(trial), ...this.#judgedOf(trial) }),
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

  /** The part of a run that is judged: from when as many rounds come as were asked for until no conversation begins any more. */
  #judgedOf({ requests, load = 1 }: PlanTrial): { readonly judged?: JudgedTime } {
    const { rate } = this.question.workload;
    if (this.pausesS === 0 || rate === undefined || requests === undefined) return {};
    const toS = requests / (rate * load) + missingS(this.pausesS);
    return { judged: { fromUs: settleS(this.pausesS) * 1e6, toUs: toS * 1e6 } };
  }

  #judged(trial: PlanTrial, result: TrialResult): Tried {
    const targets = measuredTargets(this.question.targets, result.figures);
    const served = result.completed / Math.max(1, result.injected);
    const worst = Math.max(...targets.map(({ ms, boundMs }) => ms / boundMs));
    const grows = this.isSteady && isGrowing(result);
    const isWhole = result.completed === result.injected && result.injected > 0;
    const { rate } = this.question.workload;
    const askedPerS = this.pausesS === 0 || rate === undefined ? undefined : rate * (trial.load ?? 1);
    // a deployment that is late holds up the rounds that follow
    const held = askedPerS === undefined ? 0 : askedPerS / Math.max(result.arrivalsPerS, 1e-9);
    const reaches = held * RATE_REACHED <= 1;
    return {
      trial,
      result,
      targets,
      askedPerS,
      meets: isWhole && !grows && reaches && targets.every(({ meets }) => meets),
      excess:
        result.completed === 0
          ? NOTHING_SERVED
          : Math.max(worst, grows ? 1.001 : 0, reaches ? 0 : held) / served,
    };
  }
}

/** Answers lengthen a conversation by this share of its pauses at most. */
const ANSWERS_SHARE = 0.05;

/** Seconds until the conversations that began first have ended, so that all rounds come that are asked for. */
export function settleS(pausesS: number): number {
  return pausesS * (1 + ANSWERS_SHARE);
}

/** Seconds of the asked rate that are missing at the beginning: it rises evenly, round by round, while the first pauses pass. */
export function missingS(pausesS: number): number {
  return pausesS / 2;
}

/**
 * Whether clearly more requests are in the system at the last arrival than at half of them. Then the deployment does not
 * keep up, and a longer run would miss every target.
 */
export function isGrowing({ inFlightHalf, inFlightEnd }: TrialResult): boolean {
  return inFlightEnd > 1.3 * inFlightHalf + 4 * Math.sqrt(inFlightHalf) + 8;
}
