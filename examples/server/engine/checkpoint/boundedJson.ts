/**
 * JSON files of a checkpoint. Size, depth and count are bounded before anything is parsed: a file that was made
 * to cost much is refused in the time of one look over its bytes.
 */

import fs from 'node:fs';
import { checkpointError } from './tensorSource.ts';

export interface JsonBounds {
  /** Most bytes. */
  readonly bytes: number;
  /** Most commas: values beside another one. */
  readonly values: number;
}

const depthMax = 64;

export const jsonBounds: Readonly<Record<'config' | 'header' | 'tokenizer', JsonBounds>> = {
  config: { bytes: 4 * 2 ** 20, values: 100_000 },
  header: { bytes: 16 * 2 ** 20, values: 1_000_000 },
  tokenizer: { bytes: 128 * 2 ** 20, values: 6_000_000 },
};

/** @throws TKV_INPUT for what is missing, too large, not JSON or not an object */
export function readJsonObject(path: string, bounds: JsonBounds, remedy: string): Record<string, unknown> {
  const bytes = readBounded(path, bounds.bytes, remedy, ' as JSON');
  const json = parseBoundedJson(bytes, bounds, path, remedy);
  if (typeof json === 'object' && json !== null && !Array.isArray(json))
    return json as Record<string, unknown>;
  throw checkpointError(path, 'holds no JSON object', remedy);
}

/** The bytes of a regular file of at most `bytesMax`. */
export function readBounded(path: string, bytesMax: number, remedy: string, as = ''): Uint8Array {
  let stat: fs.Stats;
  try {
    stat = fs.statSync(path);
    if (stat.isFile() && stat.size <= bytesMax) return fs.readFileSync(path);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw checkpointError(path, `cannot be read${as} (${why})`, remedy);
  }
  if (!stat.isFile()) throw checkpointError(path, `cannot be read${as}: it must be a regular file`, remedy);
  throw checkpointError(path, `has ${stat.size} bytes, more than ${bytesMax}`, remedy);
}

/** @param what the file, or the part of one, for messages */
export function parseBoundedJson(
  bytes: Uint8Array,
  bounds: JsonBounds,
  what: string,
  remedy: string,
): unknown {
  if (bytes.length > bounds.bytes) {
    throw checkpointError(what, `has ${bytes.length} bytes of JSON, more than ${bounds.bytes}`, remedy);
  }
  requireShallow(bytes, bounds.values, what, remedy);
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (cause) {
    const why = cause instanceof SyntaxError ? cause.message.slice(0, 200) : 'it is not UTF-8';
    throw checkpointError(what, `cannot be read as JSON: it is not JSON (${why})`, remedy);
  }
}

function requireShallow(bytes: Uint8Array, valuesMax: number, what: string, remedy: string): void {
  let depth = 0;
  let commas = 0;
  for (let at = 0; at < bytes.length; at++) {
    switch (bytes[at]) {
      case 0x22: // a text: up to its closing quote
        for (at++; at < bytes.length && bytes[at] !== 0x22; at++) if (bytes[at] === 0x5c) at++;
        break;
      case 0x5b:
      case 0x7b:
        if (++depth > depthMax) {
          throw checkpointError(what, `nests JSON more than ${depthMax} deep`, remedy);
        }
        break;
      case 0x5d:
      case 0x7d:
        depth--;
        break;
      case 0x2c:
        if (++commas > valuesMax) {
          throw checkpointError(what, `has more than ${valuesMax} values`, remedy);
        }
        break;
    }
  }
}
