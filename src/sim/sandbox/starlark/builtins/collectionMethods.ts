/**
 * Methods of lists and dicts: https://github.com/bazelbuild/starlark/blob/master/spec.md#list%C2%B7append and
 * on.
 */

import { fail } from '../failure.ts';
import {
  isEqual,
  requireMutable,
  type StarDict,
  type StarList,
  type Value,
  withKey,
} from '../values/index.ts';
import { fillDict, iterate, listOf, tupleOf } from './functions.ts';
import { integerOf, take } from './parameters.ts';
import type { Method } from './stringMethods.ts';

export const listMethods: Readonly<Record<string, Method<StarList>>> = {
  append: (meter, self, positional, named, line) => {
    const [x] = take('append', ['x'], positional, named, line);
    requireMutable(self, line);
    meter.allocate(1, line);
    self.items.push(x ?? null);
    return null;
  },
  clear: (_, self, positional, named, line) => {
    take('clear', [], positional, named, line);
    requireMutable(self, line);
    self.items.length = 0;
    return null;
  },
  extend: (meter, self, positional, named, line) => {
    const [x] = take('extend', ['iterable'], positional, named, line);
    requireMutable(self, line);
    const items = [...iterate(meter, x, line)];
    meter.allocate(items.length, line);
    for (const item of items) self.items.push(item);
    return null;
  },
  index: (meter, self, positional, named, line) => {
    const [x, start, stop] = take('index', ['x', 'start?', 'end?'], positional, named, line);
    const { length } = self.items;
    const bound = (value: Value | undefined, otherwise: number): number => {
      if (value === undefined || value === null) return otherwise;
      const at = integerOf('index', value, line);
      return at < 0 ? Math.max(0, at + length) : Math.min(at, length);
    };
    const end = bound(stop, length);
    meter.spend(length, line);
    for (let i = bound(start, 0); i < end; i++) if (isEqual(meter, self.items[i], x ?? null, line)) return i;
    return fail(line, 'the value is not in the list. Test with "in"');
  },
  insert: (meter, self, positional, named, line) => {
    const [at, x] = take('insert', ['i', 'x'], positional, named, line);
    const i = integerOf('insert', at, line);
    requireMutable(self, line);
    meter.spend(self.items.length, line);
    meter.allocate(1, line);
    self.items.splice(i < 0 ? Math.max(0, i + self.items.length) : i, 0, x ?? null);
    return null;
  },
  pop: (meter, self, positional, named, line) => {
    const [at] = take('pop', ['i?'], positional, named, line);
    requireMutable(self, line);
    const { length } = self.items;
    const i = at === undefined ? length - 1 : integerOf('pop', at, line);
    const index = i < 0 ? i + length : i;
    if (length === 0 || index < 0 || index >= length) fail(line, `pop finds no element ${i} in ${length}`);
    meter.spend(length - index, line);
    return self.items.splice(index, 1)[0];
  },
  remove: (meter, self, positional, named, line) => {
    const [x] = take('remove', ['x'], positional, named, line);
    requireMutable(self, line);
    meter.spend(self.items.length, line);
    const i = self.items.findIndex((item) => isEqual(meter, item, x ?? null, line));
    if (i < 0) fail(line, 'the value is not in the list. Test with "in"');
    self.items.splice(i, 1);
    return null;
  },
};

export const dictMethods: Readonly<Record<string, Method<StarDict>>> = {
  clear: (_, self, positional, named, line) => {
    take('clear', [], positional, named, line);
    requireMutable(self, line);
    self.clear();
    return null;
  },
  get: (meter, self, positional, named, line) => {
    const [key = null, otherwise = null] = take('get', ['key', 'default?'], positional, named, line);
    const value = withKey(meter, line, key, () => self.get(key));
    return value === undefined ? otherwise : value;
  },
  items: (meter, self, positional, named, line) => {
    take('items', [], positional, named, line);
    meter.spend(self.size, line);
    return listOf(
      meter,
      Array.from(self.entries(), ([k, v]) => tupleOf(meter, [k, v], line)),
      line,
    );
  },
  keys: (meter, self, positional, named, line) => {
    take('keys', [], positional, named, line);
    meter.spend(self.size, line);
    return listOf(meter, self.keys(), line);
  },
  pop: (meter, self, positional, named, line) => {
    const [key = null, otherwise] = take('pop', ['key', 'default?'], positional, named, line);
    requireMutable(self, line);
    const value = withKey(meter, line, key, () => self.get(key));
    if (value === undefined) {
      return otherwise === undefined ? fail(line, 'pop finds no such key. Give a default') : otherwise;
    }
    self.delete(key);
    return value;
  },
  popitem: (meter, self, positional, named, line) => {
    take('popitem', [], positional, named, line);
    requireMutable(self, line);
    const [first] = self.entries();
    if (first === undefined) return fail(line, 'popitem finds an empty dict');
    self.delete(first[0]);
    return tupleOf(meter, [...first], line);
  },
  setdefault: (meter, self, positional, named, line) => {
    const [key = null, otherwise = null] = take('setdefault', ['key', 'default?'], positional, named, line);
    const value = withKey(meter, line, key, () => self.get(key));
    if (value !== undefined) return value;
    requireMutable(self, line);
    meter.allocate(2, line);
    self.set(key, otherwise);
    return otherwise;
  },
  update: (meter, self, positional, named, line) => {
    const [source] = take('update', ['pairs?'], positional, [], line);
    requireMutable(self, line);
    if (source !== undefined) fillDict(meter, self, source, line);
    meter.allocate(2 * named.length, line);
    for (const [name, value] of named) self.set(name, value);
    return null;
  },
  values: (meter, self, positional, named, line) => {
    take('values', [], positional, named, line);
    meter.spend(self.size, line);
    return listOf(
      meter,
      Array.from(self.entries(), ([, v]) => v),
      line,
    );
  },
};
