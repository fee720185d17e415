/**
 * The clients of a workload: how each draws its requests, conversations and misbehaviour, how they share
 * the aggregate rate, and how their streams merge in order of arrival.
 *
 * One client draws from its own random streams only, in upstream's order, so its requests do not depend on
 * the other clients.
 */

import { TierKVError } from '../../runtime/errors.ts';
import {
  type ActiveWindow,
  type BehaviorSpec,
  type ClientSpec,
  isClosedLoop,
  type ModalitySpec,
  type MultimodalSpec,
  type MultiTurnSpec,
  type PrefixChoiceSpec,
  type TrafficSpec,
} from '../description/workloadSpec.ts';
import * as elementary from '../random/elementary.ts';
import { type GoRandom, type PooledStream, partitionSeed, StreamPool } from '../random/goRand.ts';
import {
  type ArrivalSampler,
  arrivalSampler,
  type LengthSampler,
  lengthSampler,
} from '../random/samplers.ts';
import {
  deadlineUs,
  type ModalityTokens,
  type RequestOrigin,
  type TokenSpan,
  type WorkloadRequest,
} from './request.ts';
import { VOCABULARY } from './tokens.ts';

// The tokens that a prompt begins with and others share: nothing, or one span of a stream.

export interface Prefix {
  readonly tokens: number;
  readonly spans: readonly TokenSpan[];
}

export const NO_PREFIX: Prefix = { tokens: 0, spans: [] };

// The parts of every client stream: its place in the list, its random stream, its lengths, its prefix, and the drawing
// of one turn. The order of draws is upstream's: lengths of input and output, then input tokens, then output tokens.
// Tokens are passed over, not kept.

/** A source of one client's requests in order of arrival; ids are given after merging. */
export interface ClientStream {
  next(): WorkloadRequest | undefined;
}

/** One drawn turn: new input and output, where they lie in the client's stream. */
export interface Turn {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly input: TokenSpan;
  readonly output: TokenSpan;
  readonly modalities: ModalityTokens | null;
}

export class Client {
  readonly spec: ClientSpec;
  readonly origin: RequestOrigin;
  readonly prefix: Prefix;
  readonly horizonUs: number;
  readonly seed: bigint;
  /** Memory that all clients of the stream hold together. */
  readonly held: HeldMemory;
  readonly #pool: StreamPool;
  readonly #stream: PooledStream;
  readonly inputLength: LengthSampler;
  readonly outputLength: LengthSampler;
  readonly #drawModalities: ((random: GoRandom) => ModalityTokens) | undefined;
  readonly #choice: PrefixChoice | null;

  /** @param workloadSeed names the streams of prefixes that clients choose among */
  constructor(
    spec: ClientSpec,
    prefix: Prefix,
    seed: bigint,
    workloadSeed: bigint,
    horizonUs: number,
    pool: StreamPool,
    held: HeldMemory,
  ) {
    this.held = held;
    this.spec = spec;
    this.origin = originOf(spec);
    this.prefix = prefix;
    this.horizonUs = horizonUs;
    this.seed = seed;
    this.#pool = pool;
    this.#stream = StreamPool.stream(seed);
    this.inputLength = promptLengths(lengthSampler(spec.inputLength), spec);
    this.outputLength = lengthSampler(spec.outputLength);
    this.#choice =
      spec.prefixes === undefined ? null : new PrefixChoice(spec.prefixes, this.origin, workloadSeed);
    this.#drawModalities = spec.multimodal === undefined ? undefined : modalityDrawer(spec.multimodal);
  }

  /** The generator of this client, at its place; valid until another client draws. */
  get random(): GoRandom {
    return this.#pool.seat(this.#stream);
  }

  /** The prefix with which the next request or session begins. */
  prefixOf(random: GoRandom): ChosenPrefix {
    return this.#choice === null ? this : this.#choice.choose(random);
  }

  /** An arrival comes so long after the one before. */
  arrivedAfter(gapUs: number): void {
    if (this.inputLength instanceof PromptLengths) this.inputLength.after(gapUs);
  }

  /** Draws lengths and passes over the tokens of one turn. */
  drawTurn(random: GoRandom, inputLength: LengthSampler, outputLength: LengthSampler): Turn {
    const inputTokens = inputLength.next(random);
    const outputTokens = outputLength.next(random);
    return spanTurn(this.seed, random, inputTokens, outputTokens);
  }

