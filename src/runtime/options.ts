/**
 * Checks of what callers pass, the same for all calls: options are an object, every name in it is known, and an error
 * names the fault as the caller wrote it, with the remedy.
 */

import { configError, type ErrorCode, nearestName, TierKVError } from './errors.ts';

/** A value in the words of a message. It never throws, whatever the value is. */
export function described(value: unknown): string {
  if (typeof value === 'string')
    return value.length > 64 ? `a text of ${value.length} letters` : JSON.stringify(value);
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'function') return 'a function';
  if (typeof value === 'symbol') return 'a symbol';
  if (Array.isArray(value)) return 'an array';
  if (ArrayBuffer.isView(value)) {
    const kind = Object.prototype.toString.call(value).slice(8, -1);
    return `${kind.startsWith('I') ? 'an' : 'a'} ${kind}`;
  }
  if (typeof value === 'object' && value !== null) return 'an object';
  return String(value);
}

/** The names of a type of options. TypeScript holds that the list has all of them, and no other. */
export function optionNames<Options extends object>(
  names: Readonly<Record<keyof Options, true>>,
): readonly string[] {
  return Object.keys(names);
}

/**
 * An object of options whose names are all among `names`. Left out and `undefined` are the same, for each option of every
 * call; `null` is refused, unless the option's type has it.
 * @param field the caller's name for it; names in it are `field.name`, or just `name` if `field` is `options` or
 * `config`
 * @param nullable names whose types have `null`
 * @throws TKV_INPUT, or the code given, if it is not an object, a name is unknown or a value is null
 */
export function requireOptions<Options extends object>(
  options: Options,
  names: readonly string[],
  field = 'options',
  code: ErrorCode = 'TKV_INPUT',
  nullable: readonly string[] = [],
): Options {
  requireObject(options, field, code);
  for (const [name, value] of Object.entries(options)) {
    const full = field === 'options' || field === 'config' ? name : `${field}.${name}`;
    if (names.includes(name)) {
      if (value !== null || nullable.includes(name)) continue;
      throw new TierKVError(code, `${full} is null. Give it a value, or leave it out if it has a default.`, {
        field: full,
      });
    }
    const nearest = nearestName(name, names);
    const remedy =
      nearest === undefined ? `The names are ${names.join(', ')}.` : `Did you mean '${nearest}'?`;
    throw new TierKVError(code, `${full} is unknown here. ${remedy}`, { field: full });
  }
  return options;
}

/** @throws TKV_INPUT, or the code given, if it is not an object of names and values */
export function requireObject(value: object, field: string, code: ErrorCode = 'TKV_INPUT'): void {
  if (isRecord(value)) return;
  const problem = `${field} must be an object, and it is ${described(value)}`;
  throw new TierKVError(code, `${problem}. Pass { name: value }.`, { field });
}

/** @throws TKV_INPUT, or the code given, if it is not an array */
export function requireArray(
  value: readonly unknown[],
  field: string,
  remedy: string,
  code: ErrorCode = 'TKV_INPUT',
): void {
  if (Array.isArray(value)) return;
  throw new TierKVError(code, `${field} must be an array, and it is ${described(value)}. ${remedy}`, {
    field,
  });
}

/** @throws TKV_INPUT, or the code given, if it is not a function */
export function requireFunction(value: unknown, field: string, code: ErrorCode = 'TKV_INPUT'): void {
  if (typeof value === 'function') return;
  const problem = `${field} must be a function, and it is ${described(value)}`;
  throw new TierKVError(code, `${problem}. Pass a function.`, { field });
}

/** True or false, or left out. @throws TKV_INPUT, or the code given, for anything else */
export function requireFlag(
  value: boolean | undefined,
  field: string,
  code: ErrorCode = 'TKV_INPUT',
): boolean | undefined {
  if (value === undefined || typeof value === 'boolean') return value;
  const problem = `${field} must be true or false, and it is ${described(value)}`;
  throw new TierKVError(code, `${problem}. Pass one of them, or leave it out.`, { field });
}

/** A text that is not empty. @throws TKV_INPUT, or the code given, for anything else */
export function requireText(
  value: string,
  field: string,
  remedy: string,
  code: ErrorCode = 'TKV_INPUT',
): string {
  if (typeof value === 'string' && value !== '') return value;
  const found = value === '' ? 'empty' : described(value);
  throw new TierKVError(code, `${field} must be text, and it is ${found}. ${remedy}`, { field });
}

