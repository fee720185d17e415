/**
 * The digest of bytes in host memory, as fast as this engine computes it: in WebAssembly where that runs and
 * passes a comparison with `runtime/digest.ts`, else there. The answer is the same either way.
 *
 * A part of a unit's words, from word `firstWord` on, has a digest of its own, and the digest of a unit is
 * the lane-wise sum over its parts: so a unit that arrives in several I/Os is digested as they end.
 */

import { type Digest, digestWordsFrom } from '../../runtime/digest.ts';
import { CHUNK_BYTES, copyingDigest, inPlaceDigest, wholeSteps } from './inPlace.ts';

type Digester = (bytes: Uint8Array, firstWord: number) => Digest;

export type DigestEngine = 'wasm-simd' | 'javascript';

/** Chosen before anybody opens an arena: the addresses of a process may be few. */
const chosen = choose();

function choose(): { readonly engine: DigestEngine; readonly digest: Digester } {
  const simd = simdDigester();
  return simd !== undefined && agrees(simd)
    ? { engine: 'wasm-simd', digest: simd }
    : { engine: 'javascript', digest: portableDigest };
}

/** Which of them computes. */
export function digestEngine(): DigestEngine {
  return chosen.engine;
}

/** Digest of `bytes`, a multiple of 4 long and anywhere: the words of a unit from `firstWord` on. */
export function hostDigest(bytes: Uint8Array, firstWord = 0): Digest {
  return chosen.digest(bytes, firstWord);
}

/** As `hostDigest`, without WebAssembly. */
export function portableDigest(bytes: Uint8Array, firstWord: number): Digest {
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
  const words = new Uint32Array(aligned.buffer, aligned.byteOffset, aligned.byteLength / 4);
  return digestWordsFrom(words, firstWord);
}

/** As `hostDigest` in WebAssembly, or undefined where the engine does not run it. */
export function simdDigester(): Digester | undefined {
  let copying: Digester;
  try {
    copying = copyingDigest();
  } catch {
    return undefined; // no WebAssembly, or one without SIMD
  }
  return (bytes, firstWord) => {
    const length = wholeSteps(bytes.byteLength);
    if (length === 0) return portableDigest(bytes, firstWord);
    const inPlace = inPlaceDigest(bytes.buffer);
    const whole = length === bytes.byteLength ? bytes : bytes.subarray(0, length);
    const found =
      inPlace === undefined ? copying(whole, firstWord) : inPlace(bytes.byteOffset, length, firstWord);
    if (whole === bytes) return found;
    const rest = portableDigest(bytes.slice(length), firstWord + length / 4);
    return { lo: (found.lo + rest.lo) >>> 0, hi: (found.hi + rest.hi) >>> 0 };
  };
}

/** Whether `digest` computes what the definition says, over several chunks and at both ends of the loop. */
function agrees(digest: Digester): boolean {
  const words = new Uint32Array(CHUNK_BYTES / 2 + 13);
  for (let i = 0; i < words.length; i++) words[i] = Math.imul(i + 1, 0x2c1b3c6d) ^ (i << 7);
  const bytes = new Uint8Array(words.buffer);
  return [0, 4, 28, 32, 36, CHUNK_BYTES, bytes.byteLength].every((length) => {
    const part = bytes.subarray(0, length);
    const found = digest(part, length);
    const wanted = portableDigest(part, length);
    return found.lo === wanted.lo && found.hi === wanted.hi;
  });
}
