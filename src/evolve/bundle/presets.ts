/**
 * Every named policy of the catalogue as a bundle: where search begins, and what it has to beat. A preset is
 * called by its slot and its template, `routing/lor`.
 */

import { unknownName } from '../../sim/control/index.ts';
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

/** Priority policies whose ranks are all alike: no scheduler could go by them. */
const unranked = ['constant'];

/**
 * A policy of one slot with what it needs beside it to decide anything. Ranks of a priority policy order
 * nothing on an instance that takes requests as they come: it goes with the scheduler that reads ranks.
 */
export function withItsScheduler(slot: PolicySlot, spec: PolicySpec): PolicyBundle {
  const ranks = slot === 'priority' && !(spec.type === 'parameterized' && unranked.includes(spec.template));
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

/** @throws TKV_CONFIG with the nearest name */
export function preset(name: string): PolicyBundle {
  if (name === 'baseline') return baseline;
  const found = presets.get(name);
  if (found === undefined) throw unknownName('preset', name, ['baseline', ...presets.keys()]);
  return found;
}
