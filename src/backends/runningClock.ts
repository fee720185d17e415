/**
 * A clock of the time in which this process ran. While a process is stopped, suspended or busy in one long
 * call, transfers go on in the kernel and the device, but their ends are seen late: by wall time each would
 * be past its deadline, and its link slow. So while something is under way a timer beats. A gap between two
 * beats that is too long was a stall, and counts as one beat.
 *
 * While nothing is under way no timer runs, and all time counts.
 */

/** Timers of the process, or of a test. `after` and `behindEnds` return a function that cancels. */
export interface Timers {
  nowMs(): number;
  /**
   * Calls `ring` once, no sooner than `ms` from now.
   * @param keeps whether the timer keeps the process alive
   */
  after(ms: number, ring: () => void, keeps: boolean): () => void;
  /** Calls `ring` once the ends that have already happened have been delivered. */
  behindEnds(ring: () => void): () => void;
}

/** Milliseconds between two looks at the time while something is under way. */
const BEAT_MS = 50;
/** Milliseconds between two looks above which the process was stalled. */
const STALL_MS = 200;

/** Resolution of timers in milliseconds: an alarm due within it counts as due. */
export const TICK_MS = 1;

/** The timer does not keep the process alive. Browsers have numbers for timers, and no such process. */
export function letProcessEnd(timer: ReturnType<typeof setTimeout>): void {
  if (typeof timer === 'object') timer.unref();
}

/** Fulfilled once what has happened already was delivered. Browsers have no `setImmediate`. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (typeof globalThis.setImmediate === 'function') globalThis.setImmediate(resolve);
    else setTimeout(resolve);
  });
}

/** Bytes that calls of `turnFor` may copy or digest in one turn of the event loop: about two milliseconds. */
const TURN_BYTES = 8 * 1024 * 1024;

let turnBytes = 0;

/**
 * Waits for a turn of the event loop in which `bytes` may still be copied or digested, so that many buffers that land
 * together do not hold all else. @returns undefined where this turn will do
 */
export function turnFor(bytes: number): Promise<void> | undefined {
  // a page has no way to the next turn that takes less than a copy
  if (typeof globalThis.setImmediate !== 'function') return undefined;
  if (turnBytes > 0 && turnBytes + bytes > TURN_BYTES) return nextTurn().then(() => turnFor(bytes));
  if (turnBytes === 0) {
    void nextTurn().then(() => {
      turnBytes = 0;
    });
  }
  turnBytes += bytes;
  return undefined;
}

/** After a stall Node runs timers before the I/O that ended meanwhile: hence `behindEnds`. */
const processTimers: Timers = {
  nowMs: () => performance.now(),
  after: (ms, ring, keeps) => {
    const timer = setTimeout(ring, Math.max(1, Math.ceil(ms)));
    if (!keeps) letProcessEnd(timer);
    return () => clearTimeout(timer);
  },
  behindEnds: (ring) => {
    let isStopped = false;
    void nextTurn().then(() => {
      if (!isStopped) ring();
    });
    return () => {
      isStopped = true;
    };
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

  /** Milliseconds of running time. It never decreases. */
  nowMs(): number {
    const nowMs = this.#timers.nowMs();
    const gapMs = nowMs - this.#lastMs;
    if (this.#watchers > 0 && gapMs > STALL_MS) this.#stoodMs += gapMs - BEAT_MS;
    this.#lastMs = nowMs;
    return nowMs - this.#stoodMs;
  }

  /** Leaves out stalls until the returned function is called. */
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
   * Calls `ring` once, after `afterMs` of running time. After a stall it is called behind the ends that
   * happened meanwhile, so that nothing that ended in time is reported as late.
   * @param keeps whether the alarm keeps the process alive
   * @returns a function that cancels the alarm
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
