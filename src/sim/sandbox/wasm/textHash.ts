/** Texts as numbers, for programs that have numbers only. */

const OFFSET = 0x811c9dc5;
const PRIME = 0x01000193;

/**
 * FNV-1a of 32 bits over the text's UTF-8, as an integer from 0; two texts can have the same.
 * http://www.isthe.com/chongo/tech/comp/fnv/
 */
export function textHash(text: string): number {
  let hash = OFFSET;
  for (const byte of new TextEncoder().encode(text)) hash = Math.imul(hash ^ byte, PRIME);
  return hash >>> 0;
}
