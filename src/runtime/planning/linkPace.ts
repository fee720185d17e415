/**
 * How long loads over one link take, learnt from those that have ended: bytes and time of each stretch in
 * which the link was busy, as S + bytes / B. A stretch ends when nothing is under way any more, or, where it
 * lasts, behind a burst of ends. While loads are under way and later than they should be, the link counts as
 * slower than it was: what has not moved for so long is expected to take as long again.
 */

import type { LoadEstimate } from './loadOrRecompute.ts';
import { RecentFit } from './recentFit.ts';

const KEEP = 0.9;
/** A link that nobody has measured counts as a fast disk, until it is late. */
const UNKNOWN_US_PER_BYTE = 1e6 / 1e9;
const STRETCH_US = 20_000;
/** Longer than this a stretch is not, bursts or not. */
const STRETCH_MOST_US = 10 * STRETCH_US;
/** A gap of so much of a stretch ends a burst. */
const GAP_SHARE = 1 / 8;

export class LinkPace {
  readonly #fit: RecentFit = new RecentFit(2, KEEP);
  #bytesUnderWay = 0;
  /** Of the stretch: when it began, whether the link was idle before, what has arrived, and when the last. */
  #sinceUs = 0;
  #fromIdle = 0;
  #bytesArrived = 0;
  #lastUs = 0;

  /** Bytes of loads that have begun and have not ended. */
  get bytesUnderWay(): number {
    return this.#bytesUnderWay;
  }

  began(bytes: number, nowUs: number): void {
    if (this.#bytesUnderWay === 0) this.#open(nowUs, 1);
    this.#bytesUnderWay += bytes;
  }

  /** @param arrived whether the load brought its bytes */
  ended(bytes: number, nowUs: number, arrived: boolean): void {
    const elapsedUs = this.#lastUs - this.#sinceUs;
    const isBurstOver = nowUs - this.#lastUs > elapsedUs * GAP_SHARE;
    if (elapsedUs > (isBurstOver ? STRETCH_US : STRETCH_MOST_US)) this.#close();
    this.#bytesUnderWay -= bytes;
    if (arrived) this.#bytesArrived += bytes;
    this.#lastUs = nowUs;
    if (this.#bytesUnderWay === 0) this.#close();
  }

  /**
   * @param ownBytes bytes under way of those who ask: others are waited for, and a link on which they load
   * already has started
   */
  estimate(nowUs: number, ownBytes = 0): LoadEstimate {
    const [usPerByte, startUs] = this.#fit.weights() ?? [UNKNOWN_US_PER_BYTE, 0];
    const silentUs = this.#bytesUnderWay === 0 ? 0 : nowUs - this.#lastUs;
    const isLate = silentUs > startUs + this.#bytesUnderWay * usPerByte;
    const paceUs = isLate ? Math.max(usPerByte, silentUs / this.#bytesUnderWay) : usPerByte;
    const others = Math.max(0, this.#bytesUnderWay - ownBytes);
    return {
      startUs: (ownBytes === 0 ? startUs : 0) + others * paceUs,
      bandwidthBytesPerS: 1e6 / Math.max(paceUs, 1e-9),
    };
  }

  #open(nowUs: number, fromIdle: 0 | 1): void {
    this.#sinceUs = nowUs;
    this.#lastUs = nowUs;
    this.#fromIdle = fromIdle;
    this.#bytesArrived = 0;
  }

  #close(): void {
    if (this.#bytesArrived > 0) {
      this.#fit.add([this.#bytesArrived, this.#fromIdle], Math.max(1, this.#lastUs - this.#sinceUs));
    }
    this.#open(this.#lastUs, 0);
  }
}
