/**
 * Kinds of values: what a caller may pass, and the words in which anything else is refused. An option object reads its options by
 * kinds (`optionTable`), a call its arguments (`checkInputs`). Imported whole, a kind reads as a sentence:
 * `is.optional(is.integer(1), 4)`.
 *
 * A kind never throws anything but a `TierKVError` with the field and the remedy, whatever the value is.
 */

import {
  configError,
  described,
  type ErrorCode,
  namedError,
  nearestName,
  requireFinite,
  requireFraction,
  requireInteger,
  requirePositive,
  TierKVError,
} from './errors.ts';

export interface ValueKind<out Value> {
  /**
   * The value, as what it is.
   * @param code of the error, `TKV_INPUT` if left out; numbers out of range and unknown names are `TKV_CONFIG` always
   */
  read(value: unknown, field: string, code?: ErrorCode): Value;
  /** An option that is `null` is refused, except where its kind says this. */
  readonly takesNull?: boolean;
}

/** A value that may be left out, which is the same as `undefined`. */
export interface Optional<out Value> {
  readonly kind: ValueKind<Value>;
  readonly mayBeLeftOut: true;
}

/** A value with a default where it is left out. */
export interface Defaulted<out Value> extends Optional<Value> {
  readonly byDefault: Value;
}

export function optional<Value>(kind: ValueKind<Value>): Optional<Value>;
export function optional<Value>(kind: ValueKind<Value>, byDefault: NoInfer<Value>): Defaulted<Value>;
export function optional<Value>(
  kind: ValueKind<Value>,
  byDefault?: Value,
): Optional<Value> | Defaulted<Value> {
  return byDefault === undefined ? { kind, mayBeLeftOut: true } : { kind, mayBeLeftOut: true, byDefault };
}

