/** Parameters of policies: what each may be, and values that were checked against it. */

import { configError } from '../../../runtime/errors.ts';
import { nearestName } from '../../../runtime/nearestName.ts';
import type { ParameterValue } from '../policy.ts';

interface Told {
  /** A few words on what it does, where its name does not say it. */
  readonly about?: string;
}

/** Limits of a number: `min` and `max` may be reached, `above` may not. */
export interface NumberRule extends Told {
  readonly kind: 'number';
  readonly default: number;
  readonly min?: number;
  readonly above?: number;
  readonly max?: number;
  readonly integer?: boolean;
  /** Parameters of which one at least has to be other than its default, or this one decides nothing. */
  readonly with?: readonly string[];
}

export type ParameterRule =
  | NumberRule
  | (Told & { readonly kind: 'choice'; readonly default: string; readonly names: readonly string[] })
  | (Told & { readonly kind: 'flag'; readonly default: boolean })
  /** A number for each of some names; `names` lists those that may be used, where not every name may. */
  | (Told & {
      readonly kind: 'numbers';
      readonly default: Readonly<Record<string, number>>;
      readonly each: NumberRule;
      readonly names?: readonly string[];
    });

export type ParameterRules = Readonly<Record<string, ParameterRule>>;

/** Limits of a number as a phrase that follows "a number". */
function limitsOf(rule: NumberRule): string {
  const parts: string[] = [];
  if (rule.min !== undefined) parts.push(`of at least ${rule.min}`);
  if (rule.above !== undefined) parts.push(`above ${rule.above}`);
  if (rule.max !== undefined) parts.push(`up to ${rule.max}`);
  const kind = rule.integer === true ? 'an integer' : 'a number';
  return parts.length === 0 ? kind : `${kind} ${parts.join(' and ')}`;
}

function checkNumber(field: string, value: unknown, rule: NumberRule): number {
  const fits =
    typeof value === 'number' &&
    Number.isFinite(value) &&
    (rule.integer !== true || Number.isSafeInteger(value)) &&
    value >= (rule.min ?? -Infinity) &&
    value > (rule.above ?? -Infinity) &&
    value <= (rule.max ?? Infinity);
  if (fits) return value;
  throw configError(field, `is ${JSON.stringify(value)}`, `Give it ${limitsOf(rule)}.`);
}

/** @throws TKV_CONFIG that names the field, and the nearest name where one is near */
export function unknownName(field: string, name: string, known: readonly string[]): Error {
  const nearest = nearestName(name, known) ?? nearestName(name.replaceAll('-', '_'), known);
  const remedy =
    known.length === 0
      ? 'It takes none: leave it out.'
      : nearest === undefined
        ? `Known: ${known.join(', ')}.`
        : `Did you mean ${nearest}?`;
  return configError(field, `is not known (${JSON.stringify(name)})`, remedy);
}

function checkValue(field: string, value: unknown, rule: ParameterRule): ParameterValue {
  switch (rule.kind) {
    case 'number':
      return checkNumber(field, value, rule);
    case 'flag':
      if (typeof value === 'boolean') return value;
      throw configError(field, `is ${JSON.stringify(value)}`, 'Set it to true or false.');
    case 'choice':
      if (typeof value === 'string' && rule.names.includes(value)) return value;
      throw unknownName(field, String(value), rule.names);
    case 'numbers': {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        throw configError(field, `is ${JSON.stringify(value)}`, 'Give it a number for each name.');
      }
      const checked: Record<string, number> = {};
      for (const [name, each] of Object.entries(value)) {
        if (rule.names !== undefined && !rule.names.includes(name)) {
          throw unknownName(`${field}.${name}`, name, rule.names);
        }
        checked[name] = checkNumber(`${field}.${name}`, each, rule.each);
      }
      return checked;
    }
  }
}

/**
 * Values for all parameters: those given, checked, and defaults for the rest.
 * @param stage what the policy is of, for the names of fields
 * @throws TKV_CONFIG naming the parameter that is not known or out of range
 */
export function checkParameters(
  stage: string,
  given: Readonly<Record<string, unknown>>,
  rules: ParameterRules,
): Readonly<Record<string, ParameterValue>> {
  const names = Object.keys(rules);
  for (const name of Object.keys(given)) {
    if (name !== 'policy' && !names.includes(name)) throw unknownName(`${stage}.${name}`, name, names);
  }
  const values: Record<string, ParameterValue> = {};
  for (const name of names) {
    const value = given[name];
    values[name] =
      value === undefined ? rules[name].default : checkValue(`${stage}.${name}`, value, rules[name]);
  }
  return values;
}

/** Checked values by name. The casts hold because `checkParameters` has checked each against its rule. */
export class Parameters {
  readonly #values: Readonly<Record<string, ParameterValue>>;

  constructor(values: Readonly<Record<string, ParameterValue>>) {
    this.#values = values;
  }

  number(name: string): number {
    return this.#values[name] as number;
  }

  text(name: string): string {
    return this.#values[name] as string;
  }

  flag(name: string): boolean {
    return this.#values[name] as boolean;
  }

  numbers(name: string): Readonly<Record<string, number>> {
    return this.#values[name] as Readonly<Record<string, number>>;
  }
}
