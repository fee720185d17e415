/** The policies of one stage by name. A new one is a file beside the others and a line in their registry. */

import type { ParameterValue, PolicyChoice, PolicyWorld } from '../policy.ts';
import { checkParameters, type ParameterRules, Parameters, unknownName } from './parameters.ts';

export interface PolicyEntry<P> {
  /** One line for people who choose. */
  readonly about: string;
  readonly parameters: ParameterRules;
  make(parameters: Parameters, world: PolicyWorld): P;
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
    return this.#entry(choice.policy).make(new Parameters(resolved), world);
  }

  #entry(name: string): PolicyEntry<P> {
    if (!this.names.includes(name)) throw unknownName(`${this.stage}.policy`, name, this.names);
    return this.#entries[name];
  }
}
