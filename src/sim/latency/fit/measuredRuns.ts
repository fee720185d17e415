/**
 * Measured runs as their makers write them: when each request was sent, how long it was, and when its tokens came. Read are
 * this project's own table, the lines of `tierkv observe` and of a gateway, LLMServingSim's `requests.jsonl`, and the JSON of
 * `vllm bench serve`. Which of them it is follows from the fields; what was taken is told.
 */

import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { benchmarkedRequests, benchmarkFields } from '../../workload/benchmarkOutput.ts';
import { numbered, shown, TakenColumns, TraceLine } from '../../workload/traceLines.ts';
import { readTable } from './stepRecords.ts';

/** A request of a measured run; times in µs from the start of the run. */
export interface MeasuredRequest {
  readonly arrivalUs: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly firstTokenUs: number;
  readonly lastTokenUs: number;
  /** Prompt tokens that came out of the engine's prefix cache, where it was measured; 0 otherwise. */
  readonly cachedTokens: number;
}

const runFormats = ['table', 'observed', 'llmservingsim', 'vllm-bench'] as const;
type RunFormat = (typeof runFormats)[number];

export interface MeasuredRunFile {
  readonly format: RunFormat;
  /** Sorted by arrival, the first at 0. */
  readonly requests: readonly MeasuredRequest[];
  readonly taken: TakenColumns;
}

/** Most tokens of all requests together: a fit replays the run some hundred times. */
const maxTokens = 10_000_000;

/**
 * The requests of a measured run. Requests that failed are counted and left out.
 * @throws {TierKVError} TKV_INPUT naming file, line and field.
 */
export function readMeasuredRun(text: string, file: string): MeasuredRunFile {
  checkInputs({ text, file }, { text: is.text(), file: is.name() });
  const taken = new TakenColumns();
  const { format, requests } = requestsOf(text, file, taken);
  const at = new TraceLine(file, 1);
  if (requests.length === 0) throw at.error('', 'holds no request with its times', 'Name another file');
  let tokens = 0;
  for (const { promptTokens, outputTokens } of requests) tokens += promptTokens + outputTokens;
  if (tokens > maxTokens) throw at.error('', `holds more than ${maxTokens} tokens`, 'Give a part of the run');
  const sorted = requests.toSorted((a, b) => a.arrivalUs - b.arrivalUs);
  const firstUs = sorted[0].arrivalUs;
  return {
    format,
    taken,
    requests: sorted.map((request) => ({
      ...request,
      arrivalUs: request.arrivalUs - firstUs,
      firstTokenUs: request.firstTokenUs - firstUs,
      lastTokenUs: request.lastTokenUs - firstUs,
    })),
  };
}

function requestsOf(
  text: string,
  file: string,
  taken: TakenColumns,
): { readonly format: RunFormat; readonly requests: MeasuredRequest[] } {
  if (!text.trimStart().startsWith('{')) return { format: 'table', requests: tableRun(text, file, taken) };
  const whole = wholeObject(text, file);
  if (whole !== undefined && benchmarkFields.every((field) => field in whole)) {
    return { format: 'vllm-bench', requests: benchmarkRun(whole, file, taken) };
  }
  const lines = text.split('\n');
  const first = numbered(lines, file).next().value;
  const row = first === undefined ? {} : first[1].json(first[0]);
  for (const [format, { fields }] of Object.entries(lineFormats)) {
    if (fields.every((field) => field in row)) {
      return { format: format as RunFormat, requests: linesRun(lines, file, lineFormats[format], taken) };
    }
  }
  const known = Object.entries(lineFormats).map(([format, { fields }]) => `${format} (${fields.join(', ')})`);
  throw new TraceLine(file, 1).error(
    '',
    'has the fields of no known measured run',
    `Known are ${known.join(', ')}`,
  );
}

/** The one object of a text, or undefined for lines of objects. */
function wholeObject(text: string, file: string): Record<string, unknown> | undefined {
  const end = text.indexOf('\n');
  const head = end < 0 ? text : text.slice(0, end);
  // a line that is whole by itself is one of many, unless nothing follows
  if (end >= 0 && text.slice(end).trim() !== '' && head.trimEnd().endsWith('}')) return undefined;
  return new TraceLine(file, 1).json(text);
}

const tableColumns = ['arrival_us', 'prompt_tokens', 'output_tokens', 'first_token_us', 'last_token_us'];

function tableRun(text: string, file: string, taken: TakenColumns): MeasuredRequest[] {
  taken.begin(tableColumns, 'us');
  return Array.from(readTable(text, file, tableColumns), (row): MeasuredRequest => {
    const promptTokens = row.integer('prompt_tokens', 0, maxTokens);
    const cached = row.text('cached_tokens');
    const request = {
      arrivalUs: row.number('arrival_us'),
      promptTokens,
      outputTokens: row.integer('output_tokens', 1, maxTokens),
      firstTokenUs: row.number('first_token_us'),
      lastTokenUs: row.number('last_token_us'),
      cachedTokens: cached === '' ? 0 : row.integer('cached_tokens', 0, promptTokens),
    };
    const problem = orderProblem(request);
    if (problem !== undefined) throw row.error(problem, 'Mend or remove the line');
    return request;
  });
}

