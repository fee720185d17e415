/** The best bundle with one more term in a program, in every way there is. */

import type { PolicySlot, PolicySpec } from '../../bundle/policyBundle.ts';
import { withOneMoreTerm } from '../programs/index.ts';
import type { Candidate, Individual } from './individual.ts';
import type { SlotGuide, SlotGuides } from './space.ts';

/**
 * For each slot the children of the first program in the ranking that reads a field, each of them in that
 * slot of the best bundle: what a program is worth shows beside good policies of the other slots.
 *
 * @param ranking the best first; not empty
 */
export function bundlesWithOneMoreTerm(
  ranking: readonly Individual[],
  slots: readonly PolicySlot[],
  guides: SlotGuides,
): Candidate[] {
  const [best] = ranking;
  return slots.flatMap((slot) => {
    for (const { id, bundle } of ranking) {
      const children = childrenOf(bundle[slot], guides[slot]);
      if (children.length === 0) continue;
      return children.map(({ spec, changes }): Candidate => {
        return {
          bundle: { ...best.bundle, [slot]: spec },
          origin: 'variation',
          parents: [...new Set([best.id, id])],
          changes: changes.map((change) => `${slot}: ${change}`),
        };
      });
    }
    return [];
  });
}

function childrenOf(
  spec: PolicySpec | undefined,
  { fields = {}, favoured = {} }: Partial<SlotGuide> = {},
): { readonly spec: PolicySpec; readonly changes: readonly string[] }[] {
  if (spec?.type !== 'code' || spec.language !== 'starlark') return [];
  return withOneMoreTerm(spec.source, fields, favoured).map(({ source, changes }) => {
    return { spec: { ...spec, source }, changes };
  });
}
