/**
 * A decision tree ready to be walked: features found, thresholds in place. It calls nothing and allocates
 * nothing.
 */

import type { PolicySlot, TreeComparison, TreeLeaf, TreeNode } from '../bundle/index.ts';
import { slotContracts } from '../bundle/index.ts';
import type { Feature } from '../features/index.ts';

/** Facts by group of features; which facts belong to a group is the slot's matter. */
export type TreeFacts = Readonly<Record<string, unknown>>;

type Walk = (facts: TreeFacts) => TreeLeaf;

function holds(comparison: TreeComparison, a: number, b: number): boolean {
  switch (comparison) {
    case '<':
      return a < b;
    case '<=':
      return a <= b;
    case '>':
      return a > b;
    case '>=':
      return a >= b;
    case '==':
      return a === b;
    case '!=':
      return a !== b;
  }
}

export class DecisionTree {
  /** Features that it compares, as `group.name`, and actions of its leaves. */
  readonly features: readonly string[];
  readonly actions: readonly string[];
  readonly walk: Walk;

  /** @param root as `readTree` returns it */
  constructor(slot: PolicySlot, root: TreeNode) {
    const features = new Set<string>();
    const actions = new Set<string>();
    const compile = (node: TreeNode): Walk => {
      if (!('condition' in node)) {
        actions.add(node.action);
        return () => node;
      }
      const { feature: name, comparison, value } = node.condition;
      features.add(name);
      const [group, field] = name.split('.');
      // facts of a group are those that its features read
      const feature = slotContracts[slot].groups[group][field] as Feature<unknown>;
      const whenTrue = compile(node.trueChild);
      const whenFalse = compile(node.falseChild);
      return (facts) =>
        holds(comparison, Number(feature.read(facts[group])), value) ? whenTrue(facts) : whenFalse(facts);
    };
    this.walk = compile(root);
    this.features = [...features];
    this.actions = [...actions];
  }

  /** Names of the compared features of one group. */
  ofGroup(group: string): string[] {
    return this.features
      .filter((name) => name.startsWith(`${group}.`))
      .map((name) => name.slice(group.length + 1));
  }
}
