/**
 * Closed loop: round n+1 of a session exists only when round n has finished. A plan of sessions holds one
 * seed each in typed arrays; the manager answers every finished request with the follow-up, if there is one.
 * All state is numbers, so a manager is copied with its simulation.
 */

import { invariant } from '../../../../runtime/errors.ts';
import { type LengthSampler, lengthSampler, type PooledStream, StreamPool } from '../../../random/index.ts';
import { deadlineUs, type RequestOrigin, type TokenSpan, type WorkloadRequest } from '../../request.ts';
import type { ClientSpec } from '../../spec/types.ts';
import { originOf, type Prefix, spanTurn } from '../clients/index.ts';

/** How follow-ups of a client's sessions are made. */
export interface SessionKind {
  readonly client: ClientSpec;
  /** Infinity for concurrency users. */
  readonly maxRounds: number;
  readonly thinkTimeUs: number;
  readonly accumulate: boolean;
  readonly prefix: Prefix;
}

export interface SessionPlan {
  readonly kinds: readonly SessionKind[];
  /** Kind and stream seed of each session, by session index. */
  readonly kindOf: Int32Array;
  readonly seeds: BigInt64Array;
  /** Follow-ups allowed in all, -1 = any number. */
  readonly followUpBudget: number;
  readonly horizonUs: number;
}

/** How a request ended. */
export interface RequestEnd {
  readonly outcome: 'completed' | 'timed-out' | 'dropped';
  readonly timeUs: number;
  /**
   * Output tokens that enter the context of the next round. Upstream counts its progress index beyond the
   * prompt, which is one less than the request generated.
   */
  readonly contextTokens: number;
}

export interface SessionManagerState {
  readonly rounds: Int32Array;
  readonly ended: Uint8Array;
  readonly positions: Float64Array;
  readonly followUps: number;
}

interface KindSamplers {
  readonly origin: RequestOrigin;
  readonly inputLength: LengthSampler;
  readonly outputLength: LengthSampler;
}

export class SessionManager {
  readonly #plan: SessionPlan;
  readonly #pool: StreamPool;
  readonly #samplers: KindSamplers[];
  readonly #rounds: Int32Array;
  readonly #ended: Uint8Array;
  readonly #streams: PooledStream[] = [];
  readonly #positions: Float64Array;
  #followUps = 0;

  constructor(plan: SessionPlan, pool: StreamPool = new StreamPool()) {
    const sessions = plan.seeds.length;
    this.#plan = plan;
    this.#pool = pool;
    this.#samplers = plan.kinds.map(({ client }) => ({
      origin: originOf(client),
      inputLength: lengthSampler(client.inputLength),
      outputLength: lengthSampler(client.outputLength),
    }));
    this.#rounds = new Int32Array(sessions);
    this.#ended = new Uint8Array(sessions);
    this.#positions = new Float64Array(sessions);
  }

  /**
   * The follow-up of a finished request, or undefined when it belongs to no session or the session is over:
   * it timed out or was dropped, had its last round, the budget is used up, or the follow-up would arrive
   * after the horizon.
   */
  next(request: WorkloadRequest, end: RequestEnd): WorkloadRequest | undefined {
    const { session } = request;
    if (session < 0 || this.#ended[session] === 1) return undefined;
    const kind = this.#plan.kinds[this.#plan.kindOf[session]];
    const budget = this.#plan.followUpBudget;
    const arrivalUs = end.timeUs + kind.thinkTimeUs;
    if (
      end.outcome !== 'completed' ||
      this.#rounds[session] >= kind.maxRounds - 1 ||
      (budget >= 0 && this.#followUps >= budget) ||
      arrivalUs > this.#plan.horizonUs
    ) {
      this.#ended[session] = 1;
      const stream = this.#streams[session];
      if (stream !== undefined) this.#pool.release(stream);
      return undefined;
    }
    const { origin, inputLength, outputLength } = this.#samplers[this.#plan.kindOf[session]];
    const stream = (this.#streams[session] ??= {
      seed: this.#plan.seeds[session],
      position: this.#positions[session],
      seat: -1,
    });
    const random = this.#pool.seat(stream);
    const newTokens = inputLength.next(random);
    const outputTokens = outputLength.next(random);
    const turn = spanTurn(stream.seed, random, newTokens, outputTokens);
    this.#positions[session] = random.position;
    const before = kind.accumulate ? contextOf(request, end.contextTokens) : kind.prefix.spans;
    const beforeTokens = kind.accumulate ? request.inputTokens + end.contextTokens : kind.prefix.tokens;
    const round = ++this.#rounds[session];
    const counter = ++this.#followUps;
    return {
      id: `session_${request.sessionId}_round_${round}_${counter}`,
      origin,
      arrivalUs,
      inputTokens: beforeTokens + newTokens,
      outputTokens,
      prefixTokens: 0,
      prompt: { kind: 'drawn', spans: [...before, turn.input] },
      output: { kind: 'drawn', spans: [turn.output] },
      deadlineUs: deadlineUs(arrivalUs, kind.client.timeoutUs, true),
      sessionId: request.sessionId,
      session,
      round,
      streaming: false,
      modalities: null,
      reasonRatio: 0,
      thinkTimeUs: 0,
      recordedPrefixGroup: '',
    };
  }

  snapshot(): SessionManagerState {
    return {
      rounds: this.#rounds.slice(),
      ended: this.#ended.slice(),
      positions: this.#positions.slice(),
      followUps: this.#followUps,
    };
  }

  /** A manager that goes on from `state`. */
  static restore(plan: SessionPlan, state: SessionManagerState): SessionManager {
    const manager = new SessionManager(plan);
    manager.#rounds.set(state.rounds);
    manager.#ended.set(state.ended);
    manager.#positions.set(state.positions);
    manager.#followUps = state.followUps;
    return manager;
  }
}

/** The prompt of a request and the first `generated` tokens of its output. */
function contextOf(request: WorkloadRequest, generated: number): TokenSpan[] {
  const { prompt, output } = request;
  invariant(prompt.kind === 'drawn' && output.kind === 'drawn', 'a session request has a drawn prompt');
  return [...prompt.spans, ...leadingSpans(output.spans, generated)];
}

/** The spans of the first `tokens` tokens. */
export function leadingSpans(spans: readonly TokenSpan[], tokens: number): TokenSpan[] {
  const leading: TokenSpan[] = [];
  let left = tokens;
  for (const span of spans) {
    if (left <= 0) break;
    leading.push(span.tokens <= left ? span : { ...span, tokens: left });
    left -= span.tokens;
  }
  return leading;
}
