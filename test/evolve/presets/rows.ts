/** Presets of a slot as its registry makes them, and the check that a table has a row for each. */

import { expect, test } from 'vitest';
import type { PolicySlot } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import { preset, presets } from '../../../src/policy/evolve/bundle/presets.ts';
import { slotContracts } from '../../../src/policy/evolve/bundle/slots.ts';
import type { PolicyChoice } from '../../../src/sim/control/policy.ts';

/** The policy and all its parameters, as the preset of that template has them. */
export function choiceOf(slot: PolicySlot, template: string): PolicyChoice {
  const policy = preset(`${slot}/${template}`)[slot];
  if (policy?.type !== 'parameterized') throw new Error(`${slot}/${template} names no policy`);
  return slotContracts[slot].templates.resolve({ ...policy.parameters, policy: policy.template });
}

export function eachPresetHasARow(slot: PolicySlot, rows: readonly { readonly template: string }[]): void {
  test(`each preset of ${slot} has a row`, () => {
    const templates = [...presets.keys()]
      .filter((name) => name.startsWith(`${slot}/`))
      .map((name) => name.slice(slot.length + 1));
    expect(templates.length).toBeGreaterThan(0);
    expect([...new Set(rows.map(({ template }) => template))].sort()).toEqual(templates.sort());
  });
}
