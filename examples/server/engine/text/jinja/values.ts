/**
 * Values of Jinja templates, with what Python does to them. Whole numbers are bigint and floats are number, so
 * that 3 and 3.0 stay apart; a dict is a Map, a tuple a `Tuple`, and what is not there an `Undefined`.
 */

export class Undefined {
  readonly what: string;

  constructor(what: string) {
    this.what = what;
  }
}

/** `Tuple.of(…)` makes one. */
export class Tuple extends Array<unknown> {}

/** What `groupby` gives: a tuple with the names `grouper` and `list`. */
export class Group extends Tuple {}

export class Namespace {
  readonly values: Map<unknown, unknown> = new Map();
}

export class Range {
  readonly items: readonly bigint[];
  readonly text: string;

  constructor(items: readonly bigint[], text: string) {
    this.items = items;
    this.text = text;
  }
}

/** What filters such as `map` give: elements that can be gone through once. Always true, without a length. */
export class Lazy {
  #make: (() => unknown[]) | undefined;

  constructor(make: () => unknown[]) {
    this.#make = make;
  }

  take(): unknown[] {
    const items = this.#make?.() ?? [];
    this.#make = undefined;
    return items;
  }
}

export type Kwargs = ReadonlyMap<string, unknown>;

export class Callable {
  readonly name: string;
  readonly call: (args: readonly unknown[], kwargs: Kwargs) => unknown;

  constructor(name: string, call: (args: readonly unknown[], kwargs: Kwargs) => unknown) {
    this.name = name;
    this.call = call;
  }
}

/** An object of the interpreter with fixed attributes, such as `loop`. */
export class Attributes {
  readonly name: string;
  readonly get: (name: string) => unknown;

  constructor(name: string, get: (name: string) => unknown) {
    this.name = name;
    this.get = get;
  }
}

export class JinjaError extends Error {}

/** Most characters of a text that an operation makes, and most elements of a list. */
const lengthMax = 2 ** 26;

/** JSON values as values of a template. */
export function fromJson(value: unknown): unknown {
  if (value === undefined) return new Undefined('value');
  if (typeof value === 'number') return Number.isInteger(value) ? BigInt(value) : value;
  if (Array.isArray(value)) return value.map(fromJson);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).filter(([, each]) => each !== undefined);
  return new Map(entries.map(([key, each]) => [key, fromJson(each)]));
}

export function isNumber(value: unknown): value is bigint | number | boolean {
  return typeof value === 'bigint' || typeof value === 'number' || typeof value === 'boolean';
}

export function typeName(value: unknown): string {
  if (value === null) return 'NoneType';
  if (value instanceof Undefined) return 'Undefined';
  if (value instanceof Tuple) return 'tuple';
  if (Array.isArray(value)) return 'list';
  if (value instanceof Map) return 'dict';
  if (value instanceof Callable) return 'function';
  if (value instanceof Range) return 'range';
  if (value instanceof Namespace) return 'Namespace';
  if (value instanceof Lazy) return 'generator';
  const names: Record<string, string> = { bigint: 'int', number: 'float', boolean: 'bool', string: 'str' };
  return names[typeof value] ?? 'object';
}

export function undefinedError(value: Undefined): JinjaError {
  return new JinjaError(`${value.what} is undefined`);
}

export function truth(value: unknown): boolean {
  if (value === null || value instanceof Undefined) return false;
  if (typeof value === 'string' || Array.isArray(value)) return value.length > 0;
  if (value instanceof Map) return value.size > 0;
  if (value instanceof Range) return value.items.length > 0;
  if (typeof value === 'bigint') return value !== 0n;
  if (typeof value === 'number') return value !== 0;
  return value !== false;
}

/** `str(value)`. */
export function str(value: unknown): string {
  if (typeof value === 'string') return value;
  if (value instanceof Undefined) return '';
  return repr(value);
}

