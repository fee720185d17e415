/**
 * A policy bundle: all that a deployment decides by, as plain data. A slot that is left out keeps the
 * built-in default. What is in a slot is numbers for a named policy, a program, or a decision tree.
 */

import type { PolicyLanguage } from '../../sandbox/program.ts';
import type { ParameterValue } from '../../sim/control/policy.ts';

/** Decisions that a bundle can take over. */
export const policySlots = [
  'admission',
  'priority',
  'routing',
  'instanceScheduler',
  'autoScale',
  'eviction',
] as const;

export type PolicySlot = (typeof policySlots)[number];

/** A named policy of the catalogue with its numbers; those left out take their defaults. */
export interface ParameterizedPolicy {
  readonly type: 'parameterized';
  readonly template: string;
  readonly parameters: Readonly<Record<string, ParameterValue>>;
}

/** A program that runs in a sandbox. */
export interface CodePolicy {
  readonly type: 'code';
  readonly language: PolicyLanguage;
  /** Text of the program; of a WASM module its bytes in base64. */
  readonly source: string;
  /** Function that decides; default: the functions named after the slot's decisions. */
  readonly entrypoint?: string;
}

export type TreeComparison = '<' | '<=' | '>' | '>=' | '==' | '!=';

/** Compares a feature of the decision with a number, and goes to one of two nodes. */
export interface TreeBranch {
  readonly condition: {
    readonly feature: string;
    readonly comparison: TreeComparison;
    readonly value: number;
  };
  readonly trueChild: TreeNode;
  readonly falseChild: TreeNode;
}

/** What the slot does here: an action of the slot, and a number where it takes one. */
export interface TreeLeaf {
  readonly action: string;
  readonly value?: number;
}

export type TreeNode = TreeBranch | TreeLeaf;

export interface DecisionTreePolicy {
  readonly type: 'decisionTree';
  readonly root: TreeNode;
  /** Which decision of the slot it takes, where the slot has several; default: the first. */
  readonly entrypoint?: string;
}

export type PolicySpec = ParameterizedPolicy | CodePolicy | DecisionTreePolicy;

export interface PolicyBundle extends Readonly<Partial<Record<PolicySlot, PolicySpec>>> {
  readonly name?: string;
  /** Generations of search that lie between it and the one it began with. */
  readonly generation?: number;
  /** Content hash of the bundle that it was made from. */
  readonly parentId?: string;
  /** What was changed in its parent, a line each. */
  readonly mutations?: readonly string[];
}
