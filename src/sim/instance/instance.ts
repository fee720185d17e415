/**
 * One simulated engine: requests come in, steps go by, tokens come out. It takes its time from the latency
 * model and its decisions from the engine, and asks its host for events; it holds no clock and no queue of
 * its own.
 *
 *     arrive --queueing time--> enqueue --> step, step, ... --> completed
 *
 * A step is settled when it begins, since nothing that happens while it runs changes what it computes; its
 * tokens carry the time of its end.
 */

import type { PreemptionMode } from '../../runtime/batching/config.ts';
import type { StateVisitor } from '../../runtime/snapshot.ts';
import type { Role } from '../control/policy.ts';
import type { LatencyModel } from '../latency/latencyModel.ts';
import { SpeculativeSteps } from '../latency/speculation.ts';
import { type RequestTable, Status } from '../metrics/requestTable.ts';
import type { EngineStep, InstanceEngine } from './engine.ts';
import { type SimRequest, TokenTimes } from './simRequest.ts';

export class Instance {
  readonly number: number;
  readonly id: string;
  readonly role: Role;
  readonly model: string;
  readonly configId: string;
  readonly engine: InstanceEngine;
  readonly latency: LatencyModel;
  readonly limits: InstanceLimits;
  readonly blockTokens: number;
  readonly times: TokenTimes;
  readonly counters: InstanceCounters = noCounts();
  /** Factor on the time of a step that begins now, while the instance warms up; null for none ever. */
  slowdown: ((nowUs: number) => number) | null = null;
  /** Time of the last thing that happened here. */
  endUs = 0;
  readonly #table: RequestTable;
  readonly #host: InstanceHost;
  readonly #books: StepBooks;
  /** Null where the engine does not speculate. */
  readonly #speculative: SpeculativeSteps | null;
  /** When the running step ends. */
  #busyUntilUs = 0;
  /** When the next step begins, or -1 when none is scheduled. */
  #stepAtUs = -1;
  /** Steps of which everything is written down. */
  #settledSteps = 0;
  /** Whether the engine forms a step now: what becomes free meanwhile is part of it. */
  #isStepping = false;

  constructor(
    number: number,
    config: InstanceConfig,
    engine: InstanceEngine,
    table: RequestTable,
    host: InstanceHost,
  ) {
    this.number = number;
    this.id = config.id;
    this.role = config.role;
    this.model = config.model;
    this.configId = config.configId;
    this.engine = engine;
    this.latency = config.latency;
    this.limits = config.limits;
    this.blockTokens = config.blockTokens;
    this.times = new TokenTimes(config.latency.outputTokenProcessingUs);
    this.#table = table;
    this.#host = host;
    const { limits, latency } = config;
    const { speculation } = latency;
    this.#speculative = speculation === undefined ? null : new SpeculativeSteps(latency, speculation, number);
    this.#books = new StepBooks(number, limits, latency, this.times, this.counters, table, host);
  }

  /** Means in which the newest completed requests weigh most, 0 before the first. */
  get recent(): { readonly ttftUs: number; readonly tpotUs: number } {
    return this.#books.recent;
  }

  /** Grows with whatever changes a report of this instance; -1 where its engine does not count. */
  get changes(): number {
    const { changes } = this.engine;
    return changes === undefined ? -1 : changes + this.#settledSteps;
  }

  /** The request has passed the queueing time and waits for the batch, unless it can never run. */
  enqueue(request: SimRequest, nowUs: number): void {
    this.endUs = Math.max(this.endUs, nowUs);
    const { number: row, deadlineUs, cancelUs } = request;
    if (!this.canServe(request)) {
      this.counters.unservable++;
      this.#end(request, Status.UNSERVABLE, nowUs);
      return;
    }
    if (request.part !== 'decode') this.counters.inputTokens += request.promptTokens;
    if (deadlineUs > 0 && deadlineUs <= nowUs) {
      this.counters.timedOut++;
      this.#end(request, Status.TIMED_OUT, nowUs);
      return;
    }
    if (cancelUs > 0 && cancelUs <= nowUs) {
      this.counters.cancelled++;
      this.#end(request, Status.CANCELLED, nowUs);
      return;
    }
    this.#table.status[row] = Status.QUEUED;
    this.engine.add(request, nowUs);
    this.wake(nowUs);
  }

