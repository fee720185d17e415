/**
 * One registry for the policies of a stage. An entry says all that others must know of a policy: its name, a line about it,
 * its parameters, and what it reads. Names of policies stand in their own file and nowhere else.
 */

import { configError, invariant, unknownName } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
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
  /** A number for each of some names; `names` lists the names that may be used; left out, every name may. */
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
      // classes and tenants are named by users, who may call one `__proto__`
      return Object.fromEntries(
        Object.entries(value).map(([name, each]) => {
          if (rule.names !== undefined && !rule.names.includes(name)) {
            throw unknownName(`${field}.${name}`, name, rule.names);
          }
          return [name, checkNumber(`${field}.${name}`, each, rule.each)];
        }),
      );
    }
  }
}

/**
 * Values for all parameters: those given, checked, and defaults for the rest.
 * @param stage what the policy is of, for the names of fields
 * @throws TKV_CONFIG naming the parameter that is not known or out of range
 */
function checkParameters(
  stage: string,
  given: Readonly<Record<string, unknown>>,
  rules: ParameterRules,
): Readonly<Record<string, ParameterValue>> {
  checkInputs({ stage, given, rules }, { stage: is.text(), given: is.object(), rules: is.object() });
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

//  Entries and the registry of a stage. A new policy is a file with its entry, and a place in the stage's list.

/** A fact about a policy, which may depend on its parameters. */
type Declared = boolean | ((parameters: PolicyParameters) => boolean);

export interface PolicyEntry<P, World = PolicyWorld> {
  readonly name: string;
  /** One line for people who choose. */
  readonly about: string;
  readonly parameters: ParameterRules;
  /** Whether it looks at the block keys of prompts, itself or by asking what is cached where. */
  readonly readsKeys: Declared;
  /** Whether it goes by what instances report, which is as old as the last report. */
  readonly readsReports: Declared;
  make(parameters: PolicyParameters, world: World): P;
}

export class Registry<P, World = PolicyWorld, Entry extends PolicyEntry<P, World> = PolicyEntry<P, World>> {
  /** The stage of the policies: `admission`, `routing`, ...; the first part of a field's name. */
  readonly stage: string;
  /** In the order in which they are listed. */
  readonly names: readonly string[];
  readonly #entries: ReadonlyMap<string, Entry>;

  constructor(stage: string, entries: readonly Entry[]) {
    checkInputs({ stage, entries }, { stage: is.text(), entries: is.array() });
    this.stage = stage;
    this.#entries = new Map(entries.map((entry) => [entry.name, entry]));
    this.names = [...this.#entries.keys()];
    invariant(this.names.length === entries.length, () => `a name is given twice among ${stage} policies`);
  }

  /** @throws TKV_CONFIG naming the policy that is not known */
  entry(name: string): Entry {
    const entry = this.#entries.get(name);
    if (entry === undefined) throw unknownName(`${this.stage}.policy`, name, this.names);
    return entry;
  }

  /** Its parameters with their rules, and a line about it: what users are shown. */
  describe(name: string): Pick<PolicyEntry<P>, 'about' | 'parameters'> {
    const { about, parameters } = this.entry(name);
    return { about, parameters };
  }

  /**
   * The choice with all parameters, as a record of a run names it.
   * @throws TKV_CONFIG naming the policy or parameter that is not known or out of range
   */
  resolve(choice: PolicyChoice): PolicyChoice {
    const { parameters } = this.entry(choice.policy);
    return { policy: choice.policy, ...checkParameters(this.stage, choice, parameters) };
  }

  /** @throws TKV_CONFIG as `resolve` does */
  make(choice: PolicyChoice, world: World): P {
    return this.entry(choice.policy).make(this.#parametersOf(choice), world);
  }

  /** @throws TKV_CONFIG as `resolve` does */
  readsKeys(choice: PolicyChoice): boolean {
    return this.#declared(choice, this.entry(choice.policy).readsKeys);
  }

  /** @throws TKV_CONFIG as `resolve` does */
  readsReports(choice: PolicyChoice): boolean {
    return this.#declared(choice, this.entry(choice.policy).readsReports);
  }

  #declared(choice: PolicyChoice, fact: Declared): boolean {
    return typeof fact === 'boolean' ? fact : fact(this.#parametersOf(choice));
  }

  #parametersOf(choice: PolicyChoice): PolicyParameters {
    return new PolicyParameters(checkParameters(this.stage, choice, this.entry(choice.policy).parameters));
  }
}
