/**
 * Continuous batching: decides which requests run in a step and with how many tokens, and runs nothing itself. Calls
 * go in, each with `nowUs`; plans come out. Every call returns at once, and the same calls in the same order give the
 * same plans. Requests join and leave the batch between any two steps (Orca, OSDI 2022); prompts are computed in
 * chunks beside decodes (Sarathi-Serve, OSDI 2024); blocks are opened as tokens need them, and a request is preempted
 * when they run out (PagedAttention, SOSP 2023).
 *
 *     add(request) ... step(nowUs) -> plan -> the engine runs it -> stepEnded(result, nowUs) -> outcome ...
 */

import { configError, requireInteger, TierKVError } from '../errors.ts';
import type { BlockKeys } from '../keys/keyChain.ts';
import * as is from '../kinds.ts';
import { checkInputs } from '../options.ts';
import type { ComputeEstimate } from '../planning/loadOrRecompute.ts';
import type { StateVisitor } from '../snapshot.ts';
import { admitWaiting, returnLoaded } from './admission.ts';
import type { StepOutcome, StepPlan } from './batch.ts';
import {
  RANKED,
  type ResolvedSchedulerConfig,
  resolveSchedulerConfig,
  type SchedulerConfig,
} from './config.ts';
import { SchedulerCore, type SchedulerCounters, type SchedulerNames, visitCore } from './core.ts';
import { endStep, failStep, finish, isDisturbed, noticeLosses } from './ending.ts';
import { checkIntegrity } from './integrity.ts';
import type { KVPort } from './kvPort.ts';
import { preempt } from './preemption.ts';
import { FinishReason, Phase, RequestState, type ServingRequest } from './request.ts';
import { isSteady, planRunning, planSteady, sealPlanned } from './running.ts';
import { SchedulerDecision, SchedulerInput, type SchedulerSink } from './schedulerSink.ts';

/** Result of a step. Every request that samples in it has one token more. */
interface StepResult {
  /** Ids of requests that hit a stop condition with the token they sampled. Default: none. */
  readonly stopped?: readonly string[];
}

/** `endsWithStep`: a step is computing the request, so its blocks are released when that step has ended. */
export type AbortResult = 'ended' | 'endsWithStep' | 'unknown';

export interface RequestProgress {
  /** Prompt and generated tokens. */
  readonly knownTokens: number;
  /** Tokens among these whose KV is in the request's blocks. */
  readonly computedTokens: number;
  /** Times that it was preempted. */
  readonly preemptions: number;
}

/** Decides which requests run in a step, with how many tokens each: admission, chunked prefill, preemption. */
export class Scheduler<R extends ServingRequest = ServingRequest> {
  readonly config: ResolvedSchedulerConfig;
  readonly #core: SchedulerCore<R>;
  readonly #stopped: RequestState<R>[] = [];
  #added = 0;
  #isComputing = false;
  /** Whether the planned step is one of the steady state. */
  #isSteady = false;

  /** @throws TKV_CONFIG with the field at fault, and the nearest name where a policy is unknown */
  constructor(config: SchedulerConfig, port: KVPort, sink: SchedulerSink | null = null) {
    checkInputs({ config, port }, { config: is.object(), port: is.fields({ matchLength: is.func() }) });
    this.config = resolveSchedulerConfig(config, port.hasLowerTier);
    this.#core = new SchedulerCore(this.config, port, sink);
  }

  get counters(): Readonly<SchedulerCounters> {
    return this.#core.counters;
  }

  /** Requests that have not ended. */
  get size(): number {
    return this.#core.requests.size;
  }

  get runningCount(): number {
    return this.#core.batch.size;
  }

  /** Requests outside the batch, loading ones included. */
  get waitingCount(): number {
    return this.#core.requests.size - this.#core.batch.size;
  }

  /** Waiting requests whose blocks are on their way. */
  get loadingCount(): number {
    return this.#core.loadingCount;
  }

