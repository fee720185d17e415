/** `x.name` and `x.name(...)`: a field of a record or a method of a string, a list or a dict. */

import { nearestName } from '../../../runtime/errors.ts';
import type { Meter } from '../program.ts';
import { fillDict, integerOf, iterate, listOf, take, textOf, tupleOf } from './builtins.ts';
import {
  type FieldSite,
  getField,
  isEqual,
  repr,
  requireMutable,
  spendSearch,
  spendText,
  str,
  withKey,
} from './operations.ts';
import {
  fail,
  type NamedArguments,
  StarDict,
  StarFunction,
  StarList,
  StarRecord,
  StarTuple,
  typeName,
  type Value,
} from './value.ts';

/** Calls one of the methods of values like `self`. */
function callOne<Self extends Value>(
  methods: Readonly<Record<string, StringMethod<Self>>>,
  meter: Meter,
  self: Self,
  site: FieldSite,
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
): Value {
  return Object.hasOwn(methods, site.name)
    ? methods[site.name](meter, self, positional, named, line)
    : noMethod(methods, self, site);
}

function callOn(
  meter: Meter,
  object: Value,
  site: FieldSite,
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
): Value {
  if (typeof object === 'string') {
    return callOne(stringMethods, meter, object, site, positional, named, line);
  }
  if (object instanceof StarList) return callOne(listMethods, meter, object, site, positional, named, line);
  if (object instanceof StarDict) return callOne(dictMethods, meter, object, site, positional, named, line);
  return noMethod({}, object, site);
}

function methodsOf(object: Value): object {
  if (typeof object === 'string') return stringMethods;
  if (object instanceof StarList) return listMethods;
  return object instanceof StarDict ? dictMethods : {};
}

function noMethod(methods: object, object: Value, { name, line }: FieldSite): never {
  return fail(line, `${typeName(object)} has no field or method ${name}${remedyFor(methods, object, name)}`);
}

function remedyFor(methods: object, object: Value, name: string): string {
  if (['length', 'size', 'count'].includes(name) && !(name in methods)) return '. Write len(x)';
  const isMany = object instanceof StarTuple || object instanceof StarList;
  const [first] = isMany ? object.items : [];
  if (first instanceof StarRecord && first.shape.indexOf(name) >= 0) {
    return `. It holds records of ${first.shape.name}: [x.${name} for x in ${first.shape.name}]`;
  }
  const nearest = nearestName(name, Object.keys(methods));
  return nearest === undefined ? '' : `. Do you mean ${nearest}?`;
}

export function getAttribute(object: Value, site: FieldSite): Value {
  const field = getField(object, site);
  if (field !== undefined) return field;
  const methods = methodsOf(object);
  if (!Object.hasOwn(methods, site.name)) noMethod(methods, object, site);
  return new StarFunction(site.name, (meter, positional, named, line) =>
    callOn(meter, object, site, positional, named, line),
  );
}

/** `object.name(...)`, without making a value of the method. */
export function callMethod(
  meter: Meter,
  object: Value,
  site: FieldSite,
  positional: readonly Value[],
  named: NamedArguments,
): Value {
  const field = getField(object, site);
  if (field === undefined) return callOn(meter, object, site, positional, named, site.line);
  if (!(field instanceof StarFunction)) return fail(site.line, `${typeName(field)} cannot be called`);
  return field.call(meter, positional, named, site.line);
}

// Methods of lists and dicts: https://github.com/bazelbuild/starlark/blob/master/spec.md#list%C2%B7append and
// on.

