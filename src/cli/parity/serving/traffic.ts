/**
 * The traffic of a parity run: requests in order of arrival, and follow-ups of those that ended. It is opened
 * once for the real runtime and once for the simulator, and gives both the same requests. Deadlines are left
 * out: a request that takes longer is an answer here, no failure.
 */

import type { SimulatedWorkload } from '../../../sim/cluster/index.ts';
import {
  SessionManager,
  TokenReader,
  VOCABULARY,
  type WorkloadRequest,
} from '../../../sim/workload/index.ts';

export interface Traffic {
  /** From the first request on. */
  open(): SimulatedWorkload;
  /** Requests that are known before the run. */
  readonly expected: number;
}

/** @param speed how many times as fast requests of the stream arrive */
export function trafficOf(open: () => SimulatedWorkload, speed: number): Traffic {
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

/** What names a request in any run: ids of follow-ups depend on who ended first. */
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
