/**
 * How long loads and steps take, learnt from the ones that have ended. For loads over one link, each stretch in which
 * the link was busy gives its bytes, its duration, and the time that the engine computed meanwhile:
 *
 *     S + bytes / B + g x compute       g: 0 where loads run beside kernels, 1 where they wait for them
 *
 * Loads and kernels that meet take about equally long, so no fit could tell g from B. S and B are therefore fitted to
 * stretches without kernels. A stretch with kernels says only that its own time lies between its whole duration and
 * its duration without theirs; where S and B agree with that, g learns from it.
 *
 * A stretch ends when nothing is under way any more or, if it lasts, behind a burst of ends. While loads are late,
 * the link counts as slower: bytes that have not moved for a time are expected to take as long again. S and B count
 * for less the older they are, so that a link that was slow once is tried again, even if all its stretches have
 * kernels.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot.ts';
import type { ComputeEstimate, LoadEstimate } from './loadOrRecompute.ts';

const KEEP_LINK = 0.9;
/** Weight of a new stretch in g (no unit): about the last eight count. */
const LEARNT = 1 / 8;
/** Microseconds a byte on an unmeasured link, as on a fast disk of 1 GB/s; late loads correct it. */
const UNKNOWN_US_PER_BYTE = 1e6 / 1e9;
const STRETCH_US = 20_000;
/** Microseconds at most of one stretch: a link that is always busy is measured all the same. */
const STRETCH_MOST_US = 10 * STRETCH_US;
/** Share of a stretch that a gap must last to end a burst. */
const GAP_SHARE = 1 / 8;
/** Microseconds after which a measure's time counts half: a link's speed changes within minutes. */
const HALF_LIFE_US = 60_000_000;

export class LinkPace {
  readonly #fit: RecentFit = new RecentFit(2, KEEP_LINK);
  #behindCompute = 0;
  #bytesUnderWay = 0;
  /** The stretch: when it began, whether the link was idle before, what has arrived, and when the last arrived. */
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

  /** @param computedUs microseconds that the engine has computed so far */
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
   * @param ownBytes bytes under way of the caller itself. Other loads are waited for; a link that already carries the
   * caller's has started
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

// How long the engine takes to compute tokens, learnt from its steps: the tokens of each step, the positions over
// which they attend, and its duration. An input of `loadOrRecompute`.

/** Share of a step's weight that is left when another one comes: about the last 50 steps count, a few seconds. */
const KEEP_COMPUTE = 0.98;

export class ComputePace {
  readonly #fit: RecentFit = new RecentFit(3, KEEP_COMPUTE);

  /**
   * A step was computed.
   * @param tokens over all its requests
   * @param squares the sum of `squaresOf(start, end)` over its requests, which compute tokens start to end
   */
  stepEnded(tokens: number, squares: number, durationUs: number): void {
    this.#fit.add([tokens, 1, squares], Math.max(1, durationUs));
  }

  visitState(visitor: StateVisitor): void {
    this.#fit.visitState(visitor);
  }

  /** @returns undefined before the first step. @param stepTokens most tokens of one step */
  estimate(stepTokens: number): ComputeEstimate | undefined {
    const weights = this.#fit.weights();
    if (weights === null) return undefined;
    const [usPerToken, usPerStep, usPerTokenSquared] = weights;
    return { usPerToken, usPerTokenSquared, usPerStep, stepTokens };
  }
}

// y = w . x with weights of at least 0, fitted to recent samples: each new sample makes all before it count a little
// less. The relative error is minimised, so that short samples count as much as long ones.
//
// A sample far from the others may mean that conditions have changed; then the older samples count much less. A far
// shorter one always means it: nothing is quick by chance. A far longer one may have been held up: it is cut to the
// longest that is not far, and means a change only if the next one is far longer too, or if there are few others.
//
// Features are few, so every subset of them is solved by its normal equations, and the subset with the smallest error
// and only positive weights is taken; among equals, the one with fewer features. Only additions, products and square
// roots are used: the same samples give the same bits everywhere.

/** Share of its column below which what elimination leaves of a feature is rounding error. */
const PIVOT_LEAST = 1e-7;
/** A sample is far if it is this many times as long or as short as expected; older samples are divided by it then. */
const SURPRISE = 3;
const KEEP_SURPRISED = 0.1;
/** Below this number of samples, none is doubted. */
const SAMPLES_FEW = 6;
/** Share of the remaining error that a larger subset must explain: less is rounding error. */
const GAIN_LEAST = 1e-9;

export class RecentFit {
  readonly #features: number;
  readonly #keep: number;
  /** Sums of x_i x_j, and of x_i, over samples divided by their y. */
  readonly #products: Float64Array;
  readonly #sums: Float64Array;
  #samples = 0;
  #weights: Float64Array | null = null;
  #isStale = false;
  /** Whether the last sample was far longer than expected. */
  #wasLate = false;

