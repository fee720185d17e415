/**
 * Untrusted JSON texts, bounded before they are parsed: nesting and values are counted in one pass over the text, so
 * that no text costs more than its limits allow and no recursion over the result goes deeper than a hundred levels. A
 * leading byte-order mark is skipped.
 */

import type { TierKVError } from './errors.ts';

/** Most lists and objects inside each other. */
export const maxJsonDepth = 100;
/** Most values of a file that is written by hand or by a tool: numbers, texts, lists and objects. */
export const maxJsonValues: number = 2 ** 18;
/** Most values of a line of a trace, which may list the blocks or tokens of a request. */
export const maxLineValues: number = 2 ** 22;

const quote = 0x22;
const backslash = 0x5c;

/** The exceeded limit, or undefined. Malformed JSON may pass; the parser reports it. */
function beyondLimits(text: string, maxValues: number): string | undefined {
  if (text.length <= maxJsonDepth) return undefined;
  let depth = 0;
  let values = 1;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === quote) {
      for (at++; at < text.length; at++) {
        const inside = text.charCodeAt(at);
        if (inside === backslash) at++;
        else if (inside === quote) break;
      }
    } else if (code === 0x5b || code === 0x7b) {
      if (++depth > maxJsonDepth) return `nests lists and objects more than ${maxJsonDepth} deep`;
      if (++values > maxValues) return `holds more than ${maxValues} values`;
    } else if (code === 0x5d || code === 0x7d) depth--;
    else if (code === 0x2c && ++values > maxValues) return `holds more than ${maxValues} values`;
  }
  return undefined;
}

/** The text without a byte-order mark at its beginning. */
export function withoutMark(text: string): string {
  return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
}

/**
 * The value of a JSON text.
 * @param error makes the caller's error from a predicate such as "is not valid JSON: ..."
 * @param maxValues another limit than the default
 * @param what predicate for malformed JSON
 */
export function parseJson(
  text: string,
  error: (problem: string, cause?: unknown) => TierKVError,
  maxValues: number = maxJsonValues,
  what: string = 'is not valid JSON',
): unknown {
  const plain = withoutMark(text);
  const beyond = beyondLimits(plain, maxValues);
  if (beyond !== undefined) throw error(beyond);
  try {
    return JSON.parse(plain);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw error(`${what}: ${why.replace(/\s+/g, ' ').replace(/ is not valid JSON$/, '')}`, cause);
  }
}
