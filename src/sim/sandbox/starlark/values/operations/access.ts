/** Elements and fields: `x[i]`, `x[i] = v`, `x[a:b:c]`, `x.name`, `i in x`. */

import type { Meter } from '../../../meter.ts';
import { fail } from '../../failure.ts';
import type { RecordShape } from '../record.ts';
import { repr } from '../text.ts';
import { typeName } from '../typeName.ts';
import {
  hashOfTuple,
  StarDict,
  StarFloat,
  StarList,
  StarRange,
  StarRecord,
  StarTuple,
  UnhashableError,
  type Value,
} from '../value.ts';
import { isEqual, spendSearch, spendText } from './comparison.ts';

/**
 * Runs what looks up a key, and says so when a list or a dict is used as one. A long text costs as where it
 * is compared; a tuple costs a step an element, and memory for the text that stands for it.
 */
export function withKey<T>(meter: Meter, line: number, key: Value, work: () => T): T {
  try {
    if (typeof key === 'string') spendText(meter, key.length, line);
    else if (key instanceof StarTuple) {
      hashOfTuple(key, (elements, units) => {
        meter.spend(elements, line);
        meter.allocate(units, line);
      });
    }
    return work();
  } catch (error) {
    if (error instanceof UnhashableError) fail(line, `${typeName(key)} cannot be a key. Use a tuple`);
    throw error;
  }
}

export function getItem(meter: Meter, object: Value, index: Value, line: number): Value {
  if (object instanceof StarList || object instanceof StarTuple) {
    return object.items[position(index, object.items.length, object, line)];
  }
  if (object instanceof StarDict) {
    const value = withKey(meter, line, index, () => object.get(index));
    if (value === undefined) {
      return fail(
        line,
        `the key ${repr(meter, index, line).slice(0, 80)} is not in the dict. Use get(key, default)`,
      );
    }
    return value;
  }
  if (typeof object === 'string') return object[position(index, object.length, object, line)];
  if (object instanceof StarRange) return object.at(position(index, object.length, object, line));
  if (object instanceof StarRecord) {
    const field = typeof index === 'string' ? index : object.shape.fields[0];
    return fail(line, `a record of ${object.shape.name} has fields and no elements. Write x.${field}`);
  }
  return fail(line, `${typeName(object)} has no elements`);
}

function notAnIndex(index: Value, line: number): never {
  const remedy = index instanceof StarFloat ? '. Write int(x), or divide by //' : '';
  return fail(line, `an index is an int, not ${typeName(index)}${remedy}`);
}

function position(index: Value, length: number, object: Value, line: number): number {
  if (typeof index !== 'number') return notAnIndex(index, line);
  const at = index < 0 ? index + length : index;
  if (at < 0 || at >= length) {
    fail(line, `the index ${index} is outside the ${typeName(object)} of ${length} elements`);
  }
  return at;
}

/** @throws PolicyError policy_runtime for a value that is frozen or that a loop runs over */
export function requireMutable(object: StarList | StarDict, line: number): void {
  if (object.isFrozen)
    fail(line, `the ${typeName(object)} belongs to the module and is frozen. Copy it first`);
  if (object.loops > 0) fail(line, `the ${typeName(object)} changes while a loop runs over it`);
}

export function setItem(meter: Meter, object: Value, index: Value, value: Value, line: number): void {
  if (object instanceof StarList) {
    requireMutable(object, line);
    object.items[position(index, object.items.length, object, line)] = value;
  } else if (object instanceof StarDict) {
    requireMutable(object, line);
    meter.allocate(2, line);
    withKey(meter, line, index, () => object.set(index, value));
  } else {
    fail(line, `elements of ${typeName(object)} cannot be assigned`);
  }
}

