/**
 * The running requests, and the plan and outcome of a step over them. Each request has a seat; seats are listed in
 * order of joining, which is the order of the batch. A step in which every request decodes one token touches only the
 * seats at which something happens:
 *
 *     decoding seat:  needs a block --granted--> due after the step that fills it or is the last --+
 *                          ^                                                                      |
 *                          +--------------------------- block is full ----------------------------+
 *
 * A decoding seat computes one token a step, so its count of computed tokens is `clock - base` and is never written.
 * The seats that are due after the same step form one list of a ring (a timing wheel, Varghese and Lauck 1987). A
 * seat that a step leaves out is idle: its base and its due step move on by one.
 */

import { invariant } from '../errors.ts';
import type { Sequence } from '../manager/sequence.ts';
import type { StateVisitor } from '../snapshot.ts';
import { IntrusiveLists } from '../tables/slotPool.ts';
import { type FinishReason, Phase, type RequestState, type ServingRequest } from './request.ts';

const FREE = 0;
const PREFILL = 1;
const NEEDS_BLOCK = 2;
const FIRST_DUE = 3;

export class Batch {
  readonly seats: number;
  readonly #blockTokens: number;
  readonly #states: (RequestState | null)[];
  readonly #order: IntrusiveLists;
  /** A seat is free, prefills, needs a block, or is due: one list each, and the seat's own. */
  readonly #stages: IntrusiveLists;
  readonly #stage: Int32Array;
  readonly #ring: number;
  readonly #base: Float64Array;
  readonly #dueAt: Float64Array;
  /** Order of joining, for sorting a few seats without a walk. */
  readonly #joined: Float64Array;
  #joinedCount = 0;
  /**
   * Tokens that the seat computes in the step that is planned. A decoding seat keeps its 1 from step to step.
   */
  readonly newTokens: Int32Array;
  /** 1 while blocks of the seat's sequence are not in place yet. */
  readonly isStalled: Uint8Array;
  stalledCount = 0;
  /** Seats that decode. */
  decodes = 0;
  /** Tokens that the decoding seats have computed, all together. */
  decodeContextTokens = 0;
  /** Steps that were computed. */
  #clock = 0;

  constructor(seats: number, blockTokens: number) {
    this.seats = seats;
    this.#blockTokens = blockTokens;
    this.#ring = blockTokens + 2;
    this.#states = new Array(seats).fill(null);
    this.#order = new IntrusiveLists(seats, 1);
    this.#stages = new IntrusiveLists(seats, FIRST_DUE + this.#ring);
    this.#stage = new Int32Array(seats).fill(FREE);
    for (let seat = 0; seat < seats; seat++) this.#stages.append(FREE, seat);
    this.#base = new Float64Array(seats);
    this.#dueAt = new Float64Array(seats);
    this.#joined = new Float64Array(seats);
    this.newTokens = new Int32Array(seats);
    this.isStalled = new Uint8Array(seats);
  }

  get size(): number {
    return this.#order.size(0);
  }

  /** The seat that was taken first, or -1. */
  first(): number {
    return this.#order.oldest(0);
  }

  /** The seat that was taken last, or -1. */
  last(): number {
    return this.#order.newest(0);
  }

  next(seat: number): number {
    return this.#order.newer(seat);
  }

  state(seat: number): RequestState {
    return this.#states[seat] as RequestState;
  }

  isDecoding(seat: number): boolean {
    return this.state(seat).phase === Phase.DECODE;
  }

  computed(seat: number): number {
    return this.isDecoding(seat) ? this.#clock - this.#base[seat] : this.state(seat).computed;
  }

  known(seat: number): number {
    return this.isDecoding(seat) ? this.#clock - this.#base[seat] + 1 : this.state(seat).known;
  }

  /** Prefilling seats, in order of the batch. */
  firstPrefill(): number {
    return this.#stages.oldest(PREFILL);
  }

  get prefills(): number {
    return this.#stages.size(PREFILL);
  }

  /** A decoding seat whose blocks are all full, or -1. */
  firstNeedingBlock(): number {
    return this.#stages.oldest(NEEDS_BLOCK);
  }

