/**
 * A policy's program, whatever its language: it is read once, and each instance of it decides by calls within
 * a budget. What an instance remembers from call to call is plain data that can be taken out and put back, so
 * that a simulation can be forked and repeated.
 */

import type { Stateful } from '../control/policy.ts';
import type { InputTable, Signature } from './calls/index.ts';
import type { Budget } from './meter.ts';

export const policyLanguages = ['starlark', 'wasm', 'javascript'] as const;

export type PolicyLanguage = (typeof policyLanguages)[number];

export interface PolicyProgram {
  readonly language: PolicyLanguage;
  /**
   * A new instance with the memory of a program that was never called. What the program does when it is
   * loaded happens within the budget of one call.
   *
   * @throws PolicyError contract, step_limit, memory_limit, policy_runtime
   */
  instantiate(budget?: Budget): PolicyInstance;
}

export interface PolicyInstance extends Stateful {
  /** Whether the program has a function of that name. */
  has(name: string): boolean;
  /**
   * The function of that signature, ready to be called.
   *
   * @throws PolicyError contract where the program lacks it or has it otherwise; memory_limit
   */
  bind(signature: Signature): PolicyFunction;
  /** Of the last call, in the language's own steps. */
  readonly stepsUsed: number;
  /** Units: what the last call allocated in Starlark, all that the instance has in the other languages. */
  readonly memoryUsed: number;
}

export interface PolicyFunction {
  readonly signature: Signature;
  /** A table for each input of the signature. The host fills them before each call. */
  readonly inputs: readonly InputTable[];
  /** Whether the program can see that field of an input. What it cannot see need not be filled in. */
  reads(input: string, field: string): boolean;
  /**
   * Decides on what the tables hold, within a new budget. After an error the instance can be called again.
   *
   * @returns `number`, `index`: it stands first. `choice`: the place of its name, then its amount or 0.
   *   `numbers`: one for each record. The array holds until the next call.
   * @throws PolicyError step_limit, memory_limit, policy_runtime, invalid_decision
   */
  call(): Float64Array;
}
