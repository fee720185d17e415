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

import type { PreemptionMode } from '../../runtime/batching/index.ts';
import type { LatencyModel } from '../latency/index.ts';
import { type RequestTable, Status } from '../metrics/index.ts';
import type { WorkloadRequest } from '../workload/index.ts';
import type { Engine, EngineStep, RunningRequest } from './engine.ts';
import { PromptKeys } from './promptKeys.ts';
import { TokenTimes } from './tokenTimes.ts';

/** What an instance asks of the simulation around it. */
export interface InstanceHost {
  /** Last time that the simulation reaches. */
  readonly horizonUs: number;
  scheduleStep(instance: number, timeUs: number): void;
  /** The request ended here; its row says how. `timeUs` is when its last token was there. */
  ended(request: RunningRequest, instance: number, timeUs: number): void;
}

export interface InstanceLimits {
  /** Prompt and output of a request together; 0 for no limit. */
  readonly maxModelTokens: number;
  /** What a request that gives way keeps of its tokens. */
  readonly preemption: PreemptionMode;
}

export interface InstanceCounters {
  inputTokens: number;
  outputTokens: number;
  completed: number;
  unservable: number;
  timedOut: number;
  lengthCapped: number;
  /** Sum of the waiting requests seen by each step. */
  waitingSum: number;
  /** Microseconds in which a step ran. */
  busyUs: number;
  /** Part of `busyUs` in which steps waited for transfers. */
  transferUs: number;
}

export class Instance {
  readonly number: number;
  readonly id: string;
  readonly engine: Engine;
  readonly latency: LatencyModel;
  readonly limits: InstanceLimits;
  readonly times: TokenTimes;
  readonly counters: InstanceCounters = {
    inputTokens: 0,
    outputTokens: 0,
    completed: 0,
    unservable: 0,
    timedOut: 0,
    lengthCapped: 0,
    waitingSum: 0,
    busyUs: 0,
    transferUs: 0,
  };
  /** Time of the last thing that happened here. */
  endUs = 0;
  readonly #table: RequestTable;
  readonly #host: InstanceHost;
  readonly #keys: PromptKeys;
  /** When the running step ends. */
  #busyUntilUs = 0;
  /** When the next step begins, or -1 when none is scheduled. */
  #stepAtUs = -1;
  /** Whether the engine forms a step now: what becomes free meanwhile is part of it. */
  #isStepping = false;

  constructor(
    number: number,
    id: string,
    engine: Engine,
    latency: LatencyModel,
    limits: InstanceLimits,
    blockTokens: number,
    table: RequestTable,
    host: InstanceHost,
  ) {
    this.number = number;
    this.id = id;
    this.engine = engine;
    this.latency = latency;
    this.limits = limits;
    this.times = new TokenTimes(latency.outputTokenProcessingUs);
    this.#table = table;
    this.#host = host;
    this.#keys = new PromptKeys(blockTokens);
  }

  /** The request as this instance runs it. */
  runningRequest(workload: WorkloadRequest, row: number, priority: number): RunningRequest {
    return {
      id: workload.id,
      promptTokens: workload.inputTokens,
      maxOutputTokens: workload.outputTokens,
      keys: this.#keys.keysOf(workload, row),
      priority,
      arrivalUs: workload.arrivalUs,
      workload,
      row,
      startedStep: -1,
      lastTokenUs: -1,
      gapUs: 0,
      gaps: 0,
      skipped: null,
    };
  }

  /** The request has passed the queueing time and waits for the batch, unless it can never run. */
  enqueue(request: RunningRequest, nowUs: number): void {
    this.endUs = Math.max(this.endUs, nowUs);
    const { row, workload } = request;
    if (!this.canServe(request)) {
      this.counters.unservable++;
      this.#end(request, Status.UNSERVABLE, nowUs);
      return;
    }
    this.counters.inputTokens += request.promptTokens;
    if (workload.deadlineUs > 0 && workload.deadlineUs <= nowUs) {
      this.counters.timedOut++;
      this.#end(request, Status.TIMED_OUT, nowUs);
      return;
    }
    this.#table.status[row] = Status.QUEUED;
    this.engine.add(request, nowUs);
    this.wake(nowUs);
  }

