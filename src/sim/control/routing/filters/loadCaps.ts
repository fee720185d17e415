/** Caps on load that an instance has to keep. */

import { kvUtilization } from '../../admission/index.ts';
import type { InstanceSnapshot } from '../../instances.ts';
import type { RoutingContext } from '../routingPolicy.ts';
import type { CandidateFilter, LeftOut } from './candidateFilter.ts';

/** No limit, as a number that can be written as JSON. */
export const UNLIMITED: number = Number.MAX_SAFE_INTEGER;

/** `UNLIMITED`, and 1 for the utilisation, for none. */
export interface Caps {
  readonly maxQueueDepth: number;
  readonly maxInFlight: number;
  readonly maxKvUtilization: number;
}

export function isAnyCap({ maxQueueDepth, maxInFlight, maxKvUtilization }: Caps): boolean {
  return maxQueueDepth < UNLIMITED || maxInFlight < UNLIMITED || maxKvUtilization < 1;
}

export class LoadCaps implements CandidateFilter {
  readonly #caps: Caps;

  constructor(caps: Caps) {
    this.#caps = caps;
  }

  leavesOut({ candidates }: RoutingContext, open: readonly number[]): readonly LeftOut[] {
    return open.flatMap((at) => {
      const filter = this.#broken(candidates[at]);
      return filter === '' ? [] : [{ at, filter }];
    });
  }

  /** The cap that the instance breaks, or '' where it keeps all of them. */
  #broken(instance: InstanceSnapshot): string {
    if (instance.queueDepth > this.#caps.maxQueueDepth) return 'maxQueueDepth';
    if (instance.inFlight > this.#caps.maxInFlight) return 'maxInFlight';
    return kvUtilization(instance) > this.#caps.maxKvUtilization ? 'maxKvUtilization' : '';
  }
}
