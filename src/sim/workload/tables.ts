/**
 * Recorded traces that are tables: Azure's, BurstGPT's, files of lengths, and any CSV whose columns its user maps. Every
 * reader is a generator over lines and checks each cell. A column of times has a unit that its format, its name or its
 * user states; none is guessed.
 */

import { configError, nearestName, type TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { GoRandom, partitionSeed } from '../random/goRand.ts';
import { type ArrivalSpec, arrivalSampler } from '../random/samplers.ts';
import { importedRequest, ownTokens, traceOrigin } from './importers.ts';
import type { RequestOrigin, WorkloadRequest } from './request.ts';
import {
  type CsvHeader,
  csvRows,
  type Lines,
  plainColumn,
  shown,
  shownPlain,
  TakenColumns,
  type TraceLine,
} from './traceLines.ts';

// Azure's LLM inference traces of 2023 and 2024: CSV with TIMESTAMP (date and time with up to seven decimals, in UTC),
// ContextTokens and GeneratedTokens. Arrival times count from the first row, truncated to µs; prompts share nothing.

const AZURE = traceOrigin('azure');

export const azureColumns = ['TIMESTAMP', 'ContextTokens', 'GeneratedTokens'] as const;

/** @throws {TierKVError} TKV_INPUT naming file, line and field. */
export function* azureRequests(
  lines: Lines,
  file: string,
  taken: TakenColumns = new TakenColumns(),
): Generator<WorkloadRequest> {
  checkInputs(
    { lines, file, taken },
    { lines: is.iterable(), file: is.name(), taken: is.optional(is.object()) },
  );
  let columns: readonly number[] = [];
  const times = new DateTimes('TIMESTAMP', taken);
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
    const inputTokens = at.tokenCell(input, 'ContextTokens');
    const outputTokens = at.tokenCell(output, 'GeneratedTokens');
    if (taken.drops(inputTokens, outputTokens)) continue;
    at.requirePrompt('ContextTokens', inputTokens);
    const prompt = ownTokens('azure', 'in', index, inputTokens);
    yield importedRequest({ index: index++, origin: AZURE, arrivalUs, inputTokens, outputTokens, prompt });
  }
}

// Files of lengths as CSV: input and output tokens a row under one of the usual column names, and arrivals
// where a column of times is there whose unit is known: dates, or a name that says the unit. Without times the
// arrivals are drawn from a process of the caller's choice. Any other column that may be a time is an error:
// arrivals are never invented beside times.

interface LengthFileOptions {
  /** Requests per second, for a file without times; a file with times has no use for it. */
  readonly rate?: number;
  readonly arrival?: ArrivalSpec;
  readonly seed?: bigint;
  /** Filled with what was taken of the file. */
  readonly taken?: TakenColumns;
}

const lengthFileOptions = optionTable({
  rate: is.optional(is.number()),
  arrival: is.optional(is.object()),
  seed: is.optional(is.bigint()),
  taken: is.optional(is.object()),
} satisfies Kinds<LengthFileOptions>);

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
  // `timestamps` are several times, `timestamp_s` counts seconds
  const isPlural = /[a-z0-9]s[^a-z0-9]*$/i.test(name);
  for (const base of timeNames.map(plainColumn)) {
    if (!plain.startsWith(base)) continue;
    const end = plain.slice(base.length);
    if (unitEnds[end] !== undefined && !(end === 's' && isPlural)) return unitEnds[end];
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

/**
 * Reads a CSV file of prompt and answer lengths.
 * @throws {TierKVError} TKV_INPUT naming file, line and field; TKV_CONFIG for a rate out of range.
 */
export function* lengthFileRequests(
  lines: Lines,
  file: string,
  options: LengthFileOptions = {},
): Generator<WorkloadRequest> {
  checkInputs({ lines, file }, { lines: is.iterable(), file: is.name() });
  const { rate, taken = new TakenColumns() } = lengthFileOptions.read(options);
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
        throw configError('rate', `is given, and ${file} has times of its own (${name})`, 'Leave it out.');
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
      times ??= time.unit === undefined ? new DateTimes(name, taken) : new UnitTimes(name, time.unit, taken);
    }
    const timeUs = times?.us(cells[time!.column], at);
    const inputName = header.names[input];
    const inputTokens = at.tokenCell(cells[input], inputName);
    const outputTokens = at.tokenCell(cells[output], header.names[output]);
    if (taken.drops(inputTokens, outputTokens)) continue;
    at.requirePrompt(inputName, inputTokens);
    arrivalUs = timeUs ?? arrivalUs + drawn!();
    const prompt = ownTokens('lengths', 'in', index, inputTokens);
    yield importedRequest({ index: index++, origin: LENGTHS, arrivalUs, inputTokens, outputTokens, prompt });
  }
}

