/**
 * Lines of comma-separated values as RFC 4180 and Go's encoding/csv have them: a cell is quoted when it holds
 * a comma, a quote, a line break or starts with a space. Readers take lines from a caller, so a file is never
 * held in memory.
 */

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
