/** Values as text: `str`, `repr`, and the numbers in them. */

import type { Meter } from '../../meter.ts';
import { fail } from '../failure.ts';
import {
  MAX_VALUE_DEPTH,
  StarDict,
  StarFloat,
  StarFunction,
  StarList,
  StarRange,
  StarTuple,
  type Value,
} from './value.ts';

/** As `str(value)`: a string as it is, anything else as `repr` shows it. */
export function str(meter: Meter, value: Value, line: number): string {
  return typeof value === 'string' ? value : repr(meter, value, line);
}

export function repr(meter: Meter, value: Value, line: number): string {
  return show(meter, value, line, 0);
}

function show(meter: Meter, value: Value, line: number, depth: number): string {
  if (depth > MAX_VALUE_DEPTH) fail(line, `values nest deeper than ${MAX_VALUE_DEPTH}`);
  const text = showPlain(value) ?? showMany(meter, value, line, depth);
  meter.allocateText(text.length, line);
  return text;
}

function showPlain(value: Value): string | undefined {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value === 'number') return String(value);
  if (typeof value === 'string') return quote(value);
  if (value instanceof StarFloat) return floatText(value.value);
  if (value instanceof StarFunction)
    return value.isBuiltin ? `<built-in ${value.name}>` : `<function ${value.name}>`;
  return undefined;
}

function showMany(meter: Meter, value: Value, line: number, depth: number): string {
  const inner = (item: Value): string => show(meter, item, line, depth + 1);
  if (value instanceof StarList) return `[${spent(meter, value.items, line).map(inner).join(', ')}]`;
  if (value instanceof StarTuple) {
    const items = spent(meter, value.items, line).map(inner);
    return items.length === 1 ? `(${items[0]},)` : `(${items.join(', ')})`;
  }
  if (value instanceof StarDict) {
    meter.spend(value.size, line);
    return `{${Array.from(value.entries(), ([k, v]) => `${inner(k)}: ${inner(v)}`).join(', ')}}`;
  }
  if (value instanceof StarRange) {
    const stop = value.start + value.length * value.step;
    return value.step === 1
      ? `range(${value.start}, ${stop})`
      : `range(${value.start}, ${stop}, ${value.step})`;
  }
  if (value !== null && typeof value === 'object' && 'shape' in value) {
    const fields = value.shape.fields.map((field, i) => {
      const stored = value.values[i];
      const shown = value.shape.isFloat[i] && typeof stored === 'number' ? floatText(stored) : inner(stored);
      return `${field} = ${shown}`;
    });
    return `${value.shape.name}(${fields.join(', ')})`;
  }
  return '';
}

function spent(meter: Meter, items: readonly Value[], line: number): readonly Value[] {
  meter.spend(items.length, line);
  return items;
}

/** The shortest text that reads back as the same float, with a point or an exponent in it. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? '+inf' : '-inf';
  if (Object.is(value, -0)) return '-0.0';
  const magnitude = Math.abs(value);
  if (magnitude !== 0 && (magnitude < 1e-4 || magnitude >= 1e17)) return exponentText(value.toExponential());
  const text = String(value);
  return text.includes('.') ? text : `${text}.0`;
}

/** Two digits at least in the exponent, as Go and Python write it. */
export function exponentText(text: string): string {
  return text.replace(/e([+-])(\d)$/, 'e$10$2');
}

function quote(text: string): string {
  let quoted = '"';
  for (const c of text) {
    const code = c.codePointAt(0) ?? 0;
    if (c === '"' || c === '\\') quoted += `\\${c}`;
    else if (c === '\n') quoted += '\\n';
    else if (c === '\t') quoted += '\\t';
    else if (c === '\r') quoted += '\\r';
    else if (code < 32 || code === 127) quoted += `\\x${code.toString(16).padStart(2, '0')}`;
    else quoted += c;
  }
  return `${quoted}"`;
}
