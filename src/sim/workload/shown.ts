/** How values look in messages: short, on one line, and without walking into what they nest. */

const shownCharacters = 40;

/** The value much as JSON has it, cut where it gets long. */
export function shown(value: unknown): string {
  const text = shownTo(value, 1);
  return text.length <= shownCharacters ? text : `${text.slice(0, shownCharacters)}...`;
}

/** The same, with a text as it stands. */
export function shownPlain(value: unknown): string {
  if (typeof value !== 'string') return shown(value);
  return value.length <= shownCharacters ? value : `${value.slice(0, shownCharacters)}...`;
}

function shownTo(value: unknown, depth: number): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, shownCharacters + 1));
  if (typeof value === 'bigint') return String(Math.abs(Number(value)) < 1e30 ? value : Number(value));
  if (typeof value !== 'object' || value === null) return String(value);
  if (Array.isArray(value)) {
    const parts = value
      .slice(0, shownCharacters)
      .map((item) => (depth === 0 ? '...' : shownTo(item, depth - 1)));
    return `[${parts.join(',')}]`;
  }
  const parts: string[] = [];
  for (const key in value) {
    if (parts.length === shownCharacters) break;
    const inner = (value as Record<string, unknown>)[key];
    parts.push(depth === 0 ? '...' : `${shownTo(key, 0)}:${shownTo(inner, depth - 1)}`);
  }
  return `{${parts.join(',')}}`;
}
