/**
 * Test bytes that only one block can have: word i of the block with seed (lo, hi) is
 *
 *     p[i] = mix(mix(lo ^ (i * 0x9E3779B1)) + hi)      arithmetic modulo 2^32
 *
 * with the 32-bit finalizer of MurmurHash3 (Appleby, public domain) for mix. The device writes and checks the
 * same words in WGSL, so a wrong, stale or foreign block is caught when it comes back.
 */

function mix(value: number): number {
  let x = value;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
}

export function patternWord(seedLo: number, seedHi: number, index: number): number {
  return mix((mix(seedLo ^ Math.imul(index, 0x9e3779b1)) + seedHi) | 0) >>> 0;
}

export function fillPattern(words: Uint32Array, seedLo: number, seedHi: number): void {
  for (let i = 0; i < words.length; i++) words[i] = patternWord(seedLo, seedHi, i);
}

/** Number of words of `words` that are not the pattern's. */
export function countPatternMismatches(words: Uint32Array, seedLo: number, seedHi: number): number {
  let mismatches = 0;
  for (let i = 0; i < words.length; i++) if (words[i] !== patternWord(seedLo, seedHi, i)) mismatches++;
  return mismatches;
}
