/**
 * Upstream's clock: requests are queued after their queueing time, a step takes the time of the model that
 * the traces were made with, and the next step follows at its end. As upstream does, it settles a step at its
 * start; so when nothing is left the next request starts a step at once, though the last one still runs. Any
 * engine runs on it: the real scheduler, or a model of upstream's.
 */

import { type BatchedRequest, type LatencyModel, sumBatch } from '../../src/sim/latency/latencyModel.ts';
import { modelOn } from '../sim/latency/setups.ts';
import type { StepRow, StepTrace, TraceRequest } from './stepTrace.ts';

export interface PlannedStep {
  readonly batch: readonly BatchedRequest[];
  readonly waitq: readonly string[];
  /** Transfers that the step waits for. Default 0. */
  readonly transferUs?: number;
}

export interface StepState extends Omit<StepRow, 't' | 'waitq'> {
  readonly hasMore: boolean;
}

export interface TraceEngine {
  enqueue(request: TraceRequest, nowUs: number): void;
  plan(nowUs: number): PlannedStep;
  end(nowUs: number): StepState;
}

/** The model that the traces were made with. */
const model: LatencyModel = modelOn(
  'trained-physics',
  { model: 'llama-3.1-8b-instruct', tp: 1, dp: 1 },
  false,
);

export function runTrace(trace: StepTrace, engine: TraceEngine): StepRow[] {
  return runTimed(trace, engine).rows;
}

/** The rows, and when each step ended. */
export function runTimed(trace: StepTrace, engine: TraceEngine): { rows: StepRow[]; endsUs: number[] } {
  const queued = trace.requests
    .map((request, i) => ({
      request,
      i,
      at: request.arrival + model.queueingTimeUs(request.input.length),
    }))
    .sort((a, b) => a.at - b.at || a.i - b.i);
  const rows: StepRow[] = [];
  const endsUs: number[] = [];
  let next = 0;
  let nowUs = 0;
  let hasMore = false;
  while (hasMore || next < queued.length) {
    if (!hasMore) nowUs = queued[next].at;
    for (; next < queued.length && queued[next].at <= nowUs; next++) {
      engine.enqueue(queued[next].request, queued[next].at);
    }
    const { batch, waitq, transferUs } = engine.plan(nowUs);
    const { hasMore: more, batch_after, used, hit_rate, preempt, done } = engine.end(nowUs);
    hasMore = more;
    rows.push({ t: nowUs, batch_after, waitq, used, hit_rate, preempt, done });
    nowUs += Math.max(1, model.stepTimeUs(sumBatch(batch)) + (transferUs ?? 0));
    endsUs.push(nowUs);
  }
  return { rows, endsUs };
}
