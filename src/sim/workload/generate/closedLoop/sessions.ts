/**
 * Closed loop: round n+1 of a session exists only when round n has finished. A plan of sessions holds one
 * seed each in typed arrays; the manager answers every finished request with the follow-up, if there is one.
 * All state is numbers, so a manager is copied with its simulation.
 */

import { invariant } from '../../../../runtime/errors.ts';
import {
  type GoRandom,
  type LengthSampler,
  lengthSampler,
  type PooledStream,
  StreamPool,
} from '../../../random/index.ts';
import { deadlineUs, type RequestOrigin, type TokenSpan, type WorkloadRequest } from '../../request.ts';
import type { ClientSpec } from '../../spec/types.ts';
import { BurstFactor, oversizedTokens } from '../behavior/index.ts';
import { originOf, type Prefix, spanTurn, type Turn } from '../clients/index.ts';
import { leadingSpans, tokensOf } from '../spans.ts';
import { scaledTokens, Walk } from './walk.ts';

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
  /** Later rounds of each session as a trace has them, in place of kinds and seeds. */
  readonly recorded?: readonly (readonly WorkloadRequest[])[];
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
  /** Of sessions that walk: their state, and how many rounds they have; 0 before that is drawn. */
  readonly states: Int32Array;
  readonly limits: Int32Array;
  /** By kind: mean gap between a round and the one before. */
  readonly meanGapsUs: Float64Array;
  readonly followUps: number;
}

interface KindSamplers {
  readonly origin: RequestOrigin;
  readonly inputLength: LengthSampler;
  readonly outputLength: LengthSampler;
  readonly walk: Walk | null;
  /** Over the gaps between a round and the one before, of all sessions of the kind. */
  readonly burst: BurstFactor;
}

export class SessionManager {
  readonly #plan: SessionPlan;
  readonly #pool: StreamPool;
  readonly #samplers: KindSamplers[];
  readonly #rounds: Int32Array;
  readonly #ended: Uint8Array;
  readonly #streams: PooledStream[] = [];
  readonly #positions: Float64Array;
  readonly #states: Int32Array;
  readonly #limits: Int32Array;
  #followUps = 0;