function orderProblem({ arrivalUs, firstTokenUs, lastTokenUs }: MeasuredRequest): string | undefined {
  if (firstTokenUs >= arrivalUs && lastTokenUs >= firstTokenUs && lastTokenUs > arrivalUs) return undefined;
  return 'arrival_us, first_token_us and last_token_us do not follow each other';
}

interface LineFormat {
  readonly fields: readonly string[];
  readonly optional: readonly string[];
  readonly times: string;
  /** In place of a request that cannot be judged, which requests are left out. */
  request(row: Readonly<Record<string, unknown>>, at: TraceLine): MeasuredRequest | string;
}

const withoutTokens = 'requests without all their tokens left out';

const lineFormats: Readonly<Record<string, LineFormat>> = {
  observed: {
    fields: ['arrival_us', 'prompt_tokens', 'output_tokens', 'ttft_us', 'e2e_us'],
    optional: [
      'counted_prompt_tokens',
      'cached_tokens',
      'outcome',
      'streaming',
      'backend',
      'prefill_backend',
    ],
    times: 'us',
    request(row, at) {
      if (row.outcome !== undefined && row.outcome !== 'completed') return withoutTokens;
      // such an answer comes whole, so the time of its first token is not known
      if (row.streaming === false) return 'requests that did not stream left out';
      if (Number(row.ttft_us) < 0) return withoutTokens;
      if (row.output_tokens === -1) return 'requests whose tokens were not counted left out';
      const arrivalUs = at.integer(row, 'arrival_us', 0);
      const counted = at.number(row, 'counted_prompt_tokens', -1, -1);
      const promptTokens = counted > 0 ? counted : at.tokens(row, 'prompt_tokens');
      const cached = at.number(row, 'cached_tokens', -1, -1);
      return {
        arrivalUs,
        promptTokens,
        outputTokens: at.integer(row, 'output_tokens', 1),
        firstTokenUs: arrivalUs + at.number(row, 'ttft_us', 0),
        lastTokenUs: arrivalUs + at.number(row, 'e2e_us', 0),
        cachedTokens: Math.min(Math.max(0, cached), promptTokens),
      };
    },
  },
  llmservingsim: {
    fields: ['input_toks', 'output_toks', 'queued_ts', 'first_token_ts', 'last_token_ts'],
    optional: [],
    times: 's on the clock of the engine, from the first request queued',
    request(row, at) {
      return {
        arrivalUs: 1e6 * at.number(row, 'queued_ts', 0),
        promptTokens: at.prompt(row, 'input_toks'),
        outputTokens: at.integer(row, 'output_toks', 1),
        firstTokenUs: 1e6 * at.number(row, 'first_token_ts', 0),
        lastTokenUs: 1e6 * at.number(row, 'last_token_ts', 0),
        cachedTokens: 0,
      };
    },
  },
};

function linesRun(
  lines: readonly string[],
  file: string,
  format: LineFormat,
  taken: TakenColumns,
): MeasuredRequest[] {
  taken.begin([...format.fields, ...format.optional], format.times);
  const known = new Set([...format.fields, ...format.optional]);
  const requests: MeasuredRequest[] = [];
  let server: unknown;
  for (const [text, at] of numbered(lines, file)) {
    const row = at.json(text);
    taken.leaveOthers(row, known);
    // a gateway writes who computed its requests; a run is of one engine, which had all of them
    for (const field of ['backend', 'prefill_backend']) {
      const name = row[field] === undefined || row[field] === '' ? server : row[field];
      server ??= name;
      if (name === server) continue;
      const problem = `is ${shown(name)}, and a line above was served by ${shown(server)}`;
      throw at.error(field, problem, 'A run is of one server: keep the lines of one');
    }
    const request = format.request(row, at);
    if (typeof request === 'string') {
      taken.note(request);
      continue;
    }
    const problem = orderProblem(request);
    if (problem !== undefined) throw at.error('', problem, 'Mend or remove the line');
    requests.push(request);
  }
  return requests;
}

function benchmarkRun(
  result: Readonly<Record<string, unknown>>,
  file: string,
  taken: TakenColumns,
): MeasuredRequest[] {
  return benchmarkedRequests(result, new TraceLine(file, 1), taken).flatMap((request): MeasuredRequest[] => {
    const { startS, inputTokens, outputTokens, firstTokenS, gapsS } = request;
    if (outputTokens === 0 || firstTokenS === 0) {
      taken.note('requests without a token left out');
      return [];
    }
    const firstTokenUs = 1e6 * (startS + firstTokenS);
    const lastTokenUs = firstTokenUs + 1e6 * gapsS.reduce((sum, gap) => sum + gap, 0);
    const lengths = { promptTokens: inputTokens, outputTokens, cachedTokens: 0 };
    return [{ arrivalUs: 1e6 * startS, ...lengths, firstTokenUs, lastTokenUs }];
  });
}
