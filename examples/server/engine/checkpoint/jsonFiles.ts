/** JSON files of a checkpoint. Size, depth and count are bounded before anything is parsed. */

import fs from 'node:fs';
import { parseBoundedJson } from '../../boundedJson.ts';
import { checkpointError } from './tensorSource.ts';

export interface JsonBounds {
  /** Most bytes. */
  readonly bytes: number;
  /** Most values: numbers, texts, lists and objects. */
  readonly values: number;
}

/** Most lists and objects inside each other: files of models nest about ten deep. */
const depthMax = 64;

export const jsonBounds: Readonly<Record<'config' | 'header' | 'tokenizer', JsonBounds>> = {
  config: { bytes: 4 * 2 ** 20, values: 100_000 },
  header: { bytes: 16 * 2 ** 20, values: 1_000_000 },
  tokenizer: { bytes: 128 * 2 ** 20, values: 6_000_000 },
};

/** @throws TKV_INPUT for what is missing, too large, not JSON or not an object */
export function readJsonObject(path: string, bounds: JsonBounds, remedy: string): Record<string, unknown> {
  const bytes = readBounded(path, bounds.bytes, remedy, ' as JSON');
  const json = parseJsonBytes(bytes, bounds, path, remedy);
  if (typeof json === 'object' && json !== null && !Array.isArray(json))
    return json as Record<string, unknown>;
  throw checkpointError(path, 'must be a JSON object', remedy);
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
export function parseJsonBytes(bytes: Uint8Array, bounds: JsonBounds, what: string, remedy: string): unknown {
  if (bytes.length > bounds.bytes) {
    throw checkpointError(what, `has ${bytes.length} bytes of JSON, more than ${bounds.bytes}`, remedy);
  }
  return parseBoundedJson(bytes, { depth: depthMax, values: bounds.values }, (fault, why) => {
    const problem = {
      depth: `nests JSON more than ${depthMax} deep`,
      values: `has more than ${bounds.values} values`,
      syntax: `cannot be read as JSON: it is not JSON (${why.slice(0, 200)})`,
    };
    return checkpointError(what, problem[fault], remedy);
  });
}
