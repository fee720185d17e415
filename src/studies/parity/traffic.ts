/**
 * The traffic of a parity run: requests in order of arrival, and follow-ups of ended ones. It is opened
 * once for the real runtime and once for the simulator, and gives both the same requests. Deadlines are left
 * out: a request that takes longer is an answer here, no failure.
 */

import type { SimulatedWorkload } from '../../sim/cluster/parts.ts';
import { parseWorkloadSpec } from '../../sim/description/readWorkload.ts';
import type { WorkloadSpec } from '../../sim/description/workloadSpec.ts';
import type { LatencyModel } from '../../sim/latency/latencyModel.ts';
import { SessionManager } from '../../sim/workload/closedLoop.ts';
import type { WorkloadRequest } from '../../sim/workload/request.ts';
import { TokenReader, VOCABULARY } from '../../sim/workload/tokens.ts';

export interface ServedTraffic {
  /** From the first request on. */
  open(): SimulatedWorkload;
  /** Requests that are known before the run. */
  readonly expected: number;
}

/** @param speed how many times as fast requests of the stream arrive */
export function trafficOf(open: () => SimulatedWorkload, speed: number): ServedTraffic {
  const paced = (): SimulatedWorkload => {
    const workload = open();
    const { stream } = workload;
    return {
      ...workload,
      stream: {
        next() {
          const request = stream.next();
          if (request === undefined) return undefined;
          return { ...request, arrivalUs: Math.floor(request.arrivalUs / speed), deadlineUs: 0 };
        },
      },
    };
  };
  let expected = 0;
  const { stream, sessions } = paced();
  while (stream.next() !== undefined) expected++;
  for (const kind of sessions?.kindOf ?? []) {
    const rounds = sessions?.kinds[kind].maxRounds ?? 1;
    if (Number.isFinite(rounds)) expected += rounds - 1;
  }
  return { open: paced, expected };
}

/** A name that a request has in every run. Ids of follow-ups differ, since they depend on the order of ends. */
export function requestKey(id: string, sessionId: string, round: number): string {
  return sessionId === '' ? id : `${sessionId}/${round}`;
}

/** Requests that are still to come, the earliest first. */
export class Arrivals {
  readonly #stream: SimulatedWorkload['stream'];
  readonly #sessions: SessionManager | null;
  readonly #followUps: WorkloadRequest[] = [];
  #next: WorkloadRequest | undefined;

  constructor({ stream, sessions }: SimulatedWorkload) {
    this.#stream = stream;
    this.#sessions = sessions === undefined ? null : new SessionManager(sessions);
    this.#next = stream.next();
  }

  /** When the next request arrives; Infinity when none is to come. */
  get timeUs(): number {
    return Math.min(this.#next?.arrivalUs ?? Infinity, this.#followUps[0]?.arrivalUs ?? Infinity);
  }

  /** The next request, which has to be there. Of equal times those of the stream go first. */
  take(): WorkloadRequest {
    const waiting = this.#next;
    if (waiting !== undefined && waiting.arrivalUs <= (this.#followUps[0]?.arrivalUs ?? Infinity)) {
      this.#next = this.#stream.next();
      return waiting;
    }
    return this.#followUps.shift() as WorkloadRequest; // `timeUs` was finite
  }

  /** A request is complete: its session may go on. */
  ended(request: WorkloadRequest, outputTokens: number, timeUs: number): void {
    const end = { outcome: 'completed', timeUs, contextTokens: outputTokens } as const;
    const following = this.#sessions?.next(request, end);
    if (following === undefined) return;
    const behind = this.#followUps.findIndex(({ arrivalUs }) => arrivalUs > following.arrivalUs);
    this.#followUps.splice(behind === -1 ? this.#followUps.length : behind, 0, following);
  }
}

/** Token ids of prompts and answers: equal where the simulator takes tokens for equal, and nowhere else. */
export class TokenIds {
  readonly #reader: TokenReader = new TokenReader();

  /** @param own tells the request from all others */
  prompt(request: WorkloadRequest, own: number): Int32Array {
    return this.#read(request, 'prompt', request.inputTokens, own);
  }

  output(request: WorkloadRequest, own: number): Int32Array {
    return this.#read(request, 'output', request.outputTokens, own);
  }

  #read(request: WorkloadRequest, side: 'prompt' | 'output', tokens: number, own: number): Int32Array {
    const identity = request[side];
    if (identity.kind === 'text') return Int32Array.from(new TextEncoder().encode(identity.text));
    const ids = this.#reader[side](request).slice(0, tokens);
    if (identity.kind !== 'blocks') return ids;
    // what lies behind the last block that a trace names belongs to this request alone
    let known = 0;
    for (let i = 1; i < identity.runs.length; i += 2) known += identity.runs[i] * identity.blockTokens;
    for (let at = known; at < tokens; at++) {
      ids[at] = (Math.imul(own + 1, 0x9e37_79b1) ^ Math.imul(at + 1, 0x85eb_ca6b)) >>> 0;
      ids[at] = (ids[at] >>> 0) % VOCABULARY;
    }
    return ids;
  }
}

// The traffic of a parity run that names none: conversations that come back after others have pushed their
// blocks down, behind a system prompt that all share. Half a minute of it uses every tier of the default
// sizes.

const text = `version: "2"
seed: 42
aggregate_rate: 2
clients:
  - id: talk
    rate_fraction: 1
    arrival: {process: poisson}
    prefix_group: system
    prefix_length: 256
    input_distribution: {type: gaussian, params: {mean: 300, std_dev: 120, min: 60, max: 700}}
    output_distribution: {type: gaussian, params: {mean: 40, std_dev: 12, min: 10, max: 80}}
    reasoning:
      multi_turn: {max_rounds: 4, think_time_us: 6000000, context_growth: accumulate}
`;

export function defaultSpec(): WorkloadSpec {
  return parseWorkloadSpec(text, 'the default traffic');
}

// Who serves the traffic of a parity run on the real runtime. A runner opens a runtime with a decision log,
// serves every request on `kv.scheduler()`, and says when their tokens came. All else follows from the log:
// the configuration, the transfers, what was found. The runtime has to be opened without `migration`, whose
// moves come from outside the manager and the scheduler.
//
// `StandIn` takes the times of steps from a latency model. An engine that computes is another runner: it
// gives a latency model of its steps, for instance one fitted to them.

export interface RunnerJob {
  readonly traffic: ServedTraffic;
  /** Where the runtime writes its decision log. */
  readonly logPath: string;
  readonly signal: AbortSignal;
  notice(line: string): void;
  /** Requests that have ended. */
  progress(done: number): void;
}

/** One request as its client saw it; times in microseconds of the traffic. */
export interface ServedRequest {
  /** The `requestKey`, the same in any run of the traffic. */
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
  /** Name of `latency` for the report. Default: the latency model of the options. */
  readonly latencyName?: string;
  readonly adapter: { readonly name: string; readonly software: boolean };
  /** Blocks that came up with wrong bytes: none, or the hardware is at fault. */
  readonly wrongBlocks: number;
  /** Steps that a lost device undid. */
  readonly interruptedSteps: number;
}

export interface ParityRunner {
  /** Name of the server for the report. */
  readonly name: string;
  run(job: RunnerJob): Promise<RealRun>;
}
