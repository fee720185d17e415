import { describe, expect, it } from 'vitest';
import {
  CHUNK_BYTES,
  digestEngine,
  hostDigest,
  portableDigest,
  STEP_BYTES,
  simdDigester,
  wasmBytes,
} from '../../../src/backends/host/hostDigest.ts';
import { type Digest, digestBytes, digestWords, digestWordsFrom } from '../../../src/runtime/digest.ts';
import { fillPattern } from '../../../src/runtime/pattern.ts';

/** The definition in digest.ts, in exact integers. */
function byDefinition(words: Uint32Array, first: number): Digest {
  const mask = 0xffff_ffffn;
  let lo = 0n;
  let hi = 0n;
  words.forEach((word, k) => {
    const i = BigInt(first + k);
    let x = BigInt(word) ^ ((i * 0x9e37_79b1n) & mask);
    x = ((x ^ (x >> 16n)) * 0x21f0_aaadn) & mask;
    x ^= x >> 15n;
    lo = (lo + x) & mask;
    hi = (hi + x * (2n * i + 1n)) & mask;
  });
  return { lo: Number(lo), hi: Number(hi) };
}

const simd = simdDigester();
const lengths = [
  0,
  4,
  12,
  16,
  28,
  STEP_BYTES,
  STEP_BYTES + 4,
  4096,
  CHUNK_BYTES - 4,
  CHUNK_BYTES,
  CHUNK_BYTES + 20,
  3 * CHUNK_BYTES + 8,
];
const starts = [0, 1, 3, 1000, 2 ** 20 + 1, 2 ** 29 + 7];

function pattern(bytes: number, seed: number): Uint32Array<ArrayBuffer> {
  const words = new Uint32Array(bytes / 4);
  fillPattern(words, seed, 9);
  return words;
}

describe('the digest on the host', () => {
  it('runs in WebAssembly on the Node that the tests run on', () => {
    expect(simd).toBeDefined();
    expect(digestEngine()).toBe('wasm-simd');
  });

  it('is what the definition says, in both forms, from any word on', () => {
    for (const bytes of lengths) {
      for (const first of starts) {
        const words = pattern(bytes, first);
        const wanted = byDefinition(words, first);
        expect(portableDigest(new Uint8Array(words.buffer), first), `${bytes} bytes from ${first}`).toEqual(
          wanted,
        );
        expect(simd!(new Uint8Array(words.buffer), first), `${bytes} bytes from ${first}`).toEqual(wanted);
      }
    }
  });

  it('of a unit is the sum over its stretches, wherever it is cut', () => {
    const bytes = new Uint8Array(pattern(50_000, 5).buffer);
    const whole = digestBytes(bytes);
    for (const cut of [4, 16, 4096, 32_772, 49_996]) {
      const head = hostDigest(bytes.subarray(0, cut));
      const tail = hostDigest(bytes.subarray(cut), cut / 4);
      expect({ lo: (head.lo + tail.lo) >>> 0, hi: (head.hi + tail.hi) >>> 0 }).toEqual(whole);
    }
  });

  it('does not depend on where the bytes start in memory', () => {
    const words = pattern(40_000, 8);
    const wanted = digestWords(words);
    for (const offset of [0, 1, 2, 3, 5, 64]) {
      const room = new Uint8Array(40_000 + offset);
      room.set(new Uint8Array(words.buffer), offset);
      expect(hostDigest(room.subarray(offset))).toEqual(wanted);
      expect(portableDigest(room.subarray(offset), 0)).toEqual(wanted);
    }
  });

  it('is the same in place, in memory of an arena, and wherever in it the bytes lie', () => {
    const memory = new Uint8Array(wasmBytes(3 * 65_536)!);
    for (const bytes of lengths) {
      for (const at of [0, 4, 20, 4096, 65_536 - 4, 3 * 65_536 - bytes]) {
        const words = pattern(bytes, at);
        memory.fill(0xee).set(new Uint8Array(words.buffer), at);
        const wanted = byDefinition(words, at);
        expect(hostDigest(memory.subarray(at, at + bytes), at), `${bytes} bytes at ${at}`).toEqual(wanted);
      }
    }
  });

  it('notices each single flipped bit, and two swapped words', () => {
    const words = pattern(256, 11);
    const wanted = digestWords(words);
    for (let bit = 0; bit < 8 * 256; bit++) {
      words[bit >> 5] ^= 1 << (bit & 31);
      expect(hostDigest(new Uint8Array(words.buffer))).not.toEqual(wanted);
      words[bit >> 5] ^= 1 << (bit & 31);
    }
    for (let i = 1; i < words.length; i++) {
      const swapped = words.slice();
      swapped[i] = words[i - 1];
      swapped[i - 1] = words[i];
      expect(hostDigest(new Uint8Array(swapped.buffer))).not.toEqual(wanted);
    }
  });

  it('notices the same bit flipped in two words, however far apart and in whatever plain data', () => {
    const word = new Uint32Array(1);
    const digestOf = (value: number, at: number): Digest => {
      word[0] = value;
      return digestWordsFrom(word, at);
    };
    const state = { at: 1 };
    const next = (below: number): number => {
      state.at = Math.imul(state.at, 0x0019_660d) + 0x3c6e_f35f;
      return (state.at >>> 0) % below;
    };
    for (const plain of [0, 0xffff_ffff, 0x3f80_3f80, 0x8000_8000]) {
      for (let bit = 0; bit < 32; bit++) {
        for (let distance = 1; distance <= 2 ** 23; distance *= 2) {
          for (let draw = 0; draw < 20; draw++) {
            const places = [next(2 ** 23)];
            places.push(places[0] + distance);
            let lo = 0;
            let hi = 0;
            for (const at of places) {
              const before = digestOf(plain, at);
              const after = digestOf((plain ^ (1 << bit)) >>> 0, at);
              lo += after.lo - before.lo;
              hi += after.hi - before.hi;
            }
            if ((lo | 0) === 0 && (hi | 0) === 0) {
              expect.fail(`bit ${bit} of words ${places} of ${plain} flipped unnoticed`);
            }
          }
        }
      }
    }
  });
});
