/** What a runtime must not hold while it has no requests. */

import type { KVRuntime } from '../../../src/index.ts';
import { tierName } from '../../../src/runtime/index.ts';

/** What a runtime at rest should not hold: a line for each thing that it does. */
export function held({ manager }: KVRuntime): string[] {
  const counts: [string, number][] = [
    ['sequences open', manager.inspect.openSequences],
    ['jobs in flight', manager.inspect.jobsInFlight],
    ['jobs overdue', manager.inspect.jobsOverdue],
  ];
  manager.inspect.tiers.forEach((tier, position) => {
    const { heldBytes, residentBytes, capacityBytes, slots } = manager.inspect.usage(position);
    const name = tierName(tier);
    counts.push([`${name} bytes held`, heldBytes]);
    counts.push([`${name} bytes over capacity`, Math.max(0, residentBytes - capacityBytes)]);
    for (const state of ['reserved', 'filling', 'open', 'draining'] as const) {
      counts.push([`${name} slots ${state}`, slots[state]]);
    }
  });
  return counts.filter(([, count]) => count > 0).map(([what, count]) => `${count} ${what}`);
}
