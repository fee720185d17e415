/** How numbers, digests and parents stand in the 32-bit words of records and of the index. */

import type { Digest } from '../../../runtime/digest.ts';

const UNKNOWN_WORD = 0xffff_ffff;

/** All ones stand for a parent that is not known. */
export function setParent(words: Uint32Array, at: number, parent: Uint32Array | undefined): void {
  if (parent === undefined) words.fill(UNKNOWN_WORD, at, at + 4);
  else words.set(parent, at);
}

export function parentIn(words: Uint32Array, at: number): Uint32Array | undefined {
  const parent = words.slice(at, at + 4);
  return parent.every((word) => word === UNKNOWN_WORD) ? undefined : parent;
}

export function setDigest(words: Uint32Array, at: number, digest: Digest): void {
  words[at] = digest.lo;
  words[at + 1] = digest.hi;
}

export function isDigest(words: Uint32Array, at: number, digest: Digest): boolean {
  return words[at] === digest.lo && words[at + 1] === digest.hi;
}

export function setWide(words: Uint32Array, at: number, value: number): void {
  words[at] = value >>> 0;
  words[at + 1] = Math.floor(value / 2 ** 32);
}

export function wide(words: Uint32Array, at: number): number {
  return words[at] + words[at + 1] * 2 ** 32;
}
