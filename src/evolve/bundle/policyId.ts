/** The name of a bundle by its content, under which its evaluations are kept. */

import { blake2s } from '../../runtime/keys/index.ts';
import { type PolicyBundle, policySlots } from './policyBundle.ts';
import { slotContracts } from './slots.ts';

/** JSON with the keys of every object in order, so that equal values have equal texts. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
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
  return contentHash(decided(bundle));
}
