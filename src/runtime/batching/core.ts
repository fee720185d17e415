/**
 * The scheduler's state and the steps on it that its phases share: what a request holds, and how it lets go. A
 * request is in exactly one place: the waiting queue, the list of loading requests, or the batch.
 */

import { invariant } from '../errors.ts';
import type { Sequence, SequenceId } from '../manager/sequence.ts';
import { squaresOf } from '../planning/loadOrRecompute.ts';
import { ComputePace } from '../planning/pace.ts';
import type { StateVisitor } from '../snapshot.ts';
import { Batch, StepOutcome, StepPlan } from './batch.ts';
import { queueOrder, type ResolvedSchedulerConfig, type VictimRule, victimRule } from './config.ts';
import type { KVPort } from './kvPort.ts';
import { RequestState, type ServingRequest } from './request.ts';
import { SchedulerDecision, type SchedulerSink } from './schedulerSink.ts';
import { WaitingQueue } from './waitingQueue.ts';

/** Counts since the start. */
export interface SchedulerCounters {
  steps: number;
  admissions: number;
  /** Prompt blocks that admitted requests found in the cache and did not compute. */
  hitBlocks: number;
  /** Blocks that were opened to be computed. */
  openedBlocks: number;
  preemptions: number;
  /** Found blocks that were computed all the same, because loading would have taken longer. */
  recomputedBlocks: number;
  /** Admissions that waited for blocks on their way. */
  deferrals: number;
  /** Waiting requests that gave up the blocks they held. */
  yields: number;
  finished: number;
}

export class SchedulerCore<R extends ServingRequest = ServingRequest> {
  readonly config: ResolvedSchedulerConfig;
  readonly port: KVPort;
  readonly sink: SchedulerSink | null;
  readonly victimRule: VictimRule;
  readonly waiting: WaitingQueue;
  readonly batch: Batch;
  readonly plan: StepPlan<R>;
  readonly outcome: StepOutcome<R> = new StepOutcome();
  /** Waiting requests that hold a sequence: they are loading, or have loaded and are back in the queue. */
  readonly holders: RequestState<R>[] = [];
  readonly counters: SchedulerCounters = {
    steps: 0,
    admissions: 0,
    hitBlocks: 0,
    openedBlocks: 0,
    recomputedBlocks: 0,
    preemptions: 0,
    deferrals: 0,
    yields: 0,
    finished: 0,
  };
  /** Requests that have not ended, by id. */
  readonly requests: Map<string, RequestState<R>> = new Map();
  /** Requests that were aborted while a step was computing them. */
  readonly abortedInStep: RequestState<R>[] = [];
  /** Requests that leave with the step that ends now. */
  readonly leaving: RequestState<R>[] = [];
  readonly #idle: Int32Array;
  /** Decoding seats that the planned step leaves out. */
  idleCount = 0;
  /** Requests that wait beside the queue for their blocks. */
  loadingCount = 0;
  /** Tokens left of the budget of the step being planned. */
  left = 0;
  /** Waiting requests that may still take blocks in the step being planned. */
  opensLeft: number = Number.POSITIVE_INFINITY;
  nowUs = 0;
  /** When the last step was planned. */
  plannedAtUs = 0;
  /** How long steps take; learnt only where loads are overlapped. */
  readonly pace: ComputePace = new ComputePace();
  /** When a request that waits for blocks is looked at again even if none has come. */
  lookAgainUs: number = Number.POSITIVE_INFINITY;
  /** `port.disturbances` when the blocks of all requests were last looked at. */
  disturbances: number;

  constructor(config: ResolvedSchedulerConfig, port: KVPort, sink: SchedulerSink | null) {
    this.config = config;
    this.port = port;
    this.disturbances = port.disturbances;
    this.sink = sink;
    this.victimRule = victimRule(config.victimRule);
    this.waiting = new WaitingQueue(queueOrder(config.queueOrder));
    this.batch = new Batch(config.maxSequences, port.blockTokens);
    this.plan = new StepPlan(this.batch);
    this.#idle = new Int32Array(config.maxSequences);
  }

  decide(op: SchedulerDecision, state: RequestState, b = 0, c = 0): void {
    this.sink?.decision(op, state.number, b, c);
  }