  get needingBlock(): number {
    return this.#stages.size(NEEDS_BLOCK);
  }

  /** The first seat that is due when the step now planned has been computed, or -1. */
  firstDue(): number {
    return this.#stages.oldest(this.#dueList(this.#clock + 1));
  }

  /** The seat after `seat` in its list of prefilling, needing or due seats, or -1. */
  nextAlike(seat: number): number {
    return this.#stages.newer(seat);
  }

  /** Whether the step being planned may give every seat its one token and touch none of them. */
  get isSteady(): boolean {
    return (
      this.decodes > 0 &&
      this.decodes === this.size &&
      this.stalledCount === 0 &&
      this.needingBlock === 0 &&
      this.firstDue() === -1
    );
  }

  /** Seats a request at the end of the batch, to prefill. */
  join(state: RequestState): number {
    const seat = this.#stages.oldest(FREE);
    invariant(seat !== -1 && state.seat === -1, 'a request takes one free seat');
    this.#enter(seat, PREFILL);
    this.#order.append(0, seat);
    this.#states[seat] = state;
    this.#joined[seat] = ++this.#joinedCount;
    this.newTokens[seat] = 0;
    state.seat = seat;
    state.phase = Phase.PREFILL;
    return seat;
  }

  /** Frees the seat. The request has its exact counts again; its next phase is the caller's choice. */
  leave(seat: number): RequestState {
    const state = this.state(seat);
    if (state.phase === Phase.DECODE) {
      state.computed = this.computed(seat);
      state.known = state.computed + 1;
      this.decodes--;
      this.decodeContextTokens -= state.computed;
    }
    this.setStalled(seat, 0);
    this.#enter(seat, FREE);
    this.#order.remove(0, seat);
    this.#states[seat] = null;
    state.seat = -1;
    return state;
  }

  /** A prefilled request decodes from the next step on. */
  startDecoding(seat: number): void {
    const state = this.state(seat);
    invariant(state.known === state.computed + 1, 'a decoding request has one token to compute');
    state.phase = Phase.DECODE;
    this.#base[seat] = this.#clock - state.computed;
    this.newTokens[seat] = 1;
    this.decodes++;
    this.decodeContextTokens += state.computed;
    if (state.computed % this.#blockTokens === 0) this.#enter(seat, NEEDS_BLOCK);
    else this.#setDue(seat);
  }

  /** The seat has room for its next token, up to the end of a block. */
  grantBlock(seat: number): void {
    this.#setDue(seat);
  }

  /** Whether the seat waits for `grantBlock`. */
  needsBlock(seat: number): boolean {
    return this.#stage[seat] === NEEDS_BLOCK;
  }

  /** After `advance`, a due seat whose block is full needs the next one. */
  fillBlock(seat: number): void {
    this.#enter(seat, NEEDS_BLOCK);
  }

  setStalled(seat: number, stalled: 0 | 1): void {
    this.stalledCount += stalled - this.isStalled[seat];
    this.isStalled[seat] = stalled;
  }

  /** The step left this decoding seat out: call it before `advance`. */
  skip(seat: number): void {
    this.#base[seat]++;
    this.decodeContextTokens--;
    if (this.needsBlock(seat)) return;
    this.#enter(seat, this.#dueList(++this.#dueAt[seat]));
  }

  /** The step was computed: every decoding seat has one token more. */
  advance(): void {
    this.#clock++;
    this.decodeContextTokens += this.decodes;
  }

  /** After `advance`: a seat that is due now, or -1. */
  firstDueNow(): number {
    return this.#stages.oldest(this.#dueList(this.#clock));
  }

  /** Whether seat `a` joined before seat `b`. */
  joinedBefore(a: number, b: number): boolean {
    return this.#joined[a] < this.#joined[b];
  }

  #setDue(seat: number): void {
    const state = this.state(seat);
    const computed = this.computed(seat);
    const toFull = this.#blockTokens - (computed % this.#blockTokens);
    const toEnd = state.limitTokens - 1 - computed;
    this.#dueAt[seat] = this.#clock + Math.min(toFull, toEnd);
    this.#enter(seat, this.#dueList(this.#dueAt[seat]));
  }

