/**
 * The scheduler of a runtime. It plans steps and is told what came of them; an engine runs them:
 *
 *     add ... step -> plan -> kernels -> stepEnded(sampled) ... step -> nothing to compute -> await next
 *
 * All but `next` are synchronous. Full blocks are published behind the device work that was submitted before
 * `stepEnded`. A request that gives way comes back by itself. What is lost with a device is computed again.
 * Every input and decision goes into the runtime's log, where there is one.
 */

import { runningClock } from '../../backends/runningClock.ts';
import { resolveSchedulerConfig, schedulerConfigNames } from '../../runtime/batching/config.ts';
import { configError } from '../../runtime/errors.ts';
import {
  type AbortResult,
  type ComputeEstimate,
  type DecisionSink,
  ManagerPort,
  type RequestProgress,
  type RequestRank,
  Scheduler,
  type SchedulerConfig,
  type SchedulerCounters,
  type StepPlan,
  TierKVError,
} from '../../runtime/index.ts';
import { requireOptions } from '../../runtime/options.ts';
import { throwIfAborted, unlessAborted, type WaitOptions, waitOptionsNames } from '../abort.ts';
import { signalsOf } from '../requests/beginOptions.ts';
import type { RequestContext } from '../requests/context.ts';
import { type KVStepPlan, nothingToCompute, planForKernels } from './kvStepPlan.ts';
import { type KVRequest, ScheduledRequest } from './scheduledRequest.ts';
import { finishedOf, type KVStepOutcome, type SampledToken, takeTokens } from './stepResults.ts';

/** `preemption` is `recompute` or `offload`: tokens that were handed out are never generated again. */
export type KVSchedulerConfig = Omit<SchedulerConfig, 'publish'>;

/** Longest time between two looks at blocks that are late. */
const LATE_MS_MOST = 1000;

export class KVScheduler {
  readonly #context: RequestContext;
  readonly #scheduler: Scheduler<ScheduledRequest>;
  readonly #requests: Map<string, ScheduledRequest> = new Map();
  readonly #stopListening: () => void;
  #plan: StepPlan<ScheduledRequest> | undefined;
  #step = 0;
  /** While a step is computed, the time in which the process stands is left out of what is learnt of it. */
  #unwatch: () => void = () => {};
  /** Devices lost when the step was planned. */
  #losses = 0;
  /** Errors that the device had reported when the blocks of all requests in the batch were last known good. */
  #errors = 0;
  /** Something happened since the last step was planned. */
  #hasNews = true;
  /** Blocks came to be in place since the last step began to be planned. */
  #hasSettled = false;
  #waiting: (() => void)[] = [];
  #isClosed = false;

  /** @throws TKV_CONFIG with the field at fault */
  constructor(context: RequestContext, config: KVSchedulerConfig, log: DecisionSink | null) {
    const { manager, units, blockTokens } = context;
    if (units.groups.length > 1) {
      throw configError('layerGroups', 'are several, and the scheduler takes one', 'Open without them.');
    }
    if (config.preemption === 'restart') {
      const problem = "is 'restart', which would generate tokens again that were handed out";
      throw configError('preemption', problem, "Use 'recompute' or 'offload'.");
    }
    requireOptions(config, schedulerConfigNames, 'config', 'TKV_CONFIG');
    if ((config as SchedulerConfig).publish === 'whenPlanned') {
      const problem = "is 'whenPlanned', but digests are taken behind the step's kernels";
      throw configError('publish', problem, 'Leave it out.');
    }
    const places = { blockTokens, sizeClass: units.sizeClass[0] };
    const port = new ManagerPort(manager, places);
    const resolved = resolveSchedulerConfig(config, port.hasLowerTier);
    const sink = log?.scheduler?.({ ...resolved, ...places }, context.nowUs()) ?? null;
    this.#context = context;
    this.#scheduler = new Scheduler<ScheduledRequest>(resolved, port, sink);
    const stopRoom = context.loop.onRoom(() => this.#tellNews());
    const stopSettled = context.loop.onSettled(() => {
      this.#hasSettled = true;
      this.#tellNews();
    });
    this.#stopListening = () => {
      stopRoom();
      stopSettled();
    };
  }

