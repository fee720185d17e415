/** Attributes and methods of Python's values that a template may use, and Python's `str.format`. */

import {
  Attributes,
  Callable,
  compare,
  equal,
  fixed,
  Group,
  isNumber,
  iterate,
  JinjaError,
  type Kwargs,
  Namespace,
  numberText,
  plain,
  repr,
  str,
  Tuple,
  truth,
  typeName,
  Undefined,
  undefinedError,
} from './values.ts';

type Method = (args: readonly unknown[], kwargs: Kwargs) => unknown;

/** White space and line ends of Python that are not JavaScript's, for sets of expressions. */
const space = '\\s\\x1c-\\x1f\\x85';
const lineEnd = '\\n\\r\\v\\f\\x1c-\\x1e\\x85\\u2028\\u2029';
const white = new RegExp(`^[${space}]+$`);
const line = new RegExp(`[^${lineEnd}]*(?:\\r\\n|[${lineEnd}]|$)`, 'g');
const atLineEnd = new RegExp(`(?:\\r\\n|[${lineEnd}])$`);

/** `strip` and its two sides: of white space, or of any of the characters. */
export function strip(text: string, characters: unknown, left: boolean, right: boolean): string {
  if (characters !== null && characters !== undefined && typeof characters !== 'string') {
    throw new JinjaError(`strip takes None or a str, not ${typeName(characters)}`);
  }
  const set = typeof characters === 'string' ? new Set(characters) : undefined;
  const isCut = (each: string): boolean =>
    set === undefined ? white.test(each) && each !== '\ufeff' : set.has(each);
  const all = Array.from(text);
  let [from, to] = [0, all.length];
  while (left && from < to && isCut(all[from])) from++;
  while (right && to > from && isCut(all[to - 1])) to--;
  return all.slice(from, to).join('');
}

export function capitalize(text: string): string {
  const [first = '', ...rest] = Array.from(text);
  return first.toUpperCase() + rest.join('').toLowerCase();
}

function split(text: string, separator: unknown, most: number, fromRight: boolean): string[] {
  if (separator === '') throw new JinjaError('empty separator');
  if (separator === null || separator === undefined) {
    const words = text.match(/\S+/g) ?? [];
    if (most < 0 || words.length <= most) return words;
    if (fromRight) {
      let left = text.trimEnd();
      const out: string[] = [];
      for (let i = 0; i < most; i++) {
        const [, before, word] = /^([\s\S]*?)(\S+)$/.exec(left) ?? [];
        out.unshift(word);
        left = before.trimEnd();
      }
      return left === '' ? out : [left, ...out];
    }
    let rest = text.trimStart();
    const out: string[] = [];
    for (let i = 0; i < most; i++) {
      const [word] = rest.match(/^\S+/) ?? [''];
      out.push(word);
      rest = rest.slice(word.length).trimStart();
    }
    return rest === '' ? out : [...out, rest];
  }
  const by = str(separator);
  const parts = text.split(by);
  if (most < 0 || parts.length <= most + 1) return parts;
  if (fromRight) return [parts.slice(0, parts.length - most).join(by), ...parts.slice(parts.length - most)];
  return [...parts.slice(0, most), parts.slice(most).join(by)];
}

/** `str.replace`, by characters where `from` is empty. */
export function replaceText(text: string, from: string, to: string, most: number): string {
  const parts = from === '' ? ['', ...Array.from(text), ''] : text.split(from);
  if (most < 0 || parts.length <= most + 1) return parts.join(to);
  return parts.slice(0, most + 1).join(to) + from + parts.slice(most + 1).join(from);
}

const intOf = (value: unknown, otherwise: number): number => {
  if (value === undefined || value === null) return otherwise;
  if (isNumber(value)) return Number(value);
  throw new JinjaError(`'${typeName(value)}' object cannot be interpreted as an integer`);
};
const textOf = (value: unknown): string => {
  if (typeof value === 'string') return value;
  throw new JinjaError(`expected str instance, ${typeName(value)} found`);
};
const affix = (value: unknown, test: (part: string) => boolean): boolean =>
  (value instanceof Tuple ? [...value] : [value]).some((part) => test(textOf(part)));

/** Index by characters of a place by UTF-16 units. */
const place = (text: string, at: number): bigint =>
  at === -1 ? -1n : BigInt(Array.from(text.slice(0, at)).length);

function pad(text: string, args: readonly unknown[], how: 'left' | 'right' | 'both'): string {
  const missing = Math.max(0, intOf(args[0], 0) - Array.from(text).length);
  const fill = args[1] === undefined ? ' ' : textOf(args[1]);
  if (missing > 2 ** 26) throw new JinjaError('the width is too large');
  const width = intOf(args[0], 0);
  const before =
    how === 'left' ? missing : how === 'right' ? 0 : Math.floor(missing / 2) + (missing & width & 1);
  return fill.repeat(before) + text + fill.repeat(missing - before);
}

