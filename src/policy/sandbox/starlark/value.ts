/**
 * Values of a Starlark program. None, booleans and strings are JavaScript's; an integer is a JavaScript
 * number, always a safe one; a float is an object, because Starlark tells 1 from 1.0.
 */

import { nearestName, TierKVError } from '../../../runtime/errors.ts';
import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { type Meter, PolicyError } from '../program.ts';

export type Value =
  | null
  | boolean
  | number
  | string
  | StarFloat
  | StarList
  | StarTuple
  | StarRange
  | StarDict
  | StarFunction
  | StarRecord;

export class StarFloat {
  readonly value: number;

  constructor(value: number) {
    this.value = value;
  }
}

export class StarList {
  readonly items: Value[];
  isFrozen = false;
  /** Loops that run over it now. It cannot change meanwhile. */
  loops = 0;

  constructor(items: Value[]) {
    this.items = items;
  }
}

export class StarTuple {
  readonly items: readonly Value[];
  /** Null until it is a key for the first time. */
  hash: TupleHash | null = null;

  constructor(items: readonly Value[]) {
    this.items = items;
  }
}

/** The integers start, start + step, ... of which there are `length`. */
export class StarRange {
  readonly start: number;
  readonly step: number;
  readonly length: number;

  constructor(start: number, step: number, length: number) {
    this.start = start;
    this.step = step;
    this.length = length;
  }

  at(index: number): number {
    return this.start + index * this.step;
  }
}

/** A record that the host shows to a policy: named fields that a program reads and cannot write. */
export class StarRecord {
  readonly shape: RecordShape;
  /** In the order of the shape's fields. A field of kind `float` holds the bare number. */
  readonly values: Value[];

  constructor(shape: RecordShape, values: Value[]) {
    this.shape = shape;
    this.values = values;
  }
}

export type NamedArguments = readonly (readonly [string, Value])[];

/** A function of the program or of the language. */
export class StarFunction {
  readonly name: string;
  readonly isBuiltin: boolean;
  readonly call: (meter: Meter, positional: readonly Value[], named: NamedArguments, line: number) => Value;
  /** Takes exactly `arity` positional arguments, without binding any by name. */
  readonly direct: ((...values: Value[]) => Value) | null;
  readonly arity: number;
  /** Least number of positional arguments. */
  readonly required: number;
  /** Defaults, and variables of outer functions that it can reach. */
  readonly held: (() => readonly (Value | undefined)[]) | null;
  isFrozen = false;

  constructor(
    name: string,
    call: StarFunction['call'],
    own: Pick<StarFunction, 'direct' | 'arity' | 'required' | 'held'> | null = null,
  ) {
    this.name = name;
    this.isBuiltin = own === null;
    this.call = call;
    this.direct = own === null ? null : own.direct;
    this.arity = own === null ? -1 : own.arity;
    this.required = own === null ? 0 : own.required;
    this.held = own === null ? null : own.held;
  }
}

/** How deep lists, tuples and dicts may be inside each other where they are compared, shown or frozen. */
export const MAX_VALUE_DEPTH = 64;

type Hashed = string | number | boolean | null;

/** Keys keep the order in which they came; equal keys are found by value. */
export class StarDict {
  #entries = new Map<Hashed, [Value, Value]>();
  isFrozen = false;
  /** Loops that run over it now. It cannot change meanwhile. */
  loops = 0;

  get size(): number {
    return this.#entries.size;
  }

  get(key: Value): Value | undefined {
    const entry = this.#entries.get(hashed(key));
    return entry === undefined ? undefined : entry[1];
  }

  set(key: Value, value: Value): void {
    const hash = hashed(key);
    const entry = this.#entries.get(hash);
    if (entry === undefined) this.#entries.set(hash, [key, value]);
    else entry[1] = value;
  }

  delete(key: Value): void {
    this.#entries.delete(hashed(key));
  }

  clear(): void {
    this.#entries = new Map();
  }

  entries(): IterableIterator<[Value, Value]> {
    return this.#entries.values();
  }