  /** Whether prompt and output fit the model's length and the prompt fits HBM. */
  canServe({ promptTokens, maxOutputTokens }: RunningRequest): boolean {
    const { maxModelTokens } = this.limits;
    if (maxModelTokens > 0 && promptTokens + Math.max(maxOutputTokens, 1) > maxModelTokens) return false;
    return promptTokens <= this.engine.capacityBlocks * this.blockTokens;
  }

  get blockTokens(): number {
    return this.#keys.blockTokens;
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
  timeOut(request: RunningRequest, nowUs: number): void {
    const status = this.#table.status[request.row];
    if (status !== Status.QUEUED && status !== Status.RUNNING) return;
    this.counters.timedOut++;
    this.remove(request, Status.TIMED_OUT, nowUs);
  }

  /** Takes a request out before its end. */
  remove(request: RunningRequest, status: Status, nowUs: number): void {
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
    if (step === null) return;
    const durationUs = Math.max(1, this.latency.stepTimeUs(step.sums) + step.transferUs);
    const endUs = nowUs + durationUs;
    const { counters } = this;
    counters.busyUs += durationUs;
    counters.transferUs += step.transferUs;
    counters.waitingSum += this.engine.waitingCount;
    for (let i = 0; i < step.preempted.length; i++) this.#giveWay(step.preempted[i]);
    for (let i = 0; i < step.admitted.length; i++) this.#admitted(step.admitted[i], nowUs);
    this.times.note(endUs, step.sums.decodeRequests);
    const number = this.times.steps - 1;
    for (let i = 0; i < step.leftOut.length; i++) {
      const request = step.leftOut[i];
      if (request.skipped === null) request.skipped = [];
      request.skipped.push(number);
    }
    for (let i = 0; i < step.started.length; i++) this.#firstToken(step.started[i], number, endUs);
    if (step.finished.length > 0) this.#finish(step, number, endUs);
    this.#busyUntilUs = endUs;
    if (endUs <= this.#host.horizonUs) this.endUs = Math.max(this.endUs, endUs);
    if (this.engine.waitingCount + this.engine.runningCount > 0) {
      this.#stepAtUs = endUs;
      this.#host.scheduleStep(this.number, endUs);
    }
  }

  #admitted(request: RunningRequest, nowUs: number): void {
    this.#table.status[request.row] = Status.RUNNING;
    this.#table.schedulingDelayUs[request.row] = nowUs - request.arrivalUs;
  }

  #giveWay(request: RunningRequest): void {
    this.#table.status[request.row] = Status.QUEUED;
    this.#table.preemptions[request.row]++;
    const last = this.times.steps - 1;
    if (this.limits.preemption !== 'restart') {
      this.times.settle(request, last);
      return;
    }
    this.times.forget(request, last);
  }

  #firstToken(request: RunningRequest, step: number, endUs: number): void {
    request.startedStep = step;
    if (request.lastTokenUs !== -1) {
      this.times.resume(request, endUs);
      return;
    }
    const seenUs = endUs + this.latency.outputTokenProcessingUs;
    this.#table.firstTokenUs[request.row] = seenUs - request.arrivalUs;
  }

  #finish(step: EngineStep, number: number, endUs: number): void {
    const table = this.#table;
    for (let i = 0; i < step.finished.length; i++) {
      const request = step.finished[i];
      const { row } = request;
      const generated = step.outputTokens[i];
      this.times.settle(request, number);
      if (generated < request.maxOutputTokens) this.counters.lengthCapped++;
      this.counters.completed++;
      this.counters.outputTokens += generated;
      table.generatedTokens[row] = generated;
      table.gapUs[row] = request.gapUs;
      const { postDecodeOverheadUs } = this.latency;
      const overheadUs = request.maxOutputTokens > 0 ? postDecodeOverheadUs : 0;
      table.e2eUs[row] = table.firstTokenUs[row] + request.gapUs + overheadUs;
      this.#end(request, Status.COMPLETED, endUs);
    }
  }

  #end(request: RunningRequest, status: Status, timeUs: number): void {
    this.#table.status[request.row] = status;
    this.#host.ended(request, this.number, timeUs);
  }
}
