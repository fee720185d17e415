/** Decisions that somebody else takes in a policy's place: what if it had been otherwise? */

import { TierKVError } from '../../../runtime/errors.ts';
import { ADMIT, type AdmissionDecision } from '../decisions.ts';
import type { InstanceSnapshot } from '../instances.ts';
import type { RoutingChoice } from '../routing/index.ts';

export function forcedAdmission(verdict: 'admit' | 'reject'): AdmissionDecision {
  return verdict === 'admit' ? ADMIT : { verdict, reason: 'forced' };
}

/** @throws TKV_INPUT when the instance is not among those that could take the request */
export function forcedChoice(
  wished: RoutingChoice,
  candidates: readonly InstanceSnapshot[],
  forced: number,
): RoutingChoice {
  const index = candidates.findIndex(({ instance }) => instance === forced);
  if (index !== -1) return { ...wished, index, reason: 'forced' };
  const names = candidates.map(({ instance }) => instance).join(', ');
  throw new TierKVError(
    'TKV_INPUT',
    `forced.routing names instance ${forced}, which cannot take the request. Name one of ${names}.`,
    { field: 'forced.routing' },
  );
}