const is = (text: string, all: RegExp): boolean => text !== '' && all.test(text);

const textMethods: Readonly<
  Record<string, (text: string, args: readonly unknown[], kwargs: Kwargs) => unknown>
> = {
  upper: (text) => text.toUpperCase(),
  lower: (text) => text.toLowerCase(),
  casefold: (text) => text.toLowerCase().replaceAll('ß', 'ss'),
  swapcase: (text) =>
    Array.from(text, (each) => (each === each.toUpperCase() ? each.toLowerCase() : each.toUpperCase())).join(
      '',
    ),
  title: (text) =>
    text.replace(/[\p{L}\p{M}]+/gu, (word) => {
      const [first, ...rest] = Array.from(word);
      return first.toUpperCase() + rest.join('').toLowerCase();
    }),
  capitalize,
  strip: (text, [characters]) => strip(text, characters, true, true),
  lstrip: (text, [characters]) => strip(text, characters, true, false),
  rstrip: (text, [characters]) => strip(text, characters, false, true),
  startswith: (text, [prefix, from]) => {
    const rest = Array.from(text).slice(intOf(from, 0)).join('');
    return affix(prefix, (part) => rest.startsWith(part));
  },
  endswith: (text, [suffix]) => affix(suffix, (part) => text.endsWith(part)),
  removeprefix: (text, [prefix]) =>
    text.startsWith(textOf(prefix)) ? text.slice(textOf(prefix).length) : text,
  removesuffix: (text, [suffix]) =>
    suffix !== '' && text.endsWith(textOf(suffix)) ? text.slice(0, -textOf(suffix).length) : text,
  split: (text, args, kwargs) =>
    split(text, args[0] ?? kwargs.get('sep'), intOf(args[1] ?? kwargs.get('maxsplit'), -1), false),
  rsplit: (text, args, kwargs) =>
    split(text, args[0] ?? kwargs.get('sep'), intOf(args[1] ?? kwargs.get('maxsplit'), -1), true),
  splitlines: (text, args, kwargs) => {
    const keeps = truth(args[0] ?? kwargs.get('keepends') ?? false);
    const lines = (text.match(line) ?? []).filter((each) => each !== '');
    return lines.map((each) => (keeps ? each : each.replace(atLineEnd, '')));
  },
  replace: (text, args, kwargs) =>
    replaceText(text, textOf(args[0]), textOf(args[1]), intOf(args[2] ?? kwargs.get('count'), -1)),
  find: (text, [part]) => place(text, text.indexOf(textOf(part))),
  rfind: (text, [part]) => place(text, text.lastIndexOf(textOf(part))),
  index: (text, [part]) => {
    if (!text.includes(textOf(part))) throw new JinjaError('substring not found');
    return place(text, text.indexOf(textOf(part)));
  },
  count: (text, [part]) =>
    BigInt(part === '' ? Array.from(text).length + 1 : text.split(textOf(part)).length - 1),
  join: (text, [list]) => iterate(list).map(textOf).join(text),
  isdigit: (text) => is(text, /^[\p{Nd}²³¹⁰-⁹₀-₉]+$/u),
  isdecimal: (text) => is(text, /^\p{Nd}+$/u),
  isnumeric: (text) => is(text, /^\p{N}+$/u),
  isalpha: (text) => is(text, /^\p{L}+$/u),
  isalnum: (text) => is(text, /^[\p{L}\p{N}]+$/u),
  isspace: (text) => is(text, white),
  isidentifier: (text) => is(text, /^[\p{L}_][\p{L}\p{N}_]*$/u),
  isascii: (text) => Array.from(text).every((each) => (each.codePointAt(0) as number) < 128),
  isupper: (text) => text === text.toUpperCase() && text !== text.toLowerCase(),
  islower: (text) => text === text.toLowerCase() && text !== text.toUpperCase(),
  istitle: (text) =>
    text !== '' && text === (textMethods.title(text, [], new Map()) as string) && /\p{L}/u.test(text),
  zfill: (text, [width]) => {
    const [, sign = '', rest = ''] = /^([-+]?)([\s\S]*)$/.exec(text) ?? [];
    return sign + pad(rest, [BigInt(Math.max(0, intOf(width, 0) - sign.length)), '0'], 'left');
  },
  center: (text, args) => pad(text, args, 'both'),
  ljust: (text, args) => pad(text, args, 'right'),
  rjust: (text, args) => pad(text, args, 'left'),
  expandtabs: (text, [size]) => text.replaceAll('\t', ' '.repeat(intOf(size, 8))),
  partition: (text, [by]) => {
    const at = text.indexOf(textOf(by));
    return at === -1
      ? Tuple.of(text, '', '')
      : Tuple.of(text.slice(0, at), by, text.slice(at + textOf(by).length));
  },
  rpartition: (text, [by]) => {
    const at = text.lastIndexOf(textOf(by));
    return at === -1
      ? Tuple.of('', '', text)
      : Tuple.of(text.slice(0, at), by, text.slice(at + textOf(by).length));
  },
  format: (text, args, kwargs) => formatText(text, args, kwargs),
};

