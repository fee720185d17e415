/** Decision trees as the search sees them: their nodes, and the features and actions of a slot's trees. */

import type { TreeBranch, TreeNode } from '../bundle/policyBundle.ts';

export function isBranch(node: TreeNode): node is TreeBranch {
  return 'condition' in node;
}

/** All nodes, each before its children. */
export function nodesOf(root: TreeNode): TreeNode[] {
  if (!isBranch(root)) return [root];
  return [root, ...nodesOf(root.trueChild), ...nodesOf(root.falseChild)];
}

/** The tree with the node number `at`, in the order of `nodesOf`, replaced. */
export function replaceNode(root: TreeNode, at: number, replacement: TreeNode): TreeNode {
  if (at === 0) return replacement;
  if (!isBranch(root)) return root;
  const size = nodesOf(root.trueChild).length;
  return at <= size
    ? { ...root, trueChild: replaceNode(root.trueChild, at - 1, replacement) }
    : { ...root, falseChild: replaceNode(root.falseChild, at - 1 - size, replacement) };
}

// Features and actions of a slot's decision trees. The search uses these alone.

export interface TreeFeature {
  readonly name: string;
  /** Range in which thresholds are drawn. */
  readonly min: number;
  readonly max: number;
}

export interface TreeAction {
  readonly name: string;
  /** Range of the action's number; an action without a range takes no number. */
  readonly min?: number;
  readonly max?: number;
}

export interface TreeVocabulary {
  readonly features: readonly TreeFeature[];
  readonly actions: readonly TreeAction[];
}
