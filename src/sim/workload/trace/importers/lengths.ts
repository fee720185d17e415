/**
 * Files that hold lengths and nothing else, as CSV: input and output tokens a row under one of the usual
 * column names. The arrivals are drawn from a process of the caller's choice.
 */

import { configError } from '../../../../runtime/errors.ts';
import { type ArrivalSpec, arrivalSampler, GoRandom, partitionSeed } from '../../../random/index.ts';
import type { WorkloadRequest } from '../../request.ts';
import { shownPlain } from '../../shown.ts';
import { splitCsv } from '../csv.ts';
import { type Lines, numbered } from '../lines.ts';
import { importedRequest, ownTokens, traceOrigin } from './imported.ts';

export interface LengthFileOptions {
  /** Requests per second. */
  readonly rate: number;
  readonly arrival?: ArrivalSpec;
  readonly seed?: bigint;
}

const INPUT_NAMES = [
  'num_prefill_tokens',
  'input_tokens',
  'prompt_tokens',
  'input_length',
  'ContextTokens',
  'input',
];
const OUTPUT_NAMES = [
  'num_decode_tokens',
  'output_tokens',
  'completion_tokens',
  'output_length',
  'GeneratedTokens',
  'output',
];
const ORIGIN = traceOrigin('lengths');

/** @throws {TierKVError} TKV_INPUT naming file, line and field; TKV_CONFIG for a rate that is none. */
export function* lengthFileRequests(
  lines: Lines,
  file: string,
  options: LengthFileOptions,
): Generator<WorkloadRequest> {
  if (!(options.rate > 0 && options.rate <= 1e6)) {
    throw configError(
      '--rate',
      `is ${options.rate}`,
      'Lengths have no arrivals: give requests per second above 0 and at most 1000000.',
    );
  }
  const random = new GoRandom(partitionSeed(options.seed ?? 42n, 'workload-gen'));
  const gaps = arrivalSampler(options.arrival ?? { process: 'poisson' }, options.rate / 1e6);
  let input = -1;
  let output = -1;
  let arrivalUs = 0;
  let index = 0;
  for (const [text, at] of numbered(lines, file)) {
    const cells = splitCsv(text)?.map((cell) => cell.trim());
    if (cells === undefined) throw at.error('', 'a quote is never closed', 'Mend the line');
    if (input < 0) {
      input = cells.findIndex((name) => INPUT_NAMES.includes(name));
      output = cells.findIndex((name) => OUTPUT_NAMES.includes(name));
      if (input >= 0 && output >= 0) continue;
      throw at.error(
        '',
        `no column of lengths among ${shownPlain(cells.join(', '))}`,
        `Name them ${INPUT_NAMES[1]} and ${OUTPUT_NAMES[1]}`,
      );
    }
    const inputTokens = at.tokenCell(cells[input], 'input tokens');
    const outputTokens = at.tokenCell(cells[output], 'output tokens');
    arrivalUs += gaps.next(random);
    const prompt = ownTokens('lengths', 'in', index, inputTokens);
    yield importedRequest({ index: index++, origin: ORIGIN, arrivalUs, inputTokens, outputTokens, prompt });
  }
}
