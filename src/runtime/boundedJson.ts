/**
 * Untrusted JSON texts, bounded before they are parsed: nesting and values are counted in one pass over the text, so
 * that no text costs more than its limits allow and no recursion over the result goes deeper than a hundred levels. A
 * leading byte-order mark is skipped.
 *
 * A number that JavaScript would round stands exactly in the text alone. `JSON.parse` with a reviver would give it, at some
 * 25 times the time and for all values: `memberText` looks up the one member that is wanted, in one pass.
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

/** A member of the outermost object of a text: where its name begins, its value, and where that ends. */
interface JsonMember {
  readonly name: string;
  readonly from: number;
  readonly valueFrom: number;
  readonly to: number;
}

/** Members in their order, a name that stands twice twice. @param text of an object, which `JSON.parse` has taken */
function membersOf(text: string): JsonMember[] {
  const members: JsonMember[] = [];
  let depth = 0;
  let from = -1;
  let name: string | undefined;
  let valueFrom = 0;
  let end = 0;
  const close = (): void => {
    if (name !== undefined) members.push({ name, from, valueFrom, to: end });
    name = undefined;
    from = -1;
  };
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === 0x20 || code === 0x09 || code === 0x0a || code === 0x0d) continue;
    if (code === quote) {
      const begin = at;
      for (at++; text.charCodeAt(at) !== quote; at++) if (text.charCodeAt(at) === backslash) at++;
      if (depth === 1 && from === -1) {
        from = begin;
        name = JSON.parse(text.slice(begin, at + 1)) as string;
        valueFrom = -1;
        continue;
      }
      if (depth === 1 && valueFrom === -1) valueFrom = begin;
    } else if (depth === 1 && code === 0x3a && valueFrom === -1) continue;
    else if (depth === 1 && code === 0x2c) {
      close();
      continue;
    } else if (code === 0x5d || code === 0x7d) {
      if (--depth === 0) {
        close();
        break;
      }
    } else {
      if (depth === 1 && valueFrom === -1) valueFrom = at;
      if (code === 0x5b || code === 0x7b) depth++;
    }
    end = at + 1;
  }
  return members;
}

/**
 * The value of a member of the outermost object, exactly as it is written; undefined for none. Of a name that stands twice
 * the last one, as `JSON.parse` takes it.
 * @param text of an object, which `JSON.parse` has taken
 */
export function memberText(text: string, name: string): string | undefined {
  const found = membersOf(text).findLast((member) => member.name === name);
  return found === undefined ? undefined : text.slice(found.valueFrom, found.to);
}

/**
 * The text of an object with other members: without those of some names, however often they stand, and with new ones at its
 * end. What is kept stands as it was written.
 * @param text of an object, which `JSON.parse` has taken @param added JSON texts by name
 */
export function withMembers(
  text: string,
  removed: (name: string) => boolean,
  added: Readonly<Record<string, string>>,
): string {
  const kept = membersOf(text)
    .filter(({ name }) => !removed(name) && !Object.hasOwn(added, name))
    .map(({ from, to }) => text.slice(from, to));
  const more = Object.entries(added).map(([name, json]) => `${JSON.stringify(name)}:${json}`);
  return `{${[...kept, ...more].join(',')}}`;
}
