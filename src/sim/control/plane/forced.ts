/** Decisions that somebody else takes in a policy's place: what if it had been otherwise? */

import { TierKVError } from '../../../runtime/errors.ts';
import { ADMIT, type AdmissionDecision } from '../decisions.ts';
import type { InstanceSnapshot } from '../instances.ts';

export function forcedAdmission(verdict: 'admit' | 'reject'): AdmissionDecision {
  return verdict === 'admit' ? ADMIT : { verdict, reason: 'forced' };
}

/**
 * The place of the forced instance among those that could take the request, or compute its prompt.
 * @throws TKV_INPUT when it is none of them
 */
export function forcedIndex(
  candidates: readonly InstanceSnapshot[],
  forced: number,
  does: 'take the request' | 'compute its prompt',
): number {
  const index = candidates.findIndex(({ instance }) => instance === forced);
  if (index !== -1) return index;
  const names = candidates.map(({ instance }) => instance).join(', ');
  const remedy = names === '' ? 'There is none that can.' : `Name one of ${names}.`;
  throw new TierKVError(
    'TKV_INPUT',
    `forced.routing names instance ${forced}, which cannot ${does}. ${remedy}`,
    { field: 'forced.routing' },
  );
}
