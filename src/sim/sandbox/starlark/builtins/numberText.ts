/** Numbers out of text: `int("12", 16)`, `float("1e3")`. */

import { fail } from '../failure.ts';
import { exact } from '../values/index.ts';

const INTEGER = /^([+-]?)(0[xX]|0[oO]|0[bB])?([0-9a-zA-Z]+)$/;
const FLOAT = /^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$/;

const bases: Readonly<Record<string, number>> = { '0x': 16, '0o': 8, '0b': 2 };

/** Base 0 takes the base from the prefix. */
export function parseIntText(text: string, base: number, line: number): number {
  if (base !== 0 && (base < 2 || base > 36)) fail(line, `the base ${base} is not 0 or from 2 to 36`);
  const match = INTEGER.exec(text);
  if (match === null || text.length > 100) return fail(line, `${quoted(text)} is no int`);
  const [, sign, prefix = '', digits] = match;
  const prefixBase = bases[prefix.toLowerCase()] ?? 10;
  const usesPrefix = prefix !== '' && (base === 0 || base === prefixBase);
  const actual = base === 0 ? prefixBase : base;
  const body = usesPrefix ? digits : prefix + digits;
  let value = 0;
  for (const c of body.toLowerCase()) {
    const digit = Number.parseInt(c, 36);
    if (digit >= actual) fail(line, `${quoted(text)} is no int of base ${actual}`);
    value = exact(value * actual + digit, line);
  }
  return sign === '-' ? -value || 0 : value;
}

export function parseFloatText(text: string, line: number): number {
  const special = /^([+-]?)(inf|infinity|nan)$/i.exec(text);
  if (special !== null) {
    if (special[2].toLowerCase() === 'nan') return Number.NaN;
    return special[1] === '-' ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  }
  if (!FLOAT.test(text)) fail(line, `${quoted(text)} is no float`);
  const value = Number(text);
  return Number.isFinite(value) ? value : fail(line, `${quoted(text)} is too large for a float`);
}

function quoted(text: string): string {
  return JSON.stringify(text.slice(0, 40));
}
