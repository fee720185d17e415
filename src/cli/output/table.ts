/**
 * Tables for people: plain text without colour codes, so that a pipe or a file gets the same bytes as a terminal.
 * Columns of numbers are aligned to the right.
 */

import Table from 'cli-table3';

export interface TableColumn {
  readonly title: string;
  readonly align?: 'left' | 'right';
}

/** The table as text with a newline at its end. Every row has one cell a column. */
export function renderTable(
  columns: readonly TableColumn[],
  rows: readonly (readonly (string | number)[])[],
): string {
  const table = new Table({
    head: columns.map((column) => column.title),
    colAligns: columns.map((column) => column.align ?? 'left'),
    style: { head: [], border: [], compact: true },
  });
  table.push(...rows.map((row) => [...row]));
  return `${table.toString()}\n`;
}
