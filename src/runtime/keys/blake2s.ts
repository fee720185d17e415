/**
 * BLAKE2s (RFC 7693) over 32-bit words: the keyed cryptographic hash behind every key, without node:crypto
 * and without garbage. Callers own the eight words of state and the sixteen of message, so that a state can
 * be copied as a midstate: the state after the key block is computed once a namespace, not once a key.
 *
 * Words are the message's bytes read as little-endian, whatever the machine: nothing here looks at memory as
 * bytes except `loadBytes`, which builds words by arithmetic.
 */

import { configError, invariant } from '../errors.ts';
import * as is from '../kinds.ts';
import { checkInputs } from '../options.ts';

/**
 * RFC 7693, section 2.6: the first 32 bits of the fractional parts of the square roots of the first eight
 * primes.
 */
const initial: Uint32Array = Uint32Array.of(
  0x6a09e667,
  0xbb67ae85,
  0x3c6ef372,
  0xa54ff53a,
  0x510e527f,
  0x9b05688c,
  0x1f83d9ab,
  0x5be0cd19,
);

/** RFC 7693, section 2.7: which message word each half of each G takes, sixteen a round, ten rounds. */
const schedule: Uint8Array = Uint8Array.from(
  [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
  ].flat(),
);

export const stateWords = 8;
export const messageWords = 16;
export const messageBytes = 64;
export const keyBytesMax = 32;
export const digestBytesMax = 32;

/** State before the first block of a hash of `digestLength` bytes with a key of `keyLength` bytes. */
function startState(state: Uint32Array, digestLength: number, keyLength: number): void {
  state.set(initial);
  state[0] ^= 0x01010000 ^ (keyLength << 8) ^ digestLength;
}

/**
 * Mixes one 64-byte block into `state`. `totalBytes` counts all bytes up to and with this block, without the
 * zeros that fill up the last one; it is below 2^32, as no key hashes 4 GiB.
 */
export function compress(
  state: Uint32Array,
  message: Uint32Array,
  totalBytes: number,
  isLast: boolean,
): void {
  let a0 = state[0] | 0;
  let a1 = state[1] | 0;
  let a2 = state[2] | 0;
  let a3 = state[3] | 0;
  let b0 = state[4] | 0;
  let b1 = state[5] | 0;
  let b2 = state[6] | 0;
  let b3 = state[7] | 0;
  let c0 = 0x6a09e667;
  let c1 = 0xbb67ae85 | 0;
  let c2 = 0x3c6ef372;
  let c3 = 0xa54ff53a | 0;
  let d0 = 0x510e527f ^ totalBytes;
  let d1 = 0x9b05688c | 0;
  let d2 = isLast ? ~0x1f83d9ab : 0x1f83d9ab;
  let d3 = 0x5be0cd19;
  for (let s = 0; s < 160; s += 16) {
    a0 = (a0 + b0 + message[schedule[s]]) | 0;
    d0 ^= a0;
    d0 = (d0 >>> 16) | (d0 << 16);
    c0 = (c0 + d0) | 0;
    b0 ^= c0;
    b0 = (b0 >>> 12) | (b0 << 20);
    a0 = (a0 + b0 + message[schedule[s + 1]]) | 0;
    d0 ^= a0;
    d0 = (d0 >>> 8) | (d0 << 24);
    c0 = (c0 + d0) | 0;
    b0 ^= c0;
    b0 = (b0 >>> 7) | (b0 << 25);

    a1 = (a1 + b1 + message[schedule[s + 2]]) | 0;
    d1 ^= a1;
    d1 = (d1 >>> 16) | (d1 << 16);
    c1 = (c1 + d1) | 0;
    b1 ^= c1;
    b1 = (b1 >>> 12) | (b1 << 20);
    a1 = (a1 + b1 + message[schedule[s + 3]]) | 0;
    d1 ^= a1;
    d1 = (d1 >>> 8) | (d1 << 24);
    c1 = (c1 + d1) | 0;
    b1 ^= c1;
    b1 = (b1 >>> 7) | (b1 << 25);

    a2 = (a2 + b2 + message[schedule[s + 4]]) | 0;
    d2 ^= a2;
    d2 = (d2 >>> 16) | (d2 << 16);
    c2 = (c2 + d2) | 0;
    b2 ^= c2;
    b2 = (b2 >>> 12) | (b2 << 20);
    a2 = (a2 + b2 + message[schedule[s + 5]]) | 0;
    d2 ^= a2;
    d2 = (d2 >>> 8) | (d2 << 24);
    c2 = (c2 + d2) | 0;
    b2 ^= c2;
    b2 = (b2 >>> 7) | (b2 << 25);

    a3 = (a3 + b3 + message[schedule[s + 6]]) | 0;
    d3 ^= a3;
    d3 = (d3 >>> 16) | (d3 << 16);
    c3 = (c3 + d3) | 0;
    b3 ^= c3;
    b3 = (b3 >>> 12) | (b3 << 20);
    a3 = (a3 + b3 + message[schedule[s + 7]]) | 0;
    d3 ^= a3;
    d3 = (d3 >>> 8) | (d3 << 24);
    c3 = (c3 + d3) | 0;
    b3 ^= c3;
    b3 = (b3 >>> 7) | (b3 << 25);

    a0 = (a0 + b1 + message[schedule[s + 8]]) | 0;
    d3 ^= a0;
    d3 = (d3 >>> 16) | (d3 << 16);
    c2 = (c2 + d3) | 0;
    b1 ^= c2;
    b1 = (b1 >>> 12) | (b1 << 20);
    a0 = (a0 + b1 + message[schedule[s + 9]]) | 0;
    d3 ^= a0;
    d3 = (d3 >>> 8) | (d3 << 24);
    c2 = (c2 + d3) | 0;
    b1 ^= c2;
    b1 = (b1 >>> 7) | (b1 << 25);

    a1 = (a1 + b2 + message[schedule[s + 10]]) | 0;
    d0 ^= a1;
    d0 = (d0 >>> 16) | (d0 << 16);
    c3 = (c3 + d0) | 0;
    b2 ^= c3;
    b2 = (b2 >>> 12) | (b2 << 20);
    a1 = (a1 + b2 + message[schedule[s + 11]]) | 0;
    d0 ^= a1;
    d0 = (d0 >>> 8) | (d0 << 24);
    c3 = (c3 + d0) | 0;
    b2 ^= c3;
    b2 = (b2 >>> 7) | (b2 << 25);

    a2 = (a2 + b3 + message[schedule[s + 12]]) | 0;
    d1 ^= a2;
    d1 = (d1 >>> 16) | (d1 << 16);
    c0 = (c0 + d1) | 0;
    b3 ^= c0;
    b3 = (b3 >>> 12) | (b3 << 20);
    a2 = (a2 + b3 + message[schedule[s + 13]]) | 0;
    d1 ^= a2;
    d1 = (d1 >>> 8) | (d1 << 24);
    c0 = (c0 + d1) | 0;
    b3 ^= c0;
    b3 = (b3 >>> 7) | (b3 << 25);

    a3 = (a3 + b0 + message[schedule[s + 14]]) | 0;
    d2 ^= a3;
    d2 = (d2 >>> 16) | (d2 << 16);
    c1 = (c1 + d2) | 0;
    b0 ^= c1;
    b0 = (b0 >>> 12) | (b0 << 20);
    a3 = (a3 + b0 + message[schedule[s + 15]]) | 0;
    d2 ^= a3;
    d2 = (d2 >>> 8) | (d2 << 24);
    c1 = (c1 + d2) | 0;
    b0 ^= c1;
    b0 = (b0 >>> 7) | (b0 << 25);
  }
  state[0] ^= a0 ^ c0;
  state[1] ^= a1 ^ c1;
  state[2] ^= a2 ^ c2;
  state[3] ^= a3 ^ c3;
  state[4] ^= b0 ^ d0;
  state[5] ^= b1 ^ d1;
  state[6] ^= b2 ^ d2;
  state[7] ^= b3 ^ d3;
}

