/**
 * Whether a server that says that it is well also serves: by how the requests that it had have ended. One that fails while
 * others do not is an outlier, and gets nothing for a while; then one request at a time, until one ends well.
 *
 *     trusted --failures, silence--> ejected --5 s, then twice as long--> on trial --one request ends well--> trusted
 *                                       ^----------------one ends ill---------+
 *
 * Nothing here reads a clock or draws by chance, and what comes of it is told to the decisions as any other input: `routable`.
 */

/** Failures running that make a server suspect. */
const FAILURES_RUNNING = 3;
/** Recent ends, half of which must be failures where successes stand between them. */
const RECENT_ENDS = 20;
/** First time for which a server gets nothing; the next one is twice as long. */
const EJECTED_MS = 5000;
const EJECTED_MS_MOST = 60_000;
/** Least silence, and how often the slowest beginning of the other servers it must be, before a server counts as hung. */
const SILENT_MS = 3000;
const SILENT_TIMES = 3;
/** Least wait of a client that left, for it to speak against the server. */
const LEFT_MS = 1000;
/** Requests that must wait at a silent server, and that others must have begun to answer meanwhile. */
const SILENT_REQUESTS = 3;

type StandingState = 'trusted' | 'ejected' | 'onTrial';

export class ServerStanding {
  state: StandingState = 'trusted';
  /** Since when, in milliseconds of the running clock. */
  sinceMs: number = -Infinity;
  /** How often it was ejected in all. */
  ejections = 0;
  #running = 0;
  #recent: boolean[] = [];
  /** How often running, without a request that ended well. */
  #times = 0;
  #untilMs = 0;

  /** Whether it fails as no well server does. */
  get isSuspect(): boolean {
    if (this.#running >= FAILURES_RUNNING) return true;
    const failures = this.#recent.filter((isGood) => !isGood).length;
    return this.#recent.length === RECENT_ENDS && 2 * failures >= RECENT_ENDS;
  }

  /** When it is to be tried again; Infinity for one that is not ejected. */
  get dueMs(): number {
    return this.state === 'ejected' ? this.#untilMs : Infinity;
  }

  ended(isGood: boolean): void {
    this.#running = isGood ? 0 : this.#running + 1;
    this.#recent.push(isGood);
    if (this.#recent.length > RECENT_ENDS) this.#recent.shift();
    if (isGood && this.state === 'onTrial') this.restore(this.sinceMs);
  }

  eject(nowMs: number): void {
    this.ejections++;
    this.state = 'ejected';
    this.sinceMs = nowMs;
    this.#untilMs = nowMs + Math.min(EJECTED_MS_MOST, EJECTED_MS * 2 ** this.#times++);
    this.#running = 0;
    this.#recent = [];
  }

  tryAgain(nowMs: number): void {
    this.state = 'onTrial';
    this.sinceMs = nowMs;
  }

  restore(nowMs: number): void {
    this.state = 'trusted';
    this.sinceMs = nowMs;
    this.#times = 0;
    this.#running = 0;
    this.#recent = [];
  }
}

/** A request that a server has. */
export interface HeldAttempt {
  readonly sentMs: number;
  /** When the last byte of its answer came; -1 before the first. */
  heardMs: number;
  /** Whether the pool ended it: the silence behind that has counted against the server already. */
  isGivenUp: boolean;
  /** Ends it, so that it is asked for elsewhere, or its client sees that it is cut. */
  readonly giveUp: (why: string) => void;
}

/** Attempts whose answers have not begun, and how long answers of a server take to begin. */
export class Beginnings {
  readonly attempts: Set<HeldAttempt> = new Set();
  /** When the last byte of any answer came. */
  heardMs: number = -Infinity;
  /** When recent answers began that were sent since; the newest last. */
  readonly #begun: { readonly sentMs: number; readonly atMs: number }[] = [];
  #slowestMs = 0;

  /** The longest recent time until an answer began. It is forgotten slowly. */
  get slowestMs(): number {
    return this.#slowestMs;
  }

  heard(attempt: HeldAttempt, nowMs: number): void {
    if (attempt.heardMs === -1) {
      this.#begun.push({ sentMs: attempt.sentMs, atMs: nowMs });
      if (this.#begun.length > SILENT_REQUESTS) this.#begun.shift();
      this.#slowestMs = Math.max(nowMs - attempt.sentMs, 0.95 * this.#slowestMs);
    }
    attempt.heardMs = this.heardMs = nowMs;
  }

  /** Answers that began, of the last few requests that were sent behind this time. */
  begunSince(sentMs: number): number {
    return this.#begun.filter((each) => each.sentMs >= sentMs).length;
  }

  /** Whether a client that left had waited for long beside what others take, and heard nothing, nor did another one since. */
  hasWaited({ sentMs, heardMs }: HeldAttempt, others: readonly Beginnings[], nowMs: number): boolean {
    if (heardMs !== -1 || this.heardMs >= sentMs || others.length === 0) return false;
    const slowestMs = Math.max(...others.map((each) => each.slowestMs));
    return slowestMs > 0 && nowMs - sentMs >= Math.max(LEFT_MS, SILENT_TIMES * slowestMs);
  }

  /**
   * Whether it is silent although others answer what they were sent later.
   * @param fromMs requests that it was sent before say nothing @param requests that must wait there
   */
  isSilent(
    others: readonly Beginnings[],
    nowMs: number,
    fromMs: number,
    requests: number = SILENT_REQUESTS,
  ): boolean {
    const waiting = [...this.attempts].filter(({ heardMs, sentMs }) => heardMs === -1 && sentMs >= fromMs);
    if (waiting.length < requests) return false;
    const oldestMs = Math.min(...waiting.map(({ sentMs }) => sentMs));
    const slowestMs = Math.max(0, ...others.map((each) => each.slowestMs));
    const sinceMs = Math.max(oldestMs, this.heardMs);
    if (nowMs - sinceMs < Math.max(SILENT_MS, SILENT_TIMES * slowestMs)) return false;
    return others.reduce((sum, each) => sum + each.begunSince(oldestMs), 0) >= SILENT_REQUESTS;
  }
}