export function repr(value: unknown): string {
  if (value === null) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'number') return floatText(value);
  if (typeof value === 'string') return quoted(value);
  if (value instanceof Undefined) return 'Undefined';
  if (value instanceof Tuple)
    return value.length === 1 ? `(${repr(value[0])},)` : `(${value.map(repr).join(', ')})`;
  if (Array.isArray(value)) return `[${value.map(repr).join(', ')}]`;
  if (value instanceof Map)
    return `{${[...value].map(([key, each]) => `${repr(key)}: ${repr(each)}`).join(', ')}}`;
  if (value instanceof Range) return value.text;
  if (value instanceof Namespace) return `<Namespace ${repr(value.values)}>`;
  return `<${typeName(value)} ${(value as { name?: string }).name ?? ''}>`;
}

/** As Python prints a float: the shortest digits that give it back. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  if (value === 0) return Object.is(value, -0) ? '-0.0' : '0.0';
  const [digits, power] = value.toExponential().split('e');
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    const shown = String(Math.abs(exponent)).padStart(2, '0');
    return `${digits}e${exponent < 0 ? '-' : '+'}${shown}`;
  }
  const text =
    exponent < 0
      ? value.toFixed(Math.max(0, digits.replace(/[-.]/g, '').length - 1 - exponent))
      : String(value);
  return text.includes('.') ? text : `${text}.0`;
}

function quoted(value: string): string {
  const quote = value.includes("'") && !value.includes('"') ? '"' : "'";
  let out = quote;
  for (const character of value) {
    const code = character.codePointAt(0) as number; // a character has a code
    if (character === quote || character === '\\') out += `\\${character}`;
    else if (character === '\n') out += '\\n';
    else if (character === '\r') out += '\\r';
    else if (character === '\t') out += '\\t';
    else if (character === ' ' || !/[\p{C}\p{Z}]/u.test(character)) out += character;
    else if (code < 0x100) out += `\\x${code.toString(16).padStart(2, '0')}`;
    else if (code < 0x10000) out += `\\u${code.toString(16).padStart(4, '0')}`;
    else out += `\\U${code.toString(16).padStart(8, '0')}`;
  }
  return out + quote;
}

/** The elements, as `for` goes through them. */
export function iterate(value: unknown): unknown[] {
  if (Array.isArray(value)) return [...value];
  if (typeof value === 'string') return Array.from(value);
  if (value instanceof Map) return [...value.keys()];
  if (value instanceof Range) return [...value.items];
  if (value instanceof Lazy) return value.take();
  if (value instanceof Undefined) return [];
  throw new JinjaError(`'${typeName(value)}' object is not iterable`);
}

export function length(value: unknown): bigint {
  if (value instanceof Undefined) return 0n;
  if (isNumber(value) || value === null || value instanceof Lazy)
    throw new JinjaError(`object of type '${typeName(value)}' has no len()`);
  return BigInt(iterate(value).length);
}

export function equal(a: unknown, b: unknown): boolean {
  if (isNumber(a) && isNumber(b)) {
    const [x, y] = [plain(a), plain(b)];
    // biome-ignore lint/suspicious/noDoubleEquals: 1n == 1 compares values of both number types exactly
    return x == y;
  }
  if (a instanceof Undefined && b instanceof Undefined) return true;
  if (Array.isArray(a) && Array.isArray(b)) {
    if (a instanceof Tuple !== b instanceof Tuple || a.length !== b.length) return false;
    return a.every((each, i) => equal(each, b[i]));
  }
  if (a instanceof Map && b instanceof Map) {
    return a.size === b.size && [...a].every(([key, each]) => b.has(key) && equal(each, b.get(key)));
  }
  if (a instanceof Range && b instanceof Range) return equal([...a.items], [...b.items]);
  return a === b;
}

/** Below 0, 0 or above 0, for values that have an order. */
export function compare(a: unknown, b: unknown, operator = '<'): number {
  if (isNumber(a) && isNumber(b)) {
    const [x, y] = [plain(a), plain(b)];
    return x < y ? -1 : x > y ? 1 : x >= y ? 0 : Number.NaN;
  }
  if (typeof a === 'string' && typeof b === 'string') return compareTexts(a, b);
  if (Array.isArray(a) && Array.isArray(b) && a instanceof Tuple === b instanceof Tuple) {
    const at = a.findIndex((each, i) => i >= b.length || !equal(each, b[i]));
    if (at === -1 || at >= b.length) return a.length - b.length;
    return compare(a[at], b[at], operator);
  }
  if (a instanceof Undefined) throw undefinedError(a);
  if (b instanceof Undefined) throw undefinedError(b);
  const kinds = `'${typeName(a)}' and '${typeName(b)}'`;
  throw new JinjaError(`'${operator}' not supported between instances of ${kinds}`);
}

