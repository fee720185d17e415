/**
 * SHA-256 (FIPS 180-4) of bytes, synchronous and without a platform module, for the identities that upstream
 * defines by it.
 */

/**
 * The first 32 bits of the fractional parts of the roots of the first primes: cube roots for K, square roots
 * for the start.
 */
function rootBits(count: number, root: (prime: bigint) => bigint): Int32Array {
  const bits: number[] = [];
  for (let candidate = 2n; bits.length < count; candidate++) {
    let prime = true;
    for (let d = 2n; d * d <= candidate; d++) prime &&= candidate % d !== 0n;
    if (prime) bits.push(Number(BigInt.asIntN(32, root(candidate))));
  }
  return Int32Array.from(bits);
}

/** floor(n^(1/k)) by bisection. */
function integerRoot(n: bigint, k: bigint): bigint {
  let low = 0n;
  let high = 1n << 48n;
  while (low < high) {
    const middle = (low + high + 1n) / 2n;
    if (middle ** k <= n) low = middle;
    else high = middle - 1n;
  }
  return low;
}

const K = rootBits(64, (prime) => integerRoot(prime << 96n, 3n));
const START = rootBits(8, (prime) => integerRoot(prime << 64n, 2n));

const rotate = (x: number, n: number): number => (x >>> n) | (x << (32 - n));

const schedule = new Int32Array(64);

function compress(state: Int32Array, block: DataView, offset: number): void {
  for (let i = 0; i < 16; i++) schedule[i] = block.getInt32(offset + 4 * i);
  for (let i = 16; i < 64; i++) {
    const x = schedule[i - 15];
    const y = schedule[i - 2];
    const s0 = rotate(x, 7) ^ rotate(x, 18) ^ (x >>> 3);
    const s1 = rotate(y, 17) ^ rotate(y, 19) ^ (y >>> 10);
    schedule[i] = (schedule[i - 16] + s0 + schedule[i - 7] + s1) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const choice = (e & f) ^ (~e & g);
    const t1 = (h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + choice + K[i] + schedule[i]) | 0;
    const majority = (a & b) ^ (a & c) ^ (b & c);
    const t2 = ((rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + majority) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
  }
  for (const [i, value] of [a, b, c, d, e, f, g, h].entries()) state[i] = (state[i] + value) | 0;
}

/** The digest of `bytes` in lower-case hexadecimal. */
export function sha256Hex(bytes: Uint8Array): string {
  const padded = new Uint8Array((Math.floor((bytes.length + 8) / 64) + 1) * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 2 ** 29));
  view.setUint32(padded.length - 4, (bytes.length * 8) >>> 0);
  const state = START.slice();
  for (let offset = 0; offset < padded.length; offset += 64) compress(state, view, offset);
  return Array.from(state, (word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
}