  idleSeat(i: number): number {
    return this.#idle[i];
  }

  /** The planned step leaves this decoding seat out. */
  leaveOut(seat: number): void {
    this.batch.newTokens[seat] = 0;
    this.#idle[this.idleCount++] = seat;
    this.decide(SchedulerDecision.SKIP, this.batch.state(seat));
  }

  /** Lets the seats that the last plan left out take part again. */
  restIdle(): void {
    for (let i = 0; i < this.idleCount; i++) this.batch.newTokens[this.#idle[i]] = 1;
    this.idleCount = 0;
  }

  /** Sums of the plan, from the batch's own counts and a walk over the seats that are not plain decodes. */
  sumUp(): void {
    const { plan, batch } = this;
    let idleTokens = 0;
    for (let i = 0; i < this.idleCount; i++) {
      idleTokens += batch.computed(this.#idle[i]);
      plan.leftOut.push(batch.state(this.#idle[i]).request as R);
    }
    let prefills = 0;
    for (let seat = plan.firstPrefill(); seat !== -1; seat = plan.nextPrefill(seat)) prefills++;
    plan.decodes = batch.decodes - this.idleCount;
    plan.decodeContextTokens = batch.decodeContextTokens - idleTokens;
    plan.requests = plan.decodes + prefills;
    plan.tokens = this.config.maxBatchedTokens - this.left;
  }

  /** Tokens of one request's step: what it lacks, within the long-prefill limit and the budget that is left. */
  chunk(lacking: number): number {
    const { longPrefillTokens } = this.config;
    const wanted = longPrefillTokens > 0 ? Math.min(lacking, longPrefillTokens) : lacking;
    return Math.min(wanted, this.left);
  }

  /** Learns from the step that was computed: its tokens, what they attend over, and how long it took. */
  learnPace(): void {
    const { plan, pace } = this;
    let squares = 2 * plan.decodeContextTokens + plan.decodes;
    for (let seat = plan.firstPrefill(); seat !== -1; seat = plan.nextPrefill(seat)) {
      squares += squaresOf(plan.from(seat), plan.from(seat) + plan.tokensOf(seat));
    }
    pace.stepEnded(plan.tokens, squares, this.nowUs - this.plannedAtUs);
  }

  /** Blocks that this number of tokens needs. */
  blocksFor(tokens: number): number {
    return Math.ceil(tokens / this.port.blockTokens);
  }

  /**
   * Opens the blocks that the first `tokens` tokens need and the request does not have.
   * @returns false, with nothing changed, if they do not fit
   */
  allocate(state: RequestState, tokens: number): boolean {
    const end = this.blocksFor(tokens);
    if (end <= state.blocks) return true;
    const sequence = sequenceOf(state);
    const losses = sequence.disturbances;
    if (!this.port.allocate(sequence, state.blocks, end, this.nowUs)) return false;
    if (sequence.disturbances !== losses) {
      // The manager had no free job for one of them.
      state.disturbances += sequence.disturbances - losses;
      this.port.truncate(sequence, state.blocks, this.nowUs);
      return false;
    }
    this.counters.openedBlocks += end - state.blocks;
    state.blocks = end;
    return true;
  }

  /** Whether blocks of the request are still on their way, or wait for a slot. */
  isUnsettled(state: RequestState): boolean {
    const sequence = sequenceOf(state);
    return sequence.pending > 0 && this.port.isUnsettled(sequence);
  }

  /** All loads have ended, well or not: the request keeps the blocks before the first that failed. */
  keepPlaced(state: RequestState): void {
    const sequence = sequenceOf(state);
    const placed = this.port.placedBlocks(sequence);
    if (placed >= state.blocks) return;
    if (state.isTwoEnded) {
      // Blocks behind the front that failed to come are computed when the front reaches them.
      state.sealed = Math.min(state.sealed, placed);
      state.computed = Math.min(state.computed, placed * this.port.blockTokens);
      return;
    }
    this.port.truncate(sequence, placed, this.nowUs);
    state.blocks = placed;
    state.sealed = Math.min(state.sealed, placed);
    state.computed = Math.min(state.computed, placed * this.port.blockTokens);
  }

  /** Whether the blocks of the first `tokens` tokens are in place. */
  arePlaced(state: RequestState, tokens: number): boolean {
    return this.port.placedBlocks(sequenceOf(state)) >= this.blocksFor(tokens);
  }

  /** Publishes the blocks that the first `tokens` tokens fill, as far as their keys are known. */
  seal(state: RequestState, tokens: number): void {
    const { keys } = state.request;
    const full = Math.min(Math.floor(tokens / this.port.blockTokens), keys.length);
    if (full <= state.sealed) return;
    this.port.seal(sequenceOf(state), state.sealed, full, keys, this.nowUs);
    state.sealed = full;
  }

  /** Lists the request as waiting while it holds blocks. */
  hold(state: RequestState<R>): void {
    this.holders.push(state);
  }

  /** The request no longer holds blocks, or it runs. */
  stopHolding(state: RequestState<R>): void {
    const at = this.holders.indexOf(state);
    if (at !== -1) this.holders.splice(at, 1);
  }

  /** The request's sequence is gone, and with it everything computed. */
  forgetSequence(state: RequestState<R>): void {
    this.stopHolding(state);
    state.sequence = null;
    state.disturbances = 0;
    state.blocks = 0;
    state.computed = 0;
    state.sealed = 0;
    state.isTwoEnded = false;
    state.recomputed = 0;
  }
}

export function sequenceOf(state: RequestState): Sequence {
  invariant(state.sequence !== null, 'the request has a sequence');
  return state.sequence;
}

// Saves and restores the scheduler between two steps: each request's progress, the batch and the queue. A plan, its
// outcome and a step's budget are made anew by every step. Requests and sequences belong to others and are saved by
// name.

/** Names of what the state does not own. */
export interface SchedulerNames<R extends ServingRequest> {
  nameOf(request: R): number;
  requestOf(name: number): R;
  sequenceOf(id: SequenceId): Sequence | undefined;
}

/** A request as saved: its name, the inputs of its state, and the id of its sequence, or 0. */
interface SavedRequest {
  readonly name: number;
  readonly number: number;
  readonly limitTokens: number;
  readonly arrivalUs: number;
  readonly sequence: number;
}

export function visitCore<R extends ServingRequest>(
  core: SchedulerCore<R>,
  visitor: StateVisitor,
  names: SchedulerNames<R>,
): void {
  const byNumber = new Map<number, RequestState<R>>();
  const stateOf = (number: number): RequestState<R> => {
    const state = byNumber.get(number);
    invariant(state !== undefined, 'a saved request has not ended');
    return state;
  };
  visitor.fields(core);
  visitor.fields(core.counters);
  core.pace.visitState(visitor);
  visitor.value(
    () => [...core.requests.values()].map((state) => saved(state, names)),
    (all) => {
      core.requests.clear();
      for (const one of all) {
        const state = restored(one, names);
        core.requests.set(state.request.id, state);
        byNumber.set(state.number, state);
      }
    },
  );
  for (const state of core.requests.values()) visitor.fields(state);
  core.waiting.visitState(visitor, stateOf);
  core.batch.visitState(visitor, stateOf);
  visitor.value(
    () => core.holders.map(({ number }) => number),
    (numbers) => {
      core.holders.length = 0;
      for (const number of numbers) core.holders.push(stateOf(number));
    },
  );
}

function saved<R extends ServingRequest>(state: RequestState<R>, names: SchedulerNames<R>): SavedRequest {
  const { request, number, limitTokens, arrivalUs, sequence } = state;
  return { name: names.nameOf(request), number, limitTokens, arrivalUs, sequence: sequence?.id ?? 0 };
}

function restored<R extends ServingRequest>(
  { name, number, limitTokens, arrivalUs, sequence }: SavedRequest,
  names: SchedulerNames<R>,
): RequestState<R> {
  const state = new RequestState(names.requestOf(name), number, limitTokens, arrivalUs);
  state.sequence = sequence === 0 ? null : (names.sequenceOf(sequence as SequenceId) ?? null);
  invariant((state.sequence === null) === (sequence === 0), 'a saved sequence is open');
  return state;
}
