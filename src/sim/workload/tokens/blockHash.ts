/**
 * Upstream's identity of a KV block: SHA-256 over the hexadecimal hash of the block before it and every token
 * in decimal followed by a bar. Only full blocks have one, so a chain of hashes names a prefix of whole
 * blocks.
 */

import { sha256Hex } from './sha256.ts';

const encoder = new TextEncoder();

/** @param previous the hash of the block before, '' for the first. */
export function blockHash(previous: string, tokens: ArrayLike<number>): string {
  let text = previous;
  for (let i = 0; i < tokens.length; i++) text += `${tokens[i]}|`;
  return sha256Hex(encoder.encode(text));
}

/** Hashes of the full blocks of a prompt, in order. */
export function blockHashes(tokens: Int32Array, blockTokens: number): string[] {
  const hashes: string[] = [];
  let previous = '';
  for (let end = blockTokens; end <= tokens.length; end += blockTokens) {
    previous = blockHash(previous, tokens.subarray(end - blockTokens, end));
    hashes.push(previous);
  }
  return hashes;
}
