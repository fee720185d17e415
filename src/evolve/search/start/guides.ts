/** What search may know of each slot, made from the tables that policies are bound by. */

import { type PolicySlot, policySlots } from '../../bundle/policyBundle.ts';
import { slotContracts, treeFeatures } from '../../bundle/slots.ts';
import type { Feature, FeatureTable } from '../../features/index.ts';
import type { SlotGuide, SlotGuides } from '../bundles/index.ts';
import { type Fields, fieldsRead } from '../programs/index.ts';
import type { TreeAction, TreeFeature, TreeVocabulary } from '../trees/index.ts';
import { plainPrograms } from './firstPolicies.ts';

type AnyFeature = Feature<never>;

/** Greatest threshold that search draws for a feature of that unit; what matters lies below. */
const reach: Readonly<Record<string, number>> = {
  requests: 64,
  tokens: 16_384,
  blocks: 1024,
  'blocks/s': 1000,
  '0..1': 1,
  '1/s': 200,
  µs: 10_000_000,
};

/** A usual value of a feature of that unit; of others 1. */
const usual: Readonly<Record<string, number>> = {
  requests: 4,
  tokens: 1024,
  blocks: 64,
  'blocks/s': 64,
  '1/s': 16,
  µs: 1_000_000,
};

/** Units of which a number says nothing without its beginning: simulated time. */
const LEFT_OUT = ['nowUs', 'deadlineUs'];

function featureOf(slot: PolicySlot, name: string): AnyFeature {
  const [group, field] = name.split('.');
  return slotContracts[slot].groups[group][field];
}

function rangeOf(name: string, { kind, unit }: AnyFeature): TreeFeature {
  if (kind === 'bool') return { name, min: 0, max: 1 };
  if (/[pP]riority$/.test(name)) return { name, min: -4, max: 5 };
  return { name, min: 0, max: reach[unit] ?? 16 };
}

/** Numbers that leaves take. A factor may turn a score around; other numbers go as far as their unit. */
function actionOf(name: string, value: string, unit: string): TreeAction {
  if (value === 'none') return { name };
  if (unit.startsWith('factor')) return { name, min: -2, max: 4 };
  if (unit === 'µs') return { name, min: 1000, max: 2_000_000 };
  if (unit.startsWith('replicas')) return { name, min: 1, max: 8 };
  return { name, min: -4, max: 4 };
}

function vocabularyOf(slot: PolicySlot): TreeVocabulary | undefined {
  const { actions, functions } = slotContracts[slot];
  if (functions.length === 0) return undefined;
  const features = treeFeatures(slot).filter((name) => !LEFT_OUT.includes(name.split('.')[1]));
  return {
    features: features.map((name) => rangeOf(name, featureOf(slot, name))),
    actions: Object.entries(actions).map(([name, { value, unit }]) => actionOf(name, value, unit)),
  };
}

function numbersIn(features: FeatureTable<never>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(features).flatMap(([name, { kind, unit }]) =>
      kind === 'text' || kind === 'bool' || LEFT_OUT.includes(name) ? [] : [[name, usual[unit] ?? 1]],
    ),
  );
}

/** Fields of a program's arguments. An element of a list is called by the singular: `instance`. */
function fieldsOf(slot: PolicySlot): Fields {
  const inputs = slotContracts[slot].functions.flatMap(({ arguments: each }) => each);
  return Object.fromEntries(
    inputs.map(({ name, features, isList }) => [isList ? name.replace(/s$/, '') : name, numbersIn(features)]),
  );
}

function guideOf(slot: PolicySlot): SlotGuide {
  const fields = fieldsOf(slot);
  const tree = vocabularyOf(slot);
  return {
    rulesOf: (template) => slotContracts[slot].templates.describe(template).parameters,
    ...(tree === undefined ? {} : { tree }),
    fields,
    favoured: fieldsRead(plainPrograms(slot), fields),
  };
}

export const slotGuides: SlotGuides = Object.fromEntries(policySlots.map((slot) => [slot, guideOf(slot)]));
