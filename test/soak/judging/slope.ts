/**
 * How fast a series grows, in spite of noise and steps. The estimate is the median of the slopes of all pairs
 * of points (H. Theil, "A rank-invariant method of linear and polynomial regression analysis", Proc. Kon.
 * Ned. Akad. v. Wetensch. A 53, 1950); its interval is P. K. Sen's ("Estimates of the regression coefficient
 * based on Kendall's tau", J. Amer. Statist. Assoc. 63, 1968). Almost 30 % of the points may lie anywhere
 * without moving it far.
 *
 * The interval takes the points for independent. Memory is not: an allocator keeps what it once took. Such a
 * series looks more certain than it is, so a bound on growth is met by the size of the slope and not by its
 * interval alone.
 */

export interface Slope {
  /** Growth of y for one unit of x. */
  readonly perUnit: number;
  /** The 95 % interval of it. */
  readonly low: number;
  readonly high: number;
}

/** The normal distribution's 97.5 % point. */
const Z = 1.959_963_984_540_054;

/**
 * @param x increasing @throws RangeError with fewer than three points: two have no noise to tell growth from
 */
export function theilSen(x: readonly number[], y: readonly number[]): Slope {
  const n = x.length;
  if (n < 3 || y.length !== n) throw new RangeError(`a slope of ${n} points against ${y.length}`);
  const slopes = new Float64Array((n * (n - 1)) / 2);
  let count = 0;
  for (let i = 0; i < n; i++) {
    for (let j = i + 1; j < n; j++) slopes[count++] = (y[j] - y[i]) / (x[j] - x[i]);
  }
  slopes.sort();
  const spread = Z * Math.sqrt((n * (n - 1) * (2 * n + 5)) / 18);
  const last = count - 1;
  return {
    perUnit: (slopes[last >> 1] + slopes[(last + 1) >> 1]) / 2,
    low: slopes[Math.max(0, Math.floor((count - spread) / 2) - 1)],
    high: slopes[Math.min(last, Math.ceil((count + spread) / 2))],
  };
}

/** Whether a series grows by more than `tolerance` a unit of x, and surely grows at all. */
export function leaks(slope: Slope, tolerance: number): boolean {
  return slope.low > 0 && slope.perUnit > tolerance;
}
