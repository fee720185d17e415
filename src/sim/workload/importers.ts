/**
 * Recorded traces of other systems as requests: Azure, CSV files of lengths, miniswe, Mooncake, token ids,
 * coding agents. Every importer is a generator over lines and checks each field.
 */

import { configError, type TierKVError } from '../../runtime/errors.ts';
import { fnv1a64, GoRandom, partitionSeed } from '../random/goRand.ts';
import { type ArrivalSpec, arrivalSampler } from '../random/samplers.ts';
import type { PromptIdentity, RequestOrigin, WorkloadRequest } from './request.ts';
import {
  type CsvHeader,
  csvRows,
  type Lines,
  numbered,
  plainColumn,
  requireBlocks,
  shown,
  shownPlain,
  TakenColumns,
  type TraceLine,
} from './traceLines.ts';

// Azure's LLM inference traces: CSV with TIMESTAMP (date and time with up to seven decimals), ContextTokens
// and GeneratedTokens. Arrival times count from the first row, truncated to µs; prompts share nothing.

// Building requests from trace rows: the fields a row does not have get the values of a plain request.

export function traceOrigin(clientId: string): RequestOrigin {
  return { clientId, tenantId: '', sloClass: '', model: '', adapter: '', sloTargetUs: 0, prefixGroup: '' };
}

interface ImportedRow {
  readonly index: number;
  readonly origin: RequestOrigin;
  readonly arrivalUs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly prompt: PromptIdentity;
  readonly output?: PromptIdentity;
  readonly sessionId?: string;
  readonly round?: number;
  readonly thinkTimeUs?: number;
}

/** Tokens that no other request shares: a stream of its own for every row of every trace. */
function ownTokens(trace: string, side: 'in' | 'out', index: number, tokens: number): PromptIdentity {
  const seed = BigInt.asIntN(64, fnv1a64(`${trace}/${side}`) ^ BigInt(index));
  return { kind: 'drawn', spans: [{ seed, position: 0, tokens }] };
}

export function importedRequest(row: ImportedRow): WorkloadRequest {
  return {
    id: `request_${row.index}`,
    origin: row.origin,
    arrivalUs: row.arrivalUs,
    inputTokens: row.inputTokens,
    outputTokens: row.outputTokens,
    prefixTokens: 0,
    prompt: row.prompt,
    output: row.output ?? ownTokens(row.origin.clientId, 'out', row.index, row.outputTokens),
    deadlineUs: 0,
    sessionId: row.sessionId ?? '',
    session: -1,
    round: row.round ?? 0,
    streaming: false,
    modalities: null,
    reasonRatio: 0,
    thinkTimeUs: row.thinkTimeUs ?? 0,
    recordedPrefixGroup: '',
  };
}

/** Ids as pairs of first id and count. */
export function runsOf(ids: Iterable<number>): Int32Array {
  const runs: number[] = [];
  for (const id of ids) {
    const last = runs.length - 2;
    if (last >= 0 && runs[last] + runs[last + 1] === id) runs[last + 1]++;
    else runs.push(id, 1);
  }
  return Int32Array.from(runs);
}

/**
 * Checks that prefix-chained ids are a tree: every id follows one and the same parent, none follows itself.
 */
class PrefixTree {
  readonly #parents = new Map<number, number>();

  /** Different blocks so far. */
  get blocks(): number {
    return this.#parents.size;
  }

  /** Returns what is wrong with a path from the root, or undefined; a correct path is remembered. */
  check(ids: readonly number[]): string | undefined {
    let parent = -1;
    for (const id of ids) {
      const known = this.#parents.get(id);
      if (known === undefined) this.#parents.set(id, parent);
      else if (known !== parent) {
        const cycle = ids.indexOf(id) !== ids.lastIndexOf(id);
        if (cycle) return `names block ${id} twice, so its prefix would contain itself`;
        const name = (block: number): string => (block < 0 ? 'the start' : `block ${block}`);
        return `has block ${id} behind ${name(parent)}, which was behind ${name(known)} before`;
      }
      parent = id;
    }
    return undefined;
  }
}

