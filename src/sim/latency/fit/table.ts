/** CSV tables of measurements: a header, then one row a line; a row that does not fit is an error with its line. */

import { TierKVError } from '../../../runtime/errors.ts';

function bad(file: string, line: number, problem: string, remedy: string): TierKVError {
  return new TierKVError('TKV_INPUT', `${file}:${line}: ${problem}. ${remedy}`, { path: file, line });
}

export interface TableRow {
  readonly line: number;
  text(column: string): string;
  /** A finite number of at least 0. */
  number(column: string): number;
  /** A finite number above 0. */
  positive(column: string): number;
}

/**
 * Rows of a CSV text without quoted cells.
 * @param columns those that must be there; others may.
 * @throws {TierKVError} TKV_INPUT for a missing column, a row with another number of cells, or a cell that is no number.
 */
export function* readTable(text: string, file: string, columns: readonly string[]): Generator<TableRow> {
  const lines = text.split(/\r?\n/);
  const header = lines[0].split(',').map((name) => name.trim());
  const index = new Map(header.map((name, i) => [name, i]));
  const missing = columns.find((column) => !index.has(column));
  if (missing !== undefined) {
    throw bad(file, 1, `there is no column ${missing}`, `The header must name: ${columns.join(', ')}`);
  }
  for (let i = 1; i < lines.length; i++) {
    if (lines[i] === '') continue;
    const cells = lines[i].split(',');
    const line = i + 1;
    if (cells.length !== header.length) {
      throw bad(file, line, `has ${cells.length} cells, not ${header.length}`, 'Mend or remove the line');
    }
    const cell = (column: string): string => cells[index.get(column) ?? -1] ?? '';
    const read = (column: string, isRight: (value: number) => boolean, wanted: string): number => {
      const value = Number(cell(column));
      if (cell(column) !== '' && Number.isFinite(value) && isRight(value)) return value;
      throw bad(file, line, `${column} is "${cell(column)}"`, `Write a number ${wanted}`);
    };
    yield {
      line,
      text: cell,
      number: (column) => read(column, (value) => value >= 0, 'of at least 0'),
      positive: (column) => read(column, (value) => value > 0, 'above 0'),
    };
  }
}