  /** Whether prompt and output fit the model's length and the prompt fits HBM. */
  canServe({ promptTokens, maxOutputTokens }: SimRequest): boolean {
    const { maxModelTokens } = this.limits;
    if (maxModelTokens > 0 && promptTokens + Math.max(maxOutputTokens, 1) > maxModelTokens) return false;
    return promptTokens <= this.engine.capacityBlocks * this.blockTokens;
  }

  /** Something changed that may let a step begin. */
  wake(nowUs: number): void {
    if (this.#stepAtUs !== -1 || this.#isStepping) return;
    const busy = this.engine.overlapsLastStep ? nowUs : Math.max(nowUs, this.#busyUntilUs);
    this.#stepAtUs = busy;
    this.#host.scheduleStep(this.number, busy);
  }

  /** The request's deadline is over. */
  timeOut(request: SimRequest, nowUs: number): void {
    const status = this.#table.status[request.number];
    if (status !== Status.QUEUED && status !== Status.RUNNING) return;
    this.counters.timedOut++;
    this.remove(request, Status.TIMED_OUT, nowUs);
  }

  /** Its user gives the request up: its blocks are free when the step that runs has ended. */
  cancel(request: SimRequest, nowUs: number): void {
    const status = this.#table.status[request.number];
    if (status !== Status.QUEUED && status !== Status.RUNNING) return;
    this.counters.cancelled++;
    this.remove(request, Status.CANCELLED, nowUs);
  }

  /** A request that was to come here ends before it did. */
  giveUp(request: SimRequest, status: Status, nowUs: number): void {
    this.endUs = Math.max(this.endUs, nowUs);
    if (status === Status.TIMED_OUT) this.counters.timedOut++;
    if (status === Status.UNSERVABLE) this.counters.unservable++;
    if (status === Status.CANCELLED) this.counters.cancelled++;
    this.#end(request, status, nowUs);
  }

  /** A request that waits here goes on elsewhere. */
  release(request: SimRequest, nowUs: number): void {
    this.engine.abort(request, nowUs);
    this.times.forget(request, this.times.steps - 1);
    this.counters.inputTokens -= request.promptTokens;
  }

  /** Takes a request out before its end. */
  remove(request: SimRequest, status: Status, nowUs: number): void {
    this.endUs = Math.max(this.endUs, nowUs);
    this.leave(request);
    this.engine.abort(request, nowUs);
    this.#end(request, status, nowUs);
    this.wake(nowUs);
  }

  /** The request will not complete; its row keeps the tokens so far. */
  leave(request: SimRequest): void {
    this.#table.generatedTokens[request.number] = this.engine.generatedOf(request);
    this.times.forget(request, this.times.steps - 1);
  }

  /** The scheduled step begins. */
  step(nowUs: number): void {
    this.#stepAtUs = -1;
    this.endUs = Math.max(this.endUs, nowUs);
    if (this.engine.waitingCount + this.engine.runningCount === 0) return;
    this.#isStepping = true;
    const step = this.engine.step(nowUs);
    this.#isStepping = false;
    this.#books.gaveWay(step.preempted);
    if (step.sums.tokens === 0) return;
    const computeUs = (this.#speculative ?? this.latency).stepTimeUs(step.sums);
    const slowedUs = this.slowdown === null ? computeUs : Math.ceil(computeUs * this.slowdown(nowUs));
    const durationUs = Math.max(1, slowedUs + step.transferUs);
    const endUs = nowUs + durationUs;
    const { counters } = this;
    counters.busyUs += durationUs;
    counters.transferUs += step.transferUs;
    counters.waitingSum += this.engine.waitingCount;
    this.#host.stepped(this.number, nowUs, endUs, step);
    this.#books.admitted(step.admitted, nowUs);
    this.times.note(endUs, step.sums.decodeRequests);
    this.#books.settled(step, this.times.steps - 1, endUs);
    this.#settledSteps++;
    this.#busyUntilUs = endUs;
    if (endUs <= this.#host.horizonUs) this.endUs = Math.max(this.endUs, endUs);
    if (this.engine.waitingCount + this.engine.runningCount > 0) {
      this.#stepAtUs = endUs;
      this.#host.scheduleStep(this.number, endUs);
    }
  }

  #end(request: SimRequest, status: Status, timeUs: number): void {
    // blocks may be on their way for a request that ends before it is queued
    if (this.#table.status[request.number] === Status.ARRIVED) this.engine.letGo(request, timeUs);
    this.#table.status[request.number] = status;
    this.#host.ended(request, this.number, timeUs);
  }

  /** @param requestOf the request of a row */
  visitState(visitor: StateVisitor, requestOf: (row: number) => SimRequest): void {
    this.engine.visitState(visitor, requestOf);
    this.times.visitState(visitor);
    this.#speculative?.visitState(visitor);
    visitor.fields(this.counters);
    visitor.fields(this.recent);
    this.endUs = visitor.number(this.endUs);
    this.#busyUntilUs = visitor.number(this.#busyUntilUs);
    this.#stepAtUs = visitor.number(this.#stepAtUs);
  }
}

//  Parts of an instance, the simulation around it, and its counters.

/** The simulation around an instance, as the instance sees it. */
export interface InstanceHost {
  /** Last time that the simulation reaches. */
  readonly horizonUs: number;
  scheduleStep(instance: number, timeUs: number): void;
  stepped(instance: number, startUs: number, endUs: number, step: EngineStep): void;
  /** A request gave its blocks up. */
  gaveWay(request: SimRequest, instance: number): void;
  /** The request joined the batch. */
  admitted(request: SimRequest, instance: number): void;
  /** Its first token is on its way. */
  started(request: SimRequest, instance: number): void;
  /** `tokens` of a prompt that goes to another instance are computed at `timeUs`, the end of a step. */
  computed(request: SimRequest, instance: number, tokens: number, timeUs: number): void;
  /** Its prompt is computed, and its output is another instance's. `timeUs` is the end of that step. */
  prefilled(request: SimRequest, instance: number, timeUs: number): void;
  /** The request ended here; its row says how. `timeUs` is when its last token was there. */
  ended(request: SimRequest, instance: number, timeUs: number): void;
}

export interface InstanceLimits {
  /** Prompt and output of a request together; 0 for no limit. */
  readonly maxModelTokens: number;
  /** Most requests in the batch. */
  readonly maxSequences: number;
  /** Tokens that a preempted request keeps. */
  readonly preemption: PreemptionMode;
}

/** Configuration of an instance beside its engine. */
interface InstanceConfig {
  readonly id: string;
  readonly role: Role;
  /** Model that it serves, '' for any. */
  readonly model: string;
  /** Deployment configuration that it belongs to. */
  readonly configId: string;
  readonly blockTokens: number;
  readonly latency: LatencyModel;
  readonly limits: InstanceLimits;
}

interface InstanceCounters {
  inputTokens: number;
  outputTokens: number;
  completed: number;
  unservable: number;
  timedOut: number;
  /** Given up by their users. */
  cancelled: number;
  lengthCapped: number;
  /** Sum of the waiting requests seen by each step. */
  waitingSum: number;
  /** Microseconds in which a step ran. */
  busyUs: number;
  /** Part of `busyUs` in which steps waited for transfers. */
  transferUs: number;
}

function noCounts(): InstanceCounters {
  return {
    inputTokens: 0,
    outputTokens: 0,
    completed: 0,
    unservable: 0,
    timedOut: 0,
    cancelled: 0,
    lengthCapped: 0,
    waitingSum: 0,
    busyUs: 0,
    transferUs: 0,
  };
}

// Effects of a step on the rows of its requests: joined the batch, preempted, got a first token, done, and the
// times at which their clients saw that.

/** Weight of a new value in the running means of an instance. */
const RECENT_WEIGHT = 0.1;

class StepBooks {
  /** Means in which the newest completed requests weigh most, 0 before the first. */
  readonly recent: { ttftUs: number; tpotUs: number } = { ttftUs: 0, tpotUs: 0 };
  readonly #instance: number;
  readonly #limits: InstanceLimits;
  readonly #latency: LatencyModel;
  readonly #times: TokenTimes;
  readonly #counters: InstanceCounters;
  readonly #table: RequestTable;
  readonly #host: InstanceHost;

  constructor(
    instance: number,
    limits: InstanceLimits,
    latency: LatencyModel,
    times: TokenTimes,
    counters: InstanceCounters,
    table: RequestTable,
    host: InstanceHost,
  ) {
    this.#instance = instance;
    this.#limits = limits;
    this.#latency = latency;
    this.#times = times;
    this.#counters = counters;
    this.#table = table;
    this.#host = host;
  }

  gaveWay(preempted: readonly SimRequest[]): void {
    for (let i = 0; i < preempted.length; i++) this.#gaveWay(preempted[i]);
  }

  /** The step begins at `nowUs`. */
  admitted(admitted: readonly SimRequest[], nowUs: number): void {
    for (let i = 0; i < admitted.length; i++) this.#admitted(admitted[i], nowUs);
  }

  /** Settles the step of that number, which ends at `endUs`. */
  settled(step: EngineStep, number: number, endUs: number): void {
    const { leftOut, leaving, leavingTokens, started, finished, outputTokens } = step;
    for (let i = 0; i < leftOut.length; i++) (leftOut[i].skipped ??= []).push(number);
    for (let i = 0; i < started.length; i++) this.#firstToken(started[i], number, endUs);
    for (let i = 0; i < finished.length; i++) {
      const request = finished[i];
      if (request.part === 'prefill') this.#prefilled(request, endUs);
      else this.#completed(request, outputTokens[i], number, endUs);
    }
    // prompts that are done go first
    for (let i = 0; i < leaving.length; i++) {
      this.#host.computed(leaving[i], this.#instance, leavingTokens[i], endUs);
    }
  }

  #admitted(request: SimRequest, nowUs: number): void {
    this.#table.status[request.number] = Status.RUNNING;
    // a request that goes on after a preemption has its first token already
    if (request.part !== 'decode' && request.lastTokenUs === -1) {
      this.#table.schedulingDelayUs[request.number] = nowUs - request.arrivalUs;
    }
    this.#host.admitted(request, this.#instance);
  }

  #gaveWay(request: SimRequest): void {
    this.#host.gaveWay(request, this.#instance);
    this.#table.status[request.number] = Status.QUEUED;
    this.#table.preemptions[request.number]++;
    const last = this.#times.steps - 1;
    if (this.#limits.preemption === 'restart') this.#times.forget(request, last);
    else this.#times.pause(request, last);
  }

  #firstToken(request: SimRequest, step: number, endUs: number): void {
    if (request.part === 'prefill') return;
    request.startedStep = step;
    if (request.lastTokenUs !== -1) {
      this.#times.resume(request, endUs);
      return;
    }
    const seenUs = endUs + this.#latency.outputTokenProcessingUs;
    this.#table.firstTokenUs[request.number] = seenUs - request.arrivalUs;
    this.#host.started(request, this.#instance);
  }

  #prefilled(request: SimRequest, endUs: number): void {
    request.startedStep = -1;
    this.#table.status[request.number] = Status.HANDED_OFF;
    this.#host.prefilled(request, this.#instance, endUs);
  }

  #completed(request: SimRequest, generated: number, number: number, endUs: number): void {
    const table = this.#table;
    const { number: row } = request;
    this.#times.settle(request, number);
    if (generated < request.maxOutputTokens) this.#counters.lengthCapped++;
    this.#counters.completed++;
    this.#counters.outputTokens += generated;
    table.generatedTokens[row] = generated;
    table.gapUs[row] = request.gapUs;
    const overheadUs = request.maxOutputTokens > 0 ? this.#latency.postDecodeOverheadUs : 0;
    table.e2eUs[row] = table.firstTokenUs[row] + request.gapUs + overheadUs;
    this.#remember(table.firstTokenUs[row], table.meanGapUs(row));
    table.status[row] = Status.COMPLETED;
    this.#host.ended(request, this.#instance, endUs);
  }

  #remember(ttftUs: number, tpotUs: number): void {
    const { recent } = this;
    const weight = this.#counters.completed === 1 ? 1 : RECENT_WEIGHT;
    recent.ttftUs += weight * (ttftUs - recent.ttftUs);
    recent.tpotUs += weight * (tpotUs - recent.tpotUs);
  }
}
