/**
 * Time in which this process ran. While a process stands (stopped and continued, suspended, or kept by one
 * long call), transfers go on below it, and it learns of no end: by the time of the wall each of them would
 * be late, and its link slow. So while something is under way, a beat looks at the time; what lies between
 * two looks that are too far apart was no running time, and counts as one beat.
 *
 * While nothing is under way nothing runs here, and all time counts.
 */

/** Of the process, or of a test. Each call returns what calls it off. */
export interface Timers {
  nowMs(): number;
  /** Calls `ring` once, no sooner than `ms` from now. @param keeps whether it keeps the process alive */
  after(ms: number, ring: () => void, keeps: boolean): () => void;
  /** Calls `ring` behind whatever has ended by now. */
  behindEnds(ring: () => void): () => void;
}

const BEAT_MS = 50;
/** Looks that lie further apart than this have a stall between them. */
const STALL_MS = 200;

/** Timers count in milliseconds: what is due within one is due. */
export const TICK_MS = 1;

/** A process that went on takes timers first, and what has ended after them: hence `behindEnds`. */
const processTimers: Timers = {
  nowMs: () => performance.now(),
  after: (ms, ring, keeps) => {
    const timer = setTimeout(ring, Math.max(1, Math.ceil(ms)));
    if (!keeps) timer.unref();
    return () => clearTimeout(timer);
  },
  behindEnds: (ring) => {
    const immediate = setImmediate(ring);
    return () => clearImmediate(immediate);
  },
};

export class RunningClock {
  readonly #timers: Timers;
  #watchers = 0;
  #lastMs = 0;
  #stoodMs = 0;
  #stopBeat: (() => void) | undefined;

  constructor(timers: Timers = processTimers) {
    this.#timers = timers;
  }

  /** Milliseconds of running time; it never goes back. */
  nowMs(): number {
    const nowMs = this.#timers.nowMs();
    const gapMs = nowMs - this.#lastMs;
    if (this.#watchers > 0 && gapMs > STALL_MS) this.#stoodMs += gapMs - BEAT_MS;
    this.#lastMs = nowMs;
    return nowMs - this.#stoodMs;
  }

  /** Something is under way until the function returned is called: stalls are left out. */
  watch(): () => void {
    this.nowMs();
    if (this.#watchers++ === 0) this.#beat();
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.nowMs();
      if (--this.#watchers === 0) this.#stopBeat?.();
    };
  }

  /**
   * Calls `ring` once, after `afterMs` of running time; where the process stood meanwhile, behind whatever has
   * ended by then.
   * @param keeps whether it keeps the process alive
   * @returns what calls it off
   */
  alarm(afterMs: number, ring: () => void, keeps: boolean = false): () => void {
    const dueMs = this.nowMs() + afterMs;
    const unwatch = this.watch();
    const stoodMs = this.#stoodMs;
    let stop = (): void => {};
    const look = (): void => {
      const leftMs = dueMs - this.nowMs();
      if (leftMs >= TICK_MS) stop = this.#timers.after(leftMs, look, keeps);
      else if (this.#stoodMs === stoodMs) end();
      else stop = this.#timers.behindEnds(end);
    };
    const end = (): void => {
      unwatch();
      ring();
    };
    stop = this.#timers.after(afterMs, look, keeps);
    return () => {
      stop();
      unwatch();
    };
  }

  #beat(): void {
    const look = (): void => {
      this.nowMs();
      this.#beat();
    };
    this.#stopBeat = this.#timers.after(BEAT_MS, look, false);
  }
}

/** The clock of this process. */
export const runningClock: RunningClock = new RunningClock();
