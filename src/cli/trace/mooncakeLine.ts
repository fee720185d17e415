/**
 * One line of a Mooncake-format trace, checked field by field: `timestamp` (ms), `input_length` and
 * `output_length` (tokens) and `hash_ids` (one id per block of the input), all of them integers from 0 to
 * 2^53 - 1. Other fields are ignored. A line passes whole or is an error that names file, line and field; no
 * value is ever mended.
 */

import { maxLineValues, parseJson } from '../../runtime/boundedJson.ts';
import { TierKVError } from '../../runtime/errors.ts';
import { shown } from '../../sim/workload/shown.ts';
import { maxRecordedBlocks } from '../../sim/workload/trace/lines.ts';
import type { TraceRequest } from './request.ts';

export interface LinePlace {
  readonly path: string;
  readonly line: number;
}

export function traceError(place: LinePlace, field: string | undefined, problem: string): TierKVError {
  const at = field === undefined ? '' : `${field} `;
  return new TierKVError(
    'TKV_INPUT',
    `${place.path}:${place.line}: ${at}${problem}. Mend the line, or leave such lines out with --skip-bad.`,
    { path: place.path, line: place.line, ...(field === undefined ? {} : { field }) },
  );
}

function requireCount(value: unknown, field: string, place: LinePlace): number {
  if (value === undefined) throw traceError(place, field, 'is missing');
  if (typeof value !== 'number') throw traceError(place, field, `is ${shown(value)}, not a number`);
  if (value < 0) throw traceError(place, field, `is ${shown(value)}, below 0`);
  if (!Number.isInteger(value)) throw traceError(place, field, `is ${shown(value)}, not a whole number`);
  if (value > Number.MAX_SAFE_INTEGER) {
    throw traceError(place, field, `is ${shown(value)}, beyond 2^53 - 1, where numbers are no longer exact`);
  }
  return value + 0; // -0 becomes 0
}

/**
 * @param blockTokens tokens of one block, by which the input was cut into hash ids.
 * @throws {TierKVError} TKV_INPUT with path, line and, where one is at fault, field.
 */
export function parseMooncakeLine(text: string, place: LinePlace, blockTokens: number): TraceRequest {
  const error = (problem: string): TierKVError => {
    const what = problem.startsWith('is not valid JSON') ? `is not JSON: ${shown(text)}` : problem;
    return traceError(place, undefined, what);
  };
  const record = parseJson(text, error, maxLineValues);
  if (typeof record !== 'object' || record === null || Array.isArray(record)) {
    throw traceError(place, undefined, `is ${shown(record)}, not a JSON object`);
  }
  const { timestamp, input_length, output_length, hash_ids } = record as Record<string, unknown>;
  const timestampMs = requireCount(timestamp, 'timestamp', place);
  const inputTokens = requireCount(input_length, 'input_length', place);
  const outputTokens = requireCount(output_length, 'output_length', place);

  if (hash_ids === undefined) throw traceError(place, 'hash_ids', 'is missing');
  if (!Array.isArray(hash_ids)) throw traceError(place, 'hash_ids', `is ${shown(hash_ids)}, not a list`);
  const blocks = Math.ceil(inputTokens / blockTokens);
  if (hash_ids.length !== blocks) {
    throw traceError(
      place,
      'hash_ids',
      `has ${hash_ids.length} ids, but input_length ${inputTokens} at ${blockTokens} tokens a block ` +
        `makes ${blocks}` +
        ' (--block-tokens sets the tokens a block)',
    );
  }
  if (blocks > maxRecordedBlocks) {
    throw traceError(place, 'hash_ids', `has ${blocks} ids, more than the ${maxRecordedBlocks} of a request`);
  }
  const hashIds = new Float64Array(blocks);
  for (let i = 0; i < blocks; i++) {
    const id: unknown = hash_ids[i];
    // the name of the field costs more than the check, so it is made only for what may be wrong
    const isPlain = typeof id === 'number' && id > 0 && Number.isSafeInteger(id);
    hashIds[i] = isPlain ? id : requireCount(id, `hash_ids[${i}]`, place);
  }
  return { timestampMs, inputTokens, outputTokens, hashIds, line: place.line };
}
