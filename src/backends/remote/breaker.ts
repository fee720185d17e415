/**
 * Leaves a shared tier out while it fails, or while it is slower than computing, and tries it again later:
 *
 *     closed --three faults in a row, or slower than computing--> open --pause over--> on trial --it goes--> closed
 *                                                                  ^                      | it fails
 *                                                                  +----longer pause------+
 *
 * While it is open no call waits for the server. One call at a time is let through on trial; pauses double up
 * to half a minute and are short again once the tier has served for a while. Time is handed in, so that a test can
 * be without it.
 */

/** Faults in a row after which the tier is left out: one may be a hiccup. */
const FAULTS_MAX = 3;
/** Milliseconds of the first pause, and of the longest one. */
const PAUSE_MS = 500;
const PAUSE_MS_MAX = 30_000;
/** Good calls after which the next pause is a short one again. */
const HEALTHY_CALLS = 64;
/** Weight of the newest load in the ratio to computing, and loads before the ratio counts. */
const RATIO_WEIGHT = 1 / 8;
const RATIO_LOADS = 8;

export type BreakerState = 'closed' | 'open' | 'onTrial';

export class Breaker {
  readonly #nowMs: () => number;
  readonly #changed: (state: BreakerState, reason: string) => void;
  #state: BreakerState = 'closed';
  #faults = 0;
  #good = 0;
  #pauseMs = PAUSE_MS;
  #retryAtMs = 0;
  #reason = '';
  /** Mean of a load's time over the time of computing the same bytes. */
  #ratio = 0;
  #loads = 0;
  #opened = 0;

  /** @param changed called when the tier is left out and when it is back, with the reason */
  constructor(nowMs: () => number, changed: (state: BreakerState, reason: string) => void = () => {}) {
    this.#nowMs = nowMs;
    this.#changed = changed;
  }

  get state(): BreakerState {
    return this.#state;
  }

  /** Why the tier was last left out. */
  get reason(): string {
    return this.#reason;
  }

  /** How often it was left out. */
  get openings(): number {
    return this.#opened;
  }

  /** Whether a call may go to the server. One that may must end with `succeeded` or `failed`. */
  allows(): boolean {
    if (this.#state === 'closed') return true;
    if (this.#state === 'onTrial' || this.#nowMs() < this.#retryAtMs) return false;
    this.#become('onTrial', this.#reason);
    return true;
  }

  succeeded(): void {
    if (this.#state === 'open') return; // a call of before
    this.#faults = 0;
    if (++this.#good >= HEALTHY_CALLS) this.#pauseMs = PAUSE_MS;
    if (this.#state === 'onTrial') this.#become('closed', '');
  }

  failed(reason: string): void {
    this.#good = 0;
    if (this.#state === 'open') return;
    this.#faults++;
    if (this.#state === 'onTrial' || this.#faults >= FAULTS_MAX) this.#open(reason);
  }

  /**
   * A load took `ms`, and computing its tokens would have taken `computeMs`.
   * @param computeMs undefined where that is not known
   */
  loaded(ms: number, computeMs: number | undefined): void {
    if (computeMs === undefined || computeMs <= 0 || this.#state !== 'closed') return;
    const ratio = ms / computeMs;
    this.#ratio = this.#loads === 0 ? ratio : this.#ratio + (ratio - this.#ratio) * RATIO_WEIGHT;
    if (++this.#loads < RATIO_LOADS || this.#ratio <= 1) return;
    this.#open(`a load takes ${this.#ratio.toFixed(1)} times as long as computing its tokens`);
  }

  #open(reason: string): void {
    this.#retryAtMs = this.#nowMs() + this.#pauseMs;
    this.#pauseMs = Math.min(PAUSE_MS_MAX, 2 * this.#pauseMs);
    this.#faults = 0;
    this.#good = 0;
    this.#loads = 0;
    this.#reason = reason;
    this.#opened++;
    this.#become('open', reason);
  }

  #become(state: BreakerState, reason: string): void {
    this.#state = state;
    this.#changed(state, reason);
  }
}
