/**
 * The scheduler of a runtime. It plans steps and is told what came of them; an engine runs them:
 *
 *     add ... step -> plan -> kernels -> stepEnded(sampled) ... step -> nothing to compute -> await next
 *
 * All but `next` are synchronous. Full blocks are published behind the device work that was submitted before
 * `stepEnded`. A preempted request comes back by itself. Blocks lost with a device are computed again.
 * Every input and decision goes into the runtime's log, where there is one.
 */

import { runningClock } from '../backends/runningClock.ts';
import { resolveSchedulerConfig, servedSchedulerConfig } from '../runtime/batching/config.ts';
import { idInUse } from '../runtime/batching/scheduler.ts';
import { configError, described, inputError } from '../runtime/errors.ts';
import {
  type AbortResult,
  type ComputeEstimate,
  type DecisionSink,
  finishReasonNames,
  ManagerPort,
  type RequestProgress,
  type RequestRank,
  Scheduler,
  type SchedulerConfig,
  type SchedulerCounters,
  type Sequence,
  type StepOutcome,
  type StepPlan,
  TierKVError,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../runtime/options.ts';
import { signalsOf } from './begin.ts';
import { contextKind, type DeviceBlockTable, type RequestContext, type Ticket } from './context.ts';
import { LookupQueue } from './lookupQueue.ts';
import { throwIfAborted, unlessAborted, type WaitOptions, waitOptionsTable } from './managerLoop.ts';
import { tellOfPlan, tellOfTokens } from './observability.ts';
import { type KVRequest, ScheduledRequest } from './scheduledRequest.ts';
import { requireTokenId } from './tenancy.ts';

/**
 * Configuration of a `KVScheduler`: budgets of a step, and what happens to requests that lose their room. `preemption` is
 * `recompute` or `offload`: tokens that were handed out are never generated again. `queueOrder` is `tenant-turns` where none is
 * named: however many requests one tenant adds, another one's next request waits for at most one of them.
 */
export type KVSchedulerConfig = Omit<SchedulerConfig, 'publish'>;

/** Among requests that wait for room, those of the scheduler count as `begin` without a priority. */
const PRIORITY = 0;

/** Longest time between two looks at blocks that are late. */
const LATE_MS_MOST = 1000;

/**
 * Decides which requests of a runtime run in each step, and in which blocks: continuous batching with chunked
 * prefill.
 */
export class KVScheduler {
  readonly #context: RequestContext;
  readonly #scheduler: Scheduler<ScheduledRequest>;
  readonly #requests: Map<string, ScheduledRequest> = new Map();
  readonly #stopListening: () => void;
  /** Requests that wait for an answer of the shared tier. */
  readonly #asking: LookupQueue;
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
  /** The place of its next request among those of `begin` that wait for room. */
  #ticket: Ticket | undefined;
  #isClosed = false;
  /**
   * Tokens at which a request ends with `capacity`, prompt and answer together: what the top tier holds, less the room that
   * blocks on their way take (`kv.room` has that too), and at most `maxModelTokens`. Refuse what asks for more.
   */
  readonly tokensMost: number;

  /** @throws TKV_CONFIG with the field at fault */
  constructor(context: RequestContext, config: KVSchedulerConfig, log: DecisionSink | null) {
    contextKind.read(context, 'context');
    const { manager, units, blockTokens } = context;
    if (units.groups.length > 1) {
      throw configError('layerGroups', 'are several, and the scheduler takes one', 'Open without them.');
    }
    const { preemption } = servedSchedulerConfig.read(config, 'config');
    if (preemption === 'restart') {
      const problem = "is 'restart', which would generate tokens again that were handed out";
      throw configError('preemption', problem, "Use 'recompute' or 'offload'.");
    }
    const places = { blockTokens, sizeClass: units.sizeClass[0] };
    const port = new ManagerPort(manager, places);
    const resolved = resolveSchedulerConfig(
      { ...config, queueOrder: config.queueOrder ?? 'tenant-turns' },
      port.hasLowerTier,
    );
    const { maxModelTokens } = resolved;
    // the KV of the last token is never computed
    const held = port.capacityBlocks * blockTokens + 1;
    this.tokensMost = maxModelTokens > 0 ? Math.min(maxModelTokens, held) : held;
    const sink = log?.scheduler?.({ ...resolved, ...places }, context.nowUs()) ?? null;
    this.#context = context;
    this.#scheduler = new Scheduler<ScheduledRequest>(resolved, port, sink);
    this.#asking = new LookupQueue(context, (request, rank) => this.#join(request, rank));
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
    return this.#scheduler.size + this.#asking.size;
  }

  get runningCount(): number {
    return this.#scheduler.runningCount;
  }

  get waitingCount(): number {
    return this.#scheduler.waitingCount + this.#asking.size;
  }

  get counters(): Readonly<SchedulerCounters> {
    return this.#scheduler.counters;
  }

  /** How long steps take, by the steps so far; undefined before the first, and unless loads are overlapped. */
  get computeEstimate(): ComputeEstimate | undefined {
    return this.#scheduler.computeEstimate;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /**
   * A request joins the waiting queue. With a shared tier, `remote`, the server is asked first for the blocks that
   * this runtime has not: the request waits for the answer, for `remote.lookupMs` at the most, and keeps its turn.
   * @throws TKV_INPUT or TKV_CONFIG naming the field at fault, TKV_INPUT for an id in use, TKV_CAPACITY for a
   * prompt that can never run, TKV_STATE when the scheduler is closed
   */
  add(request: KVRequest): void {
    this.#requireOpen();
    const { observers, nowUs } = this.#context;
    const askedUs = nowUs();
    const scheduled = new ScheduledRequest(this.#context, request);
    if (this.#asking.holds(scheduled.id)) throw idInUse(scheduled.id);
    this.#requireRuns(scheduled);
    this.#scheduler.requireAddable(scheduled);
    this.#requests.set(scheduled.id, scheduled);
    const { id, tenant, promptTokens, tokenList: prompt } = scheduled;
    const asked = { id, tenant, promptTokens, prompt, extras: request.extras };
    scheduled.watch = observers.asked(asked, askedUs);
    scheduled.watch?.hashed(nowUs());
    if (!this.#asking.take(scheduled)) this.#join(scheduled, undefined);
  }

  /** In the words of this door: the scheduler below speaks of HBM, which may not be there. */
  #requireRuns({ promptTokens }: ScheduledRequest): void {
    const most = this.tokensMost - 1;
    if (promptTokens <= most) return;
    const isModel = this.tokensMost === this.#scheduler.config.maxModelTokens;
    const bound = isModel ? 'maxModelTokens' : this.#context.stores.sizeField;
    throw new TierKVError(
      'TKV_CAPACITY',
      `tokens are ${promptTokens}, and at most ${most} can run. Shorten the prompt, or raise ${bound}.`,
      { field: 'tokens' },
    );
  }

  #join(request: ScheduledRequest, rank: number | undefined): void {
    if (this.#isClosed) return;
    const nowUs = this.#context.nowUs();
    this.#scheduler.add(request, nowUs);
    if (rank !== undefined) this.#scheduler.rerank([{ id: request.id, rank }], nowUs);
    this.#tellNews();
  }

  /** Ends a request. `endsWithStep`: a step is computing it; `stepEnded` names it among the finished. */
  abort(id: string): AbortResult {
    const isAsking = this.#asking.remove(id) !== undefined;
    const result = isAsking ? 'ended' : this.#asOneCall((nowUs) => this.#scheduler.abort(id, nowUs));
    const request = this.#requests.get(id);
    if (request !== undefined) request.isAborted = true;
    if (result === 'ended') {
      this.#requests.delete(id);
      request?.watch?.ended(this.#context.nowUs(), 'aborted');
    }
    if (this.#ticket !== undefined) this.#standFor(this.#scheduler.next);
    this.#tellNews();
    return result;
  }

  /**
   * Ranks requests, for the queue order and the victim rule `ranked`: the waiting request with the lowest rank
   * joins the batch first, the running one with the highest gives way first. A request that is not named keeps
   * its rank, 0 in the beginning.
   * @throws TKV_CONFIG where neither rule goes by ranks, TKV_UNKNOWN_ID, TKV_INPUT for a rank that is not
   * finite and for a request with two; nothing is done then
   */
  rerank(ranks: readonly RequestRank[]): void {
    checkInputs({ ranks }, { ranks: is.list(is.object()) });
    this.#asking.rank(ranks, (others) => this.#asOneCall((nowUs) => this.#scheduler.rerank(others, nowUs)));
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
    const opensMost = this.#opensMost();
    const plan = this.#asOneCall((nowUs) => this.#scheduler.step(nowUs, opensMost));
    this.#keepPlace(plan);
    tellOfPlan(plan, this.#context.nowUs());
    this.#losses = keeper.losses;
    // Room that the step made itself does not count as news. A preempted request does, and so do blocks that
    // settled by what the step did for others: it had looked at them before.
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
    const { count, last } = this.#context.keeper.errors;
    if (count !== this.#errors) {
      throw new TierKVError(
        'TKV_DEVICE',
        `the device reported an error since blocks of this step were opened (${last}), so what was written ` +
          'there may be wrong and is not sealed. Call stepFailed: the requests are computed again.',
      );
    }
    const stopped = takeTokens(plan, this.#requests, sampled, ++this.#step);
    tellOfTokens(sampled, this.#requests, this.#context.nowUs());
    this.#plan = undefined;
    const outcome = this.#asOneCall((nowUs) => this.#scheduler.stepEnded({ stopped }, nowUs));
    this.#unwatch();
    this.#forget(outcome);
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
    const outcome = this.#asOneCall((nowUs) => this.#scheduler.stepFailed(nowUs));
    this.#unwatch();
    this.#forget(outcome);
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
    const signals = signalsOf(this.#context, waitOptionsTable.read(options));
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

  #forget({ finished, reasons }: StepOutcome<ScheduledRequest>): void {
    finished.forEach(({ id, watch }, i) => {
      this.#requests.delete(id);
      watch?.ended(this.#context.nowUs(), finishReasonNames[reasons[i]]);
    });
  }

  /** After an error of the device, running requests are computed again: unsealed blocks may be wrong. */
  #dropDoubtful(): void {
    const { count } = this.#context.keeper.errors;
    if (this.#plan !== undefined || count === this.#errors) return;
    this.#errors = count;
    // The last of the batch first, so that the first is in front of the queue again.
    for (const { id } of this.#scheduler.runningRequests().reverse()) {
      this.#asOneCall((nowUs) => this.#scheduler.requeue(id, nowUs));
    }
  }

  /** Blocks that are late may be computed instead: that is news too. */
  #alarmForLateBlocks(): NodeJS.Timeout | undefined {
    const { lookAgainUs } = this.#scheduler;
    if (lookAgainUs === Number.POSITIVE_INFINITY) return undefined;
    const ms = Math.ceil((lookAgainUs - this.#context.nowUs()) / 1000);
    return setTimeout(() => this.#tellNews(), Math.min(Math.max(1, ms), LATE_MS_MOST));
  }

  /**
   * Waiting requests that may take room in this step: all of them, unless requests of `begin` wait for room as well. Then it is one
   * where it is the scheduler's turn, and none where it is not.
   */
  #opensMost(): number {
    const { admission } = this.#context;
    if (admission.waiting === 0) return Number.POSITIVE_INFINITY;
    this.#standFor(this.#scheduler.next);
    return this.#ticket !== undefined && admission.isFirst(this.#ticket) ? 1 : 0;
  }

  /** A request that took room has had its turn; one that found none waits among the others for the next one. */
  #keepPlace({ opened, heldUp }: StepPlan<ScheduledRequest>): void {
    const ticket = this.#ticket;
    if (ticket !== undefined && opened.length > 0) {
      this.#ticket = undefined;
      this.#context.admission.take(ticket);
    }
    this.#standFor(heldUp);
  }

  #standFor(request: ScheduledRequest | undefined): void {
    const { admission } = this.#context;
    const ticket = this.#ticket;
    if (ticket !== undefined && ticket.owner === request?.owner) return;
    this.#ticket =
      request === undefined
        ? undefined
        : admission.join(request.owner, PRIORITY, false, () => this.#tellNews());
    if (ticket !== undefined) admission.leave(ticket);
  }

  /** How far a request is, or undefined when it has ended. */
  progress(id: string): RequestProgress | undefined {
    const asking = this.#asking.holds(id) ? this.#requests.get(id) : undefined;
    if (asking === undefined) return this.#scheduler.progress(id);
    return { knownTokens: asking.promptTokens, computedTokens: 0, preemptions: 0 };
  }

  /** Ends all requests. Calls that wait in `next` go on; no other call is taken from now on. */
  close(): void {
    if (this.#isClosed) return;
    if (this.#plan !== undefined) this.stepFailed();
    for (const [id, { watch }] of this.#requests) {
      this.#asOneCall((nowUs) => this.#scheduler.abort(id, nowUs));
      watch?.ended(this.#context.nowUs(), 'aborted');
    }
    this.#requests.clear();
    this.#asking.dropAll();
    this.#isClosed = true;
    this.#standFor(undefined);
    this.#stopListening();
    this.#tellNews();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  checkIntegrity(): void {
    this.#scheduler.checkIntegrity();
  }

  /** A replay makes the scheduler's calls of the manager in one go; so nothing comes between them here. */
  #asOneCall<T>(call: (nowUs: number) => T): T {
    const { loop, manager, nowUs } = this.#context;
    return loop.deferNotifications(() => manager.openings.together(() => call(nowUs())));
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

// A step as an engine computes it: for each request its tokens, and where their KV lies.

/** One request's part of a step. */
export interface PlannedRequest {
  readonly id: string;
  /** The manager's block table of the request. A preempted request gets another one: keep no state by it. */
  readonly sequence: Sequence;
  /** Prompt and answer so far: the step computes those from `start` to `end`. Good until `stepEnded`. */
  readonly tokens: Uint32Array;
  /** The first token whose KV the step writes; the KV of all tokens before it is in the blocks. */
  readonly start: number;
  /** The first token that the step leaves. */
  readonly end: number;
  /** Slab and offset of each block up to `end`. Write the tokens from `start` on, and no others. */
  readonly blockTable: DeviceBlockTable;
  /** Whether the step reaches the request's last token, so that a next one is to be sampled. */
  readonly samples: boolean;
}

/** The next step of the batch: which requests, which of their tokens, and where their blocks lie. */
export interface KVStepPlan {
  /** In the order of the batch. Empty: there is nothing to compute now; await `next`. */
  readonly requests: readonly PlannedRequest[];
  /** Tokens that the step computes, over all requests. */
  readonly tokens: number;
  /** Ids of requests that joined the batch with this step. */
  readonly admitted: readonly string[];
  /** Ids of requests that gave up their blocks. They come back by themselves, with the tokens they have. */
  readonly preempted: readonly string[];
}

const nothingToCompute: KVStepPlan = { requests: [], tokens: 0, admitted: [], preempted: [] };

/** The scheduler's plan with tokens and places: from here on its blocks are the engine's to write. */
function planForKernels(context: RequestContext, plan: StepPlan<ScheduledRequest>): KVStepPlan {
  const { blockTokens, manager } = context;
  const requests: PlannedRequest[] = [];
  for (let seat = plan.first(); seat !== -1; seat = plan.next(seat)) {
    const request = plan.request(seat);
    const sequence = plan.sequence(seat);
    const start = plan.from(seat);
    const end = start + plan.tokensOf(seat);
    const blocks = Math.ceil(end / blockTokens);
    manager.openings.tell(sequence, Math.floor(start / blockTokens), blocks, blockTokens, end);
    const { words, length } = request.tokenList;
    requests.push({
      id: request.id,
      sequence,
      tokens: words.subarray(0, length),
      start,
      end,
      blockTable: request.blockTable(context, sequence, blocks),
      samples: plan.samples(seat),
    });
  }
  return {
    requests,
    tokens: plan.tokens,
    admitted: plan.admitted.map(({ id }) => id),
    preempted: plan.preempted.map(({ id }) => id),
  };
}

// Results that an engine hands in after a step, checked as a whole before they take effect, and the outcome.

/** A token that the engine sampled in a step, told to `KVScheduler.stepEnded`. */
export interface SampledToken {
  readonly id: string;
  readonly token: number;
  /** The answer ends with this token, for instance because it completes a stop string. Default false. */
  readonly stop?: boolean | undefined;
}

const sampledTokenTable = optionTable({
  id: is.passed(),
  token: is.passed(),
  stop: is.optional(is.flag()),
} satisfies Kinds<SampledToken>);

/** A request that has ended, and why. */
export interface FinishedRequest {
  readonly id: string;
  /**
   * `stop`: a stop token, or the engine said so. `length`: it has `maxTokens`. `capacity`: the model's limit,
   * or HBM, holds no more. `aborted`: `abort` was called.
   */
  readonly reason: (typeof finishReasonNames)[number];
  /** The tokens that were generated, the one that ended the answer included. */
  readonly tokens: Uint32Array;
}

/** Result of a step: the requests that ended with it. */
export interface KVStepOutcome {
  /** Bytes were lost while the step ran. All its requests are computed again, with the tokens they had. */
  readonly interrupted: boolean;
  /** Requests that ended, in batch order. */
  readonly finished: readonly FinishedRequest[];
}

/**
 * Gives each request of the plan that samples its token.
 * @param step number of the step
 * @returns ids of requests that stop with their token
 * @throws TKV_INPUT naming the entry for an invalid token id, a request that samples nothing in this step,
 * or one that is named twice or missing; nothing is done then
 */
function takeTokens(
  plan: StepPlan<ScheduledRequest>,
  requests: ReadonlyMap<string, ScheduledRequest>,
  sampled: readonly SampledToken[],
  step: number,
): string[] {
  if (!Array.isArray(sampled)) throw wrong('sampled', 'must be an array. Pass { id, token } of each request');
  const expected = new Set<ScheduledRequest>();
  for (let seat = plan.first(); seat !== -1; seat = plan.next(seat)) {
    if (plan.samples(seat)) expected.add(plan.request(seat));
  }
  sampled.forEach((each, i) => {
    const { id, token } = sampledTokenTable.check(each, `sampled[${i}]`);
    requireTokenId(token, `sampled[${i}].token`);
    const request = requests.get(id);
    if (request === undefined || !expected.has(request)) {
      const why = request?.sampledIn === step ? 'has its token already' : 'samples nothing in this step';
      throw wrong(`sampled[${i}].id`, `is ${described(id)}, which ${why}`);
    }
    expected.delete(request);
    request.sampledIn = step;
  });
  for (const request of expected) {
    if (!request.isAborted) throw wrong('sampled', `has no token of ${JSON.stringify(request.id)}`);
  }
  const stopped: string[] = [];
  for (const { id, token, stop = false } of sampled) {
    const request = requests.get(id) as ScheduledRequest; // found above
    request.push(token);
    if (stop || request.stopTokens.has(token)) stopped.push(id);
  }
  return stopped;
}

function finishedOf(outcome: StepOutcome<ScheduledRequest>): FinishedRequest[] {
  return outcome.finished.map(({ id, tokenList, promptTokens }, i) => ({
    id,
    reason: finishReasonNames[outcome.reasons[i]],
    tokens: tokenList.words.slice(promptTokens, tokenList.length),
  }));
}

function wrong(field: string, problem: string): TierKVError {
  return inputError(field, `${problem}. Hand in one token of each request of the plan that samples.`);
}