const AZURE = traceOrigin('azure');

export const azureColumns = ['TIMESTAMP', 'ContextTokens', 'GeneratedTokens'] as const;

/** @throws {TierKVError} TKV_INPUT naming file, line and field. */
export function* azureRequests(
  lines: Lines,
  file: string,
  taken: TakenColumns = new TakenColumns(),
): Generator<WorkloadRequest> {
  let columns: readonly number[] = [];
  const times = new DateTimes('TIMESTAMP');
  let index = 0;
  for (const [header, cells, at] of csvRows(lines, file)) {
    if (cells === undefined) {
      columns = azureColumns.map((name) => header.find([name]));
      if (columns.includes(-1)) {
        const names = shownPlain(header.names.join(', '));
        throw at.error('', `the columns are ${names}`, `Use ${azureColumns.join(', ')}`);
      }
      taken.begin(azureColumns, 'dates, from the first row');
      header.names.forEach((name, i) => void (columns.includes(i) || taken.leave(name)));
      continue;
    }
    const [time, input, output] = columns.map((column) => cells[column]);
    const arrivalUs = times.us(time, at);
    const inputTokens = at.requirePrompt('ContextTokens', at.tokenCell(input, 'ContextTokens'));
    const outputTokens = at.tokenCell(output, 'GeneratedTokens');
    const prompt = ownTokens('azure', 'in', index, inputTokens);
    yield importedRequest({ index: index++, origin: AZURE, arrivalUs, inputTokens, outputTokens, prompt });
  }
}

// Files of lengths as CSV: input and output tokens a row under one of the usual column names, and arrivals
// where a column of times is there whose unit is known: dates, or a name that says the unit. Without times the
// arrivals are drawn from a process of the caller's choice. Any other column that may be a time is an error:
// arrivals are never invented beside times.

export interface LengthFileOptions {
  /** Requests per second, for a file without times; a file with times has no use for it. */
  readonly rate?: number;
  readonly arrival?: ArrivalSpec;
  readonly seed?: bigint;
  /** Filled with what was taken of the file. */
  readonly taken?: TakenColumns;
}

const INPUT_NAMES = [
  'num_prefill_tokens',
  'input_tokens',
  'prompt_tokens',
  'context_tokens',
  'request_tokens',
  'input_length',
  'prompt_length',
  'input',
];
const OUTPUT_NAMES = [
  'num_decode_tokens',
  'output_tokens',
  'completion_tokens',
  'generated_tokens',
  'response_tokens',
  'output_length',
  'response_length',
  'output',
];
const LENGTHS = traceOrigin('lengths');

/** Names of times without a unit; Vidur's `arrived_at` counts seconds. */
const secondNames = ['arrived_at'];
const timeNames = ['arrival_time', 'arrival', 'arrived_at', 'arrived', 'timestamp', 'time', 'start_time'];
/** Spellings of a unit at the end of a name. */
const unitEnds: Readonly<Record<string, string>> = {
  s: 's',
  sec: 's',
  seconds: 's',
  ms: 'ms',
  us: 'us',
  ns: 'ns',
};
const mayBeTime =
  /arriv|time|date|clock|(^|[_ .-])(ts|at|start|started|sent|send|created|submit\w*|t)($|[_ .-])/i;

/** The unit of a column of times by its name; undefined where the name says none. */
function unitOf(name: string): string | undefined {
  const plain = plainColumn(name);
  for (const base of timeNames.map(plainColumn)) {
    if (plain.startsWith(base) && unitEnds[plain.slice(base.length)] !== undefined)
      return unitEnds[plain.slice(base.length)];
  }
  return secondNames.map(plainColumn).includes(plain) ? 's' : undefined;
}

