/** Reads bundles from JSON. An error names the field, its value, and the remedy. */

import { maxJsonValues, parseJson } from '../../../runtime/boundedJson.ts';
import { configError, TierKVError, unknownName } from '../../../runtime/errors.ts';
import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { shown as shownShort } from '../../../sim/workload/traceLines.ts';
import {
  type CodePolicy,
  type DecisionTreePolicy,
  type ParameterizedPolicy,
  type PolicyBundle,
  type PolicySlot,
  type PolicySpec,
  policySlots,
  type TreeBranch,
  type TreeComparison,
  type TreeLeaf,
  type TreeNode,
} from './policyBundle.ts';
import { slotContracts, treeFeatures } from './slots.ts';

/** Limits on what a bundle may be; search stays far below them. */
export const bundleLimits = {
  sourceCharacters: 200_000,
  treeNodes: 4096,
  treeDepth: 64,
  mutations: 1000,
} as const;

type BundleFields = Readonly<Record<string, unknown>>;

/** An object with no other names than these. */
const named = (known: readonly string[]): is.ValueKind<BundleFields> => ({
  read(value, field, code) {
    const fields = is.object<BundleFields>().read(value, field, code);
    for (const key of Object.keys(fields)) {
      if (!known.includes(key)) throw unknownName(field === 'bundle' ? key : `${field}.${key}`, key, known);
    }
    return fields;
  },
});
const fieldsOf = (field: string, fields: unknown, known: readonly string[]): BundleFields =>
  named(known).read(fields, field, 'TKV_CONFIG');

function shown(value: unknown): string {
  let text: string;
  try {
    text = JSON.stringify(value) ?? String(value);
  } catch {
    text = shownShort(value); // nested beyond measure, or no JSON at all
  }
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** The error for a missing field. */
function missing(field: string, known: readonly string[]): Error {
  return configError(field, 'is missing', `Set it to ${quoted(known)}.`);
}

function quoted(names: readonly string[]): string {
  const texts = names.map((name) => JSON.stringify(name));
  return texts.length === 1 ? texts[0] : `${texts.slice(0, -1).join(', ')} or ${texts[texts.length - 1]}`;
}

//  Bundles and slots.

const languages = ['starlark', 'wasm', 'javascript'] as const;
const bundleKeys = [...policySlots, 'name', 'generation', 'parentId', 'mutations'];

const finite = is.that<number>('a finite number', Number.isFinite);
const mutationList = is.list(is.text(), 'Give it a list of up to 1000 texts.');

/**
 * Reads and checks a policy bundle that is written as JSON.
 * @throws TKV_INPUT where it is not JSON, TKV_CONFIG with the field at fault
 */
export function parseBundle(json: string, path: string = 'bundle'): PolicyBundle {
  checkInputs({ json, path }, { json: is.text(), path: is.optional(is.name()) });
  const error = (problem: string): TierKVError =>
    new TierKVError('TKV_INPUT', `${path} ${problem}. Correct it there.`, { path });
  return readBundle(parseJson(json, error, maxJsonValues, 'is not JSON'));
}

/** @throws TKV_CONFIG with the field at fault, and for a bundle without any slot */
export function readBundle(value: unknown): PolicyBundle {
  const fields = fieldsOf('bundle', value, bundleKeys);
  const slots: Partial<Record<PolicySlot, PolicySpec>> = {};
  for (const slot of policySlots) {
    if (fields[slot] !== undefined) slots[slot] = readSpec(slot, fields[slot]);
  }
  const { name, generation, parentId, mutations } = fields;
  if (Array.isArray(mutations) && mutations.length > bundleLimits.mutations) {
    throw configError('mutations', `are ${mutations.length}`, 'Give it a list of up to 1000 texts.');
  }
  const bundle: PolicyBundle = {
    ...slots,
    ...(name === undefined ? {} : { name: is.text().read(name, 'name', 'TKV_CONFIG') }),
    ...(generation === undefined ? {} : { generation: is.integer(0).read(generation, 'generation') }),
    ...(parentId === undefined ? {} : { parentId: is.text().read(parentId, 'parentId', 'TKV_CONFIG') }),
    ...(mutations === undefined
      ? {}
      : { mutations: mutationList.read(mutations, 'mutations', 'TKV_CONFIG') }),
  };
  if (Object.keys(slots).length === 0) {
    const remedy = `Give it one or more of ${policySlots.join(', ')}.`;
    throw configError('bundle', 'holds no slot, so it decides nothing', remedy);
  }
  return bundle;
}

function readSpec(slot: PolicySlot, value: unknown): PolicySpec {
  const accepted =
    slotContracts[slot].functions.length === 0
      ? (['parameterized'] as const)
      : (['parameterized', 'code', 'decisionTree'] as const);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    const template = typeof value === 'string' ? value : 'name';
    const remedy = `Give it {"type": "parameterized", "template": ${shown(template)}} or another type.`;
    throw configError(slot, `is ${shown(value)}, not an object`, remedy);
  }
  const { type } = value as BundleFields;
  const found = accepted.find((name) => name === type);
  switch (found) {
    case 'parameterized':
      return readParameters(slot, value);
    case 'code':
      return readCode(slot, value);
    case 'decisionTree':
      return readTreePolicy(slot, value);
    default: {
      const problem = type === undefined ? 'is missing' : `is ${shown(type)}`;
      throw configError(`${slot}.type`, problem, `Set it to ${quoted(accepted)}.`);
    }
  }
}