  /**
   * Like `drawTurn`, with a modality mix as input where the client has one: then the output length follows the input.
   */
  drawRequest(random: GoRandom): Turn {
    if (this.#drawModalities === undefined) return this.drawTurn(random, this.inputLength, this.outputLength);
    const modalities = this.#drawModalities(random);
    const total = modalities.text + modalities.image + modalities.audio + modalities.video;
    const inputTokens = Math.max(1, total);
    const position = random.position;
    random.skipIntn(inputTokens, VOCABULARY);
    const outputTokens = this.outputLength.next(random);
    const outputPosition = random.position;
    random.skipIntn(outputTokens, VOCABULARY);
    return {
      inputTokens,
      outputTokens,
      input: { seed: this.seed, position, tokens: inputTokens },
      output: { seed: this.seed, position: outputPosition, tokens: outputTokens },
      modalities,
    };
  }
}

/** Passes over the tokens of a turn whose lengths are drawn. */
export function spanTurn(seed: bigint, random: GoRandom, inputTokens: number, outputTokens: number): Turn {
  const position = random.position;
  random.skipIntn(inputTokens, VOCABULARY);
  const outputPosition = random.position;
  random.skipIntn(outputTokens, VOCABULARY);
  return {
    inputTokens,
    outputTokens,
    input: { seed, position, tokens: inputTokens },
    output: { seed, position: outputPosition, tokens: outputTokens },
    modalities: null,
  };
}

export function originOf(spec: ClientSpec): RequestOrigin {
  return {
    clientId: spec.id,
    tenantId: spec.tenantId,
    sloClass: spec.sloClass,
    model: spec.model,
    adapter: spec.adapter,
    sloTargetUs: spec.sloTargetUs,
    prefixGroup: spec.prefixGroup,
    ...(spec.cancellation === undefined ? {} : { cancellation: spec.cancellation }),
  };
}

/** Most images, sounds or films of one request. */
const maxModalityParts = 10_000;

function tooManyParts(parts: number): TierKVError {
  return new TierKVError(
    'TKV_INPUT',
    `multimodal: a count distribution drew ${parts} parts of one request, more than ` +
      `${maxModalityParts}. Give it a max`,
    { field: 'multimodal' },
  );
}

function modalityDrawer(spec: MultimodalSpec): (random: GoRandom) => ModalityTokens {
  const text = spec.text === undefined ? undefined : lengthSampler(spec.text);
  const drawer = (modality: ModalitySpec | undefined): ((random: GoRandom) => number) => {
    if (modality === undefined) return () => 0;
    const count = lengthSampler(modality.count);
    const length = lengthSampler(modality.length);
    return (random) => {
      let tokens = 0;
      const parts = count.next(random);
      if (parts > maxModalityParts) throw tooManyParts(parts);
      for (let left = parts; left > 0; left--) tokens += length.next(random);
      return tokens;
    };
  };
  const image = drawer(spec.image);
  const audio = drawer(spec.audio);
  const video = drawer(spec.video);
  return (random) => ({
    text: text?.next(random) ?? 0,
    image: image(random),
    audio: audio(random),
    video: video(random),
  });
}

const maxMisses = 20_000_000;

/**
 * Stops drawing arrivals if none of them falls into a window.
 * @param misses how many have missed, one after the other. @throws {TierKVError} TKV_INPUT naming the client.
 */
function requireHits(misses: number, spec: ClientSpec): void {
  if (misses <= maxMisses) return;
  throw new TierKVError(
    'TKV_INPUT',
    `client "${spec.id.slice(0, 100)}": ${maxMisses} arrivals in a row fall outside its windows. ` +
      'Lower its rate, or move the windows together',
    { field: 'lifecycle.windows' },
  );
}

function isActive(timeUs: number, windows: readonly ActiveWindow[]): boolean {
  if (windows.length === 0) return true;
  return windows.some((window) => timeUs >= window.startUs && timeUs < window.endUs);
}

/** The end of the last window; Infinity for a client that is always on. */
function lastEndUs(windows: readonly ActiveWindow[]): number {
  if (windows.length === 0) return Infinity;
  return windows.reduce((last, window) => Math.max(last, window.endUs), -Infinity);
}

// Conversations: sessions that arrive by the client's process, each of a fixed number of rounds. All rounds
// of a session are drawn when it starts; round r+1 arrives a think time and one µs for every output token
// after round r. Sessions of one client overlap, so rounds wait in a heap until no later session can come
// before them.

/** Which rounds of a session the caller wants. */
interface WantedRounds {
  readonly rounds: number;
  readonly untilUs: number;
}

/** The prompt of a round: prefix, all that was said before, and the new input. Built when it is asked for. */
class PromptWithHistory {
  readonly kind: 'drawn' = 'drawn';
  readonly #prefix: readonly TokenSpan[];
  readonly #history: readonly TokenSpan[];
  readonly #said: number;
  readonly #input: TokenSpan;

  /** @param history may grow later; this prompt holds what is in it now. */
  constructor(prefix: readonly TokenSpan[], history: readonly TokenSpan[], input: TokenSpan) {
    this.#prefix = prefix;
    this.#history = history;
    this.#said = history.length;
    this.#input = input;
  }

  get spans(): readonly TokenSpan[] {
    return [...this.#prefix, ...this.#history.slice(0, this.#said), this.#input];
  }
}

/** Draws whole sessions of one client. */
class SessionDrawer {
  readonly #client: Client;
  readonly #turns: MultiTurnSpec;
  readonly #reasonRatio: LengthSampler | undefined;

