/**
 * Lines of comma-separated values as RFC 4180 and Go's encoding/csv have them: a cell is quoted when it holds
 * a comma, a quote, a line break or starts with a space. Readers take lines from a caller, so a file is never
 * held in memory.
 */

import { shownPlain } from '../shown.ts';
import { type Lines, numbered, type TraceLine } from './lines.ts';

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