interface TimeColumn {
  readonly column: number;
  /** Undefined for dates, which the first row shows. */
  readonly unit: string | undefined;
}

/** The column of arrival times; undefined for a file that has none. */
function timeColumn(header: CsvHeader, lengths: readonly number[]): TimeColumn | undefined {
  const rest = header.names.flatMap((name, column) => (lengths.includes(column) ? [] : [{ name, column }]));
  const named = rest.filter(({ name }) => unitOf(name) !== undefined);
  if (named.length > 1) {
    const both = `${shownPlain(named[0].name)} and ${shownPlain(named[1].name)}`;
    throw header.at.error('', `${both} are both times of arrival`, 'Keep one of the columns');
  }
  if (named.length === 1) return { column: named[0].column, unit: unitOf(named[0].name) };
  const open = rest.filter(({ name }) => mayBeTime.test(name));
  if (open.length === 0) return undefined;
  const dates = open.find(({ name }) => timeNames.map(plainColumn).includes(plainColumn(name)));
  if (open.length === 1 && dates !== undefined) return { column: dates.column, unit: undefined };
  throw unclearTime(header.names[open[0].column], header.at);
}

function unclearTime(name: string, at: TraceLine): TierKVError {
  return at.error(
    shownPlain(name),
    'may be a time, and its unit is not known',
    `Name the arrivals arrived_at (seconds) or arrival_time_${Object.keys(timeUnits).join(', arrival_time_')}, write dates under timestamp, or drop the column`,
  );
}

/** @throws {TierKVError} TKV_INPUT naming file, line and field; TKV_CONFIG for a rate out of range. */
export function* lengthFileRequests(
  lines: Lines,
  file: string,
  options: LengthFileOptions = {},
): Generator<WorkloadRequest> {
  const { rate, taken = new TakenColumns() } = options;
  let input = -1;
  let output = -1;
  let time: TimeColumn | undefined;
  let times: ColumnTimes | undefined;
  let drawn: (() => number) | undefined;
  let arrivalUs = 0;
  let index = 0;
  for (const [header, cells, at] of csvRows(lines, file)) {
    if (cells === undefined) {
      input = header.find(INPUT_NAMES);
      output = header.find(OUTPUT_NAMES);
      if (input < 0 || output < 0) {
        throw at.error(
          '',
          `no column of lengths among ${shownPlain(header.names.join(', '))}`,
          `Name them ${INPUT_NAMES[1]} and ${OUTPUT_NAMES[1]}`,
        );
      }
      time = timeColumn(header, [input, output]);
      if (time === undefined) drawn = arrivalsOf(file, rate, options);
      else if (rate !== undefined) {
        const name = shownPlain(header.names[time.column]);
        throw configError('--rate', `is given, and ${file} has times of its own (${name})`, 'Leave it out.');
      }
      const used = [input, output, ...(time === undefined ? [] : [time.column])];
      const unit = time === undefined ? '' : (time.unit ?? 'dates, from the first row');
      taken.begin(
        used.map((column) => header.names[column]),
        time === undefined ? `none in the file, drawn at ${rate} a second` : unit,
      );
      header.names.forEach((name, i) => void (used.includes(i) || taken.leave(name)));
      continue;
    }
    if (time !== undefined) {
      const name = header.names[time.column];
      const cell = cells[time.column];
      if (times === undefined && time.unit === undefined && !isDate(cell)) throw unclearTime(name, at);
      times ??= time.unit === undefined ? new DateTimes(name) : new UnitTimes(name, time.unit);
    }
    const inputName = header.names[input];
    const inputTokens = at.requirePrompt(inputName, at.tokenCell(cells[input], inputName));
    const outputTokens = at.tokenCell(cells[output], header.names[output]);
    arrivalUs = times?.us(cells[time!.column], at) ?? arrivalUs + drawn!();
    const prompt = ownTokens('lengths', 'in', index, inputTokens);
    yield importedRequest({ index: index++, origin: LENGTHS, arrivalUs, inputTokens, outputTokens, prompt });
  }
}

