/**
 * One request of a workload. A prompt is an identity and a length: where its tokens come from is said, the
 * tokens are drawn only when a caller asks (`tokens.ts`), so a million requests cost a million small objects
 * and no token arrays.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { CancellationSpec, SloClass } from '../description/workloadSpec.ts';
import { fnv1a64, GoRandom } from '../random/goRand.ts';
import { type LengthSampler, lengthSampler } from '../random/samplers.ts';

/** Most tokens of one side of a request: some ten times the longest contexts of models. */
export const maxRequestTokens: number = 100_000_000;

/** `tokens` draws of the random stream `seed` from word `position` on. Equal spans are equal tokens. */
export interface TokenSpan {
  readonly seed: bigint;
  readonly position: number;
  readonly tokens: number;
}

/**
 * Blocks known by id only, as traces give them: pairs of first id and count, each block `blockTokens` long.
 */
interface BlockRuns {
  readonly kind: 'blocks';
  /** Ids are equal only within one namespace. */
  readonly namespace: string;
  readonly blockTokens: number;
  /** first id, count, first id, count, … */
  readonly runs: Int32Array;
}

/** The source of a prompt's tokens. */
export type PromptIdentity =
  | { readonly kind: 'drawn'; readonly spans: readonly TokenSpan[] }
  | BlockRuns
  | { readonly kind: 'tokens'; readonly tokens: Int32Array }
  | { readonly kind: 'text'; readonly text: string };

/** Properties that all requests of one client share. */
export interface RequestOrigin {
  readonly clientId: string;
  readonly tenantId: string;
  readonly sloClass: SloClass | string;
  readonly model: string;
  readonly adapter: string;
  /** Time-to-first-token target in µs, 0 = none. */
  readonly sloTargetUs: number;
  /** The group whose prefix the prompt starts with, '' = none. */
  readonly prefixGroup: string;
  /** How often and when its users give requests up; absent: never. */
  readonly cancellation?: CancellationSpec;
}

/** One request of a workload: when it arrives, its tokens in and out, and what determines its prompt. */
export interface WorkloadRequest {
  /** `request_<n>` in order of arrival, or `session_<sid>_round_<n>_<counter>` for a follow-up. */
  id: string;
  readonly origin: RequestOrigin;
  readonly arrivalUs: number;
  /** All tokens of the prompt, prefix and history included. */
  readonly inputTokens: number;
  /** Tokens that will be generated; known to the simulator, not to its policies. */
  readonly outputTokens: number;
  /** Leading tokens of the prompt that belong to the prefix group. */
  readonly prefixTokens: number;
  readonly prompt: PromptIdentity;
  readonly output: PromptIdentity;
  /** Absolute, 0 = none. */
  readonly deadlineUs: number;
  /** When its user gives it up, absolute; 0 or absent: never. */
  cancelUs?: number;
  /** '' = no session. */
  readonly sessionId: string;
  /** Number of the session in the plan of a closed-loop workload, -1 = none. */
  session: number;
  readonly round: number;
  readonly streaming: boolean;
  /** Tokens of each modality, null for plain text requests. */
  readonly modalities: ModalityTokens | null;
  /** Share of the output that is reasoning, in [0, 1]. */
  readonly reasonRatio: number;
  /** Client-side pause before this request in µs where a trace records it. */
  readonly thinkTimeUs: number;
  /** The prefix group as a trace prints it; upstream leaves it out for generated conversation rounds. */
  readonly recordedPrefixGroup: string;
}

export interface ModalityTokens {
  readonly text: number;
  readonly image: number;
  readonly audio: number;
  readonly video: number;
}

/** Anything that hands out requests in order of arrival, one at a time. */
export interface RequestStream {
  /** The next request, or undefined when there are no more. */
  next(): WorkloadRequest | undefined;
}

/** Iterates over a stream of requests, for a `for` loop. */
export function* requestsOf(stream: RequestStream): Generator<WorkloadRequest> {
  checkInputs({ stream }, { stream: is.fields({ next: is.func() }) });
  for (let request = stream.next(); request !== undefined; request = stream.next()) yield request;
}

/** Upstream's default deadline after arrival for sessions. */
const SESSION_TIMEOUT_US = 300_000_000;

/**
 * Absolute deadline of a request: without a timeout, sessions get 300 s and others none; a timeout of 0 is
 * none.
 */
export function deadlineUs(arrivalUs: number, timeoutUs: number | undefined, session: boolean): number {
  if (timeoutUs === undefined) return session ? arrivalUs + SESSION_TIMEOUT_US : 0;
  return timeoutUs === 0 ? 0 : arrivalUs + timeoutUs;
}

// Users who give a request up before its answer is whole: they close the page, or press stop. A share of a client's
// requests is given up a drawn time after arrival, as load generators have it (AIPerf, --request-cancellation-rate and
// --request-cancellation-delay). Each request draws by its own name, so that a workload with cancellations has the same
// requests as the one without.

const samplers = new WeakMap<CancellationSpec, LengthSampler>();

/** Draws whether and when the request is given up, where its client does that. Call it once its id is final. */
export function drawCancellation(request: WorkloadRequest, seed: bigint): void {
  const { cancellation } = request.origin;
  if (cancellation === undefined) return;
  const random = new GoRandom(BigInt.asIntN(64, fnv1a64(`cancellation ${request.id}`) ^ seed));
  if (random.float64() >= cancellation.share) return;
  let delays = samplers.get(cancellation);
  if (delays === undefined) samplers.set(cancellation, (delays = lengthSampler(cancellation.delayMs)));
  request.cancelUs = request.arrivalUs + 1000 * delays.next(random);
}

// A growing column of numbers in a typed array.

export class NumberColumn {
  #values: Float64Array = new Float64Array(1024);
  #size = 0;

  push(value: number): void {
    if (this.#size === this.#values.length) {
      const grown = new Float64Array(this.#size * 2);
      grown.set(this.#values);
      this.#values = grown;
    }
    this.#values[this.#size++] = value;
  }

  /** The values so far; valid until the next push. */
  view(): Float64Array {
    return this.#values.subarray(0, this.#size);
  }
}
