/**
 * Reading recorded traces line by line: errors that name the file, the line and the field, and JSON objects
 * whose fields are checked one by one. Every importer is a generator over lines that its caller reads, so a
 * trace of any size streams.
 */

import { maxLineValues, parseJson, withoutMark } from '../../runtime/boundedJson.ts';
import { lineError, type Said, type TierKVError } from '../../runtime/errors.ts';
import { maxRequestTokens } from './request.ts';

/** Most blocks of a recorded request. */
const maxRecordedBlocks: number = 2 ** 20;

/** Refuses a request of more blocks than can be meant. */
export function requireBlocks(field: string, blocks: number, at: TraceLine): void {
  if (blocks <= maxRecordedBlocks) return;
  const problem = `holds ${blocks} ids, more than the ${maxRecordedBlocks} of a request`;
  throw at.error(field, problem, 'Mend or drop the line');
}

const maxTraceUs = 1e15;

/** Lines of a text, without their line ends; from an array, a split string or a file reader. */
export type Lines = Iterable<string>;

/** One line of a trace, with the place that its errors name. */
export class TraceLine {
  readonly file: string;
  readonly line: number;
  readonly #instead: Said | undefined;

  /** @param instead another remedy of each error, such as leaving the line out */
  constructor(file: string, line: number, instead?: Said) {
    this.file = file;
    this.line = line;
    this.#instead = instead;
  }

  error(field: string, problem: string, remedy: Said): TierKVError {
    const what = field === '' ? problem : `${field} ${problem}`;
    const remedies = this.#instead === undefined ? [remedy] : [remedy, this.#instead];
    const said: Said = (name) =>
      [what, ...remedies.map((each) => (typeof each === 'string' ? each : each(name)))].join('. ');
    return lineError(this.file, this.line, said, field === '' ? {} : { field });
  }

  /** The JSON object of this line. */
  json(text: string): Record<string, unknown> {
    const error = (problem: string): TierKVError => this.error('', problem, 'Mend or drop the line');
    const value = parseJson(text, error, maxLineValues);
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw this.error('', `is ${shown(value)}, not a JSON object`, 'Write one object a line');
    }
    return value as Record<string, unknown>;
  }

  number(row: Readonly<Record<string, unknown>>, field: string, min: number, fallback?: number): number {
    const value = row[field];
    if (value === undefined && fallback !== undefined) return fallback;
    if (typeof value === 'number' && Number.isFinite(value) && value >= min) return value + 0; // -0 becomes 0
    const found = value === undefined ? 'is missing' : `is ${shown(value)}`;
    throw this.error(field, found, `Set it to a number of at least ${min}`);
  }

  /** A time from the start of the trace, up to thirty years, which refuses dates since 1970. */
  withinTrace(field: string, us: number): number {
    if (us <= maxTraceUs) return us;
    const remedy = 'Times count from the start of the trace, up to thirty years: subtract the first one';
    throw this.error(field, `is ${us / 1e6} s`, remedy);
  }

  /** A time in seconds, up to thirty years. */
  seconds(row: Readonly<Record<string, unknown>>, field: string, fallback?: number): number {
    const value = this.number(row, field, 0, fallback);
    if (value <= 1e9) return value;
    throw this.error(field, `is ${value}`, 'Set it to seconds of at most 1000000000');
  }

  integer(row: Readonly<Record<string, unknown>>, field: string, min: number, fallback?: number): number {
    const value = this.number(row, field, min, fallback);
    if (Number.isSafeInteger(value)) return value;
    const below = Number.isInteger(value) ? ' below 2^53, where numbers are exact' : '';
    throw this.error(field, `is ${value}`, `Set it to an integer${below}`);
  }

  /** Tokens of a prompt, which has at least one. */
  prompt(row: Readonly<Record<string, unknown>>, field: string): number {
    return this.requirePrompt(field, this.tokens(row, field));
  }

  /** Refuses a prompt without a token: no engine can serve it. */
  requirePrompt(field: string, tokens: number): number {
    if (tokens > 0) return tokens;
    throw this.error(
      field,
      'makes a prompt of 0 tokens',
      'A request has at least one prompt token: mend or drop the line',
    );
  }

  /** A number of tokens of one request. */
  tokens(row: Readonly<Record<string, unknown>>, field: string): number {
    return this.#bounded(field, this.integer(row, field, 0), maxRequestTokens);
  }

  #bounded(field: string, value: number, max: number): number {
    if (value <= max) return value;
    throw this.error(field, `is ${value}`, `A request has at most ${max} tokens here: mend or drop the line`);
  }

  text(row: Readonly<Record<string, unknown>>, field: string): string {
    const value = row[field];
    if (typeof value === 'string') return value;
    throw this.error(field, value === undefined ? 'is missing' : 'is not a text', 'Write a text there');
  }

  /** The number of a cell in decimal digits; NaN for everything else, also for hexadecimal ones. */
  decimal(text: string | undefined): number {
    return /^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i.test(text ?? '') ? Number(text) : Number.NaN;
  }

  /** An integer from a cell of a table. */
  cell(text: string | undefined, field: string, min: number): number {
    const value = this.decimal(text);
    if (Number.isSafeInteger(value) && value >= min) return value;
    const found = text === undefined ? 'is missing' : `is ${shown(text)}`;
    throw this.error(field, found, `Set it to an integer of at least ${min}`);
  }

  /** A number of tokens of one request, from a cell of a table. */
  tokenCell(text: string | undefined, field: string): number {
    return this.#bounded(field, this.cell(text, field, 0), maxRequestTokens);
  }

  /** Refuses a time before the one of the line above. */
  requireOrder(field: string, timeUs: number, previousUs: number): number {
    if (!Number.isSafeInteger(timeUs)) {
      throw this.error(field, `is ${timeUs} µs`, 'Times reach to 2^53 µs, 285 years: mend the line');
    }
    if (timeUs >= previousUs) return timeUs;
    throw this.error(
      field,
      `goes back in time, from ${previousUs} µs to ${timeUs} µs`,
      'Sort the trace by time',
    );
  }
}