  /**
   * Whether blocks of a running request have lost their bytes since the step was planned. What was computed over them
   * must not be used: call `stepFailed`.
   */
  get isDisturbed(): boolean {
    return isDisturbed(this.#core);
  }

  /**
   * When to step again though nothing has happened, in microseconds, because requests wait for late blocks. Infinity:
   * never.
   */
  get lookAgainUs(): number {
    return this.#core.lookAgainUs;
  }

  /** How long steps take, as measured so far; undefined before the first, and unless loads are overlapped. */
  get computeEstimate(): ComputeEstimate | undefined {
    return this.#core.pace.estimate(this.config.maxBatchedTokens);
  }

  /** Whether a step is planned and has not ended. */
  get isComputing(): boolean {
    return this.#isComputing;
  }

  /**
   * Adds a request to the waiting queue.
   * @throws TKV_CONFIG for a number out of range, TKV_INPUT for an id in use, TKV_CAPACITY for a prompt that can
   * never run
   */
  add(request: R, nowUs: number): void {
    const core = this.#core;
    const limit = this.requireAddable(request);
    this.#tell(nowUs);
    const state = new RequestState(request, ++this.#added, limit, nowUs);
    core.sink?.input(
      SchedulerInput.ADD,
      nowUs,
      state.number,
      request.promptTokens,
      request.maxOutputTokens,
      state.priority,
      state.arrivalUs,
      { id: request.id, owner: request.owner ?? 0, keys: keysFrom(request.keys, 0) },
    );
    core.sink?.done?.();
    core.requests.set(request.id, state);
    core.waiting.append(state);
  }

  /**
   * Refuses what `add` would refuse.
   * @returns most tokens that the request may have
   * @throws like `add`
   */
  requireAddable(request: R): number {
    const { requests, port } = this.#core;
    checkRequest(request);
    if (requests.has(request.id)) throw idInUse(request.id);
    return limitTokens(request, this.config, port);
  }

  /** Ends a request. What it published stays cached; loads that only it waits for are cancelled. */
  abort(id: string, nowUs: number): AbortResult {
    const core = this.#core;
    const state = core.requests.get(id);
    if (state === undefined) return 'unknown';
    this.#input(SchedulerInput.ABORT, nowUs, state.number);
    const result = this.#abort(state);
    core.sink?.done?.();
    return result;
  }

  #abort(state: RequestState<R>): AbortResult {
    const core = this.#core;
    if (state.seat !== -1 && this.#isComputing) {
      if (!core.abortedInStep.includes(state)) core.abortedInStep.push(state);
      return 'endsWithStep';
    }
    if (state.seat !== -1) core.batch.leave(state.seat);
    else if (state.phase === Phase.LOADING) core.loadingCount--;
    else core.waiting.remove(state);
    finish(core, state, FinishReason.ABORTED);
    return 'ended';
  }

  /**
   * Takes the blocks of a running request away, for instance with the device that held them; it waits to be computed
   * again.
   * @throws TKV_UNKNOWN_ID, or TKV_STATE while a step is computed or for a request that does not run
   */
  requeue(id: string, nowUs: number): void {
    const core = this.#core;
    const state = core.requests.get(id);
    if (state === undefined) throw unknown(id);
    if (this.#isComputing || state.seat === -1) {
      const why = this.#isComputing ? 'A step is computing' : `Request ${id} does not run`;
      throw new TierKVError('TKV_STATE', `${why}. Requeue running requests between steps.`);
    }
    this.#tell(nowUs);
    logNewKeys(core, nowUs);
    this.#input(SchedulerInput.REQUEUE, nowUs, state.number);
    preempt(core, state.seat, false);
    core.plan.preempted.length = 0;
    core.sink?.done?.();
  }

  /**
   * Sets ranks, for the queue order and the victim rule `ranked`. Requests that are not named keep their rank, 0 at
   * first. Ranks that change nothing are not logged.
   * @throws TKV_CONFIG if neither queue order nor victim rule is `ranked`, TKV_UNKNOWN_ID, TKV_INPUT for a rank that
   * is not finite and for a request with two; nothing changes then
   */
  rerank(ranks: readonly RequestRank[], nowUs: number): void {
    const changed = checkRanks(this.#core, ranks);
    if (changed.size === 0) return;
    this.#tell(nowUs);
    applyRanks(this.#core, changed, nowUs);
  }

  /**
   * Whether blocks may run out for the requests that run in the next step, so that the choice of a victim matters.
   * False is certain, as long as nothing else happens before that step and no owner has a quota.
   */
  get mayRunShort(): boolean {
    return mayRunShort(this.#core);
  }

  /**
   * Plans the next step. If `plan.tokens` is 0 there is nothing to compute: step again after a request was added or a
   * block arrived. Otherwise call `stepEnded` before the next `step`.
   * @param opensMost waiting requests that may take blocks in this step: where others wait for room too
   * @throws TKV_STATE while a step is computed
   */
  step(nowUs: number, opensMost: number = Number.POSITIVE_INFINITY): StepPlan<R> {
    const core = this.#core;
    const { plan } = core;
    if (this.#isComputing) {
      throw new TierKVError('TKV_STATE', 'A step is computing. Call stepEnded before the next step.');
    }
    this.#tell(nowUs);
    logNewKeys(core, nowUs);
    if (opensMost === Number.POSITIVE_INFINITY) this.#input(SchedulerInput.STEP, nowUs, 0);
    else this.#input(SchedulerInput.SHARED_STEP, nowUs, requireInteger('opensMost', opensMost, 0));
    core.opensLeft = opensMost;
    plan.clear();
    core.lookAgainUs = Number.POSITIVE_INFINITY;
    this.#isSteady = isSteady(core);
    if (this.#isSteady) planSteady(core);
    else this.#plan();
    core.sink?.decision(SchedulerDecision.PLAN, plan.requests, plan.tokens, plan.decodes);
    this.#isComputing = plan.tokens > 0;
    core.plannedAtUs = nowUs;
    if (this.#isComputing && this.config.prefixLoads === 'overlapped') core.port.computing(true, nowUs);
    if (!this.#isComputing) core.restIdle();
    core.sink?.done?.();
    return plan;
  }

  #plan(): void {
    const core = this.#core;
    const { plan } = core;
    noticeLosses(core);
    if (core.loadingCount > 0) returnLoaded(core);
    planRunning(core);
    // A request that preempts itself ends the round. If nothing was planned before it, the others get their turn.
    for (let gone = 0; core.left === this.config.maxBatchedTokens && gone < plan.preempted.length; ) {
      gone = plan.preempted.length;
      planRunning(core);
    }
    if (this.config.publish === 'whenPlanned') sealPlanned(core);
    admitWaiting(core);
    core.sumUp();
  }

  /**
   * The planned step was computed: its tokens are in the blocks, and each request that samples has its next
   * token. Keys of tokens known so far are in place in `request.keys`.
   * @throws TKV_STATE without a planned step, or for a stopped request that sampled nothing; TKV_UNKNOWN_ID
   */
  stepEnded(result: StepResult, nowUs: number): StepOutcome<R> {
    const core = this.#core;
    if (!this.#isComputing) {
      throw new TierKVError('TKV_STATE', 'No step is computing. Call step first.');
    }
    this.#stopped.length = 0;
    if (result.stopped !== undefined) for (const id of result.stopped) this.#stopped.push(this.#sampling(id));
    this.#tell(nowUs);
    for (const state of this.#stopped) {
      this.#input(SchedulerInput.STOP, nowUs, state.number);
      core.sink?.done?.();
    }
    logNewKeys(core, nowUs);
    this.#input(SchedulerInput.STEP_ENDED, nowUs, 0);
    core.outcome.clear();
    core.counters.steps++;
    this.#isComputing = false;
    if (this.config.prefixLoads === 'overlapped') {
      core.learnPace();
      core.port.computing(false, nowUs);
    }
    if (this.#isSteady && this.#stopped.length + core.abortedInStep.length === 0) core.batch.advance();
    else endStep(core, this.#stopped);
    core.sink?.done?.();
    return core.outcome;
  }

  /**
   * The planned step failed, for instance because the device was lost: every running request waits to be computed
   * again, with the tokens it had. Call it instead of `stepEnded`. Where blocks are published `whenPlanned`, the
   * driver fails the seals of the step too, so that none of its blocks is found.
   * @returns an outcome with the requests that were aborted meanwhile
   * @throws TKV_STATE without a planned step
   */
  stepFailed(nowUs: number): StepOutcome<R> {
    const core = this.#core;
    if (!this.#isComputing) throw new TierKVError('TKV_STATE', 'No step is computing. Call step first.');
    this.#input(SchedulerInput.STEP_FAILED, nowUs, 0);
    core.outcome.clear();
    this.#isComputing = false;
    if (this.config.prefixLoads === 'overlapped') core.port.computing(false, nowUs);
    failStep(core);
    core.plan.clear();
    core.sink?.done?.();
    return core.outcome;
  }

  /** The request that would be admitted next; undefined where none waits. */
  get next(): R | undefined {
    return this.#core.waiting.head()?.request as R | undefined;
  }

  /** Requests in the order in which they would be admitted; an array made for inspection. */
  waitingRequests(): R[] {
    return this.#core.waiting.toArray().map((state) => state.request as R);
  }

  /** Requests of the batch, in its order; an array made for inspection. */
  runningRequests(): R[] {
    const { batch } = this.#core;
    const running: R[] = [];
    for (let seat = batch.first(); seat !== -1; seat = batch.next(seat)) {
      running.push(batch.state(seat).request as R);
    }
    return running;
  }

  /** Requests outside the batch, loading ones included, in order of adding. */
  requestsOutside(): R[] {
    const outside: R[] = [];
    for (const { seat, request } of this.#core.requests.values()) if (seat === -1) outside.push(request);
    return outside;
  }

  /** How far a request is, or undefined when it has ended. A token is known before its KV is computed. */
  progress(id: string): RequestProgress | undefined {
    const { batch, requests } = this.#core;
    const state = requests.get(id);
    if (state === undefined) return undefined;
    const { seat, preemptions } = state;
    if (seat === -1) return { knownTokens: state.known, computedTokens: state.computed, preemptions };
    return { knownTokens: batch.known(seat), computedTokens: batch.computed(seat), preemptions };
  }

  /**
   * Saves or restores everything that changes, between two steps. Restore the manager first, so that sequences can be
   * named.
   * @throws TKV_STATE while a step is computed
   */
  visitState(visitor: StateVisitor, names: SchedulerNames<R>): void {
    if (this.#isComputing) {
      throw new TierKVError('TKV_STATE', 'A step is computing. Call stepEnded before the state is saved.');
    }
    this.#added = visitor.number(this.#added);
    visitCore(this.#core, visitor, names);
  }

  checkIntegrity(): void {
    checkIntegrity(this.#core, this.#isComputing);
  }

  #sampling(id: string): RequestState<R> {
    const core = this.#core;
    const state = core.requests.get(id);
    if (state === undefined) throw unknown(id);
    if (state.seat !== -1 && core.batch.newTokens[state.seat] > 0 && core.plan.samples(state.seat))
      return state;
    throw new TierKVError('TKV_STATE', `Request ${id} sampled no token in this step, so it cannot stop.`);
  }

  #input(op: SchedulerInput, nowUs: number, number: number): void {
    this.#tell(nowUs);
    this.#core.sink?.input(op, nowUs, number, 0, 0, 0, 0);
  }

  #tell(nowUs: number): void {
    const core = this.#core;
    if (!(nowUs >= core.nowUs)) {
      throw new TierKVError(
        'TKV_INPUT',
        `nowUs went back from ${core.nowUs} to ${nowUs}. Pass a clock that does not.`,
        { field: 'nowUs' },
      );
    }
    core.nowUs = nowUs;
  }
}

function unknown(id: string): TierKVError {
  return new TierKVError('TKV_UNKNOWN_ID', `Request ${id} is unknown. It has ended, or was never added.`, {
    field: 'id',
  });
}

// Keys that came while a request was decoding are an input of the scheduler. They are logged before any call that may
// publish blocks under them, or look for them.

/** Logs the keys of running requests that the log does not have yet. */
function logNewKeys(core: SchedulerCore, nowUs: number): void {
  if (core.sink === null) return;
  const { batch } = core;
  for (let seat = batch.first(); seat !== -1; seat = batch.next(seat)) {
    logKeys(core, batch.state(seat), nowUs);
  }
}

function logKeys({ sink }: SchedulerCore, state: RequestState, nowUs: number): void {
  const { keys, id, owner = 0 } = state.request;
  const from = state.loggedKeys;
  if (keys.length <= from) return;
  state.loggedKeys = keys.length;
  const added = { id, owner, keys: keysFrom(keys, from) };
  sink?.input(SchedulerInput.KEYS, nowUs, state.number, 0, 0, 0, 0, added);
  sink?.done?.();
}

/** The words of the keys from `from` on; valid until the next key is appended. */
function keysFrom(keys: BlockKeys, from: number): Uint32Array {
  return keys.words.subarray(4 * from, 4 * keys.length);
}

// Ranks set from outside between two steps: an input like any other, so that a log holds them and a replay has them
// again. Under the queue order `ranked` the waiting request of lowest rank joins the batch first; under the victim
// rule `ranked` the running request of highest rank is preempted first. A rank stays until it is set anew, whatever
// happens to the request meanwhile.

/** A request and its rank from now on. */
export interface RequestRank {
  readonly id: string;
  /** Finite. While the request runs, the highest is preempted first. Otherwise, the lowest joins first. */
  readonly rank: number;
}

/**
 * The requests that these ranks change, checked.
 * @throws TKV_CONFIG if neither queue order nor victim rule is `ranked`; TKV_UNKNOWN_ID; TKV_INPUT for a rank that is
 * not finite or a duplicate id
 */
function checkRanks<R extends ServingRequest>(
  core: SchedulerCore<R>,
  ranks: readonly RequestRank[],
): Map<RequestState<R>, number> {
  const { queueOrder, victimRule } = core.config;
  if (queueOrder !== RANKED && victimRule !== RANKED) {
    const problem = `is '${queueOrder}', and victimRule is '${victimRule}': neither reads ranks`;
    throw configError('queueOrder', problem, `Set one of them to '${RANKED}'.`);
  }
  const given = new Map<RequestState<R>, number>();
  for (const { id, rank } of ranks) {
    const state = core.requests.get(id);
    if (state === undefined) {
      throw new TierKVError(
        'TKV_UNKNOWN_ID',
        `Request ${id} is unknown. Rank requests that have not ended.`,
        {
          field: 'id',
        },
      );
    }
    if (!Number.isFinite(rank)) {
      throw new TierKVError('TKV_INPUT', `The rank of request ${id} is ${rank}. Give it a finite number.`, {
        field: 'rank',
      });
    }
    if (given.has(state)) {
      throw new TierKVError('TKV_INPUT', `Request ${id} has two ranks. Give it one.`, { field: 'id' });
    }
    given.set(state, rank);
  }
  for (const [state, rank] of given) if (rankOf(state) === rank) given.delete(state);
  return given;
}

/** Logs the ranks and moves each request to its new place. */
function applyRanks<R extends ServingRequest>(
  core: SchedulerCore<R>,
  ranks: ReadonlyMap<RequestState<R>, number>,
  nowUs: number,
): void {
  if (core.sink !== null) {
    const pairs: number[] = [];
    for (const [{ number }, rank] of ranks) pairs.push(number, rank);
    core.sink.input(SchedulerInput.RERANK, nowUs, 0, 0, 0, 0, 0, undefined, pairs);
  }
  const { waiting } = core;
  for (const [state, rank] of ranks) {
    // A log writes -0 and 0 alike.
    const plain = rank + 0;
    if (state.seat !== -1) {
      state.victimRank = plain;
    } else if (state.phase === Phase.WAITING) {
      waiting.remove(state);
      state.queueRank = plain;
      waiting.putBack(state);
    } else {
      state.queueRank = plain;
    }
  }
  core.sink?.done?.();
}

function rankOf({ seat, victimRank, queueRank }: RequestState): number {
  return seat === -1 ? queueRank : victimRank;
}

/**
 * Whether blocks may run out for the requests that run in the next step. False is certain, as long as nothing else
 * happens before it and no owner has a quota.
 */
function mayRunShort<R extends ServingRequest>(core: SchedulerCore<R>): boolean {
  const { batch, port, config } = core;
  if (batch.size === 0) return false;
  if (batch.stalledCount > 0 || port.disturbances !== core.disturbances) return true;
  const most = config.longPrefillTokens > 0 ? config.longPrefillTokens : config.maxBatchedTokens;
  let blocks = batch.needingBlock;
  for (let seat = batch.firstPrefill(); seat !== -1; seat = batch.nextAlike(seat)) {
    const state = batch.state(seat);
    if (state.isTwoEnded) return true;
    const end = Math.min(state.known, state.computed + most);
    blocks += Math.max(0, core.blocksFor(end) - state.blocks);
  }
  return blocks > 0 && !port.canAllocate(blocks);
}

// Which requests are accepted, and the number of tokens at which each ends at the latest.

/** @throws TKV_CONFIG naming the field that is out of range */
function checkRequest(request: ServingRequest): void {
  requireInteger('promptTokens', request.promptTokens, 1);
  requireInteger('maxOutputTokens', request.maxOutputTokens, 0);
  const { priority = 0, arrivalUs = 0, owner = 0 } = request;
  requireInteger('priority', priority, Number.MIN_SAFE_INTEGER);
  requireInteger('arrivalUs', arrivalUs, 0);
  requireInteger('owner', owner, 0, 2 ** 16);
}

/**
 * Known tokens at which the request ends: its own limit, the model's, or what HBM holds. The KV of the last token is
 * never computed, so HBM may hold one token less.
 * @throws TKV_CAPACITY for a prompt that can never run
 */
function limitTokens(
  request: ServingRequest,
  { maxModelTokens }: ResolvedSchedulerConfig,
  { capacityBlocks, blockTokens }: KVPort,
): number {
  const ofModel = maxModelTokens > 0 ? maxModelTokens : Number.MAX_SAFE_INTEGER;
  const most = Math.min(ofModel, capacityBlocks * blockTokens + 1);
  const { promptTokens, maxOutputTokens } = request;
  if (promptTokens < most) return Math.min(promptTokens + Math.max(maxOutputTokens, 1), most);
  const bound = most === ofModel ? 'maxModelTokens' : "HBM's capacity";
  throw new TierKVError(
    'TKV_CAPACITY',
    `promptTokens is ${promptTokens}, but at most ${most - 1} can run. Shorten it, or raise ${bound}.`,
    { field: 'promptTokens' },
  );
}

export function idInUse(id: string): TierKVError {
  const message = `id ${id} is in use. Give each request an id of its own.`;
  return new TierKVError('TKV_INPUT', message, { field: 'id' });
}
