/** Parameters of policies: what each may be, and values that were checked against it. */

import { configError, nearestName } from '../../runtime/errors.ts';
import type { ParameterValue, PolicyChoice, PolicyWorld } from './policy.ts';

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
export class PolicyParameters {
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

//  The policies of one stage by name. A new one is a file beside the others and a line in their registry.

export interface PolicyEntry<P> {
  /** One line for people who choose. */
  readonly about: string;
  readonly parameters: ParameterRules;
  make(parameters: PolicyParameters, world: PolicyWorld): P;
}

export class PolicyRegistry<P> {
  /** What the policies are of: `admission`, `routing`, ...; the first part of a field's name. */
  readonly stage: string;
  readonly names: readonly string[];
  readonly #entries: Readonly<Record<string, PolicyEntry<P>>>;

  constructor(stage: string, entries: Readonly<Record<string, PolicyEntry<P>>>) {
    this.stage = stage;
    this.names = Object.keys(entries);
    this.#entries = entries;
  }

  /** Its parameters with their rules, and a line about it. */
  describe(name: string): Pick<PolicyEntry<P>, 'about' | 'parameters'> {
    return this.#entry(name);
  }

  /**
   * The choice with all parameters, as a record of a run names it.
   * @throws TKV_CONFIG naming the policy or parameter that is not known or out of range
   */
  resolve(choice: PolicyChoice): PolicyChoice {
    const entry = this.#entry(choice.policy);
    return { policy: choice.policy, ...checkParameters(this.stage, choice, entry.parameters) };
  }

  /** @throws TKV_CONFIG as `resolve` does */
  make(choice: PolicyChoice, world: PolicyWorld): P {
    const resolved: Readonly<Record<string, ParameterValue>> = this.resolve(choice);
    return this.#entry(choice.policy).make(new PolicyParameters(resolved), world);
  }

  #entry(name: string): PolicyEntry<P> {
    if (!this.names.includes(name)) throw unknownName(`${this.stage}.policy`, name, this.names);
    return this.#entries[name];
  }
}
