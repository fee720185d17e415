/**
 * Every named policy as a bundle. Search begins with these presets, and must beat them. A preset is named by its slot and its
 * template: `routing/lor`.
 */

import { configError, inputError, nearestName, type TierKVError } from '../../../runtime/errors.ts';
import { blake2s } from '../../../runtime/keys/blake2s.ts';
import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { priorityPolicies } from '../../../sim/control/priority.ts';
import { outputFlag } from '../../../sim/description/readers.ts';
import { type PolicyBundle, type PolicySlot, type PolicySpec, policySlots } from './policyBundle.ts';
import { slotContracts } from './slots.ts';

/** The other slots of a preset: the most common policy of each. */
const usual: PolicyBundle = {
  admission: { type: 'parameterized', template: 'always-admit', parameters: {} },
  priority: { type: 'parameterized', template: 'slo-class', parameters: {} },
  routing: {
    type: 'parameterized',
    template: 'weighted',
    parameters: { scorers: { 'prefix-affinity': 1, 'load-balance': 1 } },
  },
};

/**
 * A bundle of one policy, with the scheduler that it needs. A priority policy has no effect on instances that take requests
 * in order of arrival, so the scheduler that reads ranks comes with it.
 */
export function withItsScheduler(slot: PolicySlot, spec: PolicySpec): PolicyBundle {
  is.oneOf(policySlots).read(slot, 'slot');
  checkInputs({ spec }, { spec: is.fields({ type: is.text() }) });
  const ranksAlike =
    spec.type === 'parameterized' &&
    slot === 'priority' &&
    priorityPolicies.entry(spec.template).ranksAlike === true;
  const ranks = slot === 'priority' && !ranksAlike;
  const scheduler: PolicySpec = { type: 'parameterized', template: 'priority-fcfs', parameters: {} };
  return { [slot]: spec, ...(ranks && { instanceScheduler: scheduler }) };
}

/** Presets by name, slot by slot in the order of the registries. */
export const presets: ReadonlyMap<string, PolicyBundle> = new Map(
  policySlots.flatMap((slot) =>
    slotContracts[slot].templates.names.map((template): [string, PolicyBundle] => {
      const name = `${slot}/${template}`;
      const own = withItsScheduler(slot, { type: 'parameterized', template, parameters: {} });
      return [name, { ...usual, name, ...own }];
    }),
  ),
);

/** Bundle that scores are compared with: weights 1:1, as in the router-search experiment. */
export const baseline: PolicyBundle = { ...usual, name: 'baseline' };

/**
 * The bundle of a named policy, such as `routing/least-loaded`.
 * @throws TKV_CONFIG with the nearest name, and the command that lists all presets
 */
export function preset(name: string): PolicyBundle {
  checkInputs({ name }, { name: is.text() });
  if (name === 'baseline') return baseline;
  const found = presets.get(name);
  if (found === undefined) throw unknownPreset(name);
  return found;
}

/** The error has the nearest preset, or all presets of the slot: all of them would not fit in a line. */
function unknownPreset(name: string): TierKVError {
  const [slot, ...rest] = name.split('/');
  const known = [...presets.keys()];
  const named = policySlots.find((each) => each === slot);
  const among =
    named === undefined ? ['baseline', ...known] : known.filter((each) => each.startsWith(`${named}/`));
  // templates alone are compared, so that a missing or mistyped slot does not matter
  const template = nearestName(
    rest.join('/') || name,
    among.map((each) => each.slice(each.indexOf('/') + 1)),
  );
  const nearest = among.find((each) => each === template || each.endsWith(`/${template}`));
  const remedy =
    nearest !== undefined
      ? `Did you mean ${nearest}?`
      : named === undefined
        ? `A preset is SLOT/NAME, as routing/lor; slots are ${policySlots.join(', ')}.`
        : `Known for ${named}: ${among.map((each) => each.slice(named.length + 1)).join(', ')}.`;
  return configError(
    'preset',
    `is not known (${JSON.stringify(name)})`,
    `${remedy} tierkv evaluate ${outputFlag('presets')} lists all`,
  );
}

//  The content hash of a bundle, under which its evaluations are kept.

/** JSON with sorted keys, so that equal values have equal texts. */
function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value === 'bigint')
    throw inputError('value', `holds ${value}n, which JSON lacks. Write a number.`);
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).filter(([, each]) => each !== undefined);
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, each]) => `${JSON.stringify(key)}:${canonicalJson(each)}`).join(',')}}`;
}

/** 16 hexadecimal digits of BLAKE2s over canonical JSON. */
export function contentHash(value: unknown): string {
  const digest = blake2s(new TextEncoder().encode(canonicalJson(value)), 8);
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Objects as lists of entries: the order of weights matters, since sums follow it and a rule may treat the first apart. */
function inOrder(parameters: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(parameters).map(([name, value]) => {
      return [name, typeof value === 'object' && value !== null ? Object.entries(value) : value];
    }),
  );
}

/** The policies of a bundle with all parameters, defaults included. */
function decided(bundle: PolicyBundle): Record<string, unknown> {
  const slots: Record<string, unknown> = {};
  for (const slot of policySlots) {
    const spec = bundle[slot];
    if (spec?.type === 'parameterized') {
      const { policy, ...parameters } = slotContracts[slot].templates.resolve({
        ...spec.parameters,
        policy: spec.template,
      });
      slots[slot] = { type: 'parameterized', template: policy, parameters: inOrder(parameters) };
    } else if (spec !== undefined) slots[slot] = spec;
  }
  return slots;
}

/**
 * Content hash of the bundle without name, generation, parent and mutations: 16 hexadecimal digits. A
 * parameter that is left out counts as its default.
 * @throws TKV_CONFIG for a template or parameter that is not known
 */
export function policyId(bundle: PolicyBundle): string {
  checkInputs({ bundle }, { bundle: is.object() });
  return contentHash(decided(bundle));
}
