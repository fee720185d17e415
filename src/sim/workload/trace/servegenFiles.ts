/**
 * The files of ServeGen client profiles: rates per 600 s window (`chunk-*-trace.csv`) and length
 * distributions per some hours (`chunk-*-dataset.json`), for every client ("chunk"). They are parameters, not
 * requests.
 */

import { maxRequestTokens } from '../request.ts';
import { shown, shownPlain } from '../shown.ts';
import { splitCsv } from './csv.ts';
import { type Lines, numbered, TraceLine } from './lines.ts';

/** One 600 s window of a client. `process` is '' where the profile names none. */
export interface ServeGenWindow {
  readonly startS: number;
  readonly ratePerS: number;
  readonly cv: number;
  readonly process: '' | 'gamma' | 'weibull';
  readonly shape: number;
  /** In seconds. */
  readonly scale: number;
}

/** Weights by token count, sorted by count. */
export type Histogram = ReadonlyArray<readonly [value: number, weight: number]>;

export interface ServeGenLengths {
  readonly input: Histogram;
  readonly output: Histogram;
  /** By share in [0, 1]; empty unless the profile is of a reasoning model. */
  readonly reasonRatio: Histogram;
}

export interface ServeGenChunk {
  readonly id: string;
  readonly windows: readonly ServeGenWindow[];
  /** By window start in s; empty windows are left out. */
  readonly lengths: ReadonlyMap<number, ServeGenLengths>;
  readonly hasReasonRatio: boolean;
}

/** Ten minutes each: almost two years. */
const maxWindows = 100_000;
const maxStarts = 10_000;
/** Of a start in s, a rate a second, a CV, a shape or a scale. */
const maxNumber = 1e9;

/** Windows of a `chunk-*-trace.csv`: start, rate, CV, process and two parameters a row, without a header. */
export function servegenWindows(lines: Lines, file: string): ServeGenWindow[] {
  const windows: ServeGenWindow[] = [];
  for (const [text, at] of numbered(lines, file)) {
    if (windows.length === maxWindows)
      throw at.error('', `is one of more than ${maxWindows} windows`, 'Split it');
    const cells = splitCsv(text)?.map((cell) => cell.trim()) ?? [];
    const number = (i: number, field: string): number => {
      const value = cells[i] === undefined || cells[i] === '' ? Number.NaN : Number(cells[i]);
      if (value >= 0 && value <= maxNumber) return value;
      throw at.error(
        field,
        cells[i] === undefined ? 'is missing' : `is ${shown(cells[i])}`,
        `Set it to a number from 0 to ${maxNumber}`,
      );
    };
    const process = (cells[3] ?? '').toLowerCase();
    const known = process === 'gamma' || process === 'weibull';
    windows.push({
      startS: number(0, 'start'),
      ratePerS: number(1, 'rate'),
      cv: number(2, 'cv'),
      process: known ? process : '',
      shape: cells.length >= 6 ? number(4, 'shape') : 0,
      scale: cells.length >= 6 ? number(5, 'scale') : 0,
    });
  }
  return windows;
}

function histogram(text: unknown, field: string, at: TraceLine): Histogram {
  if (text === undefined || text === '' || text === '{}') return [];
  const inner = typeof text === 'string' ? /^\s*\{([\s\S]*)\}\s*$/.exec(text) : null;
  if (inner === null) throw at.error(field, 'is not a "{value: weight, …}" text', 'Mend the file');
  const bins = new Map<number, number>();
  for (const pair of inner[1].split(',')) {
    if (pair.trim() === '') continue;
    const [key, value, ...rest] = pair.split(':').map((part) => part.trim().replace(/^['"]|['"]$/g, ''));
    const weight = Number(value);
    if (
      rest.length > 0 ||
      value === undefined ||
      key === '' ||
      !(Math.abs(Number(key)) <= maxRequestTokens) ||
      !(weight >= 0 && weight < Infinity)
    ) {
      throw at.error(field, `holds ${shown(pair.trim())}`, 'Write value: weight with a weight of at least 0');
    }
    bins.set(Number(key), weight);
  }
  return [...bins].sort((a, b) => a[0] - b[0]);
}

/** Lengths of a `chunk-*-dataset.json`. */
export function servegenLengths(
  text: string,
  file: string,
): Pick<ServeGenChunk, 'lengths' | 'hasReasonRatio'> {
  const at = new TraceLine(file, 1);
  const lengths = new Map<number, ServeGenLengths>();
  let hasReasonRatio = false;
  for (const [start, value] of Object.entries(at.json(text))) {
    if (lengths.size === maxStarts) throw at.error('', `holds more than ${maxStarts} windows`, 'Split it');
    if (!(Number(start) <= maxNumber) || typeof value !== 'object' || value === null) {
      throw at.error(
        shownPlain(start),
        'is not a window of distributions',
        'Name windows by their start in s',
      );
    }
    const window = value as Record<string, unknown>;
    hasReasonRatio ||= 'reason_ratio' in window;
    const whole = (field: string): Histogram =>
      histogram(window[field], `${start}.${field}`, at).map(([key, weight]) => [Math.trunc(key), weight]);
    const input = whole('input_tokens');
    const output = whole('output_tokens');
    if (input.length === 0 || output.length === 0) continue;
    lengths.set(Math.trunc(Number(start)), {
      input,
      output,
      reasonRatio: histogram(window.reason_ratio, `${start}.reason_ratio`, at),
    });
  }
  return { lengths: new Map([...lengths].sort((a, b) => a[0] - b[0])), hasReasonRatio };
}