  /** @param keep share of a sample's weight that is left when another one comes, from 0 to 1 */
  constructor(features: number, keep: number) {
    this.#features = features;
    this.#keep = keep;
    this.#products = new Float64Array(features * features);
    this.#sums = new Float64Array(features);
  }

  /** @param y above 0 */
  add(x: readonly number[], y: number): void {
    const n = this.#features;
    invariant(x.length === n && y > 0, 'a sample has all features, and is above 0');
    const expected = this.#expected(x);
    const isLate = expected !== undefined && y > expected * SURPRISE;
    const isEarly = expected !== undefined && y * SURPRISE < expected;
    const isDoubted = isLate && expected > 0 && !this.#wasLate && this.#samples >= SAMPLES_FEW;
    const counted = isDoubted ? expected * SURPRISE : y;
    this.#wasLate = isLate;
    const isNews = isEarly || (isLate && !isDoubted);
    const keep = isNews ? this.#keep * KEEP_SURPRISED : this.#keep;
    for (let i = 0; i < n; i++) {
      const xi = x[i] / counted;
      this.#sums[i] = this.#sums[i] * keep + xi;
      for (let j = 0; j < n; j++) {
        this.#products[i * n + j] = this.#products[i * n + j] * keep + (xi * x[j]) / counted;
      }
    }
    this.#samples = this.#samples * keep + 1;
    this.#isStale = true;
  }

  /** The value expected by the samples so far; undefined before the first. */
  #expected(x: readonly number[]): number | undefined {
    return this.weights()?.reduce((sum, weight, i) => sum + weight * x[i], 0);
  }

  /** One weight a feature, none negative; null before the first sample. */
  weights(): Float64Array | null {
    if (this.#isStale) this.#weights = this.#best();
    this.#isStale = false;
    return this.#weights;
  }

  visitState(visitor: StateVisitor): void {
    visitor.array(this.#products);
    visitor.array(this.#sums);
    this.#samples = visitor.number(this.#samples);
    this.#wasLate = visitor.flag(this.#wasLate);
    if (visitor.restores) this.#isStale = this.#samples > 0;
    if (visitor.restores) this.#weights = null;
  }

  #best(): Float64Array | null {
    const subsets = Array.from({ length: 2 ** this.#features - 1 }, (_, i) => membersOf(i + 1));
    subsets.sort((a, b) => a.length - b.length);
    let best: Float64Array | null = null;
    let least = this.#samples;
    for (const members of subsets) {
      const solved = this.#solve(members);
      if (solved === null || solved.some((weight) => weight < 0)) continue;
      const weights = new Float64Array(this.#features);
      members.forEach((feature, i) => {
        weights[feature] = solved[i];
      });
      const error = this.#samples - weights.reduce((sum, weight, i) => sum + weight * this.#sums[i], 0);
      if (best !== null && error > least - GAIN_LEAST * this.#samples) continue;
      best = weights;
      least = error;
    }
    return best;
  }

  /** Gaussian elimination on columns scaled to 1. @returns null if features are linearly dependent */
  #solve(members: readonly number[]): Float64Array | null {
    const n = members.length;
    const scale = members.map((i) => Math.sqrt(this.#products[i * this.#features + i]));
    if (scale.some((each) => !(each > 0))) return null;
    const rows = members.map((i, r) => [
      ...members.map((j, c) => this.#products[i * this.#features + j] / (scale[r] * scale[c])),
      this.#sums[i] / scale[r],
    ]);
    for (let c = 0; c < n; c++) {
      if (rows[c][c] < PIVOT_LEAST) return null;
      for (let r = c + 1; r < n; r++) {
        const factor = rows[r][c] / rows[c][c];
        for (let k = c; k <= n; k++) rows[r][k] -= factor * rows[c][k];
      }
    }
    const solved = new Float64Array(n);
    for (let r = n - 1; r >= 0; r--) {
      let value = rows[r][n];
      for (let c = r + 1; c < n; c++) value -= rows[r][c] * solved[c];
      solved[r] = value / rows[r][r];
    }
    return solved.map((value, i) => value / scale[i]);
  }
}

function membersOf(subset: number): number[] {
  const members: number[] = [];
  for (let i = 0; 2 ** i <= subset; i++) if ((subset & (1 << i)) !== 0) members.push(i);
  return members;
}
