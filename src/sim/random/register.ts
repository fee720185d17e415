/**
 * The inner loop of the random source: replaces the 607 words of the register by the next 607. The lags make any 273
 * consecutive words independent of one another, so both loops run over plain ranges. Carries are taken from the sign bits,
 * which keeps every operation in 32 bits.
 */

export const LAG = 607;
export const TAP_LAG = 273;

/**
 * Advances `words` (607 interleaved low and high halves) by `blocks` times 607 steps, blocks at least 1.
 * @returns the number of new words whose bits [32, 63) exceed `limit`.
 */
export function advanceRegister(words: Int32Array, limit: number, blocks: number): number {
  let rejected = 0;
  for (let block = 0; block < blocks; block++) {
    rejected += addTaps(words, 0, 2 * (LAG - TAP_LAG), 2 * TAP_LAG, limit);
    rejected += addTaps(words, 2 * TAP_LAG, 0, 2 * (LAG - TAP_LAG), limit);
  }
  return rejected;
}

/** Adds `halves / 2` words from `tap` on to those from `at` on. */
function addTaps(words: Int32Array, at: number, tap: number, halves: number, limit: number): number {
  let rejected = 0;
  for (let i = at, j = tap, end = at + halves; i < end; i += 2, j += 2) {
    const a = words[i];
    const b = words[j];
    const sum = (a + b) | 0;
    const high = (words[i + 1] + words[j + 1] + (((a & b) | ((a | b) & ~sum)) >>> 31)) | 0;
    words[i] = sum;
    words[i + 1] = high;
    rejected += (limit - (high & 0x7fffffff)) >>> 31;
  }
  return rejected;
}