const listMethods: Readonly<Record<string, StringMethod<StarList>>> = {
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

const dictMethods: Readonly<Record<string, StringMethod<StarDict>>> = {
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

// Methods of strings: https://github.com/bazelbuild/starlark/blob/master/spec.md#string%C2%B7elems and on.

type StringMethod<T> = (
  meter: Meter,
  self: T,
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
) => Value;

const BLANKS = ' \t\n\r\v\f';

/** Text made from the string, as long as it at most a few times. */
function mapped(name: string, map: (text: string) => string): StringMethod<string> {
  return (meter, self, positional, named, line) => {
    take(name, [], positional, named, line);
    meter.spend(self.length, line);
    meter.allocateText(self.length, line);
    return map(self);
  };
}

function tested(
  name: string,
  test: RegExp,
  more: (text: string) => boolean = () => true,
): StringMethod<string> {
  return (meter, self, positional, named, line) => {
    take(name, [], positional, named, line);
    meter.spend(self.length, line);
    return test.test(self) && more(self);
  };
}

function title(text: string): string {
  return text.replace(/\p{L}+/gu, (word) => word[0].toUpperCase() + word.slice(1).toLowerCase());
}

function stripped(name: string, atStart: boolean, atEnd: boolean): StringMethod<string> {
  return (meter, self, positional, named, line) => {
    const [given] = take(name, ['chars?'], positional, named, line);
    const characters = given === undefined || given === null ? BLANKS : textOf(name, given, line);
    meter.spend(self.length + (characters === BLANKS ? 0 : characters.length), line);
    const set = new Set(characters);
    let start = 0;
    let end = self.length;
    while (atStart && start < end && set.has(self[start])) start++;
    while (atEnd && end > start && set.has(self[end - 1])) end--;
    meter.allocateText(end - start, line);
    return self.slice(start, end);
  };
}

/** Where `find`, `index` and `count` look: between start and stop, as a slice has them. */
function searched(
  name: string,
  self: string,
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
) {
  const [sub, start, stop] = take(name, ['sub', 'start?', 'end?'], positional, named, line);
  const bound = (value: Value | undefined, otherwise: number): number => {
    if (value === undefined || value === null) return otherwise;
    const at = integerOf(name, value, line);
    return Math.min(Math.max(at < 0 ? at + self.length : at, 0), self.length);
  };
  const from = bound(start, 0);
  const to = Math.max(from, bound(stop, self.length));
  return { sub: textOf(name, sub, line), from, text: self.slice(from, to) };
}

function finding(name: string, isLast: boolean, mustFind: boolean): StringMethod<string> {
  return (meter, self, positional, named, line) => {
    const { sub, from, text } = searched(name, self, positional, named, line);
    spendSearch(meter, self, sub, line);
    const at = isLast ? text.lastIndexOf(sub) : text.indexOf(sub);
    if (at < 0 && mustFind) fail(line, `${JSON.stringify(sub.slice(0, 40))} is not in the string. Use find`);
    return at < 0 ? -1 : from + at;
  };
}

function edge(name: string, isAt: (self: string, part: string) => boolean): StringMethod<string> {
  return (meter, self, positional, named, line) => {
    const [part] = take(name, ['part'], positional, named, line);
    const parts = part instanceof StarTuple ? part.items : [part];
    meter.spend(parts.length, line);
    return parts.some((each) => {
      const text = textOf(name, each, line);
      spendText(meter, text.length, line);
      return isAt(self, text);
    });
  };
}

function partition(name: string, isLast: boolean): StringMethod<string> {
  return (meter, self, positional, named, line) => {
    const [given] = take(name, ['sep'], positional, named, line);
    const separator = textOf(name, given, line);
    if (separator === '') fail(line, `${name} takes a separator that is not empty`);
    spendSearch(meter, self, separator, line);
    meter.allocateText(self.length, line);
    const at = isLast ? self.lastIndexOf(separator) : self.indexOf(separator);
    if (at < 0) return tupleOf(meter, isLast ? ['', '', self] : [self, '', ''], line);
    return tupleOf(meter, [self.slice(0, at), separator, self.slice(at + separator.length)], line);
  };
}

function splitting(name: 'split' | 'rsplit'): StringMethod<string> {
  return (meter, self, positional, named, line) => {
    const [given, most] = take(name, ['sep?', 'maxsplit?'], positional, named, line);
    const limit = most === undefined || most === null ? -1 : integerOf(name, most, line);
    const isBlank = given === undefined || given === null;
    const separator = isBlank ? '' : textOf(name, given, line);
    spendSearch(meter, self, separator, line);
    meter.allocateText(self.length, line);
    if (!isBlank && separator === '') fail(line, `${name} takes a separator that is not empty`);
    const parts = isBlank
      ? self.split(/[ \t\n\r\v\f]+/).filter((part) => part !== '')
      : self.split(separator);
    if (limit < 0 || parts.length <= limit + 1) return listOf(meter, parts, line);
    return listOf(
      meter,
      isBlank ? blankSplit(self, limit, name) : limited(parts, separator, limit, name),
      line,
    );
  };
}

function limited(parts: string[], separator: string, limit: number, name: 'split' | 'rsplit'): string[] {
  if (name === 'split') return [...parts.slice(0, limit), parts.slice(limit).join(separator)];
  const kept = parts.length - limit;
  return [parts.slice(0, kept).join(separator), ...parts.slice(kept)];
}

/** At most `limit` cuts at runs of blanks; the uncut rest keeps its inner blanks. */
function blankSplit(self: string, limit: number, name: 'split' | 'rsplit'): string[] {
  const words = [...self.matchAll(/[^ \t\n\r\v\f]+/g)];
  if (words.length <= limit) return words.map(([word]) => word);
  const end = ({ index, 0: word }: RegExpExecArray): number => index + word.length;
  if (name === 'split') {
    const [first] = words.slice(limit);
    const rest = self.slice(first.index, end(words[words.length - 1]));
    return [...words.slice(0, limit).map(([word]) => word), rest];
  }
  const cut = words.length - limit;
  const rest = self.slice(words[0].index, end(words[cut - 1]));
  return [rest, ...words.slice(cut).map(([word]) => word)];
}

const stringMethods: Readonly<Record<string, StringMethod<string>>> = {
  capitalize: mapped('capitalize', (text) => text.slice(0, 1).toUpperCase() + text.slice(1).toLowerCase()),
  count: (meter, self, positional, named, line) => {
    const { sub, text } = searched('count', self, positional, named, line);
    spendSearch(meter, self, sub, line);
    return sub === '' ? text.length + 1 : text.split(sub).length - 1;
  },
  elems: (meter, self, positional, named, line) => {
    take('elems', [], positional, named, line);
    meter.spend(self.length, line);
    return listOf(meter, self.split(''), line);
  },
  endswith: edge('endswith', (self, part) => self.endsWith(part)),
  find: finding('find', false, false),
  format: (meter, self, positional, named, line) => formatText(meter, self, positional, named, line),
  index: finding('index', false, true),
  isalnum: tested('isalnum', /^[\p{L}\p{Nd}]+$/u),
  isalpha: tested('isalpha', /^\p{L}+$/u),
  isdigit: tested('isdigit', /^\p{Nd}+$/u),
  islower: tested('islower', /\p{L}/u, (text) => text === text.toLowerCase()),
  isspace: tested('isspace', /^[ \t\n\r\v\f]+$/),
  istitle: tested('istitle', /\p{L}/u, (text) => text === title(text)),
  isupper: tested('isupper', /\p{L}/u, (text) => text === text.toUpperCase()),
  join: (meter, self, positional, named, line) => {
    const [iterable] = take('join', ['iterable'], positional, named, line);
    const parts = iterate(meter, iterable, line).map((part) => textOf('join', part, line));
    const length = parts.reduce((sum, part) => sum + part.length + self.length, 0);
    meter.allocateText(length, line);
    return parts.join(self);
  },
  lower: mapped('lower', (text) => text.toLowerCase()),
  lstrip: stripped('lstrip', true, false),
  partition: partition('partition', false),
  removeprefix: (meter, self, positional, named, line) => {
    const [part] = take('removeprefix', ['prefix'], positional, named, line);
    const prefix = textOf('removeprefix', part, line);
    spendText(meter, prefix.length, line);
    return self.startsWith(prefix) ? self.slice(prefix.length) : self;
  },
  removesuffix: (meter, self, positional, named, line) => {
    const [part] = take('removesuffix', ['suffix'], positional, named, line);
    const suffix = textOf('removesuffix', part, line);
    spendText(meter, suffix.length, line);
    return suffix !== '' && self.endsWith(suffix) ? self.slice(0, -suffix.length) : self;
  },
  replace: (meter, self, positional, named, line) => {
    const [a, b, count] = take('replace', ['old', 'new', 'count?'], positional, named, line);
    const old = textOf('replace', a, line);
    const fresh = textOf('replace', b, line);
    const limit = count === undefined ? -1 : integerOf('replace', count, line);
    spendSearch(meter, self, old, line);
    const pieces = self.split(old);
    if (old === '') pieces.unshift('');
    if (old === '') pieces.push('');
    const cuts = limit < 0 ? pieces.length - 1 : Math.min(limit, pieces.length - 1);
    meter.allocateText(self.length + cuts * fresh.length, line);
    return (
      pieces.slice(0, cuts + 1).join(fresh) +
      pieces
        .slice(cuts + 1)
        .map((each) => old + each)
        .join('')
    );
  },
  rfind: finding('rfind', true, false),
  rindex: finding('rindex', true, true),
  rpartition: partition('rpartition', true),
  rsplit: splitting('rsplit'),
  rstrip: stripped('rstrip', false, true),
  split: splitting('split'),
  splitlines: (meter, self, positional, named, line): StarList => {
    const [keep] = take('splitlines', ['keepends?'], positional, named, line);
    meter.spend(self.length, line);
    meter.allocateText(self.length, line);
    const lines = self.match(/[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$/g) ?? [];
    return listOf(
      meter,
      keep === true ? [...lines] : lines.map((each) => each.replace(/[\r\n]+$/, '')),
      line,
    );
  },
  startswith: edge('startswith', (self, part) => self.startsWith(part)),
  strip: stripped('strip', true, true),
  title: mapped('title', title),
  upper: mapped('upper', (text) => text.toUpperCase()),
};

// `"{} {name!r}".format(...)`: fields by order, number or name, without attributes and widths.

const FIELD = /^([^!:]*)(?:!([a-z]))?$/;

function formatText(
  meter: Meter,
  format: string,
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
): string {
  meter.spend(format.length, line);
  let next = 0;
  const numbered = { isAutomatic: false, isManual: false };
  const fieldValue = (name: string): Value => {
    if (name === '') numbered.isAutomatic = true;
    else if (/^\d+$/.test(name)) numbered.isManual = true;
    if (numbered.isAutomatic && numbered.isManual) fail(line, 'format mixes {} and {0}. Use one of them');
    if (name !== '' && !/^\d+$/.test(name)) {
      const found = named.find(([key]) => key === name);
      return found === undefined ? fail(line, `format gets no argument ${name}`) : found[1];
    }
    const index = name === '' ? next++ : Number(name);
    return index < positional.length
      ? positional[index]
      : fail(line, `format gets no argument number ${index}`);
  };
  let text = '';
  for (let i = 0; i < format.length; i++) {
    const c = format[i];
    if ((c === '{' || c === '}') && format[i + 1] === c) {
      text += c;
      i++;
    } else if (c === '}') {
      fail(line, 'a single "}" stands in the format. Write }}');
    } else if (c === '{') {
      const end = format.indexOf('}', i);
      if (end < 0) fail(line, 'a "{" is not closed in the format. Write {{ for a brace');
      const field = FIELD.exec(format.slice(i + 1, end));
      if (field === null || /[{.[\]]/.test(field[1])) {
        return fail(line, 'a field of a format is a name or a number. Round a float before it is shown');
      }
      const value = fieldValue(field[1]);
      if (field[2] !== undefined && field[2] !== 'r' && field[2] !== 's')
        fail(line, `!${field[2]} is not a conversion`);
      text += field[2] === 'r' ? repr(meter, value, line) : str(meter, value, line);
      i = end;
    } else {
      text += c;
    }
  }
  meter.allocateText(text.length, line);
  return text;
}
