/**
 * Idle ages in buckets: half octaves from half a second, so that 32 of them reach four and a half hours. The
 * bounds are literals, since `Math.pow` may differ between engines.
 *
 *     bucket      0        1          2         ...   31
 *     age    0 -- 500 ms -- 707 ms -- 1 s -- ...  -- 3 h -- ...
 */

export const BUCKETS = 32;

/** First age of each bucket in microseconds, and behind the last the age at which the outlook ends. */
export const bucketStartUs: Float64Array = Float64Array.from([
  0, 500e3, 707_107, 1e6, 1_414_214, 2e6, 2_828_427, 4e6, 5_656_854, 8e6, 11_313_709, 16e6, 22_627_417, 32e6,
  45_254_834, 64e6, 90_509_668, 128e6, 181_019_336, 256e6, 362_038_672, 512e6, 724_077_344, 1024e6,
  1_448_154_688, 2048e6, 2_896_309_376, 4096e6, 5_792_618_751, 8192e6, 11_585_237_503, 16_384e6,
  23_170_475_006,
]);

/** @returns the bucket that an age of so many microseconds falls in */
export function bucketOf(ageUs: number): number {
  let low = 0;
  let high = BUCKETS;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (ageUs >= bucketStartUs[middle]) low = middle;
    else high = middle;
  }
  return low;
}