/** @param words as in "must be ..." */
function kindOf<Value>(
  words: string,
  holds: (value: unknown) => boolean,
  remedy: string = `Pass ${words}.`,
): ValueKind<Value> {
  return {
    read(value, field, code = 'TKV_INPUT') {
      if (holds(value)) return value as Value;
      const found = value === '' && holds === isName ? 'empty' : described(value);
      const problem = value === undefined ? 'is missing' : `must be ${words}, and it is ${found}`;
      throw namedError(code, { field }, (called) => `${called(field)} ${problem}. ${remedy}`);
    },
  };
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;
/** Whether the value has named fields: no list, and no container of another kind. */
export const isRecord = (value: unknown): value is object =>
  isObject(value) &&
  !(Array.isArray(value) || ArrayBuffer.isView(value) || value instanceof Map || value instanceof Set);
const isFunction = (value: unknown): boolean => typeof value === 'function';
const isText = (value: unknown): boolean => typeof value === 'string';
const isName = (value: unknown): boolean => typeof value === 'string' && value !== '';

// One object a kind, so that a call which names its kinds makes none.

const anyValue: ValueKind<never> = { read: (value) => value as never };
const anyText = kindOf<string>('text', isText);
const anyName = kindOf<string>('text that is not empty', isName);
const anyNumber = kindOf<number>('a number', (value) => typeof value === 'number' && !Number.isNaN(value));
const anyBigint = kindOf<bigint>('a bigint', (value) => typeof value === 'bigint');
const trueOrFalse = kindOf<boolean>(
  'true or false',
  (value) => typeof value === 'boolean',
  'Pass one of them, or leave it out.',
);
const anyArray = kindOf<never>('an array', Array.isArray);
const anyObject = kindOf<never>('an object', isRecord);
const objectWithFields = kindOf<object>('an object', isObject);
const anyFunction = kindOf<never>('a function', isFunction);
const anyBytes = kindOf<never>('a typed array', ArrayBuffer.isView);
const anyMap = kindOf<never>('a Map', (value) => value instanceof Map);
const anySet = kindOf<never>('a Set', (value) => value instanceof Set);
const anyIterable = kindOf<never>(
  'an array, or what can be iterated',
  (value) => isObject(value) && (Symbol.iterator in value || Symbol.asyncIterator in value),
);
const abortSignal = kindOf<never>(
  'an AbortSignal',
  (value) => isObject(value) && 'aborted' in value && 'throwIfAborted' in value,
);
const aPositive: ValueKind<number> = { read: (value, field) => requirePositive(field, value as number) };
const aFinite: ValueKind<number> = { read: (value, field) => requireFinite(field, value as number) };
const aFraction: ValueKind<number> = { read: (value, field) => requireFraction(field, value as number) };

/** Anything: what takes the value checks it. */
export const passed = <Value>(): ValueKind<Value> => anyValue;

export const text = (): ValueKind<string> => anyText;

/** Text that is not empty. @param remedy what to pass, as a sentence */
export const name = (remedy?: string): ValueKind<string> =>
  remedy === undefined ? anyName : kindOf('text', isName, remedy);

/** Any number but NaN. */
export const number = (): ValueKind<number> => anyNumber;

/** @param least @param most both inclusive */
export const integer = <Value extends number>(least: number, most?: number): ValueKind<Value> => ({
  read: (value, field) => requireInteger(field, value as Value, least, most) as Value,
});

/** A finite number above 0. */
export const positive = (): ValueKind<number> => aPositive;

/** A finite number of at least 0. */
export const finite = (): ValueKind<number> => aFinite;

/** A number from 0 to 1. */
export const fraction = (): ValueKind<number> => aFraction;

/** A value with a rule of its own. @param words as in "is 5, not a share from 0 to 1" */
export const that = <Value>(words: string, fits: (value: unknown) => boolean): ValueKind<Value> => ({
  read(value, field, code = 'TKV_INPUT') {
    if (fits(value)) return value as Value;
    const problem = value === undefined ? 'is missing' : `is ${described(value)}, not ${words}`;
    throw namedError(
      code,
      { field },
      (called) => `${called(field)} ${problem}. Set ${called(field)} to ${words}.`,
    );
  },
});

export const bigint = (): ValueKind<bigint> => anyBigint;

export const flag = (): ValueKind<boolean> => trueOrFalse;

/** One of the names; an error has the nearest. */
export const oneOf = <Name extends string>(names: readonly Name[]): ValueKind<Name> => ({
  read(value, field) {
    if (names.includes(value as Name)) return value as Name;
    const nearest = typeof value === 'string' ? nearestName(value, names) : undefined;
    const known = names.map((each) => `'${each}'`);
    const remedy =
      nearest === undefined
        ? `Set it to ${known.slice(0, -1).join(', ')} or ${known.at(-1)}.`
        : `Did you mean '${nearest}'?`;
    throw configError(field, `is ${described(value)}`, remedy);
  },
});

/** An array whose elements are checked by what takes them. @param remedy what to pass, as a sentence */
export const array = <Value extends readonly unknown[]>(remedy?: string): ValueKind<Value> =>
  remedy === undefined ? anyArray : kindOf('an array', Array.isArray, remedy);

/** An array of values of a kind. An error names the element. */
export const list = <Value>(each: ValueKind<Value>, remedy?: string): ValueKind<readonly Value[]> => ({
  read(value, field, code) {
    const elements = array(remedy).read(value, field, code);
    elements.forEach((element, i) => {
      each.read(element, `${field}[${i}]`, code);
    });
    return elements as readonly Value[];
  },
});

/** An array of one value or more, each of a kind. @param remedy what to pass, as a sentence */
export const filledList = <Value>(each: ValueKind<Value>, remedy: string): ValueKind<readonly Value[]> => ({
  read(value, field, code = 'TKV_INPUT') {
    const elements = list(each, remedy).read(value, field, code);
    if (elements.length > 0) return elements;
    throw new TierKVError(code, `${field} is empty. ${remedy}`, { field });
  },
});

/** An object of any names, whose values are of a kind. An error names the value. */
export const byName = <Value>(each: ValueKind<Value>): ValueKind<Readonly<Record<string, Value>>> => ({
  read(value, field, code) {
    anyObject.read(value, field, code);
    for (const [inner, of] of Object.entries(value as object)) each.read(of, `${field}.${inner}`, code);
    return value as Readonly<Record<string, Value>>;
  },
});

/** An object with named fields, which are checked by what takes it. */
export const object = <Value extends object>(): ValueKind<Value> => anyObject;

/** An object that has at least these fields, each of its kind. */
export const fields = <Value extends object>(
  kinds: Readonly<Record<string, ValueKind<unknown> | Optional<unknown>>>,
): ValueKind<Value> => ({
  read(value, field, code) {
    objectWithFields.read(value, field, code);
    for (const [inner, kind] of Object.entries(kinds)) {
      check((value as Readonly<Record<string, unknown>>)[inner], `${field}.${inner}`, kind, code);
    }
    return value as Value;
  },
});

export const func = <Value extends (...inputs: never) => unknown>(): ValueKind<Value> => anyFunction;

/** Any typed array. */
export const bytes = <Value extends ArrayBufferView>(): ValueKind<Value> => anyBytes;

export const map = <Value extends ReadonlyMap<unknown, unknown>>(): ValueKind<Value> => anyMap;

export const set = <Value extends ReadonlySet<unknown>>(): ValueKind<Value> => anySet;

/** An array, or what can be iterated, also asynchronously. */
export const iterable = <Value extends object>(): ValueKind<Value> => anyIterable;

/** A signal that ends a call, as the platform has it. */
export const signal = <Value extends object>(): ValueKind<Value> => abortSignal;

/** `null`, or a value of the kind. */
export const orNull = <Value>(kind: ValueKind<Value>): ValueKind<Value | null> => ({
  takesNull: true,
  read: (value, field, code) => (value === null ? null : kind.read(value, field, code)),
});

/** A kind with a rule of its own. @param read the value, or throws */
export const by = <Value>(
  read: (value: Value, field: string, code?: ErrorCode) => Value,
): ValueKind<Value> => ({
  read: (value, field, code) => read(value as Value, field, code),
});

/** Says whether the value is of the kind. Texts of other programs may hold anything, so nothing is refused. */
export function holds(kind: ValueKind<unknown>, value: unknown): boolean {
  try {
    kind.read(value, 'value');
    return true;
  } catch {
    return false; // a kind throws nothing but this
  }
}

/** The value is of the kind, or it is left out where it may be. */
export function check(
  value: unknown,
  field: string,
  kind: ValueKind<unknown> | Optional<unknown>,
  code?: ErrorCode,
): void {
  if (!('mayBeLeftOut' in kind)) kind.read(value, field, code);
  else if (value !== undefined) kind.kind.read(value, field, code);
}
