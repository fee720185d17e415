/**
 * The result of vLLM's `vllm bench serve --save-result --save-detailed`: one JSON object with a list for each measured
 * quantity, in seconds, one value a request. As a workload it gives when requests were sent and how long they were; as a
 * measured run also when their tokens came.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { importedRequest, ownTokens, traceOrigin } from './importers.ts';
import { maxRequestTokens, type WorkloadRequest } from './request.ts';
import { shown, TakenColumns, type TraceLine } from './traceLines.ts';

/** Fields by which such a result is known. */
export const benchmarkFields: readonly string[] = ['input_lens', 'output_lens'];
const workloadFields = ['start_times', ...benchmarkFields];

/** One request of a benchmark. Times in s, from a clock of the client's. */
interface BenchmarkedRequest {
  readonly startS: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** From the start to the first token. */
  readonly firstTokenS: number;
  /** Between tokens, one less than there are pieces of the answer. */
  readonly gapsS: readonly number[];
}

/** Most requests of a result. */
const maxRequests = 2 ** 20;

/**
 * The requests of a result that were answered, in the order in which they were sent. Requests with an error are counted and
 * left out: the server's time on them is not known.
 * @throws {TierKVError} TKV_INPUT naming file and field.
 */
export function benchmarkedRequests(
  result: Readonly<Record<string, unknown>>,
  at: TraceLine,
  taken: TakenColumns = new TakenColumns(),
): BenchmarkedRequest[] {
  checkInputs(
    { result, at, taken },
    { result: is.object(), at: is.fields({ error: is.func() }), taken: is.optional(is.object()) },
  );
  taken.begin(workloadFields, 's on the clock of the client, from the first request');
  for (const name in result) if (Array.isArray(result[name]) && !measured.has(name)) taken.leave(name);
  const inputs = listOf(result, 'input_lens', at);
  const outputs = listOf(result, 'output_lens', at);
  if (inputs.length > maxRequests)
    throw at.error('input_lens', `holds more than ${maxRequests}`, 'Split the run');
  if (result.start_times === undefined) {
    const remedy =
      'Run it with --save-detailed and a vLLM that writes start_times, or give its lengths as a table';
    throw at.error('start_times', 'is missing, so when requests were sent is not known', remedy);
  }
  const starts = listOf(result, 'start_times', at);
  const first = listOf(result, 'ttfts', at);
  const gaps = listOf(result, 'itls', at);
  const errors = result.errors === undefined ? [] : listOf(result, 'errors', at);
  const lists = Object.entries({ output_lens: outputs, start_times: starts, ttfts: first, itls: gaps });
  for (const [name, list] of lists) {
    if (list.length === inputs.length) continue;
    const problem = `has ${list.length} values, and input_lens ${inputs.length}`;
    throw at.error(name, problem, 'Give the result of one run, as it was written');
  }
  const requests: BenchmarkedRequest[] = [];
  inputs.forEach((_, i) => {
    if (typeof errors[i] === 'string' && errors[i] !== '') {
      taken.note('failed requests left out');
      return;
    }
    requests.push({
      startS: number(starts, i, 'start_times', at, 1e12),
      inputTokens: number(inputs, i, 'input_lens', at, maxRequestTokens, true),
      outputTokens: number(outputs, i, 'output_lens', at, maxRequestTokens, true),
      firstTokenS: number(first, i, 'ttfts', at, 1e9),
      gapsS: gapsOf(gaps, i, at),
    });
  });
  return requests
    .map((request, i) => ({ request, i }))
    .sort((a, b) => a.request.startS - b.request.startS || a.i - b.i)
    .map(({ request }) => request);
}

const measured: ReadonlySet<string> = new Set([...workloadFields, 'ttfts', 'itls', 'errors']);

function listOf(result: Readonly<Record<string, unknown>>, name: string, at: TraceLine): readonly unknown[] {
  const list = result[name];
  if (Array.isArray(list)) return list;
  const problem = list === undefined ? 'is missing' : 'is not a list';
  throw at.error(name, problem, 'Run vllm bench serve with --save-result --save-detailed');
}

function number(
  list: readonly unknown[],
  index: number,
  field: string,
  at: TraceLine,
  max: number,
  whole = false,
): number {
  const value = list[index];
  if (typeof value === 'number' && value >= 0 && value <= max && (!whole || Number.isInteger(value)))
    return value;
  throw at.error(
    `${field}[${index}]`,
    `is ${shown(value)}`,
    `Set it to ${whole ? 'an integer' : 'a number'} up to ${max}`,
  );
}

function gapsOf(list: readonly unknown[], index: number, at: TraceLine): readonly number[] {
  const gaps = list[index];
  if (Array.isArray(gaps)) return gaps.map((_, i) => number(gaps, i, `itls[${index}]`, at, 1e9));
  throw at.error(`itls[${index}]`, `is ${shown(gaps)}`, 'Write the times between tokens as a list');
}

const BENCHMARK = traceOrigin('vllm-bench');

/** The requests as a workload: prompts share nothing, since the result does not hold them. */
export function* benchmarkRequests(
  result: Readonly<Record<string, unknown>>,
  at: TraceLine,
  taken: TakenColumns = new TakenColumns(),
): Generator<WorkloadRequest> {
  checkInputs(
    { result, at, taken },
    { result: is.object(), at: is.fields({ error: is.func() }), taken: is.optional(is.object()) },
  );
  const requests = benchmarkedRequests(result, at, taken);
  const firstS = requests[0]?.startS ?? 0;
  let index = 0;
  for (const { startS, inputTokens, outputTokens } of requests) {
    if (taken.drops(inputTokens, outputTokens)) continue;
    at.requirePrompt('input_lens', inputTokens);
    const arrivalUs = Math.round((startS - firstS) * 1e6);
    const prompt = ownTokens('vllm-bench', 'in', index, inputTokens);
    yield importedRequest({
      index: index++,
      origin: BENCHMARK,
      arrivalUs,
      inputTokens,
      outputTokens,
      prompt,
    });
  }
}