/** Draws the gaps between arrivals where a file has no times. */
function arrivalsOf(file: string, rate: number | undefined, options: LengthFileOptions): () => number {
  if (rate === undefined) {
    throw configError('--rate', `is missing, and ${file} has no column of times`, 'Give requests a second.');
  }
  if (!(rate > 0 && rate <= 1e6)) {
    throw configError(
      '--rate',
      `is ${rate}`,
      'Lengths have no arrivals: give requests per second above 0 and at most 1000000.',
    );
  }
  const random = new GoRandom(partitionSeed(options.seed ?? 42n, 'workload-gen'));
  const gaps = arrivalSampler(options.arrival ?? { process: 'poisson' }, rate / 1e6);
  return () => gaps.next(random);
}

// Agent traces as text (LMCache's miniswe): one JSON object a line with `timestamp` (µs), `session_id`,
// `input` and `output`. There are no token ids; until a tokenizer is given, a token is a UTF-8 byte, which
// keeps every shared prefix and makes lengths exact in a unit that is not the model's.

export type Tokenizer = (text: string) => Int32Array;

const encoder = new TextEncoder();
export const byteTokens: Tokenizer = (text) => Int32Array.from(encoder.encode(text));

/** All fields of a line that are read. */
export const textTraceFields: readonly string[] = ['timestamp', 'session_id', 'input', 'output'];
const textFields: ReadonlySet<string> = new Set(textTraceFields);

export interface TextTraceOptions {
  /** Filled with what was taken of the files. */
  readonly taken?: TakenColumns;
  readonly tokenize?: Tokenizer;
}

interface MinisweRow {
  readonly timestampUs: number;
  readonly sessionId: string;
  readonly input: string;
  readonly output: string;
  readonly at: TraceLine;
}

/**
 * Requests of all given files together, ordered by (timestamp, file, line); the first arrives at 0.
 * @throws {TierKVError} TKV_INPUT naming file, line and field.
 */
export function* textTraceRequests(
  files: ReadonlyArray<{ readonly file: string; readonly lines: Lines }>,
  options: TextTraceOptions = {},
): Generator<WorkloadRequest> {
  const { taken = new TakenColumns() } = options;
  taken.begin(textTraceFields, 'us, from the first request');
  const tokenize = options.tokenize ?? byteTokens;
  const rows: MinisweRow[] = [];
  for (const { file, lines } of files) {
    for (const [text, at] of numbered(lines, file)) {
      const row = at.json(text);
      taken.leaveOthers(row, textFields);
      rows.push({
        timestampUs: at.integer(row, 'timestamp', 0),
        sessionId: at.text(row, 'session_id'),
        input: at.text(row, 'input'),
        output: at.text(row, 'output'),
        at,
      });
    }
  }
  const order = rows.map((_, i) => i).sort((x, y) => rows[x].timestampUs - rows[y].timestampUs || x - y);
  const firstUs = order.length === 0 ? 0 : rows[order[0]].timestampUs;
  const rounds = new Map<string, number>();
  let index = 0;
  for (const i of order) {
    const row = rows[i];
    const round = rounds.get(row.sessionId) ?? 0;
    rounds.set(row.sessionId, round + 1);
    const side = (text: string): PromptIdentity & { kind: 'tokens' } => ({
      kind: 'tokens',
      tokens: tokenize(text),
    });
    const prompt = side(row.input);
    row.at.requirePrompt('input', prompt.tokens.length);
    const output = side(row.output);
    yield importedRequest({
      index: index++,
      origin: traceOrigin(row.sessionId),
      arrivalUs: row.timestampUs - firstUs,
      inputTokens: prompt.tokens.length,
      outputTokens: output.tokens.length,
      prompt,
      output,
      sessionId: row.sessionId,
      round,
    });
  }
}

