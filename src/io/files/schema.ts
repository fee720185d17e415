/**
 * Plain values that people write, read by a schema: an error names the field, what stands there, and what to write
 * instead. The message of a schema is that remedy; names that are not known get the nearest one.
 */

import * as v from 'valibot';
import { configError, unknownName } from '../../runtime/errors.ts';

/** The parts of a schema that are looked at to tell an error. */
interface SchemaParts {
  readonly wrapped?: SchemaParts;
  readonly pipe?: readonly SchemaParts[];
  readonly entries?: Readonly<Record<string, SchemaParts>>;
  readonly item?: SchemaParts;
  readonly options?: readonly unknown[];
  readonly message?: unknown;
  readonly metadata?: { readonly names?: readonly string[] };
}

/** Without what makes it optional. */
function unwrapped(schema: SchemaParts | undefined): SchemaParts | undefined {
  return schema?.wrapped === undefined ? schema : unwrapped(schema.wrapped);
}

/** Without its checks either. */
function bare(schema: SchemaParts | undefined): SchemaParts | undefined {
  const own = unwrapped(schema);
  // a pipe has the fields of its first part, and its own name for itself
  return own?.pipe === undefined || own.pipe[0] === own ? own : bare(own.pipe[0]);
}

/** The schema of what lies at the keys. */
function schemaAt(schema: SchemaParts, keys: readonly unknown[]): SchemaParts | undefined {
  let at: SchemaParts | undefined = schema;
  for (const key of keys) {
    const around: SchemaParts | undefined = bare(at);
    const entries = new Map(Object.entries(around?.entries ?? {}));
    at = typeof key === 'number' ? around?.item : entries.get(String(key));
  }
  return unwrapped(at);
}

/** `suites.train.seeds[0]`. */
function fieldOf(keys: readonly unknown[]): string {
  return keys
    .map((key, i) => (typeof key === 'number' ? `[${key}]` : `${i === 0 ? '' : '.'}${String(key)}`))
    .join('');
}

/** The value as JSON, cut short. */
function shownValue(value: unknown): string {
  let text: string;
  try {
    text = JSON.stringify(value) ?? String(value);
  } catch {
    text = String(value);
  }
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/**
 * @param name of the whole value in messages
 * @throws TKV_CONFIG with the first field at fault
 */
export function readBy<S extends v.GenericSchema>(schema: S, value: unknown, name: string): v.InferOutput<S> {
  const read = v.safeParse(schema, value, { abortEarly: true });
  if (read.success) return read.output;
  const [issue] = read.issues;
  const keys = (issue.path ?? []).map(({ key }) => key);
  const field = keys.length === 0 ? name : fieldOf(keys);
  const parts = schema as SchemaParts;
  if (issue.type === 'strict_object' && issue.expected === 'never') {
    const known = Object.keys(bare(schemaAt(parts, keys.slice(0, -1)))?.entries ?? {});
    throw unknownName(field, String(keys[keys.length - 1]), known);
  }
  const at = schemaAt(parts, keys);
  const { input } = issue;
  if (input === undefined) {
    // the issue is of the object around it, and the remedy of what is missing
    throw configError(field, 'is missing', String(bare(at)?.message ?? issue.message));
  }
  const names = at?.pipe?.find(({ metadata }) => metadata !== undefined)?.metadata?.names;
  const known = issue.type === 'picklist' ? (bare(at)?.options ?? []).map(String) : names;
  if (known !== undefined && typeof input === 'string') throw unknownName(field, input, known);
  throw configError(field, `is ${shownValue(input)}`, issue.message);
}

// Schemas that several readers need. Each has its remedy.

/** An object with these fields and no other. */
export function fields<E extends v.ObjectEntries>(entries: E): v.StrictObjectSchema<E, string> {
  return v.strictObject(entries, `Give it the fields ${Object.keys(entries).join(', ')}.`);
}

/**
 * An object of any names, whose values are checked by what takes it. `v.record` would leave out `constructor` and other
 * names that every object has.
 */
export function anyNames<T>(remedy: string): v.GenericSchema<Readonly<Record<string, T>>> {
  const holds = (value: unknown): boolean =>
    typeof value === 'object' && value !== null && !Array.isArray(value);
  return v.custom<Readonly<Record<string, T>>>(holds, remedy);
}

/** A list with one entry or more. @param what its entries are, in the plural */
export function listOf<S extends v.GenericSchema>(
  each: S,
  what: string,
): v.SchemaWithPipe<readonly [v.ArraySchema<S, string>, v.MinLengthAction<v.InferOutput<S>[], 1, string>]> {
  const remedy = `Give it a list of ${what}.`;
  return v.pipe(v.array(each, remedy), v.minLength(1, remedy));
}

export const anyText: v.StringSchema<string> = v.string('Give it a text.');

/** One of the names. @param remedy where something else than a text stands */
export function oneName<const T extends string>(
  names: readonly T[],
  remedy: string = `Name one of ${names.join(', ')}.`,
): v.PicklistSchema<readonly T[], string> {
  return v.picklist(names, remedy);
}

/** A name that `is` knows. @param names what a message may propose @param remedy as above */
export function knownName(
  is: (name: string) => boolean,
  names: readonly string[],
  remedy: string,
): v.GenericSchema<string> {
  return v.pipe(v.string(remedy), v.check(is, remedy), v.metadata({ names }));
}
