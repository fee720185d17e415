/** Reading decision trees: every feature and action is one of the slot, every number is finite. */

import { configError } from '../../../runtime/errors.ts';
import { unknownName } from '../../../sim/control/index.ts';
import type { PolicySlot, TreeBranch, TreeComparison, TreeLeaf, TreeNode } from '../policyBundle.ts';
import { slotContracts, treeFeatures } from '../slots.ts';
import { bundleLimits, fieldsOf, missing, quoted, shown } from './fields.ts';

export const treeComparisons: readonly TreeComparison[] = ['<', '<=', '>', '>=', '==', '!='];

/** @throws TKV_CONFIG with the path of the node at fault */
export function readTree(slot: PolicySlot, value: unknown): TreeNode {
  const features = treeFeatures(slot);
  let nodes = 0;
  const read = (field: string, node: unknown, depth: number): TreeNode => {
    if (++nodes > bundleLimits.treeNodes || depth > bundleLimits.treeDepth) {
      const { treeNodes, treeDepth } = bundleLimits;
      throw configError(
        `${slot}.root`,
        depth > treeDepth ? `is more than ${treeDepth} deep` : `has more than ${treeNodes} nodes`,
        `Keep to ${treeNodes} nodes, ${treeDepth} deep.`,
      );
    }
    const isBranch = typeof node === 'object' && node !== null && 'condition' in node;
    if (!isBranch) return readLeaf(slot, field, node);
    const fields = fieldsOf(field, node, ['condition', 'trueChild', 'falseChild']);
    return {
      condition: readCondition(slot, `${field}.condition`, fields.condition, features),
      trueChild: read(`${field}.trueChild`, fields.trueChild, depth + 1),
      falseChild: read(`${field}.falseChild`, fields.falseChild, depth + 1),
    };
  };
  return read(`${slot}.root`, value, 0);
}

function readCondition(
  slot: PolicySlot,
  field: string,
  value: unknown,
  features: readonly string[],
): TreeBranch['condition'] {
  const fields = fieldsOf(field, value, ['feature', 'comparison', 'value']);
  const { feature } = fields;
  if (feature === undefined) throw missing(`${field}.feature`, features);
  if (typeof feature !== 'string' || !features.includes(feature)) {
    throw unknownFeature(slot, `${field}.feature`, String(feature), features);
  }
  const comparison = treeComparisons.find((each) => each === fields.comparison);
  if (comparison === undefined) {
    throw configError(
      `${field}.comparison`,
      `is ${shown(fields.comparison)}`,
      `Use one of ${treeComparisons.join(' ')}.`,
    );
  }
  return { feature, comparison, value: finite(`${field}.value`, fields.value) };
}

/** A feature without its group is the most frequent mistake, and a text the second. */
function unknownFeature(
  slot: PolicySlot,
  field: string,
  feature: string,
  features: readonly string[],
): Error {
  const last = feature.slice(feature.lastIndexOf('.') + 1);
  const same = features.filter((name) => name.endsWith(`.${last}`));
  if (same.length > 0) return configError(field, `is ${shown(feature)}`, `Write ${quoted(same)}.`);
  const { groups } = slotContracts[slot];
  if (Object.values(groups).some((group) => group[last]?.kind === 'text')) {
    const remedy = 'A tree compares numbers: take request.classPriority for a class, or write a program.';
    return configError(field, `is ${shown(feature)}, a text`, remedy);
  }
  return unknownName(field, feature, features);
}

function readLeaf(slot: PolicySlot, field: string, node: unknown): TreeLeaf {
  const { action, value } = fieldsOf(field, node, ['action', 'value']);
  const { actions } = slotContracts[slot];
  if (action === undefined) throw missing(`${field}.action`, Object.keys(actions));
  if (typeof action !== 'string' || !Object.hasOwn(actions, action)) {
    throw unknownName(`${field}.action`, String(action), Object.keys(actions));
  }
  const rule = actions[action];
  if (value === undefined) {
    if (rule.value !== 'required') return { action };
    throw configError(`${field}.value`, 'is missing', `The action ${action} takes a number (${rule.unit}).`);
  }
  if (rule.value === 'none') {
    throw configError(
      `${field}.value`,
      `is ${shown(value)}`,
      `The action ${action} takes none: leave it out.`,
    );
  }
  const amount = finite(`${field}.value`, value);
  if (rule.unit === 'µs' && amount < 0) {
    const remedy = `The action ${action} takes µs of at least 0.`;
    throw configError(`${field}.value`, `is ${shown(value)}`, remedy);
  }
  return { action, value: amount };
}

function finite(field: string, value: unknown): number {
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw configError(field, `is ${shown(value)}`, 'Give it a finite number.');
}
