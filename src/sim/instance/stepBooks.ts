/**
 * What a step means for the rows of its requests: who joined the batch, gave way, got a first token or is
 * done, and when its client saw that.
 */

import type { LatencyModel } from '../latency/index.ts';
import { type RequestTable, Status } from '../metrics/index.ts';
import type { EngineStep } from './engine/index.ts';
import type { InstanceCounters, InstanceHost, InstanceLimits } from './instanceConfig.ts';
import type { SimRequest } from './simRequest.ts';
import type { TokenTimes } from './tokenTimes.ts';

/** Weight of a new value in the running means of an instance. */
const RECENT_WEIGHT = 0.1;

export class StepBooks {
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

  /** What comes of the step of that number, which ends at `endUs`. */
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
