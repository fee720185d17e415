/**
 * Conversations: sessions that arrive by the client's process, each of a fixed number of rounds. All rounds
 * of a session are drawn when it starts; round r+1 arrives a think time and one µs for every output token
 * after round r. Sessions of one client overlap, so rounds wait in a heap until no later session can come
 * before them.
 */

import {
  type ArrivalSampler,
  type GoRandom,
  type LengthSampler,
  lengthSampler,
} from '../../../random/index.ts';
import { deadlineUs, type TokenSpan, type WorkloadRequest } from '../../request.ts';
import type { MultiTurnSpec } from '../../spec/types.ts';
import { type Client, type ClientStream, isActive, lastEndUs, requireHits } from './client.ts';
import { EarliestFirst } from './earliest.ts';
import { roundBytes } from './heldMemory.ts';

/** Which rounds of a session somebody will ask for. */
export interface WantedRounds {
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
export class SessionDrawer {
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
   * @param rounds at most so many; @param untilUs only those that arrive before.
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

  /** Start of the next session, Infinity when there is none. */
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
