/**
 * The inner loop of the random source: replaces the 607 words of the register by the next 607. The lags make any 273
 * consecutive words independent of one another, so both loops run over plain ranges. Carries are taken from the sign bits,
 * which keeps every operation in 32 bits.
 */

export const LAG = 607;
export const TAP_LAG = 273;

/**
 * Advances `words` (607 interleaved low and high halves) by 607 steps.
 * @returns the number of new words whose bits [32, 63) exceed `limit`.
 */
export function advanceRegister(words: Int32Array, limit: number): number {
  let rejected = 0;
  for (let i = 0, tap = 2 * (LAG - TAP_LAG); i < 2 * TAP_LAG; i += 2, tap += 2) {
    const a = words[i];
    const b = words[tap];
    const sum = (a + b) | 0;
    const high = (words[i + 1] + words[tap + 1] + (((a & b) | ((a | b) & ~sum)) >>> 31)) | 0;
    words[i] = sum;
    words[i + 1] = high;
    rejected += (limit - (high & 0x7fffffff)) >>> 31;
  }
  for (let i = 2 * TAP_LAG, tap = 0; i < 2 * LAG; i += 2, tap += 2) {
    const a = words[i];
    const b = words[tap];
    const sum = (a + b) | 0;
    const high = (words[i + 1] + words[tap + 1] + (((a & b) | ((a | b) & ~sum)) >>> 31)) | 0;
    words[i] = sum;
    words[i + 1] = high;
    rejected += (limit - (high & 0x7fffffff)) >>> 31;
  }
  return rejected;
}