  constructor(client: Client) {
    this.#client = client;
    this.#turns = client.spec.reasoning!.multiTurn!;
    const ratio = client.spec.reasoning!.reasonRatio;
    this.#reasonRatio = ratio === undefined ? undefined : lengthSampler(ratio);
  }

  get rounds(): number {
    return this.#turns.maxRounds;
  }

  /**
   * The rounds of the session that starts at `startUs`, in order, as far as they are wanted. All rounds are
   * drawn, so what is wanted changes nothing for later sessions.
   * @param rounds at most this many; @param untilUs only rounds that arrive before it.
   */
  draw(
    random: GoRandom,
    startUs: number,
    { rounds: wanted, untilUs }: WantedRounds,
    inputLength: LengthSampler = this.#client.inputLength,
    outputLength: LengthSampler = this.#client.outputLength,
    silentOrigin?: WorkloadRequest['origin'],
  ): WorkloadRequest[] {
    const { spec } = this.#client;
    const sessionId = `sess_${random.int63()}`;
    const { prefix, origin: ownOrigin } = this.#client.prefixOf(random);
    const origin = silentOrigin ?? ownOrigin;
    const rounds: WorkloadRequest[] = [];
    const history: TokenSpan[] = []; // shared by all rounds, each of which sees what was there before it
    let historyTokens = 0;
    let arrivalUs = startUs;
    for (let round = 0; round < this.#turns.maxRounds; round++) {
      const turn = this.#client.drawTurn(random, inputLength, outputLength);
      const percent = this.#reasonRatio?.next(random) ?? 0;
      if (round >= wanted || arrivalUs >= untilUs) continue;
      rounds.push({
        id: '',
        origin,
        arrivalUs,
        inputTokens: prefix.tokens + historyTokens + turn.inputTokens,
        outputTokens: turn.outputTokens,
        prefixTokens: prefix.tokens,
        prompt: this.#turns.accumulate
          ? new PromptWithHistory(prefix.spans, history, turn.input)
          : { kind: 'drawn', spans: [...prefix.spans, turn.input] },
        output: { kind: 'drawn', spans: [turn.output] },
        deadlineUs: deadlineUs(arrivalUs, spec.timeoutUs, true),
        sessionId,
        session: -1,
        round,
        streaming: false,
        modalities: null,
        reasonRatio: Math.min(1, Math.max(0, percent / 100)),
        thinkTimeUs: 0,
        recordedPrefixGroup: '',
      });
      if (this.#turns.accumulate) {
        history.push(turn.input, turn.output);
        historyTokens += turn.inputTokens + turn.outputTokens;
      }
      arrivalUs += this.#turns.thinkTimeUs + turn.outputTokens;
    }
    return rounds;
  }
}

export class ConversationStream implements ClientStream {
  readonly #client: Client;
  readonly #gaps: ArrivalSampler;
  readonly #sessions: SessionDrawer;
  readonly #roundCap: number;
  readonly #wanted: WantedRounds;
  readonly #lastEndUs: number;
  readonly #waiting = new EarliestFirst<WorkloadRequest>();
  #rank = 0;
  #roundsDrawn = 0;
  #nowUs = 0;
  #nextStartUs: number;

  /**
   * @param maxRequests of the whole workload, Infinity = no limit; sessions start while fewer than twice as
   * many rounds were drawn.
   */
  constructor(client: Client, gaps: ArrivalSampler, maxRequests: number) {
    this.#client = client;
    this.#gaps = gaps;
    this.#roundCap = 2 * maxRequests;
    // a session's first rounds come first, unless some of them fall outside the windows
    const rounds = client.spec.windows.length === 0 ? maxRequests : Infinity;
    this.#wanted = { rounds, untilUs: client.horizonUs };
    this.#sessions = new SessionDrawer(client);
    this.#lastEndUs = lastEndUs(client.spec.windows);
    this.#nextStartUs = this.#drawOnlyStart() ?? this.#drawStart();
  }

  next(): WorkloadRequest | undefined {
    while (this.#nextStartUs < this.#waiting.timeUs) {
      this.#startSession(this.#nextStartUs);
      this.#nextStartUs = this.#client.spec.reasoning!.multiTurn!.singleSession
        ? Infinity
        : this.#drawStart();
    }
    if (this.#waiting.size === 0) return undefined;
    this.#client.held.give(roundBytes);
    return this.#waiting.pop();
  }

  #startSession(startUs: number): void {
    this.#roundsDrawn += this.#sessions.rounds;
    const { held, random, spec } = this.#client;
    for (const request of this.#sessions.draw(random, startUs, this.#wanted)) {
      if (!isActive(request.arrivalUs, spec.windows)) continue;
      held.take(roundBytes, spec.id);
      this.#waiting.push(request.arrivalUs, this.#rank++, request);
    }
  }

