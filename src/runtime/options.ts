/**
 * Checks of what callers pass, the same for all calls: options are an object, every name in it is known, and an error
 * names the fault as the caller wrote it, with the remedy.
 */

import { described, type ErrorCode, nearestName, TierKVError } from './errors.ts';
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
  readonly names: readonly string[];
  readonly #kinds: readonly ValueKind<unknown>[];
  readonly #mayBeLeftOut: readonly boolean[];
  readonly #defaults: readonly unknown[];
  readonly #code: ErrorCode;

  constructor(entries: Readonly<Record<string, OptionKind>>, code: ErrorCode) {
    const all = Object.values(entries);
    this.names = Object.keys(entries);
    this.#kinds = all.map((entry) => ('mayBeLeftOut' in entry ? entry.kind : entry));
    this.#mayBeLeftOut = all.map((entry) => 'mayBeLeftOut' in entry);
    this.#defaults = all.map((entry) => ('byDefault' in entry ? entry.byDefault : undefined));
    this.#code = code;
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
    const given = this.#named(options, field, code, others);
    const within = field === 'options' || field === 'config' ? '' : `${field}.`;
    const read: Record<string, unknown> = {};
    for (const name of others) if (given[name] !== undefined) read[name] = given[name];
    for (let i = 0; i < this.names.length; i++) {
      const name = this.names[i];
      const value = given[name];
      if (value !== undefined || !this.#mayBeLeftOut[i]) {
        read[name] = this.#kinds[i].read(value, within + name, code);
      } else if (this.#defaults[i] !== undefined) read[name] = this.#defaults[i];
    }
    return read as Options;
  }

  /**
   * The same reading, for options that other calls take by themselves: a name that is unknown is `field.name`, and a value that is
   * wrong has the name alone.
   */
  readFlat(options: unknown, field: string): Options {
    this.#named(options, field, this.#code, []);
    return this.read(options, 'config');
  }

  /** The same checks, for a call that runs once a token and takes the options as they are. */
  check(options: Options, field: string): Options {
    const given = this.#named(options, field, this.#code, []);
    for (let i = 0; i < this.names.length; i++) {
      const value = given[this.names[i]];
      if (value === undefined && this.#mayBeLeftOut[i]) continue;
      this.#kinds[i].read(value, `${field}.${this.names[i]}`, this.#code);
    }
    return options;
  }

  /** An object whose names are all known, and null only where it may be. */
  #named(
    options: unknown,
    field: string,
    code: ErrorCode,
    others: readonly string[],
  ): Readonly<Record<string, unknown>> {
    if (!isRecord(options)) {
      const problem = `${field} must be an object, and it is ${described(options)}`;
      const remedy = this.names.includes('tenant') ? 'Pass { tenant }.' : 'Pass { name: value }.';
      throw new TierKVError(code, `${problem}. ${remedy}`, { field });
    }
    const given = options as Readonly<Record<string, unknown>>;
    const within = field === 'options' || field === 'config' ? '' : `${field}.`;
    for (const name of Object.keys(given)) {
      const at = this.names.indexOf(name);
      if (at === -1 && !others.includes(name)) throw this.#unknown(name, within, code, others);
      if (given[name] === null && this.#kinds[at]?.takesNull !== true) {
        const problem = `${within}${name} is null. Give it a value, or leave it out if it has a default.`;
        throw new TierKVError(code, problem, { field: within + name });
      }
    }
    return given;
  }

  #unknown(name: string, within: string, code: ErrorCode, others: readonly string[]): TierKVError {
    const names = [...this.names, ...others];
    const nearest = nearestName(name, names);
    const remedy =
      nearest === undefined ? `The names are ${names.join(', ')}.` : `Did you mean '${nearest}'?`;
    return new TierKVError(code, `${within}${name} is unknown here. ${remedy}`, { field: within + name });
  }
}

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
