/**
 * The digest of a unit's bytes: 64 bits as two 32-bit lanes, the same on the host and in WGSL, computed in
 * any order.
 *
 * Read the bytes as little-endian 32-bit words w[i] (a unit is a multiple of 4 bytes). With all arithmetic
 * modulo 2^32:
 *
 *     x[i] = spread(w[i] ^ (i * 0x9E3779B1))
 *     lo   = sum of x[i]
 *     hi   = sum of x[i] * (2 i + 1)
 *
 *     spread(v) = u ^ (u >> 15) with u = (v ^ (v >> 16)) * 0x21F0AAAD
 *
 * spread, the first half of lowbias32 (C. Wellons, Hash Prospector, public domain), is a bijection, so any
 * change to one word changes `lo`; the position enters both before it and as an odd weight, so that moved
 * words show too. One multiplication a word is what a host has time for that digests all that it reads. It
 * guards against faults, not against forgers: keys are what is cryptographic.
 */

import { inputError } from './errors.ts';
import * as is from './kinds.ts';

export interface Digest {
  readonly lo: number;
  readonly hi: number;
}

/** Digest of `words`; its lanes are unsigned 32-bit integers. */
export function digestWords(words: Uint32Array): Digest {
  return digestWordsFrom(words, 0);
}

function spread(word: number): number {
  const x = Math.imul(word ^ (word >>> 16), 0x21f0aaad);
  return x ^ (x >>> 15);
}

/**
 * Digest of the words w[first], w[first + 1] .. of a unit. The digest of a unit is the lane-wise sum over its
 * stretches.
 *
 * The weights cost no multiplication: with T = the sum of all partial sums, which holds the word k of n (n -
 * k) times, the sum of k x[k] is n lo - T.
 */
export function digestWordsFrom(words: Uint32Array, first: number): Digest {
  let lo = 0;
  let sums = 0;
  let position = Math.imul(first, 0x9e3779b1);
  const count = words.length;
  const fours = count - (count % 4);
  let i = 0;
  for (; i < fours; i += 4) {
    lo = (lo + spread(words[i] ^ position)) | 0;
    sums = (sums + lo) | 0;
    lo = (lo + spread(words[i + 1] ^ (position + 0x9e3779b1))) | 0;
    sums = (sums + lo) | 0;
    lo = (lo + spread(words[i + 2] ^ (position + 0x3c6ef362))) | 0;
    sums = (sums + lo) | 0;
    lo = (lo + spread(words[i + 3] ^ (position + 0xdaa66d13))) | 0;
    sums = (sums + lo) | 0;
    position = (position + 0x78dde6c4) | 0;
  }
  for (; i < count; i++) {
    lo = (lo + spread(words[i] ^ position)) | 0;
    sums = (sums + lo) | 0;
    position = (position + 0x9e3779b1) | 0;
  }
  const hi = (Math.imul(2 * (first + count) + 1, lo) - 2 * sums) | 0;
  return { lo: lo >>> 0, hi: hi >>> 0 };
}

/** Digest of `bytes`. @throws TKV_INPUT where their length or address is not a multiple of 4 */
export function digestBytes(bytes: Uint8Array): Digest {
  is.bytes().read(bytes, 'bytes');
  if (bytes.byteLength % 4 !== 0 || bytes.byteOffset % 4 !== 0) {
    const problem = `has ${bytes.byteLength} bytes from byte ${bytes.byteOffset} of its buffer on`;
    throw inputError(
      'bytes',
      `${problem}, and a digest needs whole, aligned 32-bit words. Pass a copy of 4 n bytes.`,
    );
  }
  return digestWords(new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4));
}
