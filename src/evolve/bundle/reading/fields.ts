/** Objects of a bundle's JSON: their keys checked, their values shown in errors. */

import { configError } from '../../../runtime/errors.ts';
import { unknownName } from '../../../sim/control/index.ts';
import { shown as shownShort } from '../../../sim/workload/shown.ts';

/** Limits on what a bundle may be; search stays far below them. */
export const bundleLimits = {
  sourceCharacters: 200_000,
  treeNodes: 4096,
  treeDepth: 64,
  mutations: 1000,
} as const;

export type Fields = Readonly<Record<string, unknown>>;

/** @throws TKV_CONFIG unless the value is an object with no other keys */
export function fieldsOf(field: string, value: unknown, known: readonly string[]): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw configError(field, `is ${shown(value)}, not an object`, `Give it the fields ${known.join(', ')}.`);
  }
  for (const key of Object.keys(value)) {
    if (!known.includes(key)) throw unknownName(field === 'bundle' ? key : `${field}.${key}`, key, known);
  }
  return value as Fields;
}

export function shown(value: unknown): string {
  let text: string;
  try {
    text = JSON.stringify(value) ?? String(value);
  } catch {
    text = shownShort(value); // nested beyond measure, or no JSON at all
  }
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** The error of a field that is needed and not there. */
export function missing(field: string, known: readonly string[]): Error {
  return configError(field, 'is missing', `Set it to ${quoted(known)}.`);
}

export function quoted(names: readonly string[]): string {
  const texts = names.map((name) => JSON.stringify(name));
  return texts.length === 1 ? texts[0] : `${texts.slice(0, -1).join(', ')} or ${texts[texts.length - 1]}`;
}