/** By code points; JavaScript compares UTF-16 units, which sorts characters above U+FFFF too low. */
function compareTexts(a: string, b: string): number {
  const [x, y] = [Array.from(a), Array.from(b)];
  for (let i = 0; i < x.length && i < y.length; i++) {
    if (x[i] !== y[i]) return (x[i].codePointAt(0) as number) - (y[i].codePointAt(0) as number);
  }
  return x.length - y.length;
}

export function contains(container: unknown, value: unknown): boolean {
  if (typeof container === 'string') {
    if (typeof value === 'string') return container.includes(value);
    if (value instanceof Undefined) throw undefinedError(value);
    throw new JinjaError(`'in <string>' requires string as left operand, not ${typeName(value)}`);
  }
  if (container instanceof Map) return container.has(value);
  if (container instanceof Namespace) throw new JinjaError("argument of type 'Namespace' is not iterable");
  return iterate(container).some((each) => equal(each, value));
}

/** A boolean counts as 0 or 1. */
export function plain(value: bigint | number | boolean): bigint | number {
  return typeof value === 'boolean' ? BigInt(value) : value;
}

function requireLength(size: number): void {
  if (size > lengthMax) throw new JinjaError(`a value of ${size} elements is too long`);
}

export function arithmetic(operator: string, a: unknown, b: unknown): unknown {
  if (isNumber(a) && isNumber(b)) return numbers(operator, plain(a), plain(b));
  if (a instanceof Undefined) throw undefinedError(a);
  if (operator === '%' && typeof a === 'string') return percentFormat(a, b);
  if (b instanceof Undefined) throw undefinedError(b);
  if (operator === '+') {
    if (typeof a === 'string' && typeof b === 'string') {
      requireLength(a.length + b.length);
      return a + b;
    }
    if (Array.isArray(a) && Array.isArray(b) && a instanceof Tuple === b instanceof Tuple) {
      requireLength(a.length + b.length);
      return a instanceof Tuple ? Tuple.of(...a, ...b) : [...a, ...b];
    }
  }
  if (operator === '*') {
    const [row, times] = isNumber(a) ? [b, a] : [a, b];
    if (isNumber(times) && typeof times !== 'number' && (typeof row === 'string' || Array.isArray(row))) {
      const count = Math.max(0, Number(times));
      requireLength(row.length * count);
      if (typeof row === 'string') return row.repeat(count);
      const list = Array.from({ length: count }, () => [...row]).flat();
      return row instanceof Tuple ? Tuple.of(...list) : list;
    }
  }
  const kinds = `'${typeName(a)}' and '${typeName(b)}'`;
  throw new JinjaError(`unsupported operand type(s) for ${operator}: ${kinds}`);
}

function numbers(operator: string, a: bigint | number, b: bigint | number): bigint | number {
  if (['/', '//', '%'].includes(operator) && Number(b) === 0) throw new JinjaError('division by zero');
  if (typeof a === 'bigint' && typeof b === 'bigint') {
    switch (operator) {
      case '+':
        return a + b;
      case '-':
        return a - b;
      case '*':
        requireLength(a.toString(16).length + b.toString(16).length);
        return a * b;
      case '/':
        return Number(a) / Number(b);
      case '//':
        return a / b - (a % b !== 0n && a < 0n !== b < 0n ? 1n : 0n);
      case '%':
        return ((a % b) + b) % b;
      default:
        if (b < 0n) return Number(a) ** Number(b);
        requireLength(a.toString(16).length * Number(b));
        return a ** b;
    }
  }
  const [x, y] = [Number(a), Number(b)];
  switch (operator) {
    case '+':
      return x + y;
    case '-':
      return x - y;
    case '*':
      return x * y;
    case '/':
      return x / y;
    case '//':
      return Math.floor(x / y);
    case '%': {
      const rest = x % y;
      if (rest === 0) return y < 0 ? -0 : 0;
      return rest < 0 !== y < 0 ? rest + y : rest;
    }
    default:
      return x ** y;
  }
}

