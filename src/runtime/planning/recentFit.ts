/**
 * y = w . x with weights that are never negative, fitted to recent samples: each new one makes all before it
 * count a little less. What is minimised is the relative error, so that short samples count as much as long
 * ones.
 *
 * A sample that is far from what the others say may mean that things are not as they were. Then those before
 * it count much less. One that is far shorter means it: nothing is quick by chance. One that is far longer
 * may have been held up, so it counts for the longest that would not be far, and means it when the next one
 * is far longer too, or when there are few others.
 *
 * Features are few, so every subset of them is solved by its normal equations, and the one with the smallest
 * error whose weights are all positive is taken; of equals, the one with fewer features. Additions, products
 * and square roots only: the same samples give the same bits everywhere.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot/index.ts';

/** Below this share of its column, what elimination leaves of a feature says nothing that others do not. */
const PIVOT_LEAST = 1e-7;
/** Far is so many times as long, or as short, as expected; older samples then count so much less. */
const SURPRISE = 3;
const KEEP_SURPRISED = 0.1;
/** As long as fewer samples than these count, nothing is doubted. */
const SAMPLES_FEW = 6;
/** A larger subset has to explain so much more of what is left. */
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
  /** Whether the last sample was far longer than the others say. */
  #wasLate = false;

  /** @param keep what is left of a sample's weight when another one comes, from 0 to 1 */
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

  /** What the samples so far say of this one; undefined before the first. */
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

  /** Gaussian elimination on columns that are scaled to 1. @returns null where features say the same */
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