const dictMethods: Readonly<
  Record<string, (dict: Map<unknown, unknown>, args: readonly unknown[]) => unknown>
> = {
  get: (dict, [key, otherwise]) => (dict.has(key) ? dict.get(key) : (otherwise ?? null)),
  items: (dict) => Array.from(dict, ([key, value]) => Tuple.of(key, value)),
  keys: (dict) => [...dict.keys()],
  values: (dict) => [...dict.values()],
  copy: (dict) => new Map(dict),
};

const listMethods: Readonly<Record<string, (list: unknown[], args: readonly unknown[]) => unknown>> = {
  index: (list, [value]) => {
    const at = list.findIndex((each) => equal(each, value));
    if (at === -1) throw new JinjaError(`${repr(value)} is not in list`);
    return BigInt(at);
  },
  count: (list, [value]) => BigInt(list.filter((each) => equal(each, value)).length),
  copy: (list) => [...list],
};

const changing: Readonly<Record<string, readonly string[]>> = {
  dict: ['pop', 'popitem', 'update', 'setdefault', 'clear'],
  list: ['append', 'extend', 'insert', 'remove', 'pop', 'clear', 'sort', 'reverse'],
};

/** An attribute as `getattr` finds it, or undefined. */
function attributeOf(object: unknown, name: string): unknown {
  const bound = (method: Method): Callable => new Callable(name, method);
  if (object instanceof Attributes) return object.get(name);
  if (object instanceof Namespace) return object.values.get(name);
  if (object instanceof Group && (name === 'grouper' || name === 'list'))
    return object[name === 'list' ? 1 : 0];
  if (typeof object === 'string' && Object.hasOwn(textMethods, name)) {
    return bound((args, kwargs) => textMethods[name](object, args, kwargs));
  }
  if (object instanceof Map && Object.hasOwn(dictMethods, name)) {
    return bound((args) => dictMethods[name](object, args));
  }
  if (Array.isArray(object) && Object.hasOwn(listMethods, name)) {
    return bound((args) => listMethods[name](object, args));
  }
  if (changing[typeName(object)]?.includes(name)) {
    return bound(() => {
      throw new JinjaError(`a template must not change a ${typeName(object)}: ${name} is not allowed`);
    });
  }
  if (typeof object === 'number' && name === 'is_integer') return bound(() => Number.isInteger(object));
  if (object instanceof Callable && name === 'name') return object.name;
  return undefined;
}

/** `object.name`: the attribute goes before the key. */
export function getAttribute(object: unknown, name: string): unknown {
  if (object instanceof Undefined) throw undefinedError(object);
  if (name.startsWith('__')) return new Undefined(`access to attribute '${name}'`);
  const found = attributeOf(object, name) ?? itemOf(object, name);
  return found === undefined ? missing(object, name) : found;
}

/** `object[key]`: the key goes before the attribute. */
export function getItem(object: unknown, key: unknown): unknown {
  if (object instanceof Undefined) throw undefinedError(object);
  const found =
    itemOf(object, key) ??
    (typeof key === 'string' && !key.startsWith('__') ? attributeOf(object, key) : undefined);
  return found === undefined ? missing(object, key) : found;
}

function missing(object: unknown, key: unknown): Undefined {
  return new Undefined(`'${typeName(object)} object' has no attribute ${repr(key)}, which`);
}

function itemOf(object: unknown, key: unknown): unknown {
  if (object instanceof Map) {
    const value = object.get(typeof key === 'number' && Number.isInteger(key) ? BigInt(key) : key);
    return value;
  }
  if (typeof key !== 'bigint' && typeof key !== 'boolean') return undefined;
  if (typeof object === 'string' || Array.isArray(object) || typeName(object) === 'range') {
    return iterate(object).at(Number(key));
  }
  return undefined;
}

