/**
 * Tables for people: plain text without colour codes, so that a pipe or a file gets the same bytes as a
 * terminal. Columns of numbers are aligned to the right.
 */

import Table from 'cli-table3';
import { printable } from './printable.ts';

/** Characters of a cell; a name out of a file may have millions. */
const longestCell = 200;

function cellText(cell: string | number): string | number {
  if (typeof cell === 'number') return cell;
  return printable(cell.length <= longestCell ? cell : `${cell.slice(0, longestCell)}...`);
}

/** In lines of so many characters. */
function wrapped(text: string | number, width: number): string {
  return (
    String(text)
      .match(new RegExp(`.{1,${width}}`, 'gu'))
      ?.join('\n') ?? ''
  );
}

export interface TableColumn {
  readonly title: string;
  /** Longer cells go on in the next line. */
  readonly width?: number;
  readonly align?: 'left' | 'right';
}

/**
 * The table as text with a newline at its end. Every row has one cell a column; cells are made printable and
 * cut.
 */
export function renderTable(
  columns: readonly TableColumn[],
  rows: readonly (readonly (string | number)[])[],
): string {
  const table = new Table({
    head: columns.map((column) => column.title),
    colAligns: columns.map((column) => column.align ?? 'left'),
    style: { head: [], border: [], compact: true },
  });
  for (const row of rows) {
    table.push(
      row.map((cell, i) => {
        const { width } = columns[i];
        return width === undefined ? cellText(cell) : wrapped(cellText(cell), width);
      }),
    );
  }
  return `${table.toString()}\n`;
}
