/** Kinds of bundles: what has the same kind differs by numbers, or within one program. */

import type { PolicyBundle, PolicySlot } from '../../bundle/policyBundle.ts';
import { type Individual, nameOfSpec } from './individual.ts';

/** What kind of policy stands in each slot: template, language, or tree. */
export function kindOf(bundle: PolicyBundle, slots: readonly PolicySlot[]): string {
  return slots.map((slot) => nameOfSpec(bundle[slot])).join(' ');
}

/**
 * The first `count` of them of which each decides otherwise than the others, and at most `most` are of one
 * kind: near relatives of the best say little beside it.
 */
export function ofManyKinds(
  ranking: readonly Individual[],
  count: number,
  most: number,
  slots: readonly PolicySlot[],
): Individual[] {
  const ofKind = new Map<string, number>();
  const behaviours = new Set<string>();
  const found: Individual[] = [];
  for (const individual of ranking) {
    if (found.length === count) break;
    const { bundle, behaviour } = individual;
    const kind = kindOf(bundle, slots);
    const before = ofKind.get(kind) ?? 0;
    if (before === most || behaviours.has(behaviour)) continue;
    ofKind.set(kind, before + 1);
    behaviours.add(behaviour);
    found.push(individual);
  }
  return found;
}
