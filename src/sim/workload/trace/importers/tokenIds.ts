/**
 * Request sets with token ids: one JSON object a line with `input_tok_ids`, `output_tok_ids` and
 * `arrival_time_ns`, as LLMServingSim publishes ShareGPT.
 */

import type { WorkloadRequest } from '../../request.ts';
import { type Lines, numbered, type TraceLine } from '../lines.ts';
import { importedRequest, traceOrigin } from './imported.ts';

const ORIGIN = traceOrigin('token-ids');

/** @throws {TierKVError} TKV_INPUT naming file, line and field. */
export function* tokenIdRequests(lines: Lines, file: string): Generator<WorkloadRequest> {
  let previousUs = 0;
  let index = 0;
  for (const [text, at] of numbered(lines, file)) {
    const row = at.json(text);
    const arrivalUs = at.requireOrder(
      'arrival_time_ns',
      Math.trunc(at.number(row, 'arrival_time_ns', 0) / 1000),
      previousUs,
    );
    previousUs = arrivalUs;
    const input = tokenList(row, 'input_tok_ids', at);
    const output = tokenList(row, 'output_tok_ids', at);
    yield importedRequest({
      index: index++,
      origin: ORIGIN,
      arrivalUs,
      inputTokens: input.length,
      outputTokens: output.length,
      prompt: { kind: 'tokens', tokens: input },
      output: { kind: 'tokens', tokens: output },
    });
  }
}

function tokenList(row: Readonly<Record<string, unknown>>, field: string, at: TraceLine): Int32Array {
  const value = row[field];
  if (Array.isArray(value) && value.every((id) => Number.isInteger(id) && id >= 0 && id < 2 ** 31)) {
    return Int32Array.from(value);
  }
  throw at.error(field, 'is not a list of token ids', 'Write integers of at least 0');
}
