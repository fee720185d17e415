/**
 * Every policy of the presets within the best bundle so far. What a preset is worth beside the usual policies
 * of the other slots says little of what it is worth beside good ones.
 */

import type { PolicySlot } from '../../bundle/policyBundle.ts';
import { type Candidate, contentKey, type Individual, nameOfSpec } from '../bundles/index.ts';
import { schedulerOf } from './crossings.ts';

/** @returns one candidate for each policy of each searched slot, those left out that the bundle has */
export function presetsInContext(
  best: Individual,
  presets: readonly Individual[],
  slots: readonly PolicySlot[],
): Candidate[] {
  const known = new Set([contentKey(best.bundle)]);
  const made: Candidate[] = [];
  for (const slot of slots) {
    for (const preset of presets) {
      const spec = preset.bundle[slot];
      if (spec === undefined) continue;
      const bundle = { ...schedulerOf(slot, preset.bundle), ...best.bundle, [slot]: spec };
      if (known.has(contentKey(bundle))) continue;
      known.add(contentKey(bundle));
      const changes = [`${slot}: ${nameOfSpec(spec)}`];
      made.push({ bundle, origin: 'crossing', parents: [best.id, preset.id], changes });
    }
  }
  return made;
}
