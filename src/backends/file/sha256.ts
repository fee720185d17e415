/** SHA-256 (FIPS 180-4), for what is read without `node:crypto`. It is synchronous, and slower than Node's. */

/** The first 32 bits of the fractional parts of the roots of the first primes: square roots, and cube roots. */
function rootsOfPrimes(count: number, power: number): Uint32Array {
  const words = new Uint32Array(count);
  for (let found = 0, candidate = 2; found < count; candidate++) {
    let isPrime = true;
    for (let factor = 2; factor * factor <= candidate && isPrime; factor++)
      isPrime = candidate % factor !== 0;
    if (isPrime) words[found++] = fractionOfRoot(BigInt(candidate), BigInt(power));
  }
  return words;
}

/**
 * Computed in integers, since a double has not the bits: the largest r with r^power <= n 2^(32 power), without its
 * whole part.
 */
function fractionOfRoot(n: bigint, power: bigint): number {
  const target = n << (32n * power);
  let [low, high] = [0n, n << 32n];
  while (low < high) {
    const middle = (low + high + 1n) >> 1n;
    if (middle ** power <= target) low = middle;
    else high = middle - 1n;
  }
  return Number(low & 0xffff_ffffn);
}

const start = rootsOfPrimes(8, 2);
const constants = rootsOfPrimes(64, 3);

const rotate = (word: number, bits: number): number => (word >>> bits) | (word << (32 - bits));

/** @returns the eight words of the digest, each as it is written with its high byte first */
export function sha256(bytes: Uint8Array): Uint32Array {
  const padded = new Uint8Array(Math.ceil((bytes.length + 9) / 64) * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(bytes.length) * 8n);
  const hash = start.slice();
  const schedule = new Uint32Array(64);
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 16; i++) schedule[i] = view.getUint32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const [early, late] = [schedule[i - 15], schedule[i - 2]];
      const first = rotate(early, 7) ^ rotate(early, 18) ^ (early >>> 3);
      const second = rotate(late, 17) ^ rotate(late, 19) ^ (late >>> 10);
      schedule[i] = schedule[i - 16] + first + schedule[i - 7] + second;
    }
    let [a, b, c, d, e, f, g, h] = hash;
    for (let i = 0; i < 64; i++) {
      const chosen = (e & f) ^ (~e & g);
      const most = (a & b) ^ (a & c) ^ (b & c);
      const one =
        (h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + chosen + constants[i] + schedule[i]) | 0;
      const two = ((rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + most) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    for (const [i, word] of [a, b, c, d, e, f, g, h].entries()) hash[i] += word;
  }
  return hash;
}