  #enter(seat: number, stage: number): void {
    this.#stages.remove(this.#stage[seat], seat);
    this.#stages.append(stage, seat);
    this.#stage[seat] = stage;
  }

  #dueList(clock: number): number {
    return FIRST_DUE + (clock % this.#ring);
  }

  /** @param stateOf the request of a number */
  visitState(visitor: StateVisitor, stateOf: (number: number) => RequestState): void {
    visitor.fields(this);
    this.#order.visitState(visitor);
    this.#stages.visitState(visitor);
    visitor.array(this.#stage);
    visitor.array(this.#base);
    visitor.array(this.#dueAt);
    visitor.array(this.#joined);
    this.#joinedCount = visitor.number(this.#joinedCount);
    this.#clock = visitor.number(this.#clock);
    visitor.value(
      () => this.#states.map((state) => state?.number ?? 0),
      (saved) => {
        for (let seat = 0; seat < saved.length; seat++) {
          this.#states[seat] = saved[seat] === 0 ? null : stateOf(saved[seat]);
        }
      },
    );
  }

  checkIntegrity(): void {
    this.#order.checkIntegrity();
    this.#stages.checkIntegrity();
    let decodes = 0;
    let contextTokens = 0;
    let stalled = 0;
    let joined = 0;
    for (let seat = this.first(); seat !== -1; seat = this.next(seat)) {
      const state = this.state(seat);
      invariant(state.seat === seat, 'a running request knows its seat');
      invariant(this.#joined[seat] > joined, 'the batch is in the order of joining');
      joined = this.#joined[seat];
      stalled += this.isStalled[seat];
      invariant(this.known(seat) < state.limitTokens, 'a running request has tokens to generate');
      invariant(this.computed(seat) < this.known(seat), 'a running request has tokens to compute');
      if (state.phase === Phase.DECODE) {
        decodes++;
        contextTokens += this.computed(seat);
        this.#checkStage(seat, state);
      } else {
        invariant(state.phase === Phase.PREFILL, 'a seat prefills or decodes');
        invariant(this.#stage[seat] === PREFILL, 'a prefilling seat is listed as one');
      }
    }
    invariant(this.#stages.size(FREE) === this.seats - this.size, 'each seat is free or taken');
    invariant(decodes === this.decodes, 'the batch knows how many requests decode');
    invariant(contextTokens === this.decodeContextTokens, 'the batch knows the context of its decodes');
    invariant(stalled === this.stalledCount, 'the batch knows how many seats are stalled');
  }

  #checkStage(seat: number, state: RequestState): void {
    const filled = this.computed(seat) % this.#blockTokens;
    if (this.needsBlock(seat)) {
      invariant(filled === 0, 'a seat that needs a block has filled its last one');
      return;
    }
    const steps = this.#dueAt[seat] - this.#clock;
    const left = Math.min(this.#blockTokens - filled, state.limitTokens - 1 - this.computed(seat));
    invariant(steps === left, 'a decoding seat is due when its block is full or it has ended');
    invariant(this.#stage[seat] === this.#dueList(this.#dueAt[seat]), 'a seat is in the list of its step');
  }
}

// The work of a step: a view on the batch that each `step` fills anew without garbage. Read it between `step` and
// `stepEnded`. Requests go in batch order:
//
//     for (let seat = plan.first(); seat !== -1; seat = plan.next(seat)) run(plan.sequence(seat), ...)
//
// A simulator that needs only sums takes `decodes` and `decodeContextTokens`, and walks the prefills alone.

/** The next step of a `Scheduler`: who runs, with how many tokens, and who was preempted. */
export class StepPlan<R extends ServingRequest = ServingRequest> {
  readonly #batch: Batch;
  /** Requests that joined the batch in this step, in order. */
  readonly admitted: R[] = [];
  /** Requests that were preempted in this step, in order. */
  readonly preempted: R[] = [];
  /** Decoding requests that the step leaves out, because its budget is spent or their blocks are missing. */
  readonly leftOut: R[] = [];
  /** Requests that took blocks in this step, in order: they wait no longer for room. */
  readonly opened: R[] = [];
  /** The next request, where it waits for room in HBM, or for others that wait for room. */
  heldUp: R | undefined;
  /** Tokens computed, over all requests. If 0, there is nothing to execute and `stepEnded` must not be called. */
  tokens = 0;
  /** Requests that compute tokens. */
  requests = 0;
  /** Requests among these that compute the token they sampled last. */
  decodes = 0;
  /** Tokens before that one, over all decodes. */
  decodeContextTokens = 0;

  constructor(batch: Batch) {
    this.#batch = batch;
  }

  /** Requests that compute more than their newest token, or resume. */
  get prefills(): number {
    return this.requests - this.decodes;
  }

  /** The first seat with tokens to compute, or -1. */
  first(): number {
    return this.tokens === 0 ? -1 : this.#withTokens(this.#batch.first());
  }

  next(seat: number): number {
    return this.#withTokens(this.#batch.next(seat));
  }

  /** The first seat with tokens to prefill, or -1. */
  firstPrefill(): number {
    return this.#prefilling(this.#batch.firstPrefill());
  }

  nextPrefill(seat: number): number {
    return this.#prefilling(this.#batch.nextAlike(seat));
  }

  request(seat: number): R {
    return this.#batch.state(seat).request as R;
  }

  /** The request's blocks, for its block table. All that [0, from + tokens) needs are in place. */
  sequence(seat: number): Sequence {
    return this.#batch.state(seat).sequence as Sequence;
  }

  /** Tokens of the request whose KV is in its blocks already: the first token that the step computes. */
  from(seat: number): number {
    return this.#batch.computed(seat);
  }

  /** Tokens of the request that exist, prompt and generated. */
  knownTokensOf(seat: number): number {
    return this.#batch.known(seat);
  }

  /** Tokens that the step computes for the request. */
  tokensOf(seat: number): number {
    return this.#batch.newTokens[seat];
  }

  /** Whether the step computes the request's newest token, so that it samples the next one. */
  samples(seat: number): boolean {
    return this.#batch.computed(seat) + this.#batch.newTokens[seat] === this.#batch.known(seat);
  }

  /** For the scheduler: forgets the last step. */
  clear(): void {
    this.tokens = 0;
    this.requests = 0;
    this.decodes = 0;
    this.decodeContextTokens = 0;
    if (this.admitted.length > 0) this.admitted.length = 0;
    if (this.preempted.length > 0) this.preempted.length = 0;
    if (this.leftOut.length > 0) this.leftOut.length = 0;
    if (this.opened.length > 0) this.opened.length = 0;
    this.heldUp = undefined;
  }

  #withTokens(from: number): number {
    let seat = from;
    while (seat !== -1 && this.#batch.newTokens[seat] === 0) seat = this.#batch.next(seat);
    return seat;
  }

  #prefilling(from: number): number {
    let seat = from;
    while (seat !== -1 && this.#batch.newTokens[seat] === 0) seat = this.#batch.nextAlike(seat);
    return seat;
  }
}

// The changes of a computed step: one object that each `stepEnded` fills anew.

/** The result of a step of a `Scheduler`: requests that have begun to decode and that have ended. */
export class StepOutcome<R extends ServingRequest = ServingRequest> {
  /**
   * Requests that sampled a token at the end of a prefill: their first one, or the first after a preemption.
   */
  readonly started: R[] = [];
  /** Requests that ended, in batch order. */
  readonly finished: R[] = [];
  /** Reason of each end, by index in `finished`. */
  readonly reasons: FinishReason[] = [];
  /** Tokens that the request generated, by index in `finished`. */
  readonly outputTokens: number[] = [];

  /** For the scheduler: forgets the last step. */
  clear(): void {
    if (this.started.length > 0) this.started.length = 0;
    if (this.finished.length === 0) return;
    this.finished.length = 0;
    this.reasons.length = 0;
    this.outputTokens.length = 0;
  }

  /** For the scheduler. */
  noteFinished(state: RequestState<R>, reason: FinishReason): void {
    this.finished.push(state.request);
    this.reasons.push(reason);
    this.outputTokens.push(state.known - state.request.promptTokens);
  }
}