function readTreePolicy(slot: PolicySlot, value: unknown): DecisionTreePolicy {
  const { functions, takesSeveral } = slotContracts[slot];
  const known = takesSeveral === true ? ['type', 'root', 'entrypoint'] : ['type', 'root'];
  const fields = fieldsOf(slot, value, known);
  const root = readTree(slot, fields.root);
  if (fields.entrypoint === undefined) return { type: 'decisionTree', root };
  const names = functions.map(({ name }) => name);
  const entrypoint = is.text().read(fields.entrypoint, `${slot}.entrypoint`, 'TKV_CONFIG');
  if (!names.includes(entrypoint)) throw unknownName(`${slot}.entrypoint`, entrypoint, names);
  return { type: 'decisionTree', root, entrypoint };
}

function readParameters(slot: PolicySlot, value: unknown): ParameterizedPolicy {
  const { template, parameters = {} } = fieldsOf(slot, value, ['type', 'template', 'parameters']);
  const { templates } = slotContracts[slot];
  if (template === undefined) throw missing(`${slot}.template`, templates.names);
  if (typeof template !== 'string' || !templates.names.includes(template)) {
    throw unknownName(`${slot}.template`, String(template), templates.names);
  }
  const given = fieldsOf(
    `${slot}.parameters`,
    parameters,
    Object.keys(templates.describe(template).parameters),
  ) as ParameterizedPolicy['parameters'];
  templates.resolve({ ...given, policy: template });
  return { type: 'parameterized', template, parameters: given };
}

function readCode(slot: PolicySlot, value: unknown): CodePolicy {
  const fields = fieldsOf(slot, value, ['type', 'language', 'source', 'entrypoint']);
  if (fields.language === undefined) throw missing(`${slot}.language`, languages);
  const language = languages.find((name) => name === fields.language);
  if (language === undefined) throw unknownName(`${slot}.language`, String(fields.language), languages);
  const source = is.text().read(fields.source, `${slot}.source`, 'TKV_CONFIG');
  if (source.length > bundleLimits.sourceCharacters) {
    const remedy = `Keep it to ${bundleLimits.sourceCharacters}.`;
    throw configError(`${slot}.source`, `has ${source.length} characters`, remedy);
  }
  const { entrypoint } = fields;
  return {
    type: 'code',
    language,
    source,
    ...(entrypoint === undefined
      ? {}
      : { entrypoint: is.text().read(entrypoint, `${slot}.entrypoint`, 'TKV_CONFIG') }),
  };
}

//  Decision trees: features and actions must be those of the slot, numbers must be finite.

export const treeComparisons: readonly TreeComparison[] = ['<', '<=', '>', '>=', '==', '!='];

/** @throws TKV_CONFIG with the path of the node at fault */
function readTree(slot: PolicySlot, value: unknown): TreeNode {
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
  return { feature, comparison, value: finite.read(fields.value, `${field}.value`, 'TKV_CONFIG') };
}

/** The error for an unknown feature. The usual mistakes are a feature without its group, and a feature that is text. */
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
  const amount = finite.read(value, `${field}.value`, 'TKV_CONFIG');
  if (rule.unit === 'µs' && amount < 0) {
    const remedy = `The action ${action} takes µs of at least 0.`;
    throw configError(`${field}.value`, `is ${shown(value)}`, remedy);
  }
  return { action, value: amount };
}
