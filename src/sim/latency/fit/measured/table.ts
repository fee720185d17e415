/**
 * CSV tables of measurements: a header, then one row a line; a row that does not fit is an error with its
 * line.
 */

import { TierKVError } from '../../../../runtime/errors.ts';
import { shown } from '../../../workload/shown.ts';

function bad(file: string, line: number, problem: string, remedy: string): TierKVError {
  return new TierKVError('TKV_INPUT', `${file}:${line}: ${problem}. ${remedy}`, { path: file, line });
}

/** Most rows of a table, which a fit goes over some hundred times. */
const maxRows = 500_000;
/** Most of any number in a table: in µs, some thirty years. */
const largest = 1e15;

export interface TableRow {
  readonly line: number;
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
 * @param columns those that must be there; others may.
 * @throws {TierKVError} TKV_INPUT for a missing column, a row with another number of cells, a cell that is no
 * number or out of range, and for more rows than a fit can take.
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
    throw bad(file, 1, `there is no column ${missing}`, `The header must name: ${columns.join(', ')}`);
  }
  let line = 1;
  let rows = 0;
  for (const row of lines) {
    line++;
    if (row === '') continue;
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
}
