/**
 * The digest of bytes in host memory, as fast as this engine computes it: in WebAssembly where that runs and passes a
 * comparison with `runtime/digest.ts`, else there. The answer is the same either way.
 *
 * A stretch of a unit's words, from word `f` on, has a digest of its own, and the digest of a unit is the lane-wise sum over
 * its stretches: so a unit is digested piece by piece as it arrives. Over the n vectors of four words in a stretch, lane j
 * keeps S = sum of x[k] and T = sum of all partial sums = sum of (n - k) x[k]. Since word 4 k + j of the stretch has the
 * weight 2 (f + 4 k + j) + 1, that lane's part of `hi` is 8 (n S - T) + (2 (f + j) + 1) S.
 */

import { type Digest, digestWordsFrom } from '../../runtime/digest.ts';
import { CHUNK_BYTES, CHUNK_START, STEP_BYTES, simdModule } from './simdModule.ts';

const GOLDEN = 0x9e3779b1;

interface Exports {
  readonly m: { readonly buffer: ArrayBuffer };
  readonly d: (at: number, end: number) => void;
}

/** The part of the global that neither the ES library nor @types/node declares. */
interface WebAssemblyLike {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: Exports };
}

type Digester = (bytes: Uint8Array, firstWord: number) => Digest;

/** Which one computes, and how fast each was measured is in docs/transfers.md. */
export type DigestEngine = 'wasm-simd' | 'javascript';

let chosen: { readonly engine: DigestEngine; readonly digest: Digester } | undefined;

function choose(): NonNullable<typeof chosen> {
  if (chosen !== undefined) return chosen;
  const simd = simdDigester();
  chosen =
    simd !== undefined && agrees(simd)
      ? { engine: 'wasm-simd', digest: simd }
      : { engine: 'javascript', digest: portableDigest };
  return chosen;
}

export function digestEngine(): DigestEngine {
  return choose().engine;
}

/**
 * Digest of the words of `bytes`, which are a unit's from word `firstWord` on.
 * @param bytes a multiple of 4 long; they may start anywhere
 */
export function hostDigest(bytes: Uint8Array, firstWord = 0): Digest {
  return choose().digest(bytes, firstWord);
}

/** As `hostDigest`, without WebAssembly. */
export function portableDigest(bytes: Uint8Array, firstWord: number): Digest {
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
  return digestWordsFrom(
    new Uint32Array(aligned.buffer, aligned.byteOffset, aligned.byteLength / 4),
    firstWord,
  );
}

/** As `hostDigest` in WebAssembly, or undefined where the engine does not run it. */
export function simdDigester(): Digester | undefined {
  const wasm = (globalThis as { WebAssembly?: WebAssemblyLike }).WebAssembly;
  if (wasm === undefined) return undefined;
  let exports: Exports;
  try {
    exports = new wasm.Instance(new wasm.Module(simdModule())).exports;
  } catch {
    return undefined; // an engine without SIMD
  }
  const memory = new Uint8Array(exports.m.buffer);
  const state = new Int32Array(exports.m.buffer, 0, 12);
  return (bytes, firstWord) => {
    const end = bytes.byteLength - (bytes.byteLength % STEP_BYTES);
    for (let lane = 0; lane < 4; lane++) state[lane] = Math.imul(firstWord + lane, GOLDEN);
    state.fill(0, 4);
    for (let at = 0; at < end; at += CHUNK_BYTES) {
      const length = Math.min(CHUNK_BYTES, end - at);
      memory.set(bytes.subarray(at, at + length), CHUNK_START);
      exports.d(CHUNK_START, CHUNK_START + length);
    }
    let lo = 0;
    let hi = 0;
    for (let lane = 0; lane < 4; lane++) {
      const sum = state[4 + lane]!;
      const weighted = (Math.imul(end / 16, sum) - state[8 + lane]!) | 0;
      lo = (lo + sum) | 0;
      hi = (hi + Math.imul(8, weighted) + Math.imul(2 * (firstWord + lane) + 1, sum)) | 0;
    }
    if (end < bytes.byteLength) {
      const rest = portableDigest(bytes.slice(end), firstWord + end / 4);
      lo += rest.lo;
      hi += rest.hi;
    }
    return { lo: lo >>> 0, hi: hi >>> 0 };
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