  /** Requests that have not ended. */
  get size(): number {
    return this.#scheduler.size;
  }

  get runningCount(): number {
    return this.#scheduler.runningCount;
  }

  get waitingCount(): number {
    return this.#scheduler.waitingCount;
  }

  get counters(): Readonly<SchedulerCounters> {
    return this.#scheduler.counters;
  }

  /** How long steps take, by those so far; undefined before the first, and unless loads are overlapped. */
  get computeEstimate(): ComputeEstimate | undefined {
    return this.#scheduler.computeEstimate;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /**
   * A request joins the waiting queue.
   * @throws TKV_INPUT or TKV_CONFIG naming the field at fault, TKV_INPUT for an id in use, TKV_CAPACITY for a
   * prompt that can never run, TKV_STATE when the scheduler is closed
   */
  add(request: KVRequest): void {
    this.#requireOpen();
    const scheduled = new ScheduledRequest(this.#context, request);
    this.#scheduler.add(scheduled, this.#context.nowUs());
    this.#requests.set(scheduled.id, scheduled);
    this.#tellNews();
  }

  /**
   * Ends a request. `endsWithStep`: a step is computing it, and `stepEnded` will name it among the finished.
   */
  abort(id: string): AbortResult {
    const result = this.#undisturbed((nowUs) => this.#scheduler.abort(id, nowUs));
    const request = this.#requests.get(id);
    if (request !== undefined) request.isAborted = true;
    if (result === 'ended') this.#requests.delete(id);
    this.#tellNews();
    return result;
  }

  /**
   * Ranks requests, for the queue order and the victim rule `ranked`: of those that wait the lowest joins the
   * batch first, of those that run the highest gives way first. Who is not named keeps the rank it had, 0 in
   * the beginning.
   * @throws TKV_CONFIG where neither rule goes by ranks, TKV_UNKNOWN_ID, TKV_INPUT for a rank that is not
   * finite and for a request with two; nothing is done then
   */
  rerank(ranks: readonly RequestRank[]): void {
    this.#undisturbed((nowUs) => this.#scheduler.rerank(ranks, nowUs));
    this.#tellNews();
  }

  /**
   * Plans the next step. With requests in it, run its kernels and call `stepEnded` before the next `step`;
   * without, await `next`. The plan is good until then.
   * @throws TKV_STATE while a step is computed, or when the scheduler is closed
   */
  step(): KVStepPlan {
    this.#requireOpen();
    const { keeper } = this.#context;
    if (!keeper.present && this.#plan === undefined) return nothingToCompute;
    this.#dropDoubtful();
    this.#hasSettled = false;
    const plan = this.#undisturbed((nowUs) => this.#scheduler.step(nowUs));
    this.#losses = keeper.losses;
    // Room that the step made itself is no news. A request that gave way, or blocks that came to be in place
    // by what the step did for others, are: it had looked at them before.
    this.#hasNews = this.#hasSettled || (plan.tokens === 0 && plan.preempted.length > 0);
    if (plan.tokens === 0 && plan.preempted.length === 0) return nothingToCompute;
    if (plan.tokens > 0) {
      this.#plan = plan;
      this.#unwatch = runningClock.watch();
    }
    return planForKernels(this.#context, plan);
  }

  /**
   * The step was computed: its kernels were submitted, and each request of the plan that samples has its next
   * token. Blocks that have become full are published behind the submitted work.
   * @throws TKV_STATE without a planned step, TKV_INPUT for tokens that do not fit the plan, TKV_DEVICE when
   * the device reported an error since; nothing is done then
   */
  stepEnded(sampled: readonly SampledToken[]): KVStepOutcome {
    const plan = this.#requirePlan();
    const { keeper } = this.#context;
    if (this.#losses !== keeper.losses || this.#scheduler.isDisturbed) return this.stepFailed();
    const { count, last } = this.#context.deviceErrors();
    if (count !== this.#errors) {
      throw new TierKVError(
        'TKV_DEVICE',
        `the device reported an error since blocks of this step were opened (${last}), so what was written ` +
          'there may be wrong and is not sealed. Call stepFailed: the requests are computed again.',
      );
    }
    const stopped = takeTokens(plan, this.#requests, sampled, ++this.#step);
    this.#plan = undefined;
    const outcome = this.#undisturbed((nowUs) => this.#scheduler.stepEnded({ stopped }, nowUs));
    this.#unwatch();
    for (const { id } of outcome.finished) this.#requests.delete(id);
    return { interrupted: false, finished: finishedOf(outcome) };
  }

  /**
   * The step brought nothing, for instance because a kernel failed: its requests are computed again, with the
   * tokens they had. Call it instead of `stepEnded`.
   * @throws TKV_STATE without a planned step
   */
  stepFailed(): KVStepOutcome {
    this.#requirePlan();
    this.#plan = undefined;
    const outcome = this.#undisturbed((nowUs) => this.#scheduler.stepFailed(nowUs));
    this.#unwatch();
    for (const { id } of outcome.finished) this.#requests.delete(id);
    this.#tellNews();
    return { interrupted: true, finished: finishedOf(outcome) };
  }

  /**
   * Fulfilled when `step` may plan something that it could not the last time: a request was added, blocks
   * arrived or were let go, a device is back. At once when that has happened already.
   * @throws TKV_DEVICE when no device is to be had, TKV_STATE when the runtime closes, and the reason of
   * `signal`
   */
  async next(options: WaitOptions = {}): Promise<void> {
    const signals = signalsOf(this.#context, requireOptions(options, waitOptionsNames));
    throwIfAborted(signals);
    this.#requireOpen();
    const { keeper } = this.#context;
    if (!keeper.present) {
      await unlessAborted(signals, () => keeper.ready());
      return;
    }
    if (this.#hasNews) return;
    const alarm = this.#alarmForLateBlocks();
    try {
      await unlessAborted(signals, () => new Promise<void>((wake) => this.#waiting.push(wake)));
    } finally {
      clearTimeout(alarm);
    }
  }

  /**
   * The device reported an error since the last step was planned: what running requests have written and is
   * not sealed may be wrong, so they are computed again.
   */
  #dropDoubtful(): void {
    const { count } = this.#context.deviceErrors();
    if (this.#plan !== undefined || count === this.#errors) return;
    this.#errors = count;
    // The last of the batch first, so that the first is in front of the queue again.
    for (const { id } of this.#scheduler.runningRequests().reverse()) {
      this.#undisturbed((nowUs) => this.#scheduler.requeue(id, nowUs));
    }
  }

  /** Blocks that are late may be computed instead: that is news too. */
  #alarmForLateBlocks(): NodeJS.Timeout | undefined {
    const { lookAgainUs } = this.#scheduler;
    if (lookAgainUs === Number.POSITIVE_INFINITY) return undefined;
    const ms = Math.ceil((lookAgainUs - this.#context.nowUs()) / 1000);
    return setTimeout(() => this.#tellNews(), Math.min(Math.max(1, ms), LATE_MS_MOST));
  }

  /** How far a request is, or undefined when it has ended. */
  progress(id: string): RequestProgress | undefined {
    return this.#scheduler.progress(id);
  }

  /** Ends all requests. Who waits in `next` goes on; no other call is taken any more. */
  close(): void {
    if (this.#isClosed) return;
    if (this.#plan !== undefined) this.stepFailed();
    for (const id of this.#requests.keys()) {
      this.#undisturbed((nowUs) => this.#scheduler.abort(id, nowUs));
    }
    this.#requests.clear();
    this.#isClosed = true;
    this.#stopListening();
    this.#tellNews();
  }

  checkIntegrity(): void {
    this.#scheduler.checkIntegrity();
  }

  /** A replay makes the scheduler's calls of the manager in one go; so nothing comes between them here. */
  #undisturbed<T>(call: (nowUs: number) => T): T {
    const { loop, nowUs } = this.#context;
    return loop.undisturbed(() => call(nowUs()));
  }

  #requirePlan(): StepPlan<ScheduledRequest> {
    if (this.#plan !== undefined) return this.#plan;
    throw new TierKVError('TKV_STATE', 'No step is computing. Call step first.');
  }

  #requireOpen(): void {
    if (this.#isClosed) throw new TierKVError('TKV_STATE', 'the scheduler is closed. Open another one.');
  }

  #tellNews(): void {
    this.#hasNews = true;
    for (const wake of this.#waiting.splice(0)) wake();
  }
}
