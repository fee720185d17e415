/**
 * Every named policy of the catalogue as a bundle: where search begins, and what it has to beat. A preset is
 * called by its slot and its template, `routing/lor`.
 */

import { configError, inputError, nearestName, type TierKVError } from '../../runtime/errors.ts';
import { blake2s } from '../../runtime/keys/blake2s.ts';
import { oneOf, requireShapes } from '../../runtime/options.ts';
import { priorityPolicies } from '../../sim/control/priority.ts';
import { type PolicyBundle, type PolicySlot, type PolicySpec, policySlots } from './policyBundle.ts';
import { slotContracts } from './slots.ts';

/** What the other slots of a preset have: the most usual policy of each. */
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
 * A policy of one slot with what it needs beside it to decide anything. Ranks of a priority policy order
 * nothing on an instance that takes requests as they come: it goes with the scheduler that reads ranks.
 */
export function withItsScheduler(slot: PolicySlot, spec: PolicySpec): PolicyBundle {
  oneOf('slot', slot, policySlots);
  requireShapes({ spec }, { spec: { type: 'text' } });
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

/** What scores are compared with: the router-search experiment's 1:1. */
export const baseline: PolicyBundle = { ...usual, name: 'baseline' };

/** @throws TKV_CONFIG with the nearest name, and where the list of all is */
export function preset(name: string): PolicyBundle {
  requireShapes({ name }, { name: 'text' });
  if (name === 'baseline') return baseline;
  const found = presets.get(name);
  if (found === undefined) throw unknownPreset(name);
  return found;
}

/** There are too many presets for a line: it has the nearest one, or the names of the slot that was named. */
function unknownPreset(name: string): TierKVError {
  const [slot, ...rest] = name.split('/');
  const known = [...presets.keys()];
  const named = policySlots.find((each) => each === slot);
  const among =
    named === undefined ? ['baseline', ...known] : known.filter((each) => each.startsWith(`${named}/`));
  // a template without its slot, or with a mistyped one, is as near as with it
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
    `${remedy} tierkv evaluate --presets lists all`,
  );
}

//  The name of a bundle by its content, under which its evaluations are kept.

/** JSON with the keys of every object in order, so that equal values have equal texts. */
export function canonicalJson(value: unknown): string {
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

/**
 * Weights by name as a list: the first of them may count otherwise than the rest, and sums go in their order.
 */
function inOrder(parameters: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(parameters).map(([name, value]) => {
      return [name, typeof value === 'object' && value !== null ? Object.entries(value) : value];
    }),
  );
}

/** The policies of a bundle with every parameter, which is what decides. */
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
  requireShapes({ bundle }, { bundle: 'object' });
  return contentHash(decided(bundle));
}