/** Draws the gaps between arrivals where a file has no times. */
function arrivalsOf(file: string, rate: number | undefined, options: LengthFileOptions): () => number {
  if (rate === undefined) {
    throw configError('rate', `is missing, and ${file} has no column of times`, 'Give requests a second.');
  }
  if (!(rate > 0 && rate <= 1e6)) {
    throw configError(
      'rate',
      `is ${rate}`,
      'Lengths have no arrivals: give requests per second above 0 and at most 1000000.',
    );
  }
  const random = new GoRandom(partitionSeed(options.seed ?? 42n, 'workload-gen'));
  const gaps = arrivalSampler(options.arrival ?? { process: 'poisson' }, rate / 1e6);
  return () => gaps.next(random);
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

const DATE =
  /^(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s*(Z|UTC|[+-]\d\d:?\d\d)?$/;

function daysOf(year: number, month: number): number {
  return month === 12 ? 31 : dayNumber(year, month + 1, 1) - dayNumber(year, month, 1);
}

function isDate(text: string): boolean {
  return DATE.test(text.trim());
}

/** The times of a column, each at or behind the one before. */
interface ColumnTimes {
  us(text: string, at: TraceLine): number;
}

class DateTimes implements ColumnTimes {
  readonly #field: string;
  readonly #taken: TakenColumns;
  #first: { readonly day: number; readonly ticks: number; readonly hasZone: boolean } | undefined;
  #previousUs = 0;

  constructor(field: string, taken: TakenColumns) {
    this.#field = field;
    this.#taken = taken;
  }

  us(text: string, at: TraceLine): number {
    const time = this.#parse(text, at);
    this.#first ??= time;
    if (this.#first.hasZone !== time.hasZone) {
      const problem = `is ${shown(text)}, and the first row ${this.#first.hasZone ? 'has' : 'has not'} a time zone`;
      throw at.error(this.#field, problem, 'Write all rows in one way');
    }
    const ticks = (time.day - this.#first.day) * TICKS_PER_DAY + time.ticks - this.#first.ticks;
    this.#previousUs = this.#taken.ordered(at, this.#field, Math.floor(ticks / 10), this.#previousUs);
    return this.#previousUs;
  }

  #parse(text: string, at: TraceLine): { day: number; ticks: number; hasZone: boolean } {
    const parts = DATE.exec(text.trim());
    if (parts === null)
      throw at.error(this.#field, `is ${shown(text)}`, 'Write it as 2023-11-16 18:17:03.9799600, in UTC');
    const [year, month, day, hour, minute, second] = parts.slice(1, 7).map((part) => Number(part ?? 0));
    const isDay = month >= 1 && month <= 12 && day >= 1 && day <= daysOf(year, month);
    if (!isDay || hour > 23 || minute > 59 || second > 60) {
      throw at.error(this.#field, `is ${shown(text)}, no date`, 'Mend the line');
    }
    const fraction = Math.trunc(Number((parts[7] ?? '').padEnd(7, '0').slice(0, 7)));
    const offsetMinutes = zoneMinutes(parts[8]);
    return {
      day: dayNumber(year, month, day),
      ticks: ((hour * 60 + minute - offsetMinutes) * 60 + second) * 1e7 + fraction,
      hasZone: parts[8] !== undefined,
    };
  }
}

/** Minutes that a zone is ahead of UTC. */
function zoneMinutes(zone: string | undefined): number {
  const parts = /^([+-])(\d\d):?(\d\d)$/.exec(zone ?? '');
  if (parts === null) return 0;
  return (parts[1] === '-' ? -1 : 1) * (60 * Number(parts[2]) + Number(parts[3]));
}

/** µs of one unit. */
const timeUnits: Readonly<Record<string, number>> = { s: 1e6, ms: 1e3, us: 1, ns: 1e-3 };

class UnitTimes implements ColumnTimes {
  readonly #field: string;
  readonly #unit: string;
  readonly #taken: TakenColumns;
  #previousUs = 0;

  constructor(field: string, unit: string, taken: TakenColumns) {
    this.#field = field;
    this.#unit = unit;
    this.#taken = taken;
  }

  us(text: string, at: TraceLine): number {
    const value = at.decimal(text);
    if (!(value >= 0)) {
      throw at.error(this.#field, `is ${shown(text)}`, `Write a time of at least 0, in ${this.#unit}`);
    }
    const us = at.withinTrace(this.#field, Math.round(value * timeUnits[this.#unit]));
    this.#previousUs = this.#taken.ordered(at, this.#field, us, this.#previousUs);
    return this.#previousUs;
  }
}

/** Digits of a unit below a second, as exponents of ten. */
const epochDigits: Readonly<Record<string, number>> = { s: 0, ms: 3, us: 6, ns: 9 };

/**
 * Times since 1970, counted from the first row. The digits are taken apart as they stand, since nanoseconds since 1970 are
 * beyond what a double tells apart.
 */
class EpochTimes implements ColumnTimes {
  readonly #field: string;
  readonly #unit: string;
  readonly #taken: TakenColumns;
  #firstNs: bigint | undefined;
  #previousUs = 0;

  constructor(field: string, unit: string, taken: TakenColumns) {
    this.#field = field;
    this.#unit = unit;
    this.#taken = taken;
  }

  us(text: string, at: TraceLine): number {
    const parts = /^\s*(\d{1,20})(?:\.(\d{0,20}))?\s*$/.exec(text);
    if (parts === null) {
      const remedy = `Write digits, in ${this.#unit} since 1970`;
      throw at.error(this.#field, `is ${shown(text)}`, remedy);
    }
    const fractionDigits = 9 - epochDigits[this.#unit];
    const fraction = (parts[2] ?? '').padEnd(fractionDigits, '0').slice(0, fractionDigits);
    const ns = BigInt(parts[1]) * 10n ** BigInt(fractionDigits) + BigInt(fraction === '' ? '0' : fraction);
    this.#firstNs ??= ns;
    const us = Math.floor(Number(ns - this.#firstNs) / 1000);
    this.#previousUs = this.#taken.ordered(at, this.#field, us, this.#previousUs);
    return this.#previousUs;
  }
}

// BurstGPT: CSV with Timestamp (s), Model, Request tokens, Response tokens, Total tokens and Log Type; later releases
// also have Session ID and Elapsed time. A failed request has a response of 0 tokens.

export const burstColumns = ['Timestamp', 'Model', 'Request tokens', 'Response tokens', 'Log Type'] as const;

/** @throws {TierKVError} TKV_INPUT naming file, line and field. */
export function* burstRequests(
  lines: Lines,
  file: string,
  taken: TakenColumns = new TakenColumns(),
): Generator<WorkloadRequest> {
  checkInputs(
    { lines, file, taken },
    { lines: is.iterable(), file: is.name(), taken: is.optional(is.object()) },
  );
  let columns: readonly number[] = [];
  let session = -1;
  const times = new UnitTimes('Timestamp', 's', taken);
  const rounds = new SessionRounds();
  let index = 0;
  for (const [header, cells, at] of csvRows(lines, file)) {
    if (cells === undefined) {
      columns = burstColumns.map((name) => header.find([name]));
      session = header.find(['Session ID']);
      const missing = columns.indexOf(-1);
      if (missing >= 0) throw at.error(burstColumns[missing], 'is missing', `Use ${burstColumns.join(', ')}`);
      taken.begin([...burstColumns.slice(0, 4), ...(session < 0 ? [] : ['Session ID'])], 's');
      const used = [...columns.slice(0, 4), session];
      header.names.forEach((name, i) => void (used.includes(i) || taken.leave(name)));
      continue;
    }
    const [time, model, request, response] = columns.map((column) => cells[column]);
    const arrivalUs = times.us(time, at);
    const inputTokens = at.tokenCell(request, 'Request tokens');
    const outputTokens = at.tokenCell(response, 'Response tokens');
    if (taken.drops(inputTokens, outputTokens)) continue;
    at.requirePrompt('Request tokens', inputTokens);
    const origin = rounds.origin(model.trim() || 'burstgpt');
    const prompt = ownTokens('burstgpt', 'in', index, inputTokens);
    const of = session < 0 ? {} : rounds.next(cells[session].trim());
    yield importedRequest({ index: index++, origin, arrivalUs, inputTokens, outputTokens, prompt, ...of });
  }
}

/** Sessions of a table by name, each row one round further, and the senders of its rows. */
class SessionRounds {
  readonly #rounds = new Map<string, number>();
  readonly #origins = new Map<string, RequestOrigin>();

  next(sessionId: string): { sessionId?: string; round?: number } {
    if (sessionId === '') return {};
    const round = this.#rounds.get(sessionId) ?? 0;
    this.#rounds.set(sessionId, round + 1);
    return { sessionId, round };
  }

  /** One object a name and class, so that a million rows share them. */
  origin(clientId: string, more: Partial<RequestOrigin> = {}): RequestOrigin {
    const key = JSON.stringify([clientId, more]);
    let origin = this.#origins.get(key);
    if (origin === undefined) this.#origins.set(key, (origin = { ...traceOrigin(clientId), ...more }));
    return origin;
  }
}

// Any CSV, by a mapping of its columns that its user gives: `arrival=ts:s,input=prompt_len,output=gen_len`.

/** Roles that a column of a mapped table may have. */
const mappedParts = ['arrival', 'input', 'output', 'session', 'tenant', 'class', 'client'] as const;
type MappedPart = (typeof mappedParts)[number];

/** How a mapped column of times counts: from 0, since 1970 (from the first row on), or as dates. */
const mappedUnits = ['s', 'ms', 'us', 'ns', 'epoch-s', 'epoch-ms', 'epoch-us', 'epoch-ns', 'iso'] as const;
type MappedUnit = (typeof mappedUnits)[number];

export interface ColumnMapping {
  /** Names of columns by what they stand for; `input` and `output` are there. */
  readonly columns: ReadonlyMap<MappedPart, string>;
  /** Unit of the arrivals, where there is a column of them. */
  readonly unit: MappedUnit | undefined;
}

/**
 * The mapping behind `arrival=ts:s,input=prompt_len,output=gen_len`.
 * @throws {TierKVError} TKV_CONFIG for an unknown part, a missing one, or arrivals without a unit.
 */
export function parseColumnMapping(text: string): ColumnMapping {
  checkInputs({ text }, { text: is.text() });
  const refuse = (problem: string, remedy: string): TierKVError => configError('columns', problem, remedy);
  const columns = new Map<MappedPart, string>();
  let unit: MappedUnit | undefined;
  for (const pair of text.split(',')) {
    const [part, ...rest] = pair.split('=');
    const name = part.trim();
    let column = rest.join('=').trim();
    const known = mappedParts.find((one) => one === name);
    if (known === undefined) {
      const near = nearestName(name, mappedParts);
      const hint = near === undefined ? '' : `Did you mean "${near}"? `;
      throw refuse(`maps "${shownPlain(name)}"`, `${hint}Valid: ${mappedParts.join(', ')}.`);
    }
    if (columns.has(known)) throw refuse(`maps ${known} twice`, 'Keep one of them.');
    if (known === 'arrival') {
      const colon = column.lastIndexOf(':');
      const asked = colon < 0 ? '' : column.slice(colon + 1);
      unit = mappedUnits.find((one) => one === asked);
      if (unit === undefined) {
        const problem = `gives the arrivals "${shownPlain(column)}" no known unit`;
        throw refuse(problem, `Write arrival=COLUMN:UNIT with one of ${mappedUnits.join(', ')}.`);
      }
      column = column.slice(0, colon).trim();
    }
    if (column === '') throw refuse(`names no column for ${known}`, `Write ${known}=COLUMN.`);
    columns.set(known, column);
  }
  for (const needed of ['input', 'output'] as const) {
    if (!columns.has(needed))
      throw refuse(`has no ${needed}`, `Add ${needed}=COLUMN, the column of its tokens.`);
  }
  return { columns, unit };
}

function timesOf(column: string, unit: MappedUnit, taken: TakenColumns): ColumnTimes {
  if (unit === 'iso') return new DateTimes(column, taken);
  const epoch = unit.startsWith('epoch-');
  return epoch
    ? new EpochTimes(column, unit.slice('epoch-'.length), taken)
    : new UnitTimes(column, unit, taken);
}

/** @throws {TierKVError} TKV_INPUT naming file, line and field; TKV_CONFIG for a missing rate. */
export function* mappedRequests(
  lines: Lines,
  file: string,
  mapping: ColumnMapping,
  options: LengthFileOptions = {},
): Generator<WorkloadRequest> {
  checkInputs(
    { lines, file, mapping },
    {
      lines: is.iterable(),
      file: is.name(),
      mapping: is.fields({ columns: is.map() }),
    },
  );
  const { rate, taken = new TakenColumns() } = lengthFileOptions.read(options);
  const { unit } = mapping;
  const at = new Map<MappedPart, number>();
  const nameOf = (part: MappedPart): string => mapping.columns.get(part) ?? part;
  const times = unit === undefined ? undefined : timesOf(nameOf('arrival'), unit, taken);
  if (times !== undefined && rate !== undefined) {
    throw configError(
      'rate',
      `is given, and ${file} has times of its own (${nameOf('arrival')})`,
      'Leave it out.',
    );
  }
  const drawn = times === undefined ? arrivalsOf(file, rate, options) : undefined;
  const rounds = new SessionRounds();
  let arrivalUs = 0;
  let index = 0;
  for (const [header, cells, row] of csvRows(lines, file)) {
    if (cells === undefined) {
      for (const [part, name] of mapping.columns) {
        const column = header.names.indexOf(name);
        if (column < 0) {
          const near = nearestName(name, header.names);
          const hint = near === undefined ? '' : `Did you mean ${shownPlain(near)}? `;
          const names = header.names.slice(0, 64).map(shownPlain).join(', ');
          throw row.error(shownPlain(name), 'is not a column', `${hint}The columns are ${names}`);
        }
        at.set(part, column);
      }
      const used = [...at.values()];
      taken.begin(
        [...mapping.columns].map(([part, name]) => `${name} (${part})`),
        unit === undefined ? `none in the file, drawn at ${rate} a second` : mappedTimes(unit),
      );
      header.names.forEach((name, i) => void (used.includes(i) || taken.leave(name)));
      continue;
    }
    const cell = (part: MappedPart): string => (at.has(part) ? cells[at.get(part)!].trim() : '');
    const timeUs = times?.us(cell('arrival'), row);
    const inputTokens = row.tokenCell(cell('input'), nameOf('input'));
    const outputTokens = row.tokenCell(cell('output'), nameOf('output'));
    if (taken.drops(inputTokens, outputTokens)) continue;
    row.requirePrompt(nameOf('input'), inputTokens);
    arrivalUs = timeUs ?? arrivalUs + drawn!();
    const prompt = ownTokens('columns', 'in', index, inputTokens);
    const origin = rounds.origin(cell('client') || 'columns', {
      tenantId: cell('tenant'),
      sloClass: cell('class'),
    });
    const of = rounds.next(cell('session'));
    yield importedRequest({ index: index++, origin, arrivalUs, inputTokens, outputTokens, prompt, ...of });
  }
}

function mappedTimes(unit: MappedUnit): string {
  if (unit === 'iso') return 'dates, from the first row';
  return unit.startsWith('epoch-') ? `${unit.slice('epoch-'.length)} since 1970, from the first row` : unit;
}
