/**
 * How long loads over one link take, learnt from those that have ended: of each stretch in which the link was
 * busy its bytes, how long it took, and how long the engine computed meanwhile, as
 *
 *     S + bytes / B + g x compute       g: 0 where loads go beside kernels, 1 where they wait for them
 *
 * Front and back meet, so loads that go beside kernels take about as long as those, and no fit could tell g
 * from B. So S and B are those of stretches without kernels. A stretch with kernels says only that its own
 * time lies between all of it and what is left of it without theirs; where S and B say so too, it is g that
 * learns from it.
 *
 * A stretch ends when nothing is under way any more, or, where it lasts, behind a burst of ends. While loads
 * are under way and later than they should be, the link counts as slower than it was: what has not moved for
 * so long is expected to take as long again. What S and B say counts for less and less until they learn
 * again, so that a link that was slow once is tried again, also where all its stretches have kernels.
 */

import type { StateVisitor } from '../snapshot/index.ts';
import type { LoadEstimate } from './loadOrRecompute.ts';
import { RecentFit } from './recentFit.ts';

const KEEP = 0.9;
/** Of what a stretch says of g. */
const LEARNT = 1 / 8;
/** A link that nobody has measured counts as a fast disk, until it is late. */
const UNKNOWN_US_PER_BYTE = 1e6 / 1e9;
const STRETCH_US = 20_000;
/** Longer than this a stretch is not, bursts or not. */
const STRETCH_MOST_US = 10 * STRETCH_US;
/** A gap of so much of a stretch ends a burst. */
const GAP_SHARE = 1 / 8;
/** After so long without a measure, times count half. */
const HALF_LIFE_US = 60_000_000;

export class LinkPace {
  readonly #fit: RecentFit = new RecentFit(2, KEEP);
  #behindCompute = 0;
  #bytesUnderWay = 0;
  /** Of the stretch: when it began, whether the link was idle before, what has arrived, and when the last. */
  #sinceUs = 0;
  #computedBeforeUs = 0;
  #fromIdle = 0;
  #bytesArrived = 0;
  #lastUs = 0;
  #computedUs = 0;
  /** When S and B last learnt something. */
  #fittedUs = 0;

  /** Bytes of loads that have begun and have not ended. */
  get bytesUnderWay(): number {
    return this.#bytesUnderWay;
  }

  /** @param computedUs how long the engine has computed so far, in all */
  began(bytes: number, nowUs: number, computedUs: number): void {
    if (this.#bytesUnderWay === 0) this.#open(nowUs, computedUs, 1);
    this.#bytesUnderWay += bytes;
  }

  /** @param arrived whether the load brought its bytes */
  ended(bytes: number, nowUs: number, computedUs: number, arrived: boolean): void {
    const elapsedUs = this.#lastUs - this.#sinceUs;
    const isBurstOver = nowUs - this.#lastUs > elapsedUs * GAP_SHARE;
    if (elapsedUs > (isBurstOver ? STRETCH_US : STRETCH_MOST_US)) this.#close();
    this.#bytesUnderWay -= bytes;
    if (arrived) this.#bytesArrived += bytes;
    this.#lastUs = nowUs;
    this.#computedUs = computedUs;
    if (this.#bytesUnderWay === 0) this.#close();
  }

  /**
   * @param ownBytes bytes under way of those who ask: others are waited for, and a link on which they load
   * already has started
   */
  estimate(nowUs: number, ownBytes = 0): LoadEstimate {
    const [usPerByte, startUs] = this.#fit.weights() ?? [UNKNOWN_US_PER_BYTE, 0];
    const silentUs = nowUs - this.#lastUs;
    const isIdle = this.#bytesUnderWay === 0;
    const isLate = !isIdle && silentUs > startUs + this.#bytesUnderWay * usPerByte;
    const lateUs = isLate ? Math.max(usPerByte, silentUs / this.#bytesUnderWay) : usPerByte;
    const trust = isIdle ? HALF_LIFE_US / (HALF_LIFE_US + nowUs - this.#fittedUs) : 1;
    const others = Math.max(0, this.#bytesUnderWay - ownBytes);
    return {
      startUs: (ownBytes === 0 ? startUs * trust : 0) + others * lateUs,
      bandwidthBytesPerS: 1e6 / Math.max(lateUs * trust, 1e-9),
      behindCompute: this.#behindCompute,
    };
  }

  visitState(visitor: StateVisitor): void {
    this.#fit.visitState(visitor);
    this.#behindCompute = visitor.number(this.#behindCompute);
    this.#bytesUnderWay = visitor.number(this.#bytesUnderWay);
    this.#sinceUs = visitor.number(this.#sinceUs);
    this.#computedBeforeUs = visitor.number(this.#computedBeforeUs);
    this.#fromIdle = visitor.number(this.#fromIdle);
    this.#bytesArrived = visitor.number(this.#bytesArrived);
    this.#lastUs = visitor.number(this.#lastUs);
    this.#computedUs = visitor.number(this.#computedUs);
    this.#fittedUs = visitor.number(this.#fittedUs);
  }

  #open(nowUs: number, computedUs: number, fromIdle: 0 | 1): void {
    this.#sinceUs = nowUs;
    this.#lastUs = nowUs;
    this.#computedBeforeUs = computedUs;
    this.#computedUs = computedUs;
    this.#fromIdle = fromIdle;
    this.#bytesArrived = 0;
  }

  #close(): void {
    if (this.#bytesArrived > 0) this.#learn();
    this.#open(this.#lastUs, this.#computedUs, 0);
  }

  #learn(): void {
    const features = [this.#bytesArrived, this.#fromIdle];
    const mostUs = Math.max(1, this.#lastUs - this.#sinceUs);
    const computedUs = Math.min(this.#computedUs - this.#computedBeforeUs, mostUs - 1);
    const weights = this.#fit.weights();
    const expectedUs = weights === null ? 0 : weights[0] * features[0] + weights[1] * features[1];
    const ownUs = Math.min(Math.max(expectedUs, mostUs - computedUs), mostUs);
    if (computedUs === 0 || ownUs !== expectedUs) {
      this.#fit.add(features, ownUs);
      this.#fittedUs = this.#lastUs;
    }
    if (computedUs === 0 || weights === null) return;
    const behind = (mostUs - ownUs) / computedUs;
    this.#behindCompute += (behind - this.#behindCompute) * LEARNT;
  }
}
