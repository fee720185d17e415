/**
 * The register of the random source: filling it from a seed, and replacing its 607 words by the next
 * 607. The lags make any 273 consecutive words independent of one another, so both parts run over plain ranges.
 * Carries are taken from the sign bits, which keeps every operation in 32 bits.
 */

import { SEED_WORDS } from './seedTable.ts';

export const LAG = 607;
export const TAP_LAG = 273;

const MODULUS = 2147483647; // 2^31 - 1, of the Lehmer generator that fills the register

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

/** One step of x -> 48271 x mod (2^31 - 1), by Schrage's decomposition so that nothing leaves 32 bits. */
function lehmer(x: number): number {
  const high = (x / 44488) | 0;
  const next = Math.imul(48271, x - Math.imul(high, 44488)) - Math.imul(3399, high);
  return next < 0 ? next + MODULUS : next;
}

/**
 * Fills `words` with the register that Go's `rngSource.Seed` leaves, oldest word first. `residue` is in [1,
 * 2^31 - 2].
 */
export function seedRegister(words: Int32Array, residue: number): void {
  let x = residue;
  for (let i = 0; i < 20; i++) x = lehmer(x);
  for (let i = 0; i < LAG; i++) {
    const a = lehmer(x);
    const b = lehmer(a);
    const c = lehmer(b);
    x = c;
    // Go fills a register that it then walks downwards from LAG - TAP_LAG - 1; here words lie in the order of
    // use.
    const at = 2 * ((2 * LAG - TAP_LAG - 1 - i) % LAG);
    words[at] = (b << 20) ^ c ^ SEED_WORDS[2 * i];
    words[at + 1] = (a << 8) ^ (b >>> 12) ^ SEED_WORDS[2 * i + 1];
  }
}