export function getSlice(
  meter: Meter,
  object: Value,
  start: Value,
  stop: Value,
  step: Value,
  line: number,
): Value {
  const items = sliceable(object, line);
  const by = step === null ? 1 : bound(step, line);
  if (by === 0) fail(line, 'the step of a slice is 0');
  const { length } = items;
  const first = start === null ? (by > 0 ? 0 : length - 1) : clamp(bound(start, line), length, by);
  const last = stop === null ? (by > 0 ? length : -1) : clamp(bound(stop, line), length, by);
  const count = Math.max(0, Math.ceil((last - first) / by));
  meter.spend(count, line);
  if (object instanceof StarRange) {
    return new StarRange(object.start + first * object.step, object.step * by, count);
  }
  meter.allocate(1 + count, line);
  if (typeof object === 'string') {
    if (by === 1) return object.slice(first, first + count);
    return Array.from({ length: count }, (_, i) => object[first + i * by]).join('');
  }
  const chosen = Array.from({ length: count }, (_, i) => (items as readonly Value[])[first + i * by]);
  return object instanceof StarList ? new StarList(chosen) : new StarTuple(chosen);
}

function sliceable(object: Value, line: number): { readonly length: number } {
  if (object instanceof StarList || object instanceof StarTuple) return object.items;
  if (typeof object === 'string' || object instanceof StarRange) return object;
  return fail(line, `${typeName(object)} cannot be sliced`);
}

function bound(value: Value, line: number): number {
  return typeof value === 'number'
    ? value
    : fail(line, `a bound of a slice is an int, not ${typeName(value)}`);
}

function clamp(index: number, length: number, step: number): number {
  const at = index < 0 ? index + length : index;
  return step > 0 ? Math.min(Math.max(at, 0), length) : Math.min(Math.max(at, -1), length - 1);
}

/** Where one place of a program found the field it reads; the next record is mostly of the same shape. */
export class FieldSite {
  readonly name: string;
  readonly line: number;
  shape: unknown = null;
  index = -1;
  isFloat = false;

  constructor(name: string, line: number) {
    this.name = name;
    this.line = line;
  }
}

/** A field of a record. `undefined` where the value is no record. */
export function getField(object: Value, site: FieldSite): Value | undefined {
  if (!(object instanceof StarRecord)) return undefined;
  if (object.shape !== site.shape) findField(object, site);
  const value = object.values[site.index];
  return site.isFloat && typeof value === 'number' ? new StarFloat(value) : value;
}

/** As `getField`, but a float is a bare number. */
export function getBareField(object: Value, site: FieldSite): Value | undefined {
  if (!(object instanceof StarRecord)) return undefined;
  if (object.shape !== site.shape) findField(object, site);
  return object.values[site.index];
}

function fieldRemedy(shape: RecordShape, name: string): string {
  if (name === 'get') return `A record is no dict: write x.${shape.fields[0]}`;
  const meant = shape.nearest(name);
  return meant === undefined ? `Its fields are ${shape.fields.join(', ')}` : `Do you mean ${meant}?`;
}

function findField({ shape }: StarRecord, site: FieldSite): void {
  const index = shape.indexOf(site.name);
  if (index < 0) {
    fail(site.line, `${shape.name} has no field ${site.name}. ${fieldRemedy(shape, site.name)}`);
  }
  site.shape = shape;
  site.index = index;
  site.isFloat = shape.isFloat[index];
}

export function contains(meter: Meter, element: Value, object: Value, line: number): boolean {
  if (object instanceof StarDict)
    return withKey(meter, line, element, () => object.get(element) !== undefined);
  if (typeof object === 'string') {
    if (typeof element !== 'string')
      fail(line, `"in" looks for a string in a string, not for ${typeName(element)}`);
    spendSearch(meter, object, element, line);
    return object.includes(element);
  }
  if (object instanceof StarList || object instanceof StarTuple) {
    meter.spend(object.items.length, line);
    return object.items.some((item) => isEqual(meter, item, element, line));
  }
  if (object instanceof StarRange) {
    const value = element instanceof StarFloat ? element.value : element;
    if (typeof value !== 'number') return false;
    const index = (value - object.start) / object.step;
    return Number.isInteger(index) && index >= 0 && index < object.length;
  }
  return fail(line, `"in" does not look into ${typeName(object)}`);
}