/** `object[from:to:step]`. */
export function slice(object: unknown, from: unknown, to: unknown, step: unknown): unknown {
  if (object instanceof Undefined) throw undefinedError(object);
  if (typeof object !== 'string' && !Array.isArray(object) && typeName(object) !== 'range') {
    throw new JinjaError(`'${typeName(object)}' object is not subscriptable`);
  }
  const all = iterate(object);
  const by = intOf(step, 1);
  if (by === 0) throw new JinjaError('slice step cannot be zero');
  const clamp = (value: unknown, otherwise: number): number => {
    const at = intOf(value, Number.NaN);
    if (Number.isNaN(at)) return otherwise;
    const counted = at < 0 ? at + all.length : at;
    return by > 0
      ? Math.min(Math.max(counted, 0), all.length)
      : Math.min(Math.max(counted, -1), all.length - 1);
  };
  const first = clamp(from, by > 0 ? 0 : all.length - 1);
  const end = clamp(to, by > 0 ? all.length : -1);
  const out: unknown[] = [];
  for (let at = first; by > 0 ? at < end : at > end; at += by) out.push(all[at]);
  if (typeof object === 'string') return out.join('');
  return object instanceof Tuple ? Tuple.of(...out) : out;
}

/** Python's `str.format`. */
function formatText(format: string, args: readonly unknown[], kwargs: Kwargs): string {
  let at = 0;
  return format.replace(
    /\{\{|\}\}|\{([^{}!:]*)(?:!([rs]))?(?::([^{}]*))?\}/g,
    (whole: string, field: string | undefined, conversion: string | undefined, spec = '') => {
      if (whole === '{{' || whole === '}}') return whole[0];
      const [, name = '', path = ''] = /^([^.[]*)(.*)$/.exec(field ?? '') ?? [];
      let value = name === '' ? args[at++] : /^\d+$/.test(name) ? args[Number(name)] : kwargs.get(name);
      if (value === undefined) throw new JinjaError(`format has no value for {${field}}`);
      for (const [, attribute, key] of path.matchAll(/\.([^.[]+)|\[([^\]]+)\]/g)) {
        value =
          attribute === undefined
            ? getItem(value, /^\d+$/.test(key) ? BigInt(key) : key)
            : getAttribute(value, attribute);
      }
      if (conversion === 'r') value = repr(value);
      if (conversion === 's') value = str(value);
      return formatOne(value, spec);
    },
  );
}

function formatOne(value: unknown, spec: string): string {
  const [, fill = ' ', align, sign = '', zero, width = '0', comma, precision, kind] =
    /^(?:([\s\S])?([<>^=]))?([-+ ]?)#?(0)?(\d+)?([,_])?(?:\.(\d+))?([a-zA-Z%])?$/.exec(spec) ?? [];
  if (
    spec !== '' &&
    !/^(?:([\s\S])?([<>^=]))?([-+ ]?)#?(0)?(\d+)?([,_])?(?:\.(\d+))?([a-zA-Z%])?$/.test(spec)
  ) {
    throw new JinjaError(`Invalid format specifier '${spec}'`);
  }
  const digits = precision === undefined ? undefined : Number(precision);
  let text: string;
  const isNumeric = isNumber(value) && !(typeof value === 'boolean' && spec === '');
  if (isNumeric && kind !== 's') {
    const number = plain(value);
    const usual = typeof number === 'bigint' ? 'd' : digits === undefined ? '' : 'g';
    text = (kind ?? usual) === '' ? str(number) : numberText(number, kind ?? usual, digits);
    if (comma !== undefined)
      text = text.replace(/^(-?\d+)/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, comma));
    if (sign !== '' && sign !== '-' && !text.startsWith('-')) text = sign + text;
  } else {
    text = str(value);
    if (digits !== undefined) text = Array.from(text).slice(0, digits).join('');
  }
  const lacking = Math.max(0, Number(width) - Array.from(text).length);
  const by = zero === undefined ? fill : '0';
  const side = align ?? (zero !== undefined && isNumeric ? '=' : isNumeric ? '>' : '<');
  if (side === '<') return text + by.repeat(lacking);
  if (side === '>') return by.repeat(lacking) + text;
  if (side === '^') return by.repeat(Math.floor(lacking / 2)) + text + by.repeat(Math.ceil(lacking / 2));
  const [, lead = '', rest = ''] = /^([-+ ]?)([\s\S]*)$/.exec(text) ?? [];
  return lead + by.repeat(lacking) + rest;
}

/** Python's `round`: halves go to the even digit. */
export function roundNumber(value: bigint | number, digits: number): bigint | number {
  if (typeof value === 'bigint') {
    if (digits >= 0) return value;
    const unit = 10n ** BigInt(-digits);
    const rest = ((value % unit) + unit) % unit;
    const down = value - rest;
    const up = compare(rest * 2n, unit) > 0 || (rest * 2n === unit && (down / unit) % 2n !== 0n);
    return up ? down + unit : down;
  }
  if (digits < 0) return Number(roundNumber(BigInt(Math.round(value)), digits));
  return Number(fixed(value, digits));
}
