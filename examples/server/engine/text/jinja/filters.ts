/** Jinja's filters and tests, with transformers' `tojson`. */

import { capitalize, getAttribute, getItem, replaceText, roundNumber, strip } from './methods.ts';
import {
  Attributes,
  arithmetic,
  Callable,
  compare,
  contains,
  equal,
  Group,
  isNumber,
  iterate,
  JinjaError,
  type Kwargs,
  Lazy,
  length,
  Namespace,
  percentFormat,
  plain,
  Range,
  repr,
  str,
  Tuple,
  truth,
  typeName,
  Undefined,
  undefinedError,
} from './values.ts';

export type Filter = (value: unknown, args: readonly unknown[], kwargs: Kwargs) => unknown;

/** Arguments by place or by name. An argument that is left out has the default; without one it is required. */
function take(
  names: string,
  args: readonly unknown[],
  kwargs: Kwargs,
  defaults: readonly unknown[],
): unknown[] {
  const list = names.split(' ').filter((name) => name !== '');
  if (args.length > list.length)
    throw new JinjaError(`takes at most ${list.length} arguments, got ${args.length}`);
  for (const name of kwargs.keys()) {
    if (!list.includes(name)) throw new JinjaError(`got an unexpected keyword argument '${name}'`);
  }
  return list.map((name, i) =>
    i < args.length ? args[i] : kwargs.has(name) ? kwargs.get(name) : defaults[i],
  );
}

const int = (value: unknown, name: string): number => {
  if (isNumber(value)) return Number(value);
  throw new JinjaError(`${name} must be a number, not ${typeName(value)}`);
};

/** The value behind a dotted attribute, or behind a number. */
function attributeGetter(attribute: unknown, otherwise?: unknown): (item: unknown) => unknown {
  if (attribute === undefined || attribute === null) return (item) => item;
  const parts = isNumber(attribute)
    ? [attribute]
    : str(attribute)
        .split('.')
        .map((part) => (/^\d+$/.test(part) ? BigInt(part) : part));
  return (item) => {
    let value = item;
    for (const part of parts) value = getItem(value, part);
    return value instanceof Undefined && otherwise !== undefined ? otherwise : value;
  };
}

const folded = (value: unknown, isCaseSensitive: unknown): unknown =>
  typeof value === 'string' && !truth(isCaseSensitive) ? value.toLowerCase() : value;

function sorted(items: unknown[], keyOf: (item: unknown) => unknown, isReverse: unknown): unknown[] {
  const sign = truth(isReverse) ? -1 : 1;
  return items
    .map((item) => ({ item, key: keyOf(item) }))
    .sort((a, b) => sign * compare(a.key, b.key))
    .map(({ item }) => item);
}

/** select, reject and their forms with an attribute: by a test, or by what is true. */
function selecting(isKept: boolean, byAttribute: boolean): Filter {
  return (value, args, kwargs) => {
    const keyOf = byAttribute ? attributeGetter(args[0]) : (item: unknown): unknown => item;
    const [name, ...rest] = byAttribute ? args.slice(1) : args;
    const test =
      name === undefined ? truth : (item: unknown): boolean => testNamed(str(name))(item, rest, kwargs);
    return new Lazy(() => {
      if (!truth(value)) return [];
      return iterate(value).filter((item) => test(keyOf(item)) === isKept);
    });
  };
}

