/**
 * Checks of what callers pass, the same for all calls: options are an object, every name in it is known, and an error
 * names the fault as the caller wrote it, with the remedy.
 */

import { configError, described, type ErrorCode, nearestName, TierKVError } from './errors.ts';
import { check, type Defaulted, isRecord, type Optional, type ValueKind } from './kinds.ts';

/** The kind of an option. TypeScript checks that a table has all options of a type, each of its kind, and no other. */
type OptionKind = ValueKind<unknown> | Optional<unknown>;
type MayBeLeftOut<Options, Name extends keyof Options> = undefined extends Options[Name]
  ? true
  : Record<never, never> extends Pick<Options, Name>
    ? true
    : false;
export type Kinds<Options> = {
  readonly [Name in keyof Options]-?: true extends MayBeLeftOut<Options, Name>
    ? Optional<Exclude<Options[Name], undefined>>
    : ValueKind<Options[Name]>;
};
type OptionValue<Each> =
  Each extends Optional<infer Value> ? Value : Each extends ValueKind<infer Value> ? Value : never;
type AlwaysThere = ValueKind<unknown> | Defaulted<unknown>;
/** The options that a table reads: options with a default are always there. */
type ReadOptions<Entries> = {
  readonly [Name in keyof Entries as Entries[Name] extends AlwaysThere ? Name : never]: OptionValue<
    Entries[Name]
  >;
} & {
  readonly [Name in keyof Entries as Entries[Name] extends AlwaysThere ? never : Name]?: OptionValue<
    Entries[Name]
  >;
};

/**
 * An option object: its names, and the kind, range and default of each. It is a kind itself, for options inside of others.
 * The interface of the options stays, for its sentences: `optionTable({ ... } satisfies Kinds<PoolLimits>)`.
 */
export class OptionTable<out Options extends object> implements ValueKind<Options> {
  readonly #entries: ReadonlyMap<string, OptionKind>;
  readonly #code: ErrorCode;

  constructor(entries: Readonly<Record<string, OptionKind>>, code: ErrorCode) {
    this.#entries = new Map(Object.entries(entries));
    this.#code = code;
  }

  get names(): readonly string[] {
    return [...this.#entries.keys()];
  }

  /**
   * A new object with the options that are given and the defaults of others. Left out and `undefined` are the same; `null` is refused,
   * except where the kind takes it.
   * @param field the caller's name for the object; an option is `field.name`, or just `name` if `field` is `options` or
   * `config`
   * @param others names beside those of the table, whose values are taken as they are
   * @throws TKV_INPUT, or the code of the table, naming what is unknown, missing or wrong
   */
  read(
    options: unknown,
    field = 'options',
    code: ErrorCode = this.#code,
    others: readonly string[] = [],
  ): Options {
    requireObject(options as object, field, code);
    const given = options as Readonly<Record<string, unknown>>;
    const within = field === 'options' || field === 'config' ? '' : `${field}.`;
    const read: Record<string, unknown> = {};
    for (const [name, value] of Object.entries(given)) {
      const entry = this.#entries.get(name);
      if (entry === undefined && !others.includes(name)) throw this.#unknown(name, within, code, others);
      if (value === null && !takesNull(entry)) {
        const problem = `${within}${name} is null. Give it a value, or leave it out if it has a default.`;
        throw new TierKVError(code, problem, { field: within + name });
      }
      if (entry === undefined && value !== undefined) read[name] = value;
    }
    for (const [name, entry] of this.#entries) {
      const value = given[name];
      if (!('mayBeLeftOut' in entry)) read[name] = entry.read(value, within + name, code);
      else if (value !== undefined) read[name] = entry.kind.read(value, within + name, code);
      else if ('byDefault' in entry) read[name] = entry.byDefault;
    }
    return read as Options;
  }

  #unknown(name: string, within: string, code: ErrorCode, others: readonly string[]): TierKVError {
    const names = [...this.#entries.keys(), ...others];
    const nearest = nearestName(name, names);
    const remedy =
      nearest === undefined ? `The names are ${names.join(', ')}.` : `Did you mean '${nearest}'?`;
    return new TierKVError(code, `${within}${name} is unknown here. ${remedy}`, { field: within + name });
  }
}

const takesNull = (entry: OptionKind | undefined): boolean =>
  entry !== undefined && (('mayBeLeftOut' in entry ? entry.kind : entry).takesNull ?? false);

/** @param code of errors about the object and about kinds; settings of what is built have `TKV_CONFIG` */
export function optionTable<Entries extends Readonly<Record<string, OptionKind>>>(
  entries: Entries,
  code: ErrorCode = 'TKV_INPUT',
): OptionTable<ReadOptions<Entries>> {
  return new OptionTable(entries, code);
}

/**
 * The arguments of a call, by their names, are of their kinds. For calls from outside, not for what runs once a token.
 * @throws TKV_INPUT with the place of the first that is not
 */
export function checkInputs<Inputs extends object>(
  inputs: Inputs,
  kinds: { readonly [Name in keyof NoInfer<Inputs>]?: OptionKind },
): void {
  const known = kinds as Readonly<Record<string, OptionKind | undefined>>;
  for (const [name, value] of Object.entries(inputs)) {
    const kind = known[name];
    if (kind !== undefined) check(value, name, kind);
  }
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
  requireObject(options, field, code, names.includes('tenant') ? 'Pass { tenant }.' : undefined);
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
export function requireObject(
  value: object,
  field: string,
  code: ErrorCode = 'TKV_INPUT',
  remedy: string = 'Pass { name: value }.',
): void {
  if (isRecord(value)) return;
  const problem = `${field} must be an object, and it is ${described(value)}`;
  throw new TierKVError(code, `${problem}. ${remedy}`, { field });
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
