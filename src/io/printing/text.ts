/**
 * Text for people: tables and quantities, plain and without colour codes, so that a pipe or a file gets the same bytes as
 * a terminal. Names out of files are made printable: they may hold line ends and terminal codes, which would move the
 * cursor, hide a line or change the window's title.
 */

import Table from 'cli-table3';

/** The text with a question mark for everything but visible characters and spaces. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '?');
}

// Tables. Columns of numbers are aligned to the right.

/** Characters of a cell; a name out of a file may have millions. */
const longestCell = 200;

function cellText(cell: string | number): string | number {
  if (typeof cell === 'number') return cell;
  return printable(cell.length <= longestCell ? cell : `${cell.slice(0, longestCell)}...`);
}

/** In lines of `width` characters. */
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

// Quantities as people read and write them. Sizes are binary (KiB = 1,024 bytes), rates decimal (GB/s = 10^9
// bytes a second), as memory and links are sold. Formatting never rounds an exact count.

const binaryUnits = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Three significant digits, without trailing zeros after the point. */
function threeDigits(value: number): string {
  if (value >= 100) return value.toFixed(0);
  return value
    .toFixed(value >= 10 ? 1 : 2)
    .replace(/(\.\d*?)0+$/, '$1')
    .replace(/\.$/, '');
}

export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < binaryUnits.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : threeDigits(value)} ${binaryUnits[unit]}`;
}

export function formatBytesPerS(bytesPerS: number): string {
  if (bytesPerS >= 1e9) return `${threeDigits(bytesPerS / 1e9)} GB/s`;
  return bytesPerS >= 1e5 ? `${threeDigits(bytesPerS / 1e6)} MB/s` : `${threeDigits(bytesPerS / 1e3)} kB/s`;
}

/** An exact count with a comma after each three digits. */
export function formatCount(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** A count with what is counted, in the plural or, for one, without its end: `1 request`, `2,000 requests`. */
export function formatCounted(count: number, plural: string): string {
  const [word, ...rest] = plural.split(' ');
  const singular = word.endsWith('ies') ? `${word.slice(0, -3)}y` : word.replace(/s$/, '');
  return [formatCount(count), count === 1 ? singular : word, ...rest].join(' ');
}

/** A share of a whole in percent with two decimals; a dash for a share of nothing. */
export function formatShare(part: number, whole: number): string {
  return whole === 0 ? '-' : `${((100 * part) / whole).toFixed(2)} %`;
}

export function formatSeconds(seconds: number): string {
  if (!Number.isFinite(seconds)) return '-';
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
