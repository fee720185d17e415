/**
 * Reading bundles from JSON, checked field by field: an error names the field, what it is, and the remedy.
 */

import { maxJsonValues, parseJson } from '../../../runtime/boundedJson.ts';
import { configError, TierKVError } from '../../../runtime/errors.ts';
import { unknownName } from '../../../sim/control/index.ts';
import {
  type CodePolicy,
  type DecisionTreePolicy,
  type ParameterizedPolicy,
  type PolicyBundle,
  type PolicySlot,
  type PolicySpec,
  policySlots,
} from '../policyBundle.ts';
import { slotContracts } from '../slots.ts';
import { bundleLimits, type Fields, fieldsOf, missing, quoted, shown } from './fields.ts';
import { readTree } from './readTree.ts';

const languages = ['starlark', 'wasm', 'javascript'] as const;
const bundleKeys = [...policySlots, 'name', 'generation', 'parentId', 'mutations'];

function text(field: string, value: unknown): string {
  if (typeof value === 'string') return value;
  throw configError(field, `is ${shown(value)}`, 'Give it a text.');
}

/**
 * The bundle of a JSON text.
 * @throws TKV_INPUT where it is no JSON, TKV_CONFIG with the field at fault
 */
export function parseBundle(json: string, path: string = 'bundle'): PolicyBundle {
  const error = (problem: string): TierKVError =>
    new TierKVError('TKV_INPUT', `${path} ${problem}. Correct it there.`, { path });
  return readBundle(parseJson(json, error, maxJsonValues, 'is no JSON'));
}

/** @throws TKV_CONFIG with the field at fault, and for a bundle without any slot */
export function readBundle(value: unknown): PolicyBundle {
  const fields = fieldsOf('bundle', value, bundleKeys);
  const slots: Partial<Record<PolicySlot, PolicySpec>> = {};
  for (const slot of policySlots) {
    if (fields[slot] !== undefined) slots[slot] = readSpec(slot, fields[slot]);
  }
  const { name, generation, parentId, mutations } = fields;
  if (generation !== undefined && !(Number.isSafeInteger(generation) && Number(generation) >= 0)) {
    throw configError('generation', `is ${shown(generation)}`, 'Give it an integer of at least 0.');
  }
  if (mutations !== undefined && !(Array.isArray(mutations) && mutations.length <= bundleLimits.mutations)) {
    throw configError('mutations', `is ${shown(mutations)}`, 'Give it a list of up to 1000 texts.');
  }
  const bundle: PolicyBundle = {
    ...slots,
    ...(name === undefined ? {} : { name: text('name', name) }),
    ...(generation === undefined ? {} : { generation: Number(generation) }),
    ...(parentId === undefined ? {} : { parentId: text('parentId', parentId) }),
    ...(mutations === undefined
      ? {}
      : { mutations: (mutations as unknown[]).map((each, i) => text(`mutations[${i}]`, each)) }),
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
  const { type } = value as Fields;
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
  const entrypoint = text(`${slot}.entrypoint`, fields.entrypoint);
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
  const source = text(`${slot}.source`, fields.source);
  if (source.length > bundleLimits.sourceCharacters) {
    const remedy = `Keep it to ${bundleLimits.sourceCharacters}.`;
    throw configError(`${slot}.source`, `has ${source.length} characters`, remedy);
  }
  const { entrypoint } = fields;
  return {
    type: 'code',
    language,
    source,
    ...(entrypoint === undefined ? {} : { entrypoint: text(`${slot}.entrypoint`, entrypoint) }),
  };
}
