/**
 * Decisions that are taken out of a policy's hands, by their number: what if request routing number 17 had
 * gone to instance 2? The policy decides all the same, so that its random draws stay what they were, and is
 * then told what was done.
 */

import { requireInteger } from '../../runtime/errors.ts';
import type { ForcedRouting } from '../control/index.ts';

export interface ForcedDecisions {
  /**
   * By number of the routing decision, 0 for the first of the run: the instance that gets the request, or its
   * output where the policies hand it off; or both instances.
   */
  readonly routing?: ReadonlyMap<number, number | ForcedRouting>;
  /** By number of the admission decision: whether the request comes in. */
  readonly admission?: ReadonlyMap<number, 'admit' | 'reject'>;
}

/** @throws TKV_CONFIG for a number that is none */
export function checkForced(forced: ForcedDecisions): ForcedDecisions {
  for (const [decision, instance] of forced.routing ?? []) {
    requireInteger('forced.routing', decision, 0);
    const { target = 0, prefillInstance = 0 } = routingOf(instance);
    requireInteger(`forced.routing ${decision}`, target, 0);
    requireInteger(`forced.routing ${decision}.prefillInstance`, prefillInstance, -1);
  }
  for (const decision of forced.admission?.keys() ?? []) requireInteger('forced.admission', decision, 0);
  return forced;
}

function routingOf(forced: number | ForcedRouting): ForcedRouting {
  return typeof forced === 'number' ? { target: forced } : forced;
}

/** What is forced of the routing decision of that number. */
export function forcedRouting({ routing }: ForcedDecisions, decision: number): ForcedRouting | undefined {
  const forced = routing?.get(decision);
  return forced === undefined ? undefined : routingOf(forced);
}