/** Most empty lines of a trace: a file of nothing else is refused before it is read to its end. */
const maxEmptyLines = 2 ** 16;

/** Non-empty lines with their numbers, without line ends and without a byte-order mark. */
export function* numbered(lines: Lines, file: string): Generator<readonly [text: string, at: TraceLine]> {
  let number = 0;
  let empty = 0;
  for (const raw of lines) {
    const line = number++ === 0 ? withoutMark(raw) : raw;
    const text = line.endsWith('\r') ? line.slice(0, -1) : line;
    if (text.trim() !== '') yield [text, new TraceLine(file, number)];
    else if (++empty > maxEmptyLines) {
      const problem = `is one of more than ${maxEmptyLines} empty lines`;
      throw new TraceLine(file, number).error('', problem, 'Leave them out');
    }
  }
}

// Lines of comma-separated values as RFC 4180 and Go's encoding/csv have them: a cell is quoted when it holds
// a comma, a quote, a line break or starts with a space. Readers take lines from a caller, so a file is never
// held in memory.

export function csvCell(text: string): string {
  return /[",\r\n]|^[ \t]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The cells of one line; undefined when a quote is never closed. */
export function splitCsv(line: string): string[] | undefined {
  if (!line.includes('"')) return line.split(',');
  const cells: string[] = [];
  let at = 0;
  while (at <= line.length) {
    if (line[at] !== '"') {
      const end = line.indexOf(',', at);
      cells.push(line.slice(at, end < 0 ? line.length : end));
      if (end < 0) return cells;
      at = end + 1;
      continue;
    }
    let cell = '';
    for (at++; ; at++) {
      const quote = line.indexOf('"', at);
      if (quote < 0) return undefined;
      cell += line.slice(at, quote);
      at = quote + 1;
      if (line[at] !== '"') break;
      cell += '"';
    }
    cells.push(cell);
    if (at >= line.length) return cells;
    if (line[at] !== ',') return undefined;
    at++;
  }
  return cells;
}

/** Column names are compared by letters and digits alone: `Input Tokens` is `input_tokens`. */
export function plainColumn(name: string): string {
  return name.toLowerCase().replace(/[^a-z0-9]/g, '');
}

/** The header of a table: its columns in order, each of another name. */
export class CsvHeader {
  readonly names: readonly string[];
  readonly at: TraceLine;

  constructor(cells: readonly string[], at: TraceLine) {
    this.names = cells.map((cell) => cell.trim());
    this.at = at;
    const plain = this.names.map(plainColumn);
    const twice = plain.findIndex((name, i) => name !== '' && plain.indexOf(name) < i);
    if (twice >= 0)
      throw at.error(shownPlain(this.names[twice]), 'is there twice', 'Keep one of the columns');
  }

  /** Where the one column lies that has one of the names; -1 for none. */
  find(names: readonly string[]): number {
    const wanted = names.map(plainColumn);
    const found = this.names.flatMap((name, i) => (wanted.includes(plainColumn(name)) ? [i] : []));
    if (found.length > 1) {
      const both = `${shownPlain(this.names[found[0]])} and ${shownPlain(this.names[found[1]])}`;
      throw this.at.error('', `${both} mean the same`, 'Keep one of the columns');
    }
    return found[0] ?? -1;
  }
}

/** The rows behind a header, each with a cell for every column. The header comes first, alone. */
export function* csvRows(
  lines: Lines,
  file: string,
): Generator<readonly [header: CsvHeader, cells: readonly string[] | undefined, at: TraceLine]> {
  let header: CsvHeader | undefined;
  for (const [text, at] of numbered(lines, file)) {
    const cells = splitCsv(text);
    if (cells === undefined) throw at.error('', 'a quote is never closed', 'Mend the line');
    if (header === undefined) {
      header = new CsvHeader(cells, at);
      yield [header, undefined, at];
      continue;
    }
    if (cells.length !== header.names.length) {
      const missing = header.names[cells.length];
      if (missing !== undefined) throw at.error(shownPlain(missing), 'is missing', 'Mend the line');
      throw at.error('', `has ${cells.length} cells for ${header.names.length} columns`, 'Mend the line');
    }
    yield [header, cells, at];
  }
}

// Columns and rows that a reader took of a trace and left over, filled while it reads: nothing that stands in a file is
// passed over without being told.

/** Most names that are told one by one. */
const maxNames = 64;

export class TakenColumns {
  /** Names of the columns or fields that were used, with the unit of a time: `timestamp (ms)`. */
  columns: readonly string[] = [];
  /** Where the times come from, in words. */
  times = '';
  /** Whether rows without prompt or output tokens are left out; otherwise a prompt without tokens is an error. */
  readonly dropsEmpty: boolean;
  /** Whether rows may come in any order of time; they are sorted afterwards. */
  readonly anyOrder: boolean;
  readonly #leftOver = new Set<string>();
  readonly #notes = new Map<string, number>();

  constructor(how: { readonly dropsEmpty?: boolean; readonly anyOrder?: boolean } = {}) {
    this.dropsEmpty = how.dropsEmpty ?? false;
    this.anyOrder = how.anyOrder ?? false;
  }

  /** Begins a pass over the trace. */
  begin(columns: readonly string[], times: string): void {
    this.columns = columns;
    this.times = times;
    this.#notes.clear();
  }

  /** Counts a row that was read in another way than it stands there, or left out. */
  note(what: string): void {
    this.#notes.set(what, (this.#notes.get(what) ?? 0) + 1);
  }

  /** `3 rows without tokens left out`, one text a kind. */
  get notes(): readonly string[] {
    return [...this.#notes].map(([what, count]) => `${count} ${what}`);
  }

  /** Whether the row is left out because it has no prompt or no output. */
  drops(inputTokens: number, outputTokens: number): boolean {
    if (!this.dropsEmpty || (inputTokens > 0 && outputTokens > 0)) return false;
    this.note('rows without tokens left out');
    return true;
  }

  /** Refuses a time before the one of the line above, unless rows may come in any order. */
  ordered(at: TraceLine, field: string, timeUs: number, previousUs: number): number {
    return at.requireOrder(field, timeUs, this.anyOrder ? Number.NEGATIVE_INFINITY : previousUs);
  }

  /** A column or field that changes nothing. */
  leave(name: string): void {
    if (this.#leftOver.size < maxNames) this.#leftOver.add(name);
  }

  /** Fields of a row that are not among the known ones. */
  leaveOthers(row: Readonly<Record<string, unknown>>, known: ReadonlySet<string>): void {
    for (const name in row) if (!known.has(name)) this.leave(name);
  }

  get leftOver(): readonly string[] {
    return [...this.#leftOver];
  }
}

// How values look in messages: short, on one line, and without walking into what they nest.

const shownCharacters = 40;

/** The value much as JSON has it, cut where it gets long. */
export function shown(value: unknown): string {
  const text = shownTo(value, 1);
  return text.length <= shownCharacters ? text : `${text.slice(0, shownCharacters)}...`;
}

/** The same, with a text as it stands. */
export function shownPlain(value: unknown): string {
  if (typeof value !== 'string') return shown(value);
  return value.length <= shownCharacters ? value : `${value.slice(0, shownCharacters)}...`;
}

function shownTo(value: unknown, depth: number): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, shownCharacters + 1));
  if (typeof value === 'bigint') return String(Math.abs(Number(value)) < 1e30 ? value : Number(value));
  if (typeof value !== 'object' || value === null) return String(value);
  if (Array.isArray(value)) {
    const parts = value
      .slice(0, shownCharacters)
      .map((item) => (depth === 0 ? '...' : shownTo(item, depth - 1)));
    return `[${parts.join(',')}]`;
  }
  const parts: string[] = [];
  for (const key in value) {
    if (parts.length === shownCharacters) break;
    const inner = (value as Record<string, unknown>)[key];
    parts.push(depth === 0 ? '...' : `${shownTo(key, 0)}:${shownTo(inner, depth - 1)}`);
  }
  return `{${parts.join(',')}}`;
}