  keys(): Value[] {
    return Array.from(this.#entries.values(), ([key]) => key);
  }
}

/** Thrown for a key that cannot be one; the operation that asked adds the line. */
export class UnhashableError extends Error {}

/** The hash by which a dict finds a tuple, and its cost, charged at each lookup even when the hash is cached. */
interface TupleHash {
  readonly text: string;
  /** Elements, those of tuples in it included, as often as they stand there. */
  readonly elements: number;
  /** Memory units, for texts that are made on the way. */
  readonly units: number;
  /** How deep tuples stand in it. */
  readonly height: number;
}

/** Told of what is added to the cost before it is taken. */
type Charge = (elements: number, units: number) => void;

/** Equal keys give equal results: 1 and 1.0 are one key, True and 1 are two. */
function hashed(key: Value): Hashed {
  if (typeof key === 'string') return key.charCodeAt(0) === 0 ? `\0s${key}` : key;
  if (key === null || typeof key === 'number' || typeof key === 'boolean') return key;
  if (key instanceof StarFloat) return key.value;
  if (key instanceof StarTuple) return hashOfTuple(key).text;
  throw new UnhashableError();
}

/** @throws UnhashableError for one that holds what cannot be a key, or nests too deep */
export function hashOfTuple(key: StarTuple, charge: Charge = () => {}, depth = 0): TupleHash {
  const known = key.hash;
  if (known !== null) {
    if (depth + known.height > MAX_VALUE_DEPTH) throw new UnhashableError();
    charge(known.elements, known.units);
    return known;
  }
  if (depth >= MAX_VALUE_DEPTH) throw new UnhashableError();
  const parts: string[] = [];
  let elements = 0;
  let units = 0;
  let height = 1;
  for (const item of key.items) {
    let part: Hashed;
    if (item instanceof StarTuple) {
      const inner = hashOfTuple(item, charge, depth + 1);
      part = inner.text;
      elements += inner.elements;
      units += inner.units;
      height = Math.max(height, 1 + inner.height);
    } else part = hashed(item);
    const taken = typeof part === 'string' ? Math.floor(part.length / 8) : 1;
    charge(1, taken);
    elements++;
    units += taken;
    parts.push(typeof part === 'string' ? `${part.length}:${part}` : `${typeof part}:${part}`);
  }
  return (key.hash = { text: `\0t${parts.join(',')}`, elements, units, height });
}

// The fields of a record that the host shows to a policy: their names, kinds and places.

/** A `float` is stored as a bare number and becomes a float value when it is read. */
type FieldKind = 'int' | 'float' | 'bool' | 'text' | 'value';

export class RecordShape {
  readonly name: string;
  readonly fields: readonly string[];
  readonly isFloat: readonly boolean[];
  readonly #index: ReadonlyMap<string, number>;

  /** @throws TKV_INPUT for a field that stands there twice */
  constructor(name: string, fields: Readonly<Record<string, FieldKind>>) {
    checkInputs({ name, fields }, { name: is.text(), fields: is.object() });
    this.name = name;
    this.fields = Object.keys(fields);
    this.isFloat = this.fields.map((field) => fields[field] === 'float');
    this.#index = new Map(this.fields.map((field, i) => [field, i]));
    if (this.fields.length === 0) throw new TierKVError('TKV_INPUT', `the record ${name} has no fields`);
  }

  /** -1 for a field that the shape does not have. */
  indexOf(field: string): number {
    return this.#index.get(field) ?? -1;
  }

  nearest(field: string): string | undefined {
    return nearestName(field, this.fields);
  }
}

// The name of a value's type, as `type(x)` gives it, and whether a value counts as true.

export function typeName(value: Value): string {
  if (value === null) return 'NoneType';
  if (typeof value === 'boolean') return 'bool';
  if (typeof value === 'number') return 'int';
  if (typeof value === 'string') return 'string';
  if (value instanceof StarFloat) return 'float';
  if (value instanceof StarList) return 'list';
  if (value instanceof StarTuple) return 'tuple';
  if (value instanceof StarDict) return 'dict';
  if (value instanceof StarRange) return 'range';
  if (value instanceof StarFunction) return value.isBuiltin ? 'builtin_function_or_method' : 'function';
  return value.shape.name;
}

export function isTrue(value: Value): boolean {
  if (typeof value === 'boolean') return value;
  if (typeof value === 'number') return value !== 0;
  if (value === null || value === '') return false;
  if (typeof value === 'string') return true;
  if (value instanceof StarFloat) return value.value !== 0;
  if (value instanceof StarList || value instanceof StarTuple) return value.items.length > 0;
  if (value instanceof StarDict) return value.size > 0;
  if (value instanceof StarRange) return value.length > 0;
  return true;
}

// Globals of a module cannot change after it has run: no call can leave anything for the next.

/** @throws PolicyError policy_runtime for values that nest too deep */
export function freeze(value: Value, depth = 0): void {
  if (value === null || typeof value !== 'object') return;
  if (depth > MAX_VALUE_DEPTH) {
    throw new PolicyError('policy_runtime', `a global nests deeper than ${MAX_VALUE_DEPTH} values`);
  }
  if (value instanceof StarList || value instanceof StarDict || value instanceof StarFunction) {
    if (value.isFrozen) return;
    value.isFrozen = true;
  }
  if (value instanceof StarList || value instanceof StarTuple) {
    for (const item of value.items) freeze(item, depth + 1);
  } else if (value instanceof StarDict) {
    for (const [key, item] of value.entries()) {
      freeze(key, depth + 1);
      freeze(item, depth + 1);
    }
  } else if (value instanceof StarFunction && value.held !== null) {
    for (const item of value.held()) if (item !== undefined) freeze(item, depth + 1);
  }
}

// Errors of a running program: a kind, a line, and what to change.

/** @throws PolicyError policy_runtime, always */
export function fail(line: number, problem: string): never {
  throw new PolicyError('policy_runtime', problem, { line });
}
