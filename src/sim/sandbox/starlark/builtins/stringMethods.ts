/**
 * Methods of strings: https://github.com/bazelbuild/starlark/blob/master/spec.md#string%C2%B7elems and on.
 */

import type { Meter } from '../../meter.ts';
import { fail } from '../failure.ts';
import {
  type NamedArguments,
  type StarList,
  StarTuple,
  spendSearch,
  spendText,
  type Value,
} from '../values/index.ts';
import { iterate, listOf, tupleOf } from './functions.ts';
import { integerOf, take, textOf } from './parameters.ts';
import { formatText } from './stringFormat.ts';

export type Method<T> = (
  meter: Meter,
  self: T,
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
) => Value;

const BLANKS = ' \t\n\r\v\f';

/** Text made from the string, as long as it at most a few times. */
function mapped(name: string, map: (text: string) => string): Method<string> {
  return (meter, self, positional, named, line) => {
    take(name, [], positional, named, line);
    meter.spend(self.length, line);
    meter.allocateText(self.length, line);
    return map(self);
  };
}

function tested(name: string, test: RegExp, more: (text: string) => boolean = () => true): Method<string> {
  return (meter, self, positional, named, line) => {
    take(name, [], positional, named, line);
    meter.spend(self.length, line);
    return test.test(self) && more(self);
  };
}

function title(text: string): string {
  return text.replace(/\p{L}+/gu, (word) => word[0].toUpperCase() + word.slice(1).toLowerCase());
}

function stripped(name: string, atStart: boolean, atEnd: boolean): Method<string> {
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

function finding(name: string, isLast: boolean, mustFind: boolean): Method<string> {
  return (meter, self, positional, named, line) => {
    const { sub, from, text } = searched(name, self, positional, named, line);
    spendSearch(meter, self, sub, line);
    const at = isLast ? text.lastIndexOf(sub) : text.indexOf(sub);
    if (at < 0 && mustFind) fail(line, `${JSON.stringify(sub.slice(0, 40))} is not in the string. Use find`);
    return at < 0 ? -1 : from + at;
  };
}

function edge(name: string, isAt: (self: string, part: string) => boolean): Method<string> {
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

function partition(name: string, isLast: boolean): Method<string> {
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

function splitting(name: 'split' | 'rsplit'): Method<string> {
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

export const stringMethods: Readonly<Record<string, Method<string>>> = {
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
