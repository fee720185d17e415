/**
 * Every named policy of the catalogue as a bundle: where search begins, and what it has to beat. A preset is
 * called by its slot and its template, `routing/lor`.
 */

import { unknownName } from '../../sim/control/index.ts';
import { type PolicyBundle, policySlots } from './policyBundle.ts';
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

/** Presets by name, slot by slot in the order of the registries. */
export const presets: ReadonlyMap<string, PolicyBundle> = new Map(
  policySlots.flatMap((slot) =>
    slotContracts[slot].templates.names.map((template): [string, PolicyBundle] => {
      const name = `${slot}/${template}`;
      return [name, { ...usual, name, [slot]: { type: 'parameterized', template, parameters: {} } }];
    }),
  ),
);

/** What scores are compared with: the router-search experiment's 1:1. */
export const baseline: PolicyBundle = { ...usual, name: 'baseline' };

/** @throws TKV_CONFIG with the nearest name */
export function preset(name: string): PolicyBundle {
  if (name === 'baseline') return baseline;
  const found = presets.get(name);
  if (found === undefined) throw unknownName('preset', name, ['baseline', ...presets.keys()]);
  return found;
}
