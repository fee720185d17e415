/**
 * JSON of a request's body. How deep it goes, and how many values it has, is bounded before anything is made
 * of it: what comes after may go through it with calls within calls.
 */

import { ApiError } from './apiError.ts';

/** Far above what a request of the API needs. */
const depthMax = 32;
const valuesMax = 2 ** 18;

const [quote, backslash, comma] = [0x22, 0x5c, 0x2c];
const openings: readonly number[] = [0x5b, 0x7b];
const closings: readonly number[] = [0x5d, 0x7d];

/** Integers behind the name `seed` that no number holds are bigints. @throws {ApiError} with status 400 */
export function parseJson(body: Uint8Array): unknown {
  requireBounded(body);
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(body);
  } catch {
    throw new ApiError(400, 'The body is no JSON: it is not UTF-8. Send JSON in UTF-8.');
  }
  try {
    return JSON.parse(text, exactSeeds);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new ApiError(400, `The body is no JSON: ${why}. Send JSON in UTF-8.`);
  }
}

function exactSeeds(key: string, value: unknown, context?: { readonly source?: string }): unknown {
  if (key !== 'seed' || typeof value !== 'number' || Number.isSafeInteger(value)) return value;
  const source = context?.source ?? '';
  return /^-?\d{1,20}$/.test(source) ? BigInt(source) : value;
}

/** Goes through the bytes once. Whether they are JSON at all is not asked here. */
function requireBounded(body: Uint8Array): void {
  let depth = 0;
  let values = 1;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (byte === quote) {
      for (at++; at < body.length && body[at] !== quote; at++) if (body[at] === backslash) at++;
    } else if (byte === comma) {
      values++;
    } else if (openings.includes(byte)) {
      values++;
      depth++;
      if (depth > depthMax) {
        const message = `The body nests lists and objects more than ${depthMax} deep. Send a flatter one.`;
        throw new ApiError(400, message, null, 'too_deep');
      }
    } else if (closings.includes(byte)) {
      depth--;
    }
    if (values > valuesMax) {
      const message = `The body holds more than ${valuesMax} values. Send fewer.`;
      throw new ApiError(400, message, null, 'too_many_values');
    }
  }
}