/** `"%s" % values`. */
export function percentFormat(format: string, values: unknown): string {
  const list = values instanceof Tuple ? [...values] : [values];
  let at = 0;
  const made = format.replace(
    /%(?:\((\w+)\))?([-+ 0#]*)(\d+|\*)?(?:\.(\d+))?([a-zA-Z%])/g,
    (_, name: string | undefined, flags: string, width = '', precision: string | undefined, kind: string) => {
      if (kind === '%') return '%';
      if (name === undefined && at >= list.length)
        throw new JinjaError('not enough arguments for format string');
      const value = name === undefined ? list[at++] : (values as Map<unknown, unknown>).get(name);
      const sign = flags.includes('+') ? '+' : flags.includes(' ') ? ' ' : '';
      const digits = precision === undefined ? undefined : Number(precision);
      let text: string;
      if (kind === 's' || kind === 'r') {
        const whole = kind === 's' ? str(value) : repr(value);
        text = digits === undefined ? whole : whole.slice(0, digits);
      } else {
        if (!isNumber(value))
          throw new JinjaError(`%${kind} format: a real number is required, not ${typeName(value)}`);
        text = numberText(value, kind === 'i' ? 'd' : kind, digits);
        if (sign !== '' && !text.startsWith('-')) text = sign + text;
      }
      const wide = Number(width);
      if (flags.includes('-')) return text.padEnd(wide);
      if (!flags.includes('0') || kind === 's') return text.padStart(wide);
      const [, lead = '', rest] = /^([-+ ]?)(.*)$/.exec(text) ?? [];
      return lead + rest.padStart(wide - lead.length, '0');
    },
  );
  const mayBeLeft = values instanceof Map || (Array.isArray(values) && !(values instanceof Tuple));
  if (at < list.length && !mayBeLeft) {
    throw new JinjaError('not all arguments converted during string formatting');
  }
  return made;
}

/** A number in one of the formats d, f, e, g, x, o, b and %. */
export function numberText(
  value: bigint | number | boolean,
  kind: string,
  precision: number | undefined,
): string {
  const number = plain(value);
  const whole = typeof number === 'bigint' ? number : BigInt(Math.trunc(number));
  const scientific = (text: string): string =>
    text.replace(/e([+-])(\d)$/, (_, sign: string, digit: string) => `e${sign}0${digit}`);
  switch (kind) {
    case 'd':
      return whole.toString();
    case 'x':
      return whole.toString(16);
    case 'X':
      return whole.toString(16).toUpperCase();
    case 'o':
      return whole.toString(8);
    case 'b':
      return whole.toString(2);
    case 'f':
    case 'F':
      return fixed(Number(number), precision ?? 6);
    case '%':
      return `${fixed(Number(number) * 100, precision ?? 6)}%`;
    case 'e':
      return scientific(Number(number).toExponential(precision ?? 6));
    case 'g': {
      const digits = Math.max(1, precision ?? 6);
      const x = Number(number);
      const exponent = x === 0 ? 0 : Number(x.toExponential(digits - 1).split('e')[1]);
      if (exponent >= -4 && exponent < digits) {
        const text = fixed(x, digits - 1 - exponent);
        return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
      }
      return scientific(x.toExponential(digits - 1).replace(/\.?0+e/, 'e'));
    }
    default:
      throw new JinjaError(`unsupported format character '${kind}'`);
  }
}

/** `digits` places behind the point, of the exact value; halves go to the even digit. */
export function fixed(value: number, digits: number): string {
  if (!Number.isFinite(value)) return floatText(value);
  const places = Math.min(100, Math.max(0, digits));
  const text = value.toFixed(places);
  const exact = value.toFixed(Math.min(100, places + 60));
  const point = exact.indexOf('.');
  const tail = point === -1 ? '' : exact.slice(point + 1 + places);
  if (!/^50*$/.test(tail)) return text;
  const down = exact.slice(0, point + 1 + places).replace(/\.$/, '');
  return Number(down.at(-1)) % 2 === 0 ? down : text;
}
