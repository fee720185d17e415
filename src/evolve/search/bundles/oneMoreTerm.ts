/** Bundles with one more term in a program, in every way there is. */

import type { PolicySlot } from '../../bundle/policyBundle.ts';
import { withOneMoreTerm } from '../programs/index.ts';
import type { Candidate, Individual } from './individual.ts';
import type { SlotGuides } from './space.ts';

function childrenOf({ id, bundle }: Individual, slot: PolicySlot, guides: SlotGuides): Candidate[] {
  const spec = bundle[slot];
  const { fields = {}, favoured = {} } = guides[slot] ?? {};
  if (spec?.type !== 'code' || spec.language !== 'starlark') return [];
  return withOneMoreTerm(spec.source, fields, favoured).map(
    ({ source, changes }): Candidate => ({
      bundle: { ...bundle, [slot]: { ...spec, source } },
      origin: 'variation',
      parents: [id],
      changes: changes.map((change) => `${slot}: ${change}`),
    }),
  );
}

/** @returns for each slot the children of the first in the ranking that has a program there which reads a field */
export function bundlesWithOneMoreTerm(
  ranking: readonly Individual[],
  slots: readonly PolicySlot[],
  guides: SlotGuides,
): Candidate[] {
  return slots.flatMap((slot) => {
    for (const individual of ranking) {
      const children = childrenOf(individual, slot, guides);
      if (children.length > 0) return children;
    }
    return [];
  });
}
