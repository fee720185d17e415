/** Arguments of a builtin, by position or by name. */

import { fail } from '../failure.ts';
import { type NamedArguments, StarFloat, typeName, type Value } from '../values/index.ts';

/** What a list of parameters says, worked out once. */
interface Signature {
  readonly names: readonly string[];
  readonly isOptional: readonly boolean[];
  /** Leading parameters that may be given by position. */
  readonly positionalCount: number;
}

const signatures = new Map<string, Signature>();

function signatureOf(builtin: string, parameters: readonly string[]): Signature {
  let signature = signatures.get(builtin);
  if (signature === undefined || signature.names.length !== parameters.length) {
    signature = {
      names: parameters.map((each) => each.replace(/[*?]/g, '')),
      isOptional: parameters.map((each) => each.endsWith('?')),
      positionalCount: parameters.filter((each) => !each.startsWith('*')).length,
    };
    signatures.set(builtin, signature);
  }
  return signature;
}

/**
 * Takes arguments by the list of parameter names; a name that ends in `?` may be missing, one that begins
 * with `*` is taken by name only. Missing ones are `undefined`.
 *
 * @throws PolicyError policy_runtime with the builtin's name
 */
export function take(
  builtin: string,
  parameters: readonly string[],
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
): readonly (Value | undefined)[] {
  const { names, isOptional, positionalCount } = signatureOf(builtin, parameters);
  if (positional.length > positionalCount) {
    fail(line, `${builtin} takes at most ${positionalCount} arguments by position, not ${positional.length}`);
  }
  if (named.length === 0 && positional.length === names.length) return positional;
  const values: (Value | undefined)[] = names.map((_, i) => positional[i]);
  for (const [name, value] of named) {
    const i = names.indexOf(name);
    if (i < 0) fail(line, `${builtin} has no argument ${name}`);
    if (values[i] !== undefined) fail(line, `${builtin} gets its argument ${name} twice`);
    values[i] = value;
  }
  for (let i = 0; i < names.length; i++) {
    if (!isOptional[i] && values[i] === undefined) fail(line, `${builtin} lacks its argument ${names[i]}`);
  }
  return values;
}

export function textOf(builtin: string, value: Value | undefined, line: number): string {
  return typeof value === 'string' ? value : fail(line, `${builtin} takes a string, not ${nameOf(value)}`);
}

export function integerOf(builtin: string, value: Value | undefined, line: number): number {
  return typeof value === 'number' ? value : fail(line, `${builtin} takes an int, not ${nameOf(value)}`);
}

/** An int or a float, as a JavaScript number. */
export function numberOf(builtin: string, value: Value | undefined, line: number): number {
  if (typeof value === 'number') return value;
  if (value instanceof StarFloat) return value.value;
  return fail(line, `${builtin} takes a number, not ${nameOf(value)}`);
}

function nameOf(value: Value | undefined): string {
  return value === undefined ? 'nothing' : typeName(value);
}
