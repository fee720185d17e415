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

import type { StateVisitor } from '../../runtime/snapshot/index.ts';
import type { Role } from '../control/index.ts';
import type { LatencyModel } from '../latency/index.ts';
import { type RequestTable, Status } from '../metrics/index.ts';
import type { InstanceEngine } from './engine/index.ts';
import {
  type InstanceConfig,
  type InstanceCounters,
  type InstanceHost,
  type InstanceLimits,
  noCounts,
} from './instanceConfig.ts';
import type { SimRequest } from './simRequest.ts';
import { StepBooks } from './stepBooks.ts';
import { TokenTimes } from './tokenTimes.ts';

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
    const { number: row, deadlineUs } = request;
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

  /** A transfer between this instance's tiers is due. */
  transferred(flight: number): void {
    this.engine.transferred(flight);
  }

  /** The request's deadline is over. */
  timeOut(request: SimRequest, nowUs: number): void {
    const status = this.#table.status[request.number];
    if (status !== Status.QUEUED && status !== Status.RUNNING) return;
    this.counters.timedOut++;
    this.remove(request, Status.TIMED_OUT, nowUs);
  }

  /** A request that was to come here ends before it did. */
  giveUp(request: SimRequest, status: Status, nowUs: number): void {
    this.endUs = Math.max(this.endUs, nowUs);
    if (status === Status.TIMED_OUT) this.counters.timedOut++;
    if (status === Status.UNSERVABLE) this.counters.unservable++;
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
    this.engine.abort(request, nowUs);
    this.times.forget(request, this.times.steps - 1);
    this.#end(request, status, nowUs);
    this.wake(nowUs);
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
    const computeUs = this.latency.stepTimeUs(step.sums);
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
    this.#table.status[request.number] = status;
    this.#host.ended(request, this.number, timeUs);
  }

  /** @param requestOf the request of a row */
  visitState(visitor: StateVisitor, requestOf: (row: number) => SimRequest): void {
    this.engine.visitState(visitor, requestOf);
    this.times.visitState(visitor);
    visitor.fields(this.counters);
    visitor.fields(this.recent);
    this.endUs = visitor.number(this.endUs);
    this.#busyUntilUs = visitor.number(this.#busyUntilUs);
    this.#stepAtUs = visitor.number(this.#stepAtUs);
  }
}
