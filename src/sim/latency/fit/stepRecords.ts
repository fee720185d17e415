/**
 * Steps of a real engine as its scheduler logged them. A step's own duration leaves out what the GPU does
 * after the scheduler returned, so the time of a step is taken from its start to the start of the next, where
 * the log has both.
 */

import { lineError, type TierKVError } from '../../../runtime/errors.ts';
import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { shown } from '../../workload/traceLines.ts';
import { BatchSums } from '../latencyModel.ts';

export interface StepRecord {
  readonly experiment: string;
  readonly model: string;
  readonly tp: number;
  readonly prefillRequests: number;
  readonly prefillTokens: number;
  readonly decodeRequests: number;
  /** Tokens in the KV cache of one request, on average. */
  readonly contextTokens: number;
  readonly measuredUs: number;
}

/** A gap this long between two starts is an engine that stood still, and not a step. */
const longestStepUs = 300_000;

/** Columns that say whether requests were left after a step; a log without them is read too. */
const queueColumns = ['queue.running_depth', 'queue.waiting_depth', 'batch.num_finished'] as const;

const engineColumns = [
  'step.id',
  'step.ts_start_ns',
  'batch.num_prefill_reqs',
  'batch.num_decode_reqs',
  'batch.prefill_tokens',
  'kv.blocks_total_gpu',
  'kv.blocks_free_gpu',
  'experiment_id',
  'model',
  'tp',
] as const;

/** Tokens of a KV block where nothing else is said: vLLM's default. */
export const usualBlockTokens = 16;

/** Bounds of a step or a run: requests in a batch, tokens of a batch, GPUs of an engine. */
const maxRequests = 65_536;
const maxTokens = 100_000_000;
const maxTp = 1024;
/** Most prefills of all steps of a table together: the batch of a step is built prefill by prefill. */
const maxPrefills = 20_000_000;

class PrefillCount {
  #requests = 0;