// Mooncake traces: one JSON object a line with `timestamp` (ms), `input_length`, `output_length` and
// `hash_ids`, one id per block of the input, the last block perhaps partial. Equal ids are equal whole
// prefixes, so the ids form a tree; a trace in which they do not is refused.

export interface MooncakeOptions {
  /** Tokens a block; 512 in the published traces. */
  readonly blockTokens?: number;
  /** Filled with what was taken of the file. */
  readonly taken?: TakenColumns;
}

/** All fields of a line that are read. */
export const mooncakeFields: readonly string[] = ['timestamp', 'input_length', 'output_length', 'hash_ids'];
const mooncakeNames: ReadonlySet<string> = new Set(mooncakeFields);

const MOONCAKE = traceOrigin('mooncake');
const MAX_BLOCK_ID = 2 ** 31 - 1;
/** Most different blocks of a trace, each of which is remembered with the block before it. */
const maxBlocks = 2 ** 22;

/** @throws {TierKVError} TKV_INPUT naming file, line and field. */
export function* mooncakeRequests(
  lines: Lines,
  file: string,
  options: MooncakeOptions = {},
): Generator<WorkloadRequest> {
  const blockTokens = options.blockTokens ?? 512;
  const { taken = new TakenColumns() } = options;
  taken.begin(mooncakeFields, 'ms');
  const tree = new PrefixTree();
  let previousUs = 0;
  let index = 0;
  for (const [text, at] of numbered(lines, file)) {
    const row = at.json(text);
    taken.leaveOthers(row, mooncakeNames);
    const arrivalUs = at.requireOrder(
      'timestamp',
      at.withinTrace('timestamp', Math.round(at.number(row, 'timestamp', 0) * 1000)),
      previousUs,
    );
    previousUs = arrivalUs;
    const inputTokens = at.prompt(row, 'input_length');
    const outputTokens = at.tokens(row, 'output_length');
    const ids = row.hash_ids;
    if (!Array.isArray(ids) || !ids.every((id) => Number.isInteger(id) && id >= 0 && id <= MAX_BLOCK_ID)) {
      throw at.error('hash_ids', 'is not a list of block ids', `Write integers from 0 to ${MAX_BLOCK_ID}`);
    }
    const wanted = Math.ceil(inputTokens / blockTokens);
    if (ids.length !== wanted) {
      throw at.error(
        'hash_ids',
        `holds ${ids.length} ids for ${inputTokens} tokens, ${wanted} blocks of ${blockTokens}`,
        'Set the block size of the trace (--block-tokens), or mend the line',
      );
    }
    requireBlocks('hash_ids', ids.length, at);
    const broken = tree.check(ids);
    if (tree.blocks > maxBlocks) {
      const problem = `brings the trace to more than ${maxBlocks} different blocks`;
      throw at.error('hash_ids', problem, 'Take a part of the trace (--num-requests does not shorten it)');
    }
    if (broken !== undefined) throw at.error('hash_ids', broken, 'Give every prefix an id of its own');
    yield importedRequest({
      index: index++,
      origin: MOONCAKE,
      arrivalUs,
      inputTokens,
      outputTokens,
      prompt: { kind: 'blocks', namespace: file, blockTokens, runs: runsOf(ids) },
    });
  }
}

// Times in the cells of a table, as µs: dates count from the first row, numbers from 0 in a named unit.

const TICKS_PER_DAY = 864_000_000_000; // of 100 ns

/** Days from 1970-01-01 to a date of the Gregorian calendar. */
function dayNumber(year: number, month: number, day: number): number {
  const y = month <= 2 ? year - 1 : year;
  const era = Math.floor(y / 400);
  const yearOfEra = y - era * 400;
  const dayOfYear = Math.floor((153 * (month + (month > 2 ? -3 : 9)) + 2) / 5) + day - 1;
  const dayOfEra = yearOfEra * 365 + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100) + dayOfYear;
  return era * 146_097 + dayOfEra - 719_468;
}

