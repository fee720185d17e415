import { expect, it } from 'vitest';
import type { TreeBranch, TreeNode } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import {
  crossTrees,
  depthOf,
  isBranch,
  mutateTree,
  nodesOf,
  replaceNode,
  type TreeVocabulary,
} from '../../../src/policy/evolve/search/trees.ts';
import { GoRandom } from '../../../src/sim/random/goRand.ts';

const vocabulary: TreeVocabulary = {
  features: [
    { name: 'load', min: 0, max: 10 },
    { name: 'kv', min: 0, max: 1 },
  ],
  actions: [{ name: 'admit' }, { name: 'reject' }, { name: 'delay', min: 1, max: 1000 }],
};

const root: TreeBranch = {
  condition: { feature: 'load', comparison: '>', value: 5 },
  trueChild: { action: 'delay', value: 100 },
  falseChild: {
    condition: { feature: 'kv', comparison: '<', value: 0.9 },
    trueChild: { action: 'admit' },
    falseChild: { action: 'reject' },
  },
};

it('children stay within the vocabulary, its ranges and the greatest depth', () => {
  const random = new GoRandom(4n);
  let tree: TreeNode = root;
  const seen = new Set<string>();
  for (let i = 0; i < 500; i++) {
    const child = mutateTree(tree, vocabulary, random);
    if (child === undefined) throw new Error('nothing to change');
    expect(child.root).not.toEqual(tree);
    expect(depthOf(child.root)).toBeLessThanOrEqual(8);
    for (const node of nodesOf(child.root)) {
      if (isBranch(node)) {
        const range = vocabulary.features.find(({ name }) => name === node.condition.feature);
        expect(node.condition.value).toBeGreaterThanOrEqual(range?.min ?? Infinity);
        expect(node.condition.value).toBeLessThanOrEqual(range?.max ?? -Infinity);
      } else {
        expect(node.value !== undefined).toBe(node.action === 'delay');
      }
    }
    seen.add(JSON.stringify(child.root));
    tree = child.root;
  }
  expect(seen.size).toBeGreaterThan(300);
});

it('a node is replaced by its number in the order of the nodes', () => {
  const marker: TreeNode = { action: 'marker' };
  nodesOf(root).forEach((_, at) => {
    expect(nodesOf(replaceNode(root, at, marker))[at]).toBe(marker);
  });
});

it('crossover takes a part of the other tree', () => {
  const other: TreeNode = {
    condition: { feature: 'kv', comparison: '>=', value: 0.25 },
    trueChild: { action: 'delay', value: 7 },
    falseChild: { action: 'delay', value: 8 },
  };
  const random = new GoRandom(4n);
  for (let i = 0; i < 50; i++) {
    const child = crossTrees(root, other, random);
    expect(JSON.stringify(child?.root)).toMatch(/0\.25|"value":[78]\b/);
  }
});
