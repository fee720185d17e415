/**
 * Request sets with token ids: one JSON object a line with `input_tok_ids`, `output_tok_ids` and
 * `arrival_time_ns`, as LLMServingSim publishes ShareGPT.
 */

import type { WorkloadRequest } from '../../request.ts';
import { type Lines, numbered, type TraceLine } from '../lines.ts';
import { TakenColumns } from '../taken.ts';
import { importedRequest, traceOrigin } from './imported.ts';

/** All fields of a line that are read. */
export const tokenIdFields: readonly string[] = ['input_tok_ids', 'output_tok_ids', 'arrival_time_ns'];
const known: ReadonlySet<string> = new Set(tokenIdFields);

const ORIGIN = traceOrigin('token-ids');

/** @throws {TierKVError} TKV_INPUT naming file, line and field. */
export function* tokenIdRequests(
  lines: Lines,
  file: string,
  taken: TakenColumns = new TakenColumns(),
): Generator<WorkloadRequest> {
  taken.begin(tokenIdFields, 'ns');
  let previousUs = 0;
  let index = 0;
  for (const [text, at] of numbered(lines, file)) {
    const row = at.json(text);
    taken.leaveOthers(row, known);
    const arrivalUs = at.requireOrder(
      'arrival_time_ns',
      at.withinTrace('arrival_time_ns', Math.trunc(at.number(row, 'arrival_time_ns', 0) / 1000)),
      previousUs,
    );
    previousUs = arrivalUs;
    const input = tokenList(row, 'input_tok_ids', at);
    at.requirePrompt('input_tok_ids', input.length);
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