function extreme(sign: number): Filter {
  return (value, args, kwargs) => {
    const [isCaseSensitive, attribute] = take('case_sensitive attribute', args, kwargs, [false, null]);
    const items = iterate(value);
    if (items.length === 0) return new Undefined('No aggregated item, sequence was empty, which');
    const get = attributeGetter(attribute);
    const keyOf = (item: unknown): unknown => folded(get(item), isCaseSensitive);
    return items.reduce((best, item) => (sign * compare(keyOf(item), keyOf(best)) < 0 ? item : best));
  };
}

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  "'": '&#39;',
  '"': '&#34;',
};
const escaped: Filter = (value) => str(value).replace(/[&<>'"]/g, (each) => escapes[each]);
const defaulted: Filter = (value, args, kwargs) => {
  const [otherwise, boolean] = take('default_value boolean', args, kwargs, ['', false]);
  return value instanceof Undefined || (truth(boolean) && !truth(value)) ? otherwise : value;
};
const count: Filter = (value) => length(value);

/** A filter whose work, and whose errors, wait until its elements are wanted. */
function lazy(filter: Filter): Filter {
  return (value, args, kwargs) => new Lazy(() => iterate(filter(value, args, kwargs)));
}

export const filters: Readonly<Record<string, Filter>> = {
  abs: (value) => {
    if (!isNumber(value)) throw new JinjaError(`bad operand type for abs(): '${typeName(value)}'`);
    const number = plain(value);
    return typeof number === 'bigint' ? (number < 0n ? -number : number) : Math.abs(number);
  },
  attr: (value, [name]) =>
    value instanceof Map ? new Undefined(`attribute ${repr(name)}`) : getAttribute(value, str(name)),
  batch: lazy((value, args, kwargs) => {
    const [size, fill] = take('linecount fill_with', args, kwargs, [0n, null]);
    const [items, by, out] = [iterate(value), int(size, 'linecount'), [] as unknown[][]];
    for (let at = 0; at < items.length; at += by) out.push(items.slice(at, at + by));
    const last = out.at(-1);
    while (fill !== null && last !== undefined && last.length < by) last.push(fill);
    return out;
  }),
  capitalize: (value) => capitalize(str(value)),
  center: (value, args, kwargs) => {
    const [width] = take('width', args, kwargs, [80n]);
    return (getAttribute(str(value), 'center') as Callable).call([width], new Map());
  },
  count,
  length: count,
  d: defaulted,
  default: defaulted,
  dictsort: (value, args, kwargs) => {
    const [isCaseSensitive, by, isReverse] = take('case_sensitive by reverse', args, kwargs, [
      false,
      'key',
      false,
    ]);
    if (by !== 'key' && by !== 'value') throw new JinjaError('You can only sort by either "key" or "value"');
    if (!(value instanceof Map)) throw new JinjaError(`'${typeName(value)}' object has no attribute 'items'`);
    const pairs = Array.from(value, ([key, each]) => Tuple.of(key, each));
    return sorted(pairs, (pair) => folded((pair as Tuple)[by === 'key' ? 0 : 1], isCaseSensitive), isReverse);
  },
  e: escaped,
  escape: escaped,
  forceescape: escaped,
  first: (value) => iterate(value)[0] ?? new Undefined('No first item, sequence was empty, which'),
  last: (value) => iterate(value).at(-1) ?? new Undefined('No last item, sequence was empty, which'),
  float: (value, args, kwargs) => {
    const [otherwise] = take('default', args, kwargs, [0]);
    if (value instanceof Undefined) throw undefinedError(value);
    if (isNumber(value)) return Number(value);
    const number =
      typeof value === 'string' && value.trim() !== ''
        ? Number(value.trim().replaceAll('_', ''))
        : Number.NaN;
    return Number.isNaN(number) ? otherwise : number;
  },
  format: (value, args, kwargs) =>
    percentFormat(str(value), kwargs.size > 0 ? new Map(kwargs) : Tuple.of(...args)),
  groupby: (value, args, kwargs) => {
    const [attribute, otherwise, isCaseSensitive] = take('attribute default case_sensitive', args, kwargs, [
      undefined,
      undefined,
      false,
    ]);
    const get = attributeGetter(attribute, otherwise);
    const groups: unknown[][] = [];
    for (const item of sorted(iterate(value), (each) => folded(get(each), isCaseSensitive), false)) {
      const last = groups.at(-1);
      const key = get(item);
      if (last !== undefined && equal(folded(last[0], isCaseSensitive), folded(key, isCaseSensitive))) {
        (last[1] as unknown[]).push(item);
      } else groups.push(Group.of(key, [item]));
    }
    return groups;
  },
  indent: (value, args, kwargs) => {
    const [width, first, blank] = take('width first blank', args, kwargs, [4n, false, false]);
    if (typeof value !== 'string') throw new JinjaError(`indent needs a str, not ${typeName(value)}`);
    const by = typeof width === 'string' ? width : ' '.repeat(Math.min(1000, int(width, 'width')));
    const lines = (getAttribute(`${str(value)}\n`, 'splitlines') as Callable).call([], new Map()) as string[];
    const rest = lines.slice(1).map((line) => (truth(blank) || line !== '' ? by + line : line));
    return (truth(first) ? by : '') + [lines[0], ...rest].join('\n');
  },
  int: (value, args, kwargs) => {
    const [otherwise, base] = take('default base', args, kwargs, [0n, 10n]);
    if (value instanceof Undefined) throw undefinedError(value);
    if (typeof value === 'number') return Number.isFinite(value) ? BigInt(Math.trunc(value)) : otherwise;
    if (isNumber(value)) return plain(value);
    const text = typeof value === 'string' ? value.trim().replaceAll('_', '') : '';
    const radix = int(base, 'base');
    const bare = text
      .replace(/^[-+]/, '')
      .replace(radix === 16 ? /^0x/i : radix === 8 ? /^0o/i : radix === 2 ? /^0b/i : /^$/, '');
    const digits = '0123456789abcdefghijklmnopqrstuvwxyz'.slice(0, radix);
    const isWhole = bare !== '' && Array.from(bare.toLowerCase()).every((each) => digits.includes(each));
    if (isWhole) {
      const whole = Array.from(bare.toLowerCase()).reduce(
        (sum, each) => sum * BigInt(radix) + BigInt(digits.indexOf(each)),
        0n,
      );
      return text.startsWith('-') ? -whole : whole;
    }
    const number = text === '' ? Number.NaN : Number(text);
    return Number.isFinite(number) ? BigInt(Math.trunc(number)) : otherwise;
  },
  items: lazy((value) => {
    if (value instanceof Undefined) return [];
    if (!(value instanceof Map)) throw new JinjaError('Can only get item pairs from a mapping.');
    return Array.from(value, ([key, each]) => Tuple.of(key, each));
  }),
  join: (value, args, kwargs) => {
    const [by, attribute] = take('d attribute', args, kwargs, ['', null]);
    return iterate(value).map(attributeGetter(attribute)).map(str).join(str(by));
  },
  list: (value) => iterate(value),
  lower: (value) => str(value).toLowerCase(),
  upper: (value) => str(value).toUpperCase(),
  map: lazy((value, args, kwargs) => {
    if (!truth(value)) return [];
    if (args.length === 0 && kwargs.has('attribute')) {
      return iterate(value).map(attributeGetter(kwargs.get('attribute'), kwargs.get('default')));
    }
    if (args.length === 0) throw new JinjaError('map requires a filter argument');
    const [name, ...rest] = args;
    return iterate(value).map((item) => filterNamed(str(name))(item, rest, kwargs));
  }),
  max: extreme(-1),
  min: extreme(1),
  reject: selecting(false, false),
  rejectattr: selecting(false, true),
  select: selecting(true, false),
  selectattr: selecting(true, true),
  replace: (value, args, kwargs) => {
    const [from, to, most] = take('old new count', args, kwargs, ['', '', null]);
    return replaceText(str(value), str(from), str(to), most === null ? -1 : int(most, 'count'));
  },
  reverse: (value) => {
    if (typeof value === 'string') return Array.from(value).reverse().join('');
    return iterate(value).reverse();
  },
  round: (value, args, kwargs) => {
    const [precision, method] = take('precision method', args, kwargs, [0n, 'common']);
    if (!['common', 'ceil', 'floor'].includes(str(method)))
      throw new JinjaError('method must be common, ceil or floor');
    if (value instanceof Undefined) throw undefinedError(value);
    if (!isNumber(value)) throw new JinjaError(`type ${typeName(value)} doesn't define __round__ method`);
    const digits = int(precision, 'precision');
    if (method === 'common') return roundNumber(plain(value), digits);
    const scale = 10 ** digits;
    return (method === 'ceil' ? Math.ceil : Math.floor)(Number(value) * scale) / scale;
  },
  safe: (value) => str(value),
  slice: lazy((value, args, kwargs) => {
    const [slices, fill] = take('slices fill_with', args, kwargs, [1n, null]);
    const [items, parts] = [iterate(value), int(slices, 'slices')];
    const [each, more] = [Math.floor(items.length / parts), items.length % parts];
    return Array.from({ length: parts }, (_, i) => {
      const from = i * each + Math.min(i, more);
      const part = items.slice(from, from + each + (i < more ? 1 : 0));
      if (fill !== null && i >= more && more > 0) part.push(fill);
      return part;
    });
  }),
  sort: (value, args, kwargs) => {
    const [isReverse, isCaseSensitive, attribute] = take('reverse case_sensitive attribute', args, kwargs, [
      false,
      false,
      null,
    ]);
    const getters =
      typeof attribute === 'string'
        ? attribute.split(',').map((each) => attributeGetter(each.trim()))
        : [attributeGetter(attribute)];
    const keyOf = (item: unknown): unknown => {
      const keys = getters.map((get) => folded(get(item), isCaseSensitive));
      return keys.length === 1 ? keys[0] : keys;
    };
    return sorted(iterate(value), keyOf, isReverse);
  },
  string: (value) => str(value),
  striptags: (value) =>
    str(value)
      .replace(/<!--[\s\S]*?-->|<[^>]*>/g, '')
      .split(/\s+/)
      .filter((word) => word !== '')
      .join(' '),
  sum: (value, args, kwargs) => {
    const [attribute, start] = take('attribute start', args, kwargs, [null, 0n]);
    return iterate(value)
      .map(attributeGetter(attribute))
      .reduce((sum, each) => arithmetic('+', sum, each), start);
  },
  title: (value) =>
    str(value)
      .split(/([-\s({[<]+)/)
      .map((word) => capitalize(word))
      .join(''),
  tojson: (value, args, kwargs) => {
    const [ascii, indent, separators, isSorted] = take(
      'ensure_ascii indent separators sort_keys',
      args,
      kwargs,
      [false, null, null, false],
    );
    const by =
      indent === null
        ? undefined
        : typeof indent === 'string'
          ? indent
          : ' '.repeat(Math.min(1000, int(indent, 'indent')));
    const [item, key] =
      separators === null ? [by === undefined ? ', ' : ',', ': '] : iterate(separators).map(str);
    return json(value, { isAscii: truth(ascii), by, item, key, isSorted: truth(isSorted) }, 0);
  },
  trim: (value, args, kwargs) => {
    const [characters] = take('chars', args, kwargs, [null]);
    return strip(str(value), characters, true, true);
  },
  truncate: (value, args, kwargs) => {
    const [size, kills, end, leeway] = take('length killwords end leeway', args, kwargs, [
      255n,
      false,
      '...',
      5n,
    ]);
    const [most, tail] = [int(size, 'length'), str(end)];
    if (Number(length(value)) <= most + int(leeway, 'leeway')) return value;
    if (typeof value !== 'string') throw new JinjaError(`truncate needs a str, not ${typeName(value)}`);
    const text = Array.from(value);
    const cut = text.slice(0, most - Array.from(tail).length).join('');
    const word = cut.lastIndexOf(' ');
    return (truth(kills) || word === -1 ? cut : cut.slice(0, word)) + tail;
  },
  unique: lazy((value, args, kwargs) => {
    const [isCaseSensitive, attribute] = take('case_sensitive attribute', args, kwargs, [false, null]);
    const get = attributeGetter(attribute);
    const seen: unknown[] = [];
    return iterate(value).filter((item) => {
      const key = hashable(folded(get(item), isCaseSensitive));
      if (seen.some((each) => equal(each, key))) return false;
      seen.push(key);
      return true;
    });
  }),
  urlencode: (value) => {
    const code = (part: unknown, keepsSlash: boolean): string =>
      encodeURIComponent(str(part))
        .replace(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`)
        .replaceAll('%2F', keepsSlash ? '/' : '%2F');
    if (typeof value === 'string' || isNumber(value) || value === null) return code(value, true);
    const pairs = value instanceof Map ? [...value] : iterate(value).map(iterate);
    const plus = (part: unknown): string => code(part, false).replaceAll('%20', '+');
    return pairs
      .map(([key, each, ...more]) => {
        if (each === undefined || more.length > 0) throw new JinjaError('urlencode needs pairs');
        return `${plus(key)}=${plus(each)}`;
      })
      .join('&');
  },
  wordcount: (value) => BigInt((str(value).match(/[\p{L}\p{N}_]+/gu) ?? []).length),
};

interface JsonStyle {
  readonly isAscii: boolean;
  readonly by: string | undefined;
  readonly item: string;
  readonly key: string;
  readonly isSorted: boolean;
}

function json(value: unknown, style: JsonStyle, depth: number): string {
  if (depth > 200) throw new JinjaError('tojson: the value nests too deeply');
  if (value === null) return 'null';
  if (value === true || value === false) return String(value);
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'number') {
    if (Number.isFinite(value)) return repr(value);
    return Number.isNaN(value) ? 'NaN' : value > 0 ? 'Infinity' : '-Infinity';
  }
  if (typeof value === 'string') return jsonText(value, style.isAscii);
  const isList = Array.isArray(value);
  if (!isList && !(value instanceof Map)) {
    throw new JinjaError(`Object of type ${typeName(value)} is not JSON serializable`);
  }
  const { by, item, key, isSorted } = style;
  let parts: string[];
  if (isList) parts = value.map((each) => json(each, style, depth + 1));
  else {
    const entries = isSorted ? [...value].sort(([a], [b]) => compare(a, b)) : [...value];
    parts = entries.map(([name, each]) => {
      const known = typeof name === 'string' ? name : json(name, style, depth + 1);
      return `${jsonText(known, style.isAscii)}${key}${json(each, style, depth + 1)}`;
    });
  }
  const [open, close] = isList ? '[]' : '{}';
  if (parts.length === 0) return open + close;
  if (by === undefined) return open + parts.join(item) + close;
  const line = `\n${by.repeat(depth + 1)}`;
  return `${open}${line}${parts.join(item + line)}\n${by.repeat(depth)}${close}`;
}

function jsonText(text: string, isAscii: boolean): string {
  const quoted = JSON.stringify(text);
  if (!isAscii) return quoted;
  return quoted.replace(
    /[\u007f-\uffff]/g,
    (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

export function filterNamed(name: string): Filter {
  if (Object.hasOwn(filters, name)) return filters[name];
  throw new JinjaError(`No filter named '${name}'`);
}

export type Test = (value: unknown, args: readonly unknown[], kwargs: Kwargs) => boolean;

const modulo = (value: unknown, by: unknown): boolean => equal(arithmetic('%', value, by), 0n);
const ordered = (operator: string, test: (order: number) => boolean): Test => {
  return (value, [other]) => test(compare(value, other, operator));
};
const eq: Test = (value, [other]) => equal(value, other);
const ne: Test = (value, [other]) => !equal(value, other);
const lt = ordered('<', (order) => order < 0);
const le = ordered('<=', (order) => order <= 0);
const gt = ordered('>', (order) => order > 0);
const ge = ordered('>=', (order) => order >= 0);

export const tests: Readonly<Record<string, Test>> = {
  boolean: (value) => typeof value === 'boolean',
  callable: (value) => value instanceof Callable || value instanceof Undefined,
  defined: (value) => !(value instanceof Undefined),
  undefined: (value) => value instanceof Undefined,
  divisibleby: (value, [by]) => modulo(value, by),
  even: (value) => modulo(value, 2n),
  odd: (value) => equal(arithmetic('%', value, 2n), 1n),
  escaped: () => false,
  false: (value) => value === false,
  true: (value) => value === true,
  filter: (value) => Object.hasOwn(filters, str(hashable(value))),
  test: (value) => Object.hasOwn(tests, str(hashable(value))),
  float: (value) => typeof value === 'number',
  integer: (value) => typeof value === 'bigint',
  number: (value) => isNumber(value),
  in: (value, [list]) => contains(list, value),
  iterable: (value) =>
    typeof value === 'string' ||
    Array.isArray(value) ||
    value instanceof Map ||
    value instanceof Range ||
    value instanceof Lazy ||
    value instanceof Undefined ||
    (value instanceof Attributes && value.name === 'LoopContext'),
  lower: (value) => /\p{L}/u.test(str(value)) && str(value) === str(value).toLowerCase(),
  upper: (value) => /\p{L}/u.test(str(value)) && str(value) === str(value).toUpperCase(),
  mapping: (value) => value instanceof Map,
  none: (value) => value === null,
  sameas: (value, [other]) => value === other,
  sequence: (value) =>
    typeof value === 'string' ||
    Array.isArray(value) ||
    value instanceof Map ||
    value instanceof Range ||
    value instanceof Undefined,
  string: (value) => typeof value === 'string',
  eq,
  equalto: eq,
  '==': eq,
  ne,
  '!=': ne,
  lt,
  lessthan: lt,
  '<': lt,
  le,
  '<=': le,
  gt,
  greaterthan: gt,
  '>': gt,
  ge,
  '>=': ge,
};

export function testNamed(name: string): Test {
  if (Object.hasOwn(tests, name)) return tests[name];
  throw new JinjaError(`No test named '${name}'`);
}

/** `namespace(...)` and `dict(...)`: a mapping or pairs, and then what is named. */
export function mappingOf(args: readonly unknown[], kwargs: Kwargs): Map<unknown, unknown> {
  if (args.length > 1) throw new JinjaError(`dict expected at most 1 argument, got ${args.length}`);
  const map = new Map<unknown, unknown>();
  const [source] = args;
  if (source instanceof Map) for (const [key, value] of source) map.set(key, value);
  else if (source instanceof Namespace) for (const [key, value] of source.values) map.set(key, value);
  else if (source !== undefined) {
    for (const pair of iterate(source)) {
      const [key, value, ...more] = iterate(pair);
      if (value === undefined || more.length > 0) throw new JinjaError('dict needs pairs');
      map.set(key, value);
    }
  }
  for (const [key, value] of kwargs) map.set(key, value);
  return map;
}

/** A key of a dict. */
export function hashable(key: unknown): unknown {
  if (Array.isArray(key) && !(key instanceof Tuple)) throw new JinjaError("unhashable type: 'list'");
  if (key instanceof Map) throw new JinjaError("unhashable type: 'dict'");
  return key instanceof Tuple ? repr(key) : key;
}
