/**
 * Children of decision trees: a threshold moved, a feature or a comparison exchanged, a leaf split, a
 * branch cut, children swapped, or a part of one tree put into another (J. Koza's subtree crossover). A
 * child has features and actions of its slot only.
 */

import type { GoRandom } from '../../../sim/random/goRand.ts';
import type { TreeBranch, TreeComparison, TreeLeaf, TreeNode } from '../bundle/policyBundle.ts';

interface TreeChild {
  readonly root: TreeNode;
  readonly changes: readonly string[];
}

const DEPTH_MAX = 8;
const TRIES = 24;
const comparisons: readonly TreeComparison[] = ['<', '<=', '>', '>='];

export function isBranch(node: TreeNode): node is TreeBranch {
  return 'condition' in node;
}

/** All nodes, each before its children. */
export function nodesOf(root: TreeNode): TreeNode[] {
  if (!isBranch(root)) return [root];
  return [root, ...nodesOf(root.trueChild), ...nodesOf(root.falseChild)];
}

export function depthOf(node: TreeNode): number {
  return isBranch(node) ? 1 + Math.max(depthOf(node.trueChild), depthOf(node.falseChild)) : 1;
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

function pick<T>(items: readonly T[], random: GoRandom): T {
  return items[random.intn(items.length)];
}

function drawWithin(min: number, max: number, random: GoRandom): number {
  return Number((min + (max - min) * random.float64()).toPrecision(4));
}

function moveWithin(value: number, min: number, max: number, random: GoRandom): number {
  const moved = value + 0.15 * (max - min) * random.normFloat64();
  return Number(Math.min(max, Math.max(min, moved)).toPrecision(4));
}

function drawLeaf({ actions }: TreeVocabulary, random: GoRandom): TreeLeaf {
  const { name, min, max } = pick(actions, random);
  if (min === undefined || max === undefined) return { action: name };
  return { action: name, value: drawWithin(min, max, random) };
}

function drawCondition({ features }: TreeVocabulary, random: GoRandom): TreeBranch['condition'] {
  const { name, min, max } = pick(features, random);
  return { feature: name, comparison: pick(comparisons, random), value: drawWithin(min, max, random) };
}

type Change = readonly [node: TreeNode, about: string];

function conditionText({ feature, comparison, value }: TreeBranch['condition']): string {
  return `${feature} ${comparison} ${value}`;
}

function leafText({ action, value }: TreeLeaf): string {
  return value === undefined ? action : `${action} ${value}`;
}

function changeBranch(node: TreeBranch, vocabulary: TreeVocabulary, random: GoRandom): Change {
  const { condition, trueChild, falseChild } = node;
  switch (random.intn(6)) {
    case 0:
    case 1: {
      const range = vocabulary.features.find(({ name }) => name === condition.feature);
      const { min = condition.value / 2, max = condition.value * 2 } = range ?? {};
      const moved = { ...condition, value: moveWithin(condition.value, min, max, random) };
      return [{ ...node, condition: moved }, `${conditionText(condition)} becomes ${conditionText(moved)}`];
    }
    case 2: {
      const drawn = drawCondition(vocabulary, random);
      return [{ ...node, condition: drawn }, `${conditionText(condition)} becomes ${conditionText(drawn)}`];
    }
    case 3: {
      const comparison = pick(comparisons, random);
      const turned = { ...condition, comparison };
      return [{ ...node, condition: turned }, `${conditionText(condition)} becomes ${conditionText(turned)}`];
    }
    case 4:
      return [
        { condition, trueChild: falseChild, falseChild: trueChild },
        `sides of ${conditionText(condition)} swapped`,
      ];
    default:
      return [random.intn(2) === 0 ? trueChild : falseChild, `${conditionText(condition)} is asked no more`];
  }
}

function changeLeaf(node: TreeLeaf, vocabulary: TreeVocabulary, random: GoRandom): Change {
  const { min, max } = vocabulary.actions.find(({ name }) => name === node.action) ?? {};
  const kind = random.intn(4);
  if (kind === 0 && node.value !== undefined && min !== undefined && max !== undefined) {
    const moved = { ...node, value: moveWithin(node.value, min, max, random) };
    return [moved, `${leafText(node)} becomes ${leafText(moved)}`];
  }
  const drawn = drawLeaf(vocabulary, random);
  if (kind <= 1) return [drawn, `${leafText(node)} becomes ${leafText(drawn)}`];
  const condition = drawCondition(vocabulary, random);
  const swap = random.intn(2) === 0;
  const split = { condition, trueChild: swap ? drawn : node, falseChild: swap ? node : drawn };
  return [split, `${leafText(node)} asks ${conditionText(condition)}`];
}

/** The tree with one node changed; undefined where none of some tries changes it. */
function changeOne(
  root: TreeNode,
  random: GoRandom,
  change: (node: TreeNode) => Change,
): TreeChild | undefined {
  const nodes = nodesOf(root);
  for (let tries = 0; tries < TRIES; tries++) {
    const at = random.intn(nodes.length);
    const [changed, about] = change(nodes[at]);
    const child = replaceNode(root, at, changed);
    if (depthOf(child) > DEPTH_MAX || JSON.stringify(child) === JSON.stringify(root)) continue;
    return { root: child, changes: [about] };
  }
  return undefined;
}

/** A child of one tree. */
export function mutateTree(
  root: TreeNode,
  vocabulary: TreeVocabulary,
  random: GoRandom,
): TreeChild | undefined {
  return changeOne(root, random, (node) =>
    isBranch(node) ? changeBranch(node, vocabulary, random) : changeLeaf(node, vocabulary, random),
  );
}

/** A child of two trees: a part of the second in the place of a part of the first. */
export function crossTrees(root: TreeNode, other: TreeNode, random: GoRandom): TreeChild | undefined {
  const donors = nodesOf(other);
  return changeOne(root, random, () => [pick(donors, random), 'a part of the other parent']);
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
