/**
 * One registry for the policies of a stage. An entry says all that others must know of a policy: its name, a line about it,
 * its parameters, and what it reads. Names of policies stand in their own file and nowhere else.
 */

import { invariant, unknownName } from '../../runtime/errors.ts';
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

const numberKind = (rule: NumberRule): is.ValueKind<number> =>
  is.that(limitsOf(rule), (value) => {
    const isNumber = rule.integer === true ? Number.isSafeInteger(value) : Number.isFinite(value);
    const number = value as number;
    return (
      isNumber &&
      number >= (rule.min ?? -Infinity) &&
      number > (rule.above ?? -Infinity) &&
      number <= (rule.max ?? Infinity)
    );
  });

function kindOf(rule: ParameterRule): is.ValueKind<ParameterValue> {
  switch (rule.kind) {
    case 'number':
      return numberKind(rule);
    case 'flag':
      return is.flag();
    case 'choice':
      return choiceKind(rule.names);
    case 'numbers':
      return numbersKind(numberKind(rule.each), rule.names);
  }
}

const choiceKind = (names: readonly string[]): is.ValueKind<string> => ({
  read(value, field) {
    if (names.includes(value as string)) return value as string;
    throw unknownName(field, String(value), names);
  },
});

/** Classes and tenants are named by users, who may call one `__proto__`. @param names left out: any */
function numbersKind(each: is.ValueKind<number>, names?: readonly string[]): is.ValueKind<ParameterValue> {
  const numbers = is.byName(each);
  return {
    read(value, field, code) {
      const read = Object.entries(numbers.read(value, field, code));
      const other = names === undefined ? undefined : read.find(([name]) => !names.includes(name))?.[0];
      if (other !== undefined) throw unknownName(`${field}.${other}`, other, names ?? []);
      return Object.fromEntries(read);
    },
  };
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
      value === undefined
        ? rules[name].default
        : kindOf(rules[name]).read(value, `${stage}.${name}`, 'TKV_CONFIG');
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
  /** It is the policy where none is named. */
  readonly isUsual?: true;
  /** It is the one that a deployment's scorers make. */
  readonly isOfScorers?: true;
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

  /** The one policy of the stage that declares the fact. */
  nameOf(fact: 'isUsual' | 'isOfScorers'): string {
    const found = [...this.#entries.values()].filter((entry) => entry[fact] === true);
    invariant(found.length === 1, () => `${found.length} ${this.stage} policies declare ${fact}`);
    return found[0].name;
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