  constructor(plan: SessionPlan, pool: StreamPool = new StreamPool()) {
    const sessions = plan.seeds.length;
    this.#plan = plan;
    this.#pool = pool;
    this.#samplers = plan.kinds.map(({ client }) => ({
      origin: originOf(client),
      inputLength: lengthSampler(client.inputLength),
      outputLength: lengthSampler(client.outputLength),
      walk: client.walk === undefined ? null : new Walk(client.walk),
      burst: new BurstFactor(client.correlation?.burstSize ?? 0),
    }));
    this.#rounds = new Int32Array(sessions);
    this.#ended = new Uint8Array(sessions);
    this.#positions = new Float64Array(sessions);
    this.#states = new Int32Array(sessions);
    this.#limits = new Int32Array(sessions);
  }

  /**
   * The follow-up of a finished request, or undefined when it belongs to no session or the session is over:
   * it timed out or was dropped, had its last round, the budget is used up, or the follow-up would arrive
   * after the horizon.
   */
  next(request: WorkloadRequest, end: RequestEnd): WorkloadRequest | undefined {
    const { session } = request;
    if (session < 0 || this.#ended[session] === 1) return undefined;
    const { recorded, followUpBudget } = this.#plan;
    const isOver = end.outcome !== 'completed' || (followUpBudget >= 0 && this.#followUps >= followUpBudget);
    const next = isOver
      ? undefined
      : recorded !== undefined
        ? this.#recorded(recorded[session], session, end)
        : this.#drawn(request, end, this.#plan.kinds[this.#plan.kindOf[session]]);
    if (next !== undefined) return next;
    this.#ended[session] = 1;
    const stream = this.#streams[session];
    if (stream !== undefined) this.#pool.release(stream);
    return undefined;
  }

  /** The next round as it was recorded, its pause after the end of the one before. */
  #recorded(
    rounds: readonly WorkloadRequest[],
    session: number,
    end: RequestEnd,
  ): WorkloadRequest | undefined {
    const next = rounds[this.#rounds[session]];
    if (next === undefined) return undefined;
    const arrivalUs = end.timeUs + next.thinkTimeUs;
    if (arrivalUs > this.#plan.horizonUs) return undefined;
    this.#rounds[session]++;
    this.#followUps++;
    const deadline = next.deadlineUs === 0 ? 0 : next.deadlineUs - next.arrivalUs + arrivalUs;
    return { ...next, arrivalUs, deadlineUs: deadline, session };
  }

  #drawn(request: WorkloadRequest, end: RequestEnd, kind: SessionKind): WorkloadRequest | undefined {
    const { session } = request;
    const round = this.#rounds[session] + 1;
    const { origin, inputLength, outputLength, walk, burst } = this.#samplers[this.#plan.kindOf[session]];
    const { horizonUs } = this.#plan;
    if (round >= kind.maxRounds || end.timeUs + kind.thinkTimeUs > horizonUs) return undefined;
    const stream = (this.#streams[session] ??= {
      seed: this.#plan.seeds[session],
      position: this.#positions[session],
      seat: -1,
    });
    const random = this.#pool.seat(stream);
    if (walk === null) {
      const arrivalUs = end.timeUs + kind.thinkTimeUs;
      const factor = burst.after(arrivalUs - request.arrivalUs);
      const newTokens =
        oversizedTokens(kind.client, random) ?? scaledTokens(inputLength.next(random), factor);
      const turn = spanTurn(stream.seed, random, newTokens, outputLength.next(random));
      const before = kind.accumulate ? contextOf(request, end.contextTokens) : kind.prefix.spans;
      const beforeTokens = kind.accumulate ? request.inputTokens + end.contextTokens : kind.prefix.tokens;
      return this.#followUp(request, kind, origin, arrivalUs, before, beforeTokens, turn, random);
    }
    if (this.#limits[session] === 0) this.#limits[session] = walk.drawRounds(random);
    if (round >= this.#limits[session]) return undefined;
    const step = walk.step(this.#states[session], round, random);
    if (step === null) return undefined;
    const arrivalUs = end.timeUs + step.pauseUs;
    if (arrivalUs > horizonUs) return undefined;
    this.#states[session] = step.state;
    const factor = burst.after(arrivalUs - request.arrivalUs);
    const newTokens = oversizedTokens(kind.client, random) ?? scaledTokens(step.inputTokens, factor);
    const turn = spanTurn(stream.seed, random, newTokens, step.outputTokens);
    const { prompt, output } = request;
    invariant(prompt.kind === 'drawn' && output.kind === 'drawn', 'a session request has a drawn prompt');
    const before = walk.contextOf(prompt.spans, output.spans, end.contextTokens);
    const own = request.origin;
    return this.#followUp(request, kind, own, arrivalUs, before, tokensOf(before), turn, random);
  }

  #followUp(
    { session, sessionId }: WorkloadRequest,
    { client }: SessionKind,
    origin: RequestOrigin,
    arrivalUs: number,
    before: readonly TokenSpan[],
    beforeTokens: number,
    turn: Turn,
    random: GoRandom,
  ): WorkloadRequest {
    this.#positions[session] = random.position;
    const round = ++this.#rounds[session];
    const counter = ++this.#followUps;
    return {
      id: `session_${sessionId}_round_${round}_${counter}`,
      origin,
      arrivalUs,
      inputTokens: beforeTokens + turn.inputTokens,
      outputTokens: turn.outputTokens,
      prefixTokens: 0,
      prompt: { kind: 'drawn', spans: [...before, turn.input] },
      output: { kind: 'drawn', spans: [turn.output] },
      deadlineUs: deadlineUs(arrivalUs, client.timeoutUs, true),
      sessionId,
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
      states: this.#states.slice(),
      limits: this.#limits.slice(),
      meanGapsUs: Float64Array.from(this.#samplers, ({ burst }) => burst.meanGapUs),
      followUps: this.#followUps,
    };
  }

  /** A manager that goes on from `state`. */
  static restore(plan: SessionPlan, state: SessionManagerState): SessionManager {
    const manager = new SessionManager(plan);
    manager.#rounds.set(state.rounds);
    manager.#ended.set(state.ended);
    manager.#positions.set(state.positions);
    manager.#states.set(state.states);
    manager.#limits.set(state.limits);
    for (const [i, { burst }] of manager.#samplers.entries()) burst.meanGapUs = state.meanGapsUs[i];
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
