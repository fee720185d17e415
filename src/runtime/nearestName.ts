/** The nearest of a list of names to a mistyped one, by Damerau-Levenshtein distance. */

function distance(a: string, b: string): number {
  const rows: number[][] = Array.from({ length: a.length + 1 }, (_, i) => [i]);
  for (let j = 0; j <= b.length; j++) rows[0][j] = j;
  for (let i = 1; i <= a.length; i++) {
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      rows[i][j] = Math.min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (same ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        rows[i][j] = Math.min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.length][b.length];
}

/** A word longer than this is no mistyped name; comparing it would take memory for each of its letters. */
const longestName = 64;

/**
 * The closest name, if it is close enough to be what was meant: at most a third of its length in edits, or a
 * prefix.
 */
export function nearestName(typed: string, names: readonly string[]): string | undefined {
  if (typed.length > longestName) return undefined;
  let best: string | undefined;
  let least = Infinity;
  const plain = typed.toLowerCase().replaceAll('-', '_');
  for (const name of names) {
    if (name === '') continue;
    const edits = distance(plain, name.toLowerCase());
    if (edits < least) {
      least = edits;
      best = name;
    }
  }
  if (best === undefined) return undefined;
  const related = plain.length >= 3 && (best.includes(plain) || plain.includes(best));
  return least <= Math.max(1, Math.ceil(best.length / 3)) || related ? best : undefined;
}