/** One of the names. @throws TKV_CONFIG with the nearest name for anything else */
export function oneOf<Name extends string>(field: string, value: Name, names: readonly Name[]): Name {
  if (names.includes(value)) return value;
  const nearest = typeof value === 'string' ? nearestName(value, names) : undefined;
  const known = names.map((name) => `'${name}'`);
  const remedy =
    nearest === undefined
      ? `Set it to ${known.slice(0, -1).join(', ')} or ${known.at(-1)}.`
      : `Did you mean '${nearest}'?`;
  throw configError(field, `is ${described(value)}`, remedy);
}

type ValueKind =
  | 'text'
  | 'name'
  | 'number'
  | 'bigint'
  | 'flag'
  | 'array'
  | 'object'
  | 'function'
  | 'bytes'
  | 'map'
  | 'set'
  | 'iterable';
/**
 * The required form of a value: a kind, with `?` where it may be left out, the shape of each element of an array, or
 * the shapes of the fields of an object that a call cannot do without.
 */
export type Shape = ValueKind | `${ValueKind}?` | readonly [Shape] | { readonly [field: string]: Shape };

interface KindCheck {
  /** The kind in words, for "must be ...". */
  readonly words: string;
  readonly holds: (value: unknown) => boolean;
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;
/** Whether the value has named fields: no list, and no container of another kind. */
const isRecord = (value: unknown): value is object =>
  isObject(value) &&
  !(Array.isArray(value) || ArrayBuffer.isView(value) || value instanceof Map || value instanceof Set);
const kinds: Readonly<Record<ValueKind, KindCheck>> = {
  text: { words: 'text', holds: (value) => typeof value === 'string' },
  name: { words: 'text that is not empty', holds: (value) => typeof value === 'string' && value !== '' },
  number: { words: 'a number', holds: (value) => typeof value === 'number' && !Number.isNaN(value) },
  bigint: { words: 'a bigint', holds: (value) => typeof value === 'bigint' },
  flag: { words: 'true or false', holds: (value) => typeof value === 'boolean' },
  array: { words: 'an array', holds: Array.isArray },
  object: { words: 'an object', holds: isRecord },
  function: { words: 'a function', holds: (value) => typeof value === 'function' },
  bytes: { words: 'a typed array', holds: ArrayBuffer.isView },
  map: { words: 'a Map', holds: (value) => value instanceof Map },
  set: { words: 'a Set', holds: (value) => value instanceof Set },
  iterable: {
    words: 'an array, or what can be iterated',
    holds: (value) => isObject(value) && (Symbol.iterator in value || Symbol.asyncIterator in value),
  },
};

function requireShape(value: unknown, field: string, shape: Shape): void {
  if (typeof shape === 'string') {
    if (value === undefined && shape.endsWith('?')) return;
    const { words, holds } = kinds[shape.replace('?', '') as ValueKind];
    if (holds(value)) return;
    const problem = `${field} must be ${words}, and it is ${described(value)}`;
    throw new TierKVError('TKV_INPUT', `${problem}. Pass ${words}.`, { field });
  }
  if (Array.isArray(shape)) {
    requireShape(value, field, 'array');
    const [each] = shape as readonly [Shape];
    (value as readonly unknown[]).forEach((element, i) => {
      requireShape(element, `${field}[${i}]`, each);
    });
    return;
  }
  if (!isObject(value)) requireShape(value, field, 'object');
  for (const [name, inner] of Object.entries(shape)) {
    requireShape((value as Readonly<Record<string, unknown>>)[name], `${field}.${name}`, inner);
  }
}

/**
 * The inputs of a call, by their names, look as they must. One table of shapes may serve all calls of a file. For calls from outside, not for what runs once a token.
 * @throws TKV_INPUT with the place of the first that does not
 */
export function requireShapes<Inputs extends object>(
  inputs: Inputs,
  shapes: { readonly [Name in keyof NoInfer<Inputs>]?: Shape },
): void {
  const known = shapes as Readonly<Record<string, Shape | undefined>>;
  for (const [name, value] of Object.entries(inputs)) {
    const shape = known[name];
    if (shape !== undefined) requireShape(value, name, shape);
  }
}
