/**
 * JSON that others wrote: bodies of requests, files of a checkpoint. How deep it nests and how many values it holds is
 * counted over its bytes before anything is made of it. So a text that was made to cost much is refused after one look,
 * and calls within calls over the result end. The reader of the library works on texts; a tokenizer of 100 MB is bounded
 * here before it becomes one.
 */

/** Limits of a text. */
export interface JsonLimits {
  /** Most lists and objects inside each other. */
  readonly depth: number;
  /** Most values: numbers, texts, lists and objects. */
  readonly values: number;
}

/** What is wrong: beyond a limit, or not JSON (`syntax`). */
export type JsonFault = 'depth' | 'values' | 'syntax';

const [quote, backslash, comma] = [0x22, 0x5c, 0x2c];
const [openList, openObject, closeList, closeObject] = [0x5b, 0x7b, 0x5d, 0x7d];

/**
 * @param fail makes the caller's error; `why` says what the parser found
 * @param exact what is made of the value and its text, for a caller that wants a number as it is written
 */
export function parseBoundedJson(
  bytes: Uint8Array,
  limits: JsonLimits,
  fail: (fault: JsonFault, why: string) => Error,
  exact?: (value: unknown, text: string) => unknown,
): unknown {
  const beyond = beyondLimits(bytes, limits);
  if (beyond !== undefined) throw fail(beyond, '');
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw fail('syntax', 'it is not UTF-8');
  }
  try {
    const value: unknown = JSON.parse(text);
    return exact === undefined ? value : exact(value, text);
  } catch (error) {
    throw fail('syntax', error instanceof Error ? error.message : String(error));
  }
}

/** Goes through the bytes once. Bytes that are not JSON may pass; the parser says what is wrong with them. */
function beyondLimits(bytes: Uint8Array, limits: JsonLimits): 'depth' | 'values' | undefined {
  let depth = 0;
  let values = 1;
  for (let at = 0; at < bytes.length; at++) {
    switch (bytes[at]) {
      case quote: // a text: up to its closing quote
        for (at++; at < bytes.length && bytes[at] !== quote; at++) if (bytes[at] === backslash) at++;
        break;
      case openList:
      case openObject:
        values++;
        if (++depth > limits.depth) return 'depth';
        break;
      case closeList:
      case closeObject:
        depth--;
        break;
      case comma:
        values++;
        break;
    }
    if (values > limits.values) return 'values';
  }
  return undefined;
}