/** Reads up to 64 bytes from `at` on into the message words and zeros the rest. */
function loadBytes(message: Uint32Array, bytes: Uint8Array, at: number): void {
  message.fill(0);
  const end = Math.min(bytes.length - at, messageBytes);
  for (let i = 0; i < end; i++) message[i >> 2] |= bytes[at + i] << ((i & 3) * 8);
}

/** Starts a keyed hash: the state before the key block, and that block as message. */
function loadKey(state: Uint32Array, message: Uint32Array, key: Uint8Array, digestLength: number): void {
  if (key.length < 1 || key.length > keyBytesMax) {
    throw configError(
      'key',
      `has ${key.length} bytes, not 1 to ${keyBytesMax}`,
      `Give 1 to ${keyBytesMax} bytes.`,
    );
  }
  startState(state, digestLength, key.length);
  loadBytes(message, key, 0);
}

/**
 * State after the key block: where every keyed hash of `digestLength` bytes under `key` begins, with 64 bytes
 * counted.
 * @throws TKV_CONFIG when the key is empty or longer than BLAKE2s takes.
 */
export function keyedMidstate(key: Uint8Array, digestLength: number): Uint32Array {
  const state = new Uint32Array(stateWords);
  const message = new Uint32Array(messageWords);
  loadKey(state, message, key, digestLength);
  compress(state, message, messageBytes, false);
  return state;
}

/**
 * BLAKE2s of `data`, keyed where a key is given. For setup and small records: chains of keys compress into states that they keep.
 * @throws TKV_CONFIG when the key is empty or longer than BLAKE2s takes.
 */
export function blake2s(
  data: Uint8Array,
  digestLength: number = digestBytesMax,
  key?: Uint8Array,
): Uint8Array {
  checkInputs(
    { data, digestLength, key },
    { data: is.bytes(), digestLength: is.optional(is.number()), key: is.optional(is.bytes()) },
  );
  return blake2sOf(data, digestLength, key);
}

/** Like `blake2s`, for calls a block: checking the shapes takes a third of the time of hashing a name. */
export function blake2sOf(
  data: Uint8Array,
  digestLength: number = digestBytesMax,
  key?: Uint8Array,
): Uint8Array {
  invariant(digestLength >= 1 && digestLength <= digestBytesMax, 'BLAKE2s digests have 1 to 32 bytes');
  invariant(data.length < 2 ** 32 - messageBytes, 'this BLAKE2s counts to 4 GiB');
  const state = new Uint32Array(stateWords);
  const message = new Uint32Array(messageWords);
  let keyBytes = 0;
  if (key === undefined) {
    startState(state, digestLength, 0);
  } else {
    loadKey(state, message, key, digestLength);
    keyBytes = messageBytes;
    if (data.length > 0) compress(state, message, keyBytes, false);
  }
  let end = 0;
  do {
    if (data.length > 0) loadBytes(message, data, end);
    end = Math.min(end + messageBytes, data.length);
    compress(state, message, keyBytes + end, end === data.length);
  } while (end < data.length);
  return digestOf(state, digestLength);
}

function digestOf(state: Uint32Array, digestLength: number): Uint8Array {
  const digest = new Uint8Array(digestLength);
  for (let i = 0; i < digestLength; i++) digest[i] = state[i >> 2] >>> ((i & 3) * 8);
  return digest;
}
