/**
 * Files of lengths as CSV: input and output tokens a row under one of the usual column names, and arrivals
 * where a column of times is there whose unit is known: dates, or a name that says the unit. Without times the
 * arrivals are drawn from a process of the caller's choice. A column that may be a time and is none of these is
 * an error: arrivals are never invented beside times.
 */

import { configError, type TierKVError } from '../../../../runtime/errors.ts';
import { type ArrivalSpec, arrivalSampler, GoRandom, partitionSeed } from '../../../random/index.ts';
import type { WorkloadRequest } from '../../request.ts';
import { shownPlain } from '../../shown.ts';
import { type CsvHeader, csvRows, plainColumn } from '../csv.ts';
import type { Lines, TraceLine } from '../lines.ts';
import { TakenColumns } from '../taken.ts';
import { importedRequest, ownTokens, traceOrigin } from './imported.ts';
import { type ColumnTimes, DateTimes, isDate, timeUnits, UnitTimes } from './times.ts';

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
const ORIGIN = traceOrigin('lengths');

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

/** @throws {TierKVError} TKV_INPUT naming file, line and field; TKV_CONFIG for a rate that is none. */
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
    yield importedRequest({ index: index++, origin: ORIGIN, arrivalUs, inputTokens, outputTokens, prompt });
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
