/**
 * What an instance needs of an engine: it takes requests, and forms and settles one step at a time. The one
 * engine of the simulator is `SchedulerEngine`, the real scheduler on the real manager; the interface lets
 * tests put a model of another simulator's engine under the same instance, cluster and metrics.
 */

import type { ServingRequest } from '../../runtime/batching/index.ts';
import type { BatchSums } from '../latency/index.ts';
import type { WorkloadRequest } from '../workload/index.ts';

/** A request as an instance runs it, with what its metrics are made of. */
export interface RunningRequest extends ServingRequest {
  readonly workload: WorkloadRequest;
  /** Row of the request table. */
  readonly row: number;
  readonly arrivalUs: number;
  readonly priority: number;
  /** Step that sampled the first token since the request last joined the batch, or -1. */
  startedStep: number;
  /** End of the last token before that, or -1: for a request that goes on after a preemption. */
  lastTokenUs: number;
  /** Sum and number of the gaps between tokens, but for those since `startedStep`. */
  gapUs: number;
  gaps: number;
  /** Steps since `startedStep` that left the request out, in order. */
  skipped: number[] | null;
}

/** One step: what it computes, and what comes of it. The engine fills one object again and again. */
export interface EngineStep<R extends RunningRequest = RunningRequest> {
  /** What the latency model is asked. */
  readonly sums: BatchSums;
  /** Transfers that the step waits for, in microseconds. */
  readonly transferUs: number;
  /** Requests that joined the batch, in order. */
  readonly admitted: readonly R[];
  /** Requests that gave way, in order. */
  readonly preempted: readonly R[];
  /** Decoding requests that the step leaves out. */
  readonly leftOut: readonly R[];
  /** Requests that sample a token at the end of a prefill. */
  readonly started: readonly R[];
  /** Requests that end with the step, in batch order. */
  readonly finished: readonly R[];
  /** By index in `finished`: tokens generated. */
  readonly outputTokens: readonly number[];
}

export interface EngineCounters {
  /** Blocks that admitted requests found, by tier from HBM down. */
  readonly hits: readonly number[];
  /** Blocks that were opened to be computed. */
  readonly openedBlocks: number;
  readonly preemptions: number;
}

export interface Engine {
  readonly capacityBlocks: number;
  /** Blocks that requests hold. */
  readonly usedBlocks: number;
  /** Requests outside the batch. */
  readonly waitingCount: number;
  readonly runningCount: number;
  /** Whether an emptied engine may begin a step while its last one still runs. */
  readonly overlapsLastStep: boolean;
  readonly counters: EngineCounters;
  add(request: RunningRequest, nowUs: number): void;
  /** Ends a request, wherever it is. */
  abort(request: RunningRequest, nowUs: number): void;
  /**
   * Forms the next step and settles it: what it computes is decided when it begins, so what comes of it is
   * too. Null when there is nothing to compute now.
   */
  step(nowUs: number): EngineStep | null;
  /** Leading blocks of the request's prompt that are cached here, in any tier. Changes nothing. */
  cachedBlocks(request: RunningRequest): number;
  /** A transfer of the modeled driver is due. */
  transferred(flight: number): void;
  checkIntegrity(): void;
}
