/** A bundle with one more term in one of its programs, in every way there is. */

import type { PolicySlot } from '../../bundle/policyBundle.ts';
import { withOneMoreTerm } from '../programs/index.ts';
import type { Candidate, Individual } from './individual.ts';
import type { SlotGuides } from './space.ts';

/** @returns none where no slot holds a Starlark program that reads a field */
export function bundlesWithOneMoreTerm(
  { id, bundle }: Individual,
  slots: readonly PolicySlot[],
  guides: SlotGuides,
): Candidate[] {
  return slots.flatMap((slot) => {
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
  });
}