  add(requests: number, row: TableRow): number {
    this.#requests += requests;
    if (this.#requests <= maxPrefills) return requests;
    throw row.error(`brings the steps to more than ${maxPrefills} prefills`, 'Give a part of them');
  }
}

/** A step of the log, and what tells whether the engine had work until it began. */
interface LoggedStep {
  readonly record: Omit<StepRecord, 'measuredUs'>;
  readonly id: number;
  readonly startNs: bigint;
  /** Undefined without the columns for it. */
  readonly queue:
    | { readonly running: number; readonly waiting: number; readonly finished: number }
    | undefined;
}

/**
 * Whether a request of one step was left when the next one began, so that no wait for requests lies between: a request
 * that decodes was in the step before. Where only prompts are computed, the queues say it.
 */
function isBusyBetween(before: LoggedStep, now: LoggedStep): boolean {
  if (before.record.prefillRequests + before.record.decodeRequests === 0) return false;
  if (now.record.decodeRequests > 0) return true;
  if (before.queue === undefined || now.queue === undefined) return false;
  return before.queue.waiting > 0 || before.queue.running > now.queue.finished;
}

/**
 * Pairs of consecutive steps in the log of vLLM's scheduler, between which the engine had work: the time of the first is
 * until the second begins. Others say nothing of how long a step takes.
 * @param blockTokens of the engine's KV blocks, which the log counts
 * @throws {TierKVError} TKV_INPUT with the line.
 */
export function parseEngineLog(
  text: string,
  file: string,
  blockTokens: number = usualBlockTokens,
): StepRecord[] {
  checkInputs({ text, file, blockTokens }, { text: is.text(), file: is.name(), blockTokens: is.number() });
  const records: StepRecord[] = [];
  const prefills = new PrefillCount();
  let before: LoggedStep | undefined;
  for (const row of readTable(text, file, engineColumns)) {
    const prefillRequests = row.integer('batch.num_prefill_reqs', 0, maxRequests);
    const decodeRequests = row.integer('batch.num_decode_reqs', 0, maxRequests);
    prefills.add(prefillRequests, row);
    const used = row.number('kv.blocks_total_gpu', maxTokens) - row.number('kv.blocks_free_gpu', maxTokens);
    if (used < 0) throw row.error('kv.blocks_free_gpu is more than all blocks', 'Mend or remove the line');
    const knowsQueue = queueColumns.every((column) => row.has(column));
    const now: LoggedStep = {
      id: row.number('step.id'),
      startNs: row.digits('step.ts_start_ns'),
      queue: knowsQueue
        ? {
            running: row.integer('queue.running_depth', 0, maxRequests),
            waiting: row.number('queue.waiting_depth'),
            finished: row.number('batch.num_finished'),
          }
        : undefined,
      record: {
        experiment: row.text('experiment_id'),
        model: row.text('model'),
        tp: row.integer('tp', 1, maxTp),
        prefillRequests,
        prefillTokens: row.integer('batch.prefill_tokens', 0, maxTokens),
        decodeRequests,
        contextTokens: Math.trunc((used * blockTokens) / Math.max(1, prefillRequests + decodeRequests)),
      },
    };
    if (
      before !== undefined &&
      before.id + 1 === now.id &&
      before.record.experiment === now.record.experiment &&
      isBusyBetween(before, now)
    ) {
      const measuredUs = Number(now.startNs - before.startNs) / 1000;
      if (measuredUs > 0 && measuredUs <= longestStepUs) records.push({ ...before.record, measuredUs });
    }
    before = now;
  }
  return records;
}

const recordColumns = [
  'experiment',
  'model',
  'tp',
  'prefill_requests',
  'prefill_tokens',
  'decode_requests',
  'context_tokens',
  'measured_us',
] as const;

/** Step records as this project keeps them. */
export function parseStepRecords(text: string, file: string): StepRecord[] {
  checkInputs({ text, file }, { text: is.text(), file: is.name() });
  const prefills = new PrefillCount();
  return Array.from(readTable(text, file, recordColumns), (row) => ({
    experiment: row.text('experiment'),
    model: row.text('model'),
    tp: row.integer('tp', 1, maxTp),
    prefillRequests: prefills.add(row.integer('prefill_requests', 0, maxRequests), row),
    prefillTokens: row.integer('prefill_tokens', 0, maxTokens),
    decodeRequests: row.integer('decode_requests', 0, maxRequests),
    contextTokens: row.number('context_tokens', maxTokens),
    measuredUs: row.positive('measured_us'),
  }));
}

/** Writes step records as a CSV file, in the columns that a fit reads. */
export function formatStepRecords(records: readonly StepRecord[]): string {
  checkInputs({ records }, { records: is.list(is.fields({ experiment: is.text(), model: is.text() })) });
  const lines = records.map((r) =>
    [
      r.experiment,
      r.model,
      r.tp,
      r.prefillRequests,
      r.prefillTokens,
      r.decodeRequests,
      r.contextTokens,
      r.measuredUs,
    ].join(','),
  );
  return `${recordColumns.join(',')}\n${lines.join('\n')}\n`;
}

/**
 * The batch of a record, every request with the average context; prompts end in the step, as all but chunked
 * ones do.
 */
export function batchOf(record: StepRecord): BatchSums {
  const { prefillRequests, prefillTokens, decodeRequests, contextTokens } = record;
  const sums = new BatchSums();
  for (let i = 0; i < prefillRequests; i++) {
    const newTokens =
      Math.floor(((i + 1) * prefillTokens) / prefillRequests) -
      Math.floor((i * prefillTokens) / prefillRequests);
    const promptTokens = Math.max(contextTokens, newTokens);
    if (newTokens === 0) continue;
    sums.add({ promptTokens, progressTokens: promptTokens - newTokens, newTokens, outputTokens: 1 });
  }
  sums.addDecodes(decodeRequests, decodeRequests * contextTokens);
  return sums;
}

/** Whole runs of which only totals are known: requests of one size at a steady rate. */
interface RunSummary {
  readonly experiment: string;
  readonly model: string;
  readonly tp: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly requestsPerS: number;
  /** Mean times of a request. */
  readonly endToEndUs: number;
  readonly firstTokenUs: number;
}

const runColumns = [
  'experiment',
  'model',
  'tp',
  'prompt_tokens',
  'output_tokens',
  'requests_per_s',
  'e2e_ms',
  'ttft_ms',
] as const;

export function parseRunSummaries(text: string, file: string): RunSummary[] {
  checkInputs({ text, file }, { text: is.text(), file: is.name() });
  return Array.from(readTable(text, file, runColumns), (row) => {
    const run: RunSummary = {
      experiment: row.text('experiment'),
      model: row.text('model'),
      tp: row.integer('tp', 1, maxTp),
      promptTokens: row.number('prompt_tokens', maxTokens),
      outputTokens: row.number('output_tokens', maxTokens),
      requestsPerS: row.number('requests_per_s', 1e6),
      endToEndUs: row.positive('e2e_ms') * 1000,
      firstTokenUs: row.number('ttft_ms') * 1000,
    };
    if (run.outputTokens < 2) {
      throw row.error(
        `output_tokens is ${run.outputTokens}`,
        'A run without decodes has no step time: remove the line',
      );
    }
    if (run.endToEndUs <= run.firstTokenUs) {
      throw row.error('e2e_ms is not above ttft_ms', 'Mend or remove the line');
    }
    if (averageStep(run).decodeRequests > maxRequests) {
      throw row.error(
        `requests_per_s x e2e_ms is more than ${maxRequests} requests at once`,
        'Mend the line',
      );
    }
    return run;
  });
}

/**
 * The average step of a run as a record: a request decodes for (E2E - TTFT) over one step less than its
 * tokens, and by Little's law rate x that time of them decode at once, half way through their output on
 * average.
 */
export function averageStep(run: RunSummary): StepRecord {
  const decodeUs = run.endToEndUs - run.firstTokenUs;
  return {
    experiment: run.experiment,
    model: run.model,
    tp: run.tp,
    prefillRequests: 0,
    prefillTokens: 0,
    decodeRequests: Math.round((run.requestsPerS * decodeUs) / 1e6),
    contextTokens: Math.round(run.promptTokens + run.outputTokens / 2),
    measuredUs: decodeUs / (run.outputTokens - 1),
  };
}

// CSV tables of measurements: a header, then one row a line; a row that does not fit is an error with its
// line.

function bad(file: string, line: number, problem: string, remedy: string): TierKVError {
  return lineError(file, line, `${problem}. ${remedy}`);
}

/** Most rows of a table, which a fit goes over some hundred times. */
const maxRows = 500_000;
/** Most of any number in a table: in µs, some thirty years. */
const largest = 1e15;

interface TableRow {
  readonly line: number;
  /** Whether the table has the column. */
  has(column: string): boolean;
  text(column: string): string;
  /** A number from 0 to `max`. */
  number(column: string, max?: number): number;
  /** A whole number from `min` to `max`. */
  integer(column: string, min: number, max: number): number;
  /** A number above 0, from a thousandth on. */
  positive(column: string): number;
  /** All digits of a whole number. */
  digits(column: string): bigint;
  error(problem: string, remedy: string): TierKVError;
}

/** Lines without their ends; the text is not copied into a list of them. */
function* linesOf(text: string): Generator<string> {
  for (let from = 0; from <= text.length; ) {
    const end = text.indexOf('\n', from);
    const line = text.slice(from, end < 0 ? text.length : end);
    yield line.endsWith('\r') ? line.slice(0, -1) : line;
    if (end < 0) return;
    from = end + 1;
  }
}

/**
 * Rows of a CSV text without quoted cells.
 * @param columns that the table must have; it may have others.
 * @throws {TierKVError} TKV_INPUT for a missing column, a row with another number of cells, a cell that is not a
 * number or out of range, for no row, and for more rows than a fit can take.
 */
export function* readTable(text: string, file: string, columns: readonly string[]): Generator<TableRow> {
  const lines = linesOf(text);
  const header = String(lines.next().value)
    .slice(0, 100_000)
    .split(',')
    .map((name) => name.trim());
  const index = new Map(header.map((name, i) => [name, i]));
  const missing = columns.find((column) => !index.has(column));
  if (missing !== undefined) {
    throw bad(file, 1, `the column ${missing} is missing`, `The header must name: ${columns.join(', ')}`);
  }
  let line = 1;
  let rows = 0;
  for (const row of lines) {
    line++;
    if (row.trim() === '') continue;
    if (++rows > maxRows) throw bad(file, line, `is one of more than ${maxRows} rows`, 'Give a part of them');
    const cells = row.slice(0, 100_000).split(',');
    if (cells.length !== header.length) {
      throw bad(file, line, `has ${cells.length} cells, not ${header.length}`, 'Mend or remove the line');
    }
    const cell = (column: string): string => cells[index.get(column) ?? -1] ?? '';
    const read = (column: string, isRight: (value: number) => boolean, wanted: string): number => {
      const value = Number(cell(column));
      if (cell(column) !== '' && isRight(value)) return value;
      throw bad(file, line, `${column} is ${shown(cell(column))}`, `Write ${wanted}`);
    };
    yield {
      line,
      has: (column) => index.has(column),
      text: cell,
      number: (column, max = largest) =>
        read(column, (value) => value >= 0 && value <= max, `a number from 0 to ${max}`),
      integer: (column, min, max) =>
        read(
          column,
          (value) => Number.isInteger(value) && value >= min && value <= max,
          `an integer from ${min} to ${max}`,
        ),
      positive: (column) =>
        read(column, (value) => value >= 0.001 && value <= largest, `a number above 0, up to ${largest}`),
      digits: (column) => {
        if (/^\d{1,20}$/.test(cell(column))) return BigInt(cell(column));
        throw bad(file, line, `${column} is ${shown(cell(column))}`, 'Write a whole number');
      },
      error: (problem, remedy) => bad(file, line, problem, remedy),
    };
  }
  if (rows === 0) throw bad(file, 1, 'no row follows the header', 'Name another file');
}
