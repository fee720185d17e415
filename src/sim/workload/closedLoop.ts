/**
 * Closed loops: round n+1 of a session exists only when round n has finished. Users with think times,
 * recorded sessions, and sessions that walk from state to state.
 */

import { invariant, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { type ClientSpec, END_STATE, type WalkSpec } from '../description/workloadSpec.ts';
import * as elementary from '../random/elementary.ts';
import { GoRandom, type PooledStream, StreamPool } from '../random/goRand.ts';
import { type LengthSampler, lengthSampler } from '../random/samplers.ts';
import {
  BurstFactor,
  EarliestFirst,
  NO_PREFIX,
  originOf,
  oversizedTokens,
  type Prefix,
  spanTurn,
  type Turn,
} from './client.ts';
import { leadingSpans, tokensOf, trailingSpans } from './plan.ts';
import {
  deadlineUs,
  drawCancellation,
  maxRequestTokens,
  type RequestOrigin,
  type TokenSpan,
  type WorkloadRequest,
} from './request.ts';

// Users: each sends one request at the start, spread over a think time, and from then on one a think time
// after the last has finished. Seeds of users and of their sessions come in turns from one stream, client
// by client.

const CONCURRENCY_SEED_OFFSET = 10_007n;
const MAX_USERS = 10_000_000;

/** The users of all concurrency clients, as far as the request limit lets them in. */
export interface ConcurrencyUsers {
  /** Index of the client of each user, user number within it, seeds of first request and session. */
  readonly clientOf: Int32Array;
  readonly userOf: Int32Array;
  readonly requestSeeds: BigInt64Array;
  readonly sessionSeeds: BigInt64Array;
  /** Users that the spec asks for, admitted or not. */
  readonly asked: number;
}

/** @param room how many more requests the limit admits; Infinity = any number. */
export function admitUsers(clients: readonly ClientSpec[], seed: bigint, room: number): ConcurrencyUsers {
  const random = new GoRandom(BigInt.asIntN(64, seed + CONCURRENCY_SEED_OFFSET));
  let asked = 0;
  for (const client of clients) asked += client.concurrency;
  const admitted = Math.max(0, Math.min(asked, room));
  if (admitted > MAX_USERS) {
    throw new TierKVError(
      'TKV_INPUT',
      `concurrency asks for ${admitted} users in all, more than ${MAX_USERS}. Lower it, or set num_requests`,
      { field: 'concurrency' },
    );
  }
  const users: ConcurrencyUsers = {
    clientOf: new Int32Array(admitted),
    userOf: new Int32Array(admitted),
    requestSeeds: new BigInt64Array(admitted),
    sessionSeeds: new BigInt64Array(admitted),
    asked,
  };
  let at = 0;
  clients.forEach((client, index) => {
    for (let user = 0; user < client.concurrency && at < admitted; user++, at++) {
      users.clientOf[at] = index;
      users.userOf[at] = user;
      users.requestSeeds[at] = random.int63();
      users.sessionSeeds[at] = random.int63();
    }
  });
  return users;
}

/** u · think / users, rounded down, without leaving 53 bits. */
function staggerUs(user: number, thinkTimeUs: number, users: number): number {
  if (users <= 1) return 0;
  return user * Math.floor(thinkTimeUs / users) + Math.floor((user * (thinkTimeUs % users)) / users);
}

/** The first requests of the users, merged over clients; `session` numbers count from `firstSession`. */
export class ConcurrencyStream {
  readonly #clients: readonly ClientSpec[];
  readonly #prefixes: ReadonlyMap<string, Prefix>;
  readonly #users: ConcurrencyUsers;
  readonly #firstSession: number;
  readonly #heap = new EarliestFirst<number>();
  readonly #random = new GoRandom(0n);

  constructor(
    clients: readonly ClientSpec[],
    prefixes: ReadonlyMap<string, Prefix>,
    users: ConcurrencyUsers,
    firstSession: number,
  ) {
    this.#clients = clients;
    this.#prefixes = prefixes;
    this.#users = users;
    this.#firstSession = firstSession;
    for (let at = 0; at < users.clientOf.length; at++) {
      if (at === 0 || users.clientOf[at] !== users.clientOf[at - 1])
        this.#heap.push(this.#arrivalUs(at), at, at);
    }
  }

  get timeUs(): number {
    return this.#heap.timeUs;
  }

  next(): WorkloadRequest | undefined {
    if (this.#heap.size === 0) return undefined;
    const at = this.#heap.first;
    const following = at + 1;
    if (
      following < this.#users.clientOf.length &&
      this.#users.clientOf[following] === this.#users.clientOf[at]
    ) {
      this.#heap.replaceFirst(this.#arrivalUs(following), following, following);
    } else {
      this.#heap.pop();
    }
    return this.#request(at);
  }

  #arrivalUs(at: number): number {
    const client = this.#clients[this.#users.clientOf[at]];
    return staggerUs(this.#users.userOf[at], client.thinkTimeUs, client.concurrency);
  }

  #request(at: number): WorkloadRequest {
    const spec = this.#clients[this.#users.clientOf[at]];
    const prefix = this.#prefixes.get(spec.prefixGroup) ?? NO_PREFIX;
    const arrivalUs = this.#arrivalUs(at);
    const seed = this.#users.requestSeeds[at];
    this.#random.seek(seed, 0);
    const inputTokens = lengthSampler(spec.inputLength).next(this.#random);
    const outputTokens = lengthSampler(spec.outputLength).next(this.#random);
    const turn = spanTurn(seed, this.#random, inputTokens, outputTokens);
    return {
      id: '',
      origin: originOf(spec),
      arrivalUs,
      inputTokens: prefix.tokens + inputTokens,
      outputTokens,
      prefixTokens: prefix.tokens,
      prompt: { kind: 'drawn', spans: [...prefix.spans, turn.input] },
      output: { kind: 'drawn', spans: [turn.output] },
      deadlineUs: deadlineUs(arrivalUs, spec.timeoutUs, true),
      sessionId: `concurrency_${spec.id}_user_${this.#users.userOf[at]}`,
      session: this.#firstSession + at,
      round: 0,
      streaming: spec.streaming,
      modalities: null,
      reasonRatio: 0,
      thinkTimeUs: 0,
      recordedPrefixGroup: spec.prefixGroup,
    };
  }
}

// Closed loop: round n+1 of a session exists only when round n has finished. A plan of sessions holds one
// seed each in typed arrays; the manager answers every finished request with the follow-up, if there is one.
// All state is numbers, so a manager is copied with its simulation.

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

interface SessionManagerState {
  readonly rounds: Int32Array;
  readonly ended: Uint8Array;
  readonly positions: Float64Array;
  /** State of each session that walks, and its number of rounds; 0 before that is drawn. */
  readonly states: Int32Array;
  readonly limits: Int32Array;
  /** Mean gap between a round and the one before, by kind. */
  readonly meanGapsUs: Float64Array;
  readonly followUps: number;
}

interface KindSamplers {
  readonly origin: RequestOrigin;
  readonly inputLength: LengthSampler;
  readonly outputLength: LengthSampler;
  readonly walk: SessionWalk | null;
  /** Over the gaps between a round and the one before, of all sessions of the kind. */
  readonly burst: BurstFactor;
}

/** Makes the follow-up requests of closed loops and sessions when earlier ones have ended. */
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
    checkInputs(
      { plan, pool },
      { plan: is.fields({ kindOf: is.bytes(), seeds: is.bytes() }), pool: is.optional(is.object()) },
    );
    const sessions = plan.seeds.length;
    this.#plan = plan;
    this.#pool = pool;
    this.#samplers = plan.kinds.map(({ client }) => ({
      origin: originOf(client),
      inputLength: lengthSampler(client.inputLength),
      outputLength: lengthSampler(client.outputLength),
      walk: client.walk === undefined ? null : new SessionWalk(client.walk),
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
    if (next !== undefined) {
      if (recorded === undefined) drawCancellation(next, this.#plan.seeds[session]);
      return next;
    }
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
    const { cancelUs = 0 } = next;
    const given = cancelUs === 0 ? {} : { cancelUs: cancelUs - next.arrivalUs + arrivalUs };
    return { ...next, arrivalUs, deadlineUs: deadline, session, ...given };
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
    checkInputs(
      { plan, state },
      {
        plan: is.fields({ kindOf: is.bytes(), seeds: is.bytes() }),
        state: is.fields({ rounds: is.bytes(), ended: is.bytes() }),
      },
    );
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

// Sessions that go from state to state: which state follows, after what pause, with how many tokens.

interface WalkPosition {
  readonly inputLength: LengthSampler;
  readonly outputLength: LengthSampler;
  readonly pauseMs: LengthSampler | null;
  /** States that may follow, -1 for the end, each with the share up to which it is drawn. */
  readonly next: readonly { readonly state: number; readonly upTo: number }[];
}

/** Where a walk goes next. */
interface WalkStep {
  readonly state: number;
  readonly pauseUs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
}

class SessionWalk {
  readonly #spec: WalkSpec;
  readonly #states: readonly WalkPosition[];
  readonly #rounds: LengthSampler | null;

  constructor(spec: WalkSpec) {
    this.#spec = spec;
    this.#rounds = spec.rounds === undefined ? null : lengthSampler(spec.rounds);
    const names = spec.states.map(({ name }) => name);
    this.#states = spec.states.map(({ inputLength, outputLength, pauseMs, next }): WalkPosition => {
      const weights = Object.entries(next).filter(([, weight]) => weight > 0);
      const total = weights.reduce((sum, [, weight]) => sum + weight, 0);
      let reached = 0;
      return {
        inputLength: lengthSampler(inputLength),
        outputLength: lengthSampler(outputLength),
        pauseMs: pauseMs === undefined ? null : lengthSampler(pauseMs),
        next: weights.map(([name, weight]) => {
          reached += weight / total;
          return { state: name === END_STATE ? -1 : names.indexOf(name), upTo: reached };
        }),
      };
    });
  }

  /** Rounds of one session, drawn once. */
  drawRounds(random: GoRandom): number {
    const { maxRounds } = this.#spec;
    return this.#rounds === null ? maxRounds : Math.min(maxRounds, this.#rounds.next(random));
  }

  /**
   * @param from state of the request that ended @param round of the one that may follow
   * @returns null where the walk ends
   */
  step(from: number, round: number, random: GoRandom): WalkStep | null {
    const { next } = this.#states[from];
    const drawn = random.float64();
    const { state } = next.find(({ upTo }) => drawn < upTo) ?? next[next.length - 1];
    if (state === -1) return null;
    const { inputLength, outputLength, pauseMs } = this.#states[state];
    const { promptGrowthRate, decodeVariation } = this.#spec;
    const pauseUs = pauseMs === null ? 0 : 1000 * pauseMs.next(random);
    const growth = promptGrowthRate === 0 ? 1 : elementary.pow(1 + promptGrowthRate, round);
    const inputTokens = scaledTokens(inputLength.next(random), growth);
    const output = outputLength.next(random);
    const variation = decodeVariation === 0 ? 1 : 1 + decodeVariation * (2 * random.float64() - 1);
    return { state, pauseUs, inputTokens, outputTokens: scaledTokens(output, variation) };
  }

  /** The part of a prompt and of the first `answered` tokens of its answer that the next prompt repeats. */
  contextOf(prompt: readonly TokenSpan[], answer: readonly TokenSpan[], answered: number): TokenSpan[] {
    const { growth, contextLimit } = this.#spec;
    if (growth === 'none') return [];
    // a summary takes the place of the answer
    const kept = growth === 'sublinear' ? Math.ceil(Math.sqrt(answered)) : answered;
    const all = [...prompt, ...leadingSpans(answer, kept)];
    return growth === 'bounded' ? trailingSpans(all, contextLimit) : all;
  }
}

/** A length times a factor: at least a token, and no more than a request may have. */
function scaledTokens(tokens: number, factor: number): number {
  if (factor === 1) return tokens;
  return Math.min(maxRequestTokens, Math.max(1, Math.round(tokens * factor)));
}
