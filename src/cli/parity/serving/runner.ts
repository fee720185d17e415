/**
 * Who serves the traffic of a parity run on the real runtime. A runner opens a runtime with a decision log,
 * serves every request on `kv.scheduler()`, and says when their tokens came. All else follows from the log:
 * the configuration, the transfers, what was found. The runtime has to be opened without `migration`, whose
 * moves come from outside the manager and the scheduler.
 *
 * `StandIn` takes the times of steps from a latency model. An engine that computes is another runner: it
 * gives a latency model of its steps, for instance one fitted to them.
 */

import type { LatencyModel } from '../../../sim/latency/index.ts';
import type { Traffic } from './traffic.ts';

export interface RunnerJob {
  readonly traffic: Traffic;
  /** Where the runtime writes its decision log. */
  readonly logPath: string;
  readonly signal: AbortSignal;
  notice(line: string): void;
  /** Requests that have ended. */
  progress(done: number): void;
}

/** One request as its client saw it; times in microseconds of the traffic. */
export interface ServedRequest {
  /** Of `requestKey`: the same in any run of the traffic. */
  readonly key: string;
  readonly arrivalUs: number;
  readonly firstTokenUs: number;
  readonly lastTokenUs: number;
  readonly outputTokens: number;
}

export interface RealRun {
  readonly requests: readonly ServedRequest[];
  /** How long a step takes, for the prediction. */
  readonly latency: LatencyModel;
  /**
   * Median of what a step took longer than that: planning, handing in, timers. A rehearsal measures it for
   * the run. Default 0.
   */
  readonly stepOverheadUs?: number;
  /** What `latency` is, for the report. Default: the latency model of the options. */
  readonly latencyName?: string;
  readonly adapter: { readonly name: string; readonly software: boolean };
  /** Blocks that came up with wrong bytes: none, or the hardware is at fault. */
  readonly wrongBlocks: number;
  /** Steps that a lost device undid. */
  readonly interruptedSteps: number;
}

export interface ParityRunner {
  /** What served, for the report. */
  readonly name: string;
  run(job: RunnerJob): Promise<RealRun>;
}
