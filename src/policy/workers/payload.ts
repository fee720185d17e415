/**
 * Plain data as text that another machine reads: JSON, with a mark for the values that JSON lacks. The same data gives
 * the same text, and the text gives the same data, bit for bit.
 */

import { invariant, TierKVError } from '../../runtime/errors.ts';

/** The key of an object that stands for another value. */
const MARK = '$';

/** @param value objects, arrays, texts, booleans, null and all numbers; an entry that is undefined is left out */
export function writePayload(value: unknown): string {
  return JSON.stringify(marked(value));
}

function marked(value: unknown): unknown {
  switch (typeof value) {
    case 'bigint':
      return { [MARK]: 'integer', of: value.toString() };
    case 'number':
      return Number.isFinite(value) && !Object.is(value, -0)
        ? value
        : { [MARK]: 'number', of: Object.is(value, -0) ? '-0' : String(value) };
    case 'object':
      break;
    default:
      invariant(typeof value !== 'function' && typeof value !== 'symbol', 'a payload is plain data');
      return value;
  }
  if (value === null) return null;
  if (Array.isArray(value)) {
    return value.map((each: unknown) => (each === undefined ? { [MARK]: 'nothing' } : marked(each)));
  }
  invariant(
    Object.getPrototypeOf(value) === Object.prototype || Object.getPrototypeOf(value) === null,
    'a payload is plain data',
  );
  const entries = Object.entries(value).filter(([, each]) => each !== undefined);
  const written = entries.map(([name, each]): [string, unknown] => [name, marked(each)]);
  return entries.some(([name]) => name === MARK)
    ? { [MARK]: 'entries', of: written }
    : Object.fromEntries(written);
}

/** Reads the value that `writePayload` was given. @throws TKV_INPUT for a text of another origin */
export function readPayload(text: string): unknown {
  try {
    return plain(JSON.parse(text));
  } catch (cause) {
    // a server has no say in what stands there, and neither have we
    const problem = 'the server holds a task or a result that no tierkv wrote';
    throw new TierKVError('TKV_INPUT', `${problem}. Use a server or a database of its own.`, {
      field: 'workers',
      cause,
    });
  }
}

function plain(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(plain);
  const { [MARK]: mark, of } = value as { readonly [MARK]?: string; readonly of?: unknown };
  switch (mark) {
    case undefined:
      return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each)]));
    case 'integer':
      return BigInt(String(of));
    case 'number':
      return Number(of);
    case 'nothing':
      return undefined;
    default: {
      const entries = of as readonly (readonly [string, unknown])[];
      return Object.fromEntries(entries.map(([name, each]) => [name, plain(each)]));
    }
  }
}