  /**
   * Start of the one session of a single-session client, an offset into its first window; undefined for
   * others.
   */
  #drawOnlyStart(): number | undefined {
    const { spec, horizonUs, random } = this.#client;
    if (!spec.reasoning!.multiTurn!.singleSession) return undefined;
    const gapUs = this.#gaps.next(random);
    if (gapUs === 0) return Infinity;
    const startUs = (spec.windows[0]?.startUs ?? 0) + gapUs;
    return startUs < horizonUs && isActive(startUs, spec.windows) ? startUs : Infinity;
  }

  /** Start of the next session, Infinity after the last. */
  #drawStart(): number {
    const { spec, horizonUs } = this.#client;
    const random = this.#client.random;
    for (let misses = 0; this.#nowUs < horizonUs && this.#roundsDrawn < this.#roundCap; misses++) {
      requireHits(misses, spec);
      const gapUs = this.#gaps.next(random);
      if (gapUs === 0) break;
      this.#nowUs += gapUs;
      if (this.#nowUs >= horizonUs) break;
      if (isActive(this.#nowUs, spec.windows)) {
        this.#client.arrivedAfter(gapUs);
        return this.#nowUs;
      }
      if (this.#nowUs >= this.#lastEndUs) break;
    }
    this.#nowUs = Infinity;
    return Infinity;
  }
}

// A binary heap of items by (time, rank): ranks break ties, so that merging streams is stable.

export class EarliestFirst<T> {
  readonly #times: number[] = [];
  readonly #ranks: number[] = [];
  readonly #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** Time of the first item, Infinity when empty. */
  get timeUs(): number {
    return this.#times.length === 0 ? Infinity : this.#times[0];
  }

  /** The first item; the heap must not be empty. */
  get first(): T {
    return this.#items[0];
  }

  push(timeUs: number, rank: number, item: T): void {
    this.#times.push(timeUs);
    this.#ranks.push(rank);
    this.#items.push(item);
    let hole = this.#items.length - 1;
    while (hole > 0) {
      const parent = (hole - 1) >> 1;
      if (!this.#before(timeUs, rank, parent)) break;
      this.#move(parent, hole);
      hole = parent;
    }
    this.#put(hole, timeUs, rank, item);
  }

  pop(): T {
    const first = this.#items[0];
    const timeUs = this.#times.pop()!;
    const rank = this.#ranks.pop()!;
    const item = this.#items.pop()!;
    if (this.#items.length > 0) this.#sink(timeUs, rank, item);
    return first;
  }

  /** Exchanges the first item for another in one descent. */
  replaceFirst(timeUs: number, rank: number, item: T): void {
    this.#sink(timeUs, rank, item);
  }

  #sink(timeUs: number, rank: number, item: T): void {
    const size = this.#items.length;
    let hole = 0;
    for (;;) {
      let child = 2 * hole + 1;
      if (child >= size) break;
      if (child + 1 < size && this.#before(this.#times[child + 1], this.#ranks[child + 1], child)) child++;
      if (this.#before(timeUs, rank, child)) break;
      this.#move(child, hole);
      hole = child;
    }
    this.#put(hole, timeUs, rank, item);
  }

  #before(timeUs: number, rank: number, at: number): boolean {
    return timeUs < this.#times[at] || (timeUs === this.#times[at] && rank < this.#ranks[at]);
  }

  #move(from: number, to: number): void {
    this.#put(to, this.#times[from], this.#ranks[from], this.#items[from]);
  }

  #put(at: number, timeUs: number, rank: number, item: T): void {
    this.#times[at] = timeUs;
    this.#ranks[at] = rank;
    this.#items[at] = item;
  }
}

// Memory that a stream of requests holds at a time, summed over its clients: rounds that wait for their arrival, and
// the gaps of open windows. A spec of a few lines can ask for more than any memory; it then ends in one error and not
// in a dead process.

/** Memory of one waiting round with its share of its session's history. */
const roundBytes = 600;
/** Memory of one gap between arrivals. */
const gapBytes = 8;

const maxHeldBytes = 768 * 2 ** 20;

export class HeldMemory {
  #bytes = 0;

  /** @throws {TierKVError} TKV_INPUT naming the client when the limit is reached. */
  take(bytes: number, clientId: string): void {
    this.#bytes += bytes;
    if (this.#bytes <= maxHeldBytes) return;
    throw new TierKVError(
      'TKV_INPUT',
      `client "${clientId.slice(0, 100)}" has waiting requests that need more than ` +
        `${maxHeldBytes / 2 ** 20} MiB. Lower its rate, its max_rounds, or the length of its windows`,
      { field: 'clients' },
    );
  }

  give(bytes: number): void {
    this.#bytes -= bytes;
  }
}

// How the aggregate rate is shared. Sums run over clients in order, as upstream's do, since the order decides
// the last bit; clients that share their windows (by reference) share the sum.

type Windows = readonly ActiveWindow[];

/** Most comparisons of windows. A spec with more was not written by hand and would take minutes. */
const MAX_COMPARISONS = 2e9;

function requireComparable(clients: readonly ClientSpec[]): void {
  const lists = new Set<Windows>();
  let windows = 0;
  for (const client of clients) {
    if (lists.has(client.windows)) continue;
    lists.add(client.windows);
    windows += client.windows.length;
  }
  if (windows ** 2 + clients.length * lists.size <= MAX_COMPARISONS) return;
  throw new TierKVError(
    'TKV_INPUT',
    `clients have ${windows} windows in all, too many to tell which overlap. Give every window a ` +
      `trace_rate, or fewer windows`,
    { field: 'clients' },
  );
}

function overlap(a: Windows, b: Windows): boolean {
  if (a === b || a.length === 0 || b.length === 0) return true;
  return a.some((x) => b.some((y) => x.startUs < y.endUs && y.startUs < x.endUs));
}

/** Remembers a number for every pair of arrays, by identity. */
class PairMemo<V> {
  readonly #known = new Map<Windows, Map<Windows, V>>();
  get(a: Windows, b: Windows, make: () => V): V {
    let row = this.#known.get(a);
    if (row === undefined) this.#known.set(a, (row = new Map()));
    let value = row.get(b);
    if (value === undefined) row.set(b, (value = make()));
    return value;
  }
}

/**
 * Requests per µs of every client: the aggregate rate times its fraction over the sum of the fractions of the
 * clients that are active together with it (all clients if none has windows).
 */
export function clientRatesPerUs(clients: readonly ClientSpec[], aggregateRate: number): Float64Array {
  const rates = new Float64Array(clients.length);
  const anyWindows = clients.some((client) => client.windows.length > 0);
  if (!anyWindows) {
    let total = 0;
    for (const client of clients) total += client.rateFraction;
    if (total === 0) return rates;
    return rates.map((_, i) => (aggregateRate * (clients[i].rateFraction / total)) / 1e6);
  }
  requireComparable(clients);
  const sums = new Map<Windows | 'always', number>();
  const overlaps = new PairMemo<boolean>();
  clients.forEach((client, i) => {
    if (client.rateFraction <= 0) return;
    const key = client.windows.length === 0 ? 'always' : client.windows;
    let sum = sums.get(key);
    if (sum === undefined) {
      sum = 0;
      for (const other of clients) {
        if (other.rateFraction <= 0) continue;
        if (overlaps.get(client.windows, other.windows, () => overlap(client.windows, other.windows))) {
          sum += other.rateFraction;
        }
      }
      sums.set(key, sum);
    }
    if (sum > 0) rates[i] = (aggregateRate * (client.rateFraction / sum)) / 1e6;
  });
  return rates;
}

/** Whether any window overrides a parameter, which selects generation window by window. */
export function hasWindowParameters(clients: readonly ClientSpec[]): boolean {
  const seen = new Set<Windows>();
  return clients.some((client) => {
    if (seen.has(client.windows)) return false;
    seen.add(client.windows);
    return client.windows.some(
      (window) =>
        window.traceRate !== undefined ||
        window.arrival !== undefined ||
        window.inputLength !== undefined ||
        window.outputLength !== undefined,
    );
  });
}

/**
 * Requests per second of one window: its own trace rate, or its share of the aggregate among clients active
 * with it.
 */
export class WindowRates {
  readonly #clients: readonly ClientSpec[];
  readonly #aggregateRate: number;
  readonly #totals = new Map<string, number>();

  constructor(clients: readonly ClientSpec[], aggregateRate: number) {
    this.#clients = clients;
    this.#aggregateRate = aggregateRate;
  }

  ratePerS(client: ClientSpec, window: ActiveWindow, endUs: number): number {
    const weight = window.traceRate ?? client.rateFraction;
    if (this.#aggregateRate === 0 && window.traceRate !== undefined) return weight;
    const total = this.#totalWeight(window.startUs, endUs);
    return total === 0 ? 0 : this.#aggregateRate * (weight / total);
  }

  /** Weights of all clients active in [startUs, endUs), each counted once with its first window there. */
  #totalWeight(startUs: number, endUs: number): number {
    const key = `${startUs}-${endUs}`;
    const known = this.#totals.get(key);
    if (known !== undefined) return known;
    const firstOverlap = new Map<Windows, ActiveWindow | undefined>();
    let total = 0;
    for (const client of this.#clients) {
      if (client.windows.length === 0) {
        total += client.rateFraction;
        continue;
      }
      if (!firstOverlap.has(client.windows)) {
        firstOverlap.set(
          client.windows,
          client.windows.find((window) => window.startUs < endUs && startUs < window.endUs),
        );
      }
      const window = firstOverlap.get(client.windows);
      if (window !== undefined) total += window.traceRate ?? client.rateFraction;
    }
    this.#totals.set(key, total);
    return total;
  }
}

// Requests that have nothing to do with one another: one arrival, one turn, behind the prefix of the client's
// group.

export class SingleStream implements ClientStream {
  readonly #client: Client;
  readonly #gaps: ArrivalSampler;
  readonly #lastEndUs: number;
  readonly #session: boolean;
  #nowUs = 0;
  #misses = 0;

  constructor(client: Client, gaps: ArrivalSampler) {
    this.#client = client;
    this.#gaps = gaps;
    this.#lastEndUs = lastEndUs(client.spec.windows);
    this.#session = isClosedLoop(client.spec);
  }

  next(): WorkloadRequest | undefined {
    const { spec, horizonUs } = this.#client;
    const random = this.#client.random;
    while (this.#nowUs < horizonUs) {
      const gapUs = this.#gaps.next(random);
      if (gapUs === 0) return undefined;
      this.#nowUs += gapUs;
      if (this.#nowUs >= horizonUs) return undefined;
      if (isActive(this.#nowUs, spec.windows)) {
        this.#misses = 0;
        const deadline = deadlineUs(this.#nowUs, spec.timeoutUs, this.#session);
        this.#client.arrivedAfter(gapUs);
        const chosen = this.#client.prefixOf(random);
        return singleRequest(this.#client, this.#nowUs, this.#client.drawRequest(random), chosen, deadline);
      }
      if (this.#nowUs >= this.#lastEndUs) return undefined;
      requireHits(++this.#misses, spec);
    }
    return undefined;
  }
}

function singleRequest(
  client: Client,
  arrivalUs: number,
  turn: Turn,
  { prefix, origin }: ChosenPrefix,
  deadline: number,
): WorkloadRequest {
  return {
    id: '',
    origin,
    arrivalUs,
    inputTokens: prefix.tokens + turn.inputTokens,
    outputTokens: turn.outputTokens,
    prefixTokens: prefix.tokens,
    prompt: { kind: 'drawn', spans: prefix.tokens === 0 ? [turn.input] : [...prefix.spans, turn.input] },
    output: { kind: 'drawn', spans: [turn.output] },
    deadlineUs: deadline,
    sessionId: '',
    session: -1,
    round: 0,
    streaming: client.spec.streaming,
    modalities: turn.modalities,
    reasonRatio: 0,
    thinkTimeUs: 0,
    recordedPrefixGroup: origin.prefixGroup,
  };
}

// Generation window by window, for clients whose windows carry rates or distributions of their own: the
// expected number of gaps is drawn first and stretched so that they fill the window exactly; then the
// requests follow. Upstream's rules hold here as they are unless told otherwise: single requests get no
// prefix and no deadline, and the last gap ends on the window's end, so its request falls out.

/** Gaps stretched by one factor to sum to `durationUs`; what truncation loses goes onto the last. */
function stretchGaps(gapsUs: Float64Array, durationUs: number): void {
  let sum = 0;
  for (const gap of gapsUs) sum += gap;
  if (sum === 0) return;
  const factor = durationUs / sum;
  let reached = 0;
  for (let i = 0; i < gapsUs.length; i++) {
    gapsUs[i] = Math.trunc(gapsUs[i] * factor);
    reached += gapsUs[i];
  }
  gapsUs[gapsUs.length - 1] += durationUs - reached;
}

const noGaps = new Float64Array(0);

export class WindowedStream implements ClientStream {
  readonly #client: Client;
  readonly #rates: WindowRates;
  readonly #keepPrefix: boolean;
  readonly #windows: readonly ActiveWindow[];
  /** Earliest start of the windows from i on. */
  readonly #laterStartUs: Float64Array;
  readonly #sessions: SessionDrawer | undefined;
  readonly #silentOrigin: WorkloadRequest['origin'];
  readonly #waiting = new EarliestFirst<WorkloadRequest>();
  #rank = 0;
  #opened = 0;
  #gapsUs: Float64Array = noGaps;
  #used = 0;
  #atUs = 0;
  #endUs = 0;
  #inputLength: LengthSampler;
  #outputLength: LengthSampler;

  constructor(client: Client, rates: WindowRates, keepPrefix: boolean) {
    this.#client = client;
    this.#keepPrefix = keepPrefix;
    this.#rates = rates;
    this.#windows = client.spec.windows.filter((window) => window.startUs < client.horizonUs);
    this.#laterStartUs = new Float64Array(this.#windows.length + 1).fill(Infinity);
    for (let i = this.#windows.length - 1; i >= 0; i--) {
      this.#laterStartUs[i] = Math.min(this.#windows[i].startUs, this.#laterStartUs[i + 1]);
    }
    this.#sessions = client.spec.reasoning?.multiTurn === undefined ? undefined : new SessionDrawer(client);
    this.#silentOrigin = { ...client.origin, sloTargetUs: 0 };
    this.#inputLength = client.inputLength;
    this.#outputLength = client.outputLength;
  }

  next(): WorkloadRequest | undefined {
    for (;;) {
      const laterUs = this.#laterStartUs[this.#opened];
      const nextUs = this.#nextArrivalUs();
      if (this.#waiting.size > 0 && this.#waiting.timeUs <= Math.min(nextUs, laterUs)) {
        this.#client.held.give(roundBytes);
        return this.#waiting.pop();
      }
      if (nextUs <= laterUs && nextUs !== Infinity) return this.#take(nextUs);
      if (this.#opened === this.#windows.length) return undefined;
      for (let us = nextUs; us !== Infinity; us = this.#nextArrivalUs()) {
        this.#wait(this.#take(us));
      }
      this.#open(this.#windows[this.#opened++]);
    }
  }

  /** Arrival of the next request of the open window, Infinity when it has no more. */
  #nextArrivalUs(): number {
    if (this.#used >= this.#gapsUs.length) return Infinity;
    const arrivalUs = this.#atUs + this.#gapsUs[this.#used];
    return arrivalUs < this.#endUs ? arrivalUs : Infinity;
  }

  #wait(request: WorkloadRequest): void {
    this.#client.held.take(roundBytes, this.#client.spec.id);
    this.#waiting.push(request.arrivalUs, this.#rank++, request);
  }

  #take(arrivalUs: number): WorkloadRequest {
    this.#used++;
    this.#atUs = arrivalUs;
    const turn = this.#client.drawTurn(this.#client.random, this.#inputLength, this.#outputLength);
    const { origin, prefix, spec } = this.#client;
    const deadline = deadlineUs(arrivalUs, spec.timeoutUs, isClosedLoop(spec));
    if (this.#keepPrefix) return singleRequest(this.#client, arrivalUs, turn, { prefix, origin }, deadline);
    // only a timeout that the spec gives counts here, as upstream has it; it gets no default
    const said = spec.timeoutUs === undefined ? 0 : deadline;
    const request = singleRequest(this.#client, arrivalUs, turn, { prefix: NO_PREFIX, origin }, said);
    return origin.prefixGroup === '' ? request : { ...request, recordedPrefixGroup: '' };
  }

  #open(window: ActiveWindow): void {
    const { spec, horizonUs, random } = this.#client;
    const endUs = Math.min(window.endUs, horizonUs);
    const ratePerS = this.#rates.ratePerS(spec, window, endUs);
    const durationUs = endUs - window.startUs;
    const count = ratePerS > 0 ? Math.ceil(ratePerS * (durationUs / 1e6)) : 0;
    const { held } = this.#client;
    held.give(this.#gapsUs.length * gapBytes);
    this.#gapsUs = noGaps;
    held.take(count * gapBytes, spec.id);
    this.#gapsUs = new Float64Array(count);
    this.#used = 0;
    this.#atUs = window.startUs;
    this.#endUs = endUs;
    if (count === 0) return;
    const gaps = arrivalSampler(window.arrival ?? spec.arrival, ratePerS / 1e6);
    for (let i = 0; i < count; i++) this.#gapsUs[i] = gaps.next(random);
    stretchGaps(this.#gapsUs, durationUs);
    this.#inputLength =
      window.inputLength === undefined ? this.#client.inputLength : lengthSampler(window.inputLength);
    this.#outputLength =
      window.outputLength === undefined ? this.#client.outputLength : lengthSampler(window.outputLength);
    if (this.#sessions !== undefined) this.#drawSessions();
  }

  /** Conversations of the open window: rounds that would arrive after its end are left out. */
  #drawSessions(): void {
    const single = this.#client.spec.reasoning!.multiTurn!.singleSession;
    for (let us = this.#nextArrivalUs(); us !== Infinity; us = this.#nextArrivalUs()) {
      this.#used++;
      this.#atUs = us;
      const rounds = this.#sessions!.draw(
        this.#client.random,
        us,
        { rounds: Infinity, untilUs: this.#endUs },
        this.#inputLength,
        this.#outputLength,
        this.#silentOrigin,
      );
      for (const request of rounds) this.#wait(request);
      if (single) break;
    }
    this.#used = this.#gapsUs.length;
  }
}

// How much longer a prompt is that comes soon after the one before: (mean gap / gap) to a power, within
// bounds. The mean is over the gaps so far, the newest of which weigh most.

/** Most that a burst makes a prompt longer, and shorter. */
const FACTOR_MAX = 4;
/** Weight of a new gap in the mean of those before. */
const WEIGHT = 0.05;

export class BurstFactor {
  /** Mean of the gaps so far, 0 before the first. */
  meanGapUs = 0;
  readonly #exponent: number;

  constructor(exponent: number) {
    this.#exponent = exponent;
  }

  /** The factor of a prompt that comes so long after the one before, at least 1 µs. */
  after(gapUs: number): number {
    if (this.#exponent === 0) return 1;
    const gap = Math.max(1, gapUs);
    this.meanGapUs = this.meanGapUs === 0 ? gap : this.meanGapUs + WEIGHT * (gap - this.meanGapUs);
    const factor = elementary.pow(this.meanGapUs / gap, this.#exponent);
    return Math.min(FACTOR_MAX, Math.max(1 / FACTOR_MAX, factor));
  }
}

// Gaps of clients that misbehave, over the gaps of their arrival process.

/** After an arrival, now and then, a burst of more. */
class BurstyGaps implements ArrivalSampler {
  readonly #base: ArrivalSampler;
  readonly #burst: NonNullable<BehaviorSpec['burst']>;
  #left = 0;

  constructor(base: ArrivalSampler, burst: NonNullable<BehaviorSpec['burst']>) {
    this.#base = base;
    this.#burst = burst;
  }

  next(random: GoRandom): number {
    if (this.#left > 0) {
      this.#left--;
      return this.#burst.intervalUs;
    }
    const gapUs = this.#base.next(random);
    if (random.float64() < this.#burst.probability) this.#left = this.#burst.size;
    return gapUs;
  }
}

/** Groups of arrivals at multiples of a period: of clients with one period, all at the same moment. */
class SynchronisedGaps implements ArrivalSampler {
  readonly #everyUs: number;
  readonly #size: number;
  #given = 0;

  constructor({ everyUs, size }: NonNullable<BehaviorSpec['synchronised']>) {
    this.#everyUs = everyUs;
    this.#size = Math.min(size, everyUs);
  }

  next(): number {
    const within = this.#given++ % this.#size;
    return within === 0 ? this.#everyUs - (this.#given === 1 ? 0 : this.#size - 1) : 1;
  }
}

export function behavedGaps(base: ArrivalSampler, behavior: BehaviorSpec | undefined): ArrivalSampler {
  if (behavior?.synchronised !== undefined) return new SynchronisedGaps(behavior.synchronised);
  return behavior?.burst === undefined ? base : new BurstyGaps(base, behavior.burst);
}

// A choice among prefixes, for each request or session anew. The tokens of a group are a stream of their own,
// named after workload and group, so that they move no other draw and are the same for every client.

interface ChosenPrefix {
  readonly prefix: Prefix;
  readonly origin: RequestOrigin;
}

class PrefixChoice {
  readonly #probability: number;
  readonly #none: ChosenPrefix;
  readonly #choices: readonly (ChosenPrefix & { readonly upTo: number })[];

  constructor(spec: PrefixChoiceSpec, origin: RequestOrigin, workloadSeed: bigint) {
    this.#probability = spec.reuseProbability;
    this.#none = { prefix: NO_PREFIX, origin };
    const total = spec.groups.reduce((sum, { popularity }) => sum + popularity, 0);
    let reached = 0;
    this.#choices = spec.groups.map(({ id, tokens, popularity }) => {
      reached += popularity / total;
      const seed = partitionSeed(workloadSeed, `prefix/${id}`);
      const prefix: Prefix = { tokens, spans: [{ seed, position: 0, tokens }] };
      return { prefix, origin: { ...origin, prefixGroup: id }, upTo: reached };
    });
  }

  choose(random: GoRandom): ChosenPrefix {
    if (random.float64() >= this.#probability) return this.#none;
    const drawn = random.float64();
    return this.#choices.find(({ upTo }) => drawn < upTo) ?? this.#choices[this.#choices.length - 1];
  }
}

// Prompt lengths of clients that send oversized ones, or longer ones in bursts.

/** Whether this prompt is an oversized one, drawn only of clients that send such: its tokens, else undefined. */
export function oversizedTokens(spec: Pick<TrafficSpec, 'behavior'>, random: GoRandom): number | undefined {
  const oversized = spec.behavior?.oversized;
  return oversized !== undefined && random.float64() < oversized.share ? oversized.tokens : undefined;
}

class PromptLengths implements LengthSampler {
  readonly #base: LengthSampler;
  readonly #spec: Pick<TrafficSpec, 'behavior' | 'correlation'>;
  readonly #burst: BurstFactor;
  #factor = 1;

  constructor(base: LengthSampler, spec: Pick<TrafficSpec, 'behavior' | 'correlation'>) {
    this.#base = base;
    this.#spec = spec;
    this.#burst = new BurstFactor(spec.correlation?.burstSize ?? 0);
  }

  /** The prompts from here on come so long after those before. */
  after(gapUs: number): void {
    this.#factor = this.#burst.after(gapUs);
  }

  next(random: GoRandom): number {
    const oversized = oversizedTokens(this.#spec, random);
    if (oversized !== undefined) return oversized;
    const tokens = this.#base.next(random);
    return this.#factor === 1 ? tokens : Math.max(1, Math.round(tokens * this.#factor));
  }
}

/** The base itself for clients that do neither. */
function promptLengths(
  base: LengthSampler,
  spec: Pick<TrafficSpec, 'behavior' | 'correlation'>,
): LengthSampler {
  if (spec.behavior?.oversized === undefined && spec.correlation === undefined) return base;
  return new PromptLengths(base, spec);
}
