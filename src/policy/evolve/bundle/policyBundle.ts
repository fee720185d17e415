/**
 * A policy bundle: all policies of a deployment as plain data. A slot holds a named policy with its parameters, a program, or
 * a decision tree. A slot that is left out keeps the built-in default.
 */

import type { ParameterValue } from '../../../sim/control/policy.ts';
import type { PolicyLanguage } from '../../sandbox/program.ts';

/** Decisions that a bundle can have a policy for. */
export const policySlots = [
  'admission',
  'priority',
  'routing',
  'instanceScheduler',
  'autoScale',
  'eviction',
] as const;

/** A place of a bundle that a policy fills, such as `routing`. */
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

/** Compares a feature with a number; the result selects one of two nodes. */
export interface TreeBranch {
  readonly condition: {
    readonly feature: string;
    readonly comparison: TreeComparison;
    readonly value: number;
  };
  readonly trueChild: TreeNode;
  readonly falseChild: TreeNode;
}

/** An action of the slot, with a number where the action takes one. */
export interface TreeLeaf {
  readonly action: string;
  readonly value?: number;
}

export type TreeNode = TreeBranch | TreeLeaf;

/** A policy that is a tree of comparisons. */
export interface DecisionTreePolicy {
  readonly type: 'decisionTree';
  readonly root: TreeNode;
  /** Decision of the slot that the tree takes, where the slot has several; default: the first. */
  readonly entrypoint?: string;
}

/** One policy of a bundle: a named one with numbers, a decision tree or a program. */
export type PolicySpec = ParameterizedPolicy | CodePolicy | DecisionTreePolicy;

/** All policies of a deployment as plain data, by slot. */
export interface PolicyBundle extends Readonly<Partial<Record<PolicySlot, PolicySpec>>> {
  readonly name?: string;
  /** Number of generations from the bundle that the search began with. */
  readonly generation?: number;
  /** Content hash of its parent. */
  readonly parentId?: string;
  /** Changes from the parent, a line each. */
  readonly mutations?: readonly string[];
}