const DATE = /^(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?$/;

function isDate(text: string): boolean {
  return DATE.test(text.trim());
}

/** The times of a column, each at or behind the one before. */
interface ColumnTimes {
  us(text: string, at: TraceLine): number;
}

class DateTimes implements ColumnTimes {
  readonly #field: string;
  #first: { readonly day: number; readonly ticks: number } | undefined;
  #previousUs = 0;

  constructor(field: string) {
    this.#field = field;
  }

  us(text: string, at: TraceLine): number {
    const time = this.#parse(text, at);
    this.#first ??= time;
    const ticks = (time.day - this.#first.day) * TICKS_PER_DAY + time.ticks - this.#first.ticks;
    this.#previousUs = at.requireOrder(this.#field, Math.floor(ticks / 10), this.#previousUs);
    return this.#previousUs;
  }

  #parse(text: string, at: TraceLine): { day: number; ticks: number } {
    const parts = DATE.exec(text.trim());
    if (parts === null)
      throw at.error(this.#field, `is ${shown(text)}`, 'Write it as 2023-11-16 18:17:03.9799600, in UTC');
    const [year, month, day, hour, minute, second] = parts.slice(1, 7).map(Number);
    if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60) {
      throw at.error(this.#field, `is ${shown(text)}, no date`, 'Mend the line');
    }
    const fraction = Math.trunc(Number((parts[7] ?? '').padEnd(7, '0').slice(0, 7)));
    return { day: dayNumber(year, month, day), ticks: ((hour * 60 + minute) * 60 + second) * 1e7 + fraction };
  }
}

/** µs of one unit. */
const timeUnits: Readonly<Record<string, number>> = { s: 1e6, ms: 1e3, us: 1, ns: 1e-3 };

class UnitTimes implements ColumnTimes {
  readonly #field: string;
  readonly #unit: string;
  #previousUs = 0;

  constructor(field: string, unit: string) {
    this.#field = field;
    this.#unit = unit;
  }

  us(text: string, at: TraceLine): number {
    const value = at.decimal(text);
    if (!(value >= 0)) {
      throw at.error(this.#field, `is ${shown(text)}`, `Write a time of at least 0, in ${this.#unit}`);
    }
    const us = Math.round(value * timeUnits[this.#unit]);
    this.#previousUs = at.requireOrder(this.#field, at.withinTrace(this.#field, us), this.#previousUs);
    return this.#previousUs;
  }
}

// Request sets with token ids: one JSON object a line with `input_tok_ids`, `output_tok_ids` and
// `arrival_time_ns`, as LLMServingSim publishes ShareGPT.

/** All fields of a line that are read. */
export const tokenIdFields: readonly string[] = ['input_tok_ids', 'output_tok_ids', 'arrival_time_ns'];
const tokenIdNames: ReadonlySet<string> = new Set(tokenIdFields);

const TOKEN_IDS = traceOrigin('token-ids');

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
    taken.leaveOthers(row, tokenIdNames);
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
      origin: TOKEN_IDS,
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

// Coding-agent sessions in the compact form of WEKA's kv-cache-tester: one request a line with session `s`,
// agent `a`, start `t` (s from the start of the session), `in`, `out`, `think` (s) and `h`, runs of 64-token
// block ids that are local to the session. Sessions are numbered by id and start a fixed time apart; requests
// are ordered by (start, session, line).

export interface WekaOptions {
  /** Seconds between the starts of two sessions; 60 in the merged workload of the ground truth. */
  readonly sessionGapS?: number;
  readonly blockTokens?: number;
  /** Filled with what was taken of the file. */
  readonly taken?: TakenColumns;
}

/** Fields that every line must have, and fields that it may have. */
export const wekaFields: readonly string[] = ['s', 't', 'in', 'out', 'h'];
const readFields = [...wekaFields, 'a', 'think'];
const wekaNames: ReadonlySet<string> = new Set(readFields);

interface WekaRow {
  readonly sessionId: string;
  readonly agent: number;
  readonly startS: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly thinkS: number;
  readonly runs: Int32Array;
}

/**
 * All requests merged. Sessions overlap for days, so the rows of the whole file are held, some hundred bytes
 * each.
 * @throws {TierKVError} TKV_INPUT naming file, line and field.
 */
export function* wekaRequests(
  lines: Lines,
  file: string,
  options: WekaOptions = {},
): Generator<WorkloadRequest> {
  const gapS = options.sessionGapS ?? 60;
  const blockTokens = options.blockTokens ?? 64;
  const { taken = new TakenColumns() } = options;
  taken.begin(readFields, `s, from the start of a session; sessions start ${gapS} s apart`);
  const rows: WekaRow[] = [];
  for (const [text, at] of numbered(lines, file)) {
    const row = at.json(text);
    taken.leaveOthers(row, wekaNames);
    rows.push(readRow(row, at, blockTokens));
  }
  const names = [...new Set(rows.map((row) => row.sessionId))].sort();
  const numberOf = new Map(names.map((name, k) => [name, k]));
  const origins = new Map(names.map((name) => [name, traceOrigin(name)]));
  const startS = (row: WekaRow): number => gapS * numberOf.get(row.sessionId)! + row.startS;
  const order = rows
    .map((_, line) => line)
    .sort(
      (x, y) =>
        startS(rows[x]) - startS(rows[y]) ||
        numberOf.get(rows[x].sessionId)! - numberOf.get(rows[y].sessionId)! ||
        x - y,
    );
  const rounds = new Map<string, number>();
  let index = 0;
  for (const line of order) {
    const row = rows[line];
    const round = rounds.get(row.sessionId) ?? 0;
    rounds.set(row.sessionId, round + 1);
    yield importedRequest({
      index: index++,
      origin: origins.get(row.sessionId)!,
      arrivalUs: Math.round(startS(row) * 1e6),
      inputTokens: row.inputTokens,
      outputTokens: row.outputTokens,
      prompt: { kind: 'blocks', namespace: row.sessionId, blockTokens, runs: row.runs },
      sessionId: row.sessionId,
      round,
      thinkTimeUs: Math.round(row.thinkS * 1e6),
    });
  }
}

function readRow(row: Readonly<Record<string, unknown>>, at: TraceLine, blockTokens: number): WekaRow {
  const inputTokens = at.tokens(row, 'in');
  const read = {
    sessionId: at.text(row, 's'),
    agent: at.integer(row, 'a', 0, 0),
    startS: at.seconds(row, 't'),
    inputTokens,
    outputTokens: at.tokens(row, 'out'),
    thinkS: at.seconds(row, 'think', 0),
    runs: readRuns(row.h, at, Math.floor(inputTokens / blockTokens), blockTokens),
  };
  at.requirePrompt('in', inputTokens);
  return read;
}

function readRuns(value: unknown, at: TraceLine, wanted: number, blockTokens: number): Int32Array {
  const pairs = Array.isArray(value) ? value : [value];
  const flat: number[] = [];
  let blocks = 0;
  for (const pair of pairs) {
    const [first, count] = Array.isArray(pair) ? pair : [];
    const fits =
      Number.isInteger(first) &&
      first >= 0 &&
      Number.isInteger(count) &&
      count > 0 &&
      first + count < 2 ** 31;
    if (!fits) throw at.error('h', 'is not a list of runs', 'Write [[first id, count], …]');
    flat.push(first, count);
    blocks += count;
  }
  if (blocks !== wanted) {
    throw at.error(
      'h',
      `holds ${blocks} ids, not one for each of ${wanted} full blocks of ${blockTokens}`,
      'Mend the line',
    );
  }
  requireBlocks('h', blocks, at);
  return Int32Array.from(flat);
}
