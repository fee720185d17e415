/** Which candidates a weighted policy looks at: caps on load that an instance has to keep. */

import { kvUtilization } from '../admission/index.ts';
import type { FilteredOut } from '../decisions.ts';
import type { InstanceSnapshot } from '../instances.ts';

/** Caps; Infinity, and 1 for the utilisation, for none. */
export interface LoadCaps {
  readonly maxQueueDepth: number;
  readonly maxInFlight: number;
  readonly maxKvUtilization: number;
}

/** The cap that the instance breaks, or '' where it keeps all of them. */
function brokenCap(instance: InstanceSnapshot, caps: LoadCaps): string {
  if (instance.queueDepth > caps.maxQueueDepth) return 'maxQueueDepth';
  if (instance.inFlight > caps.maxInFlight) return 'maxInFlight';
  return kvUtilization(instance) > caps.maxKvUtilization ? 'maxKvUtilization' : '';
}

/**
 * Sets the scores of candidates that break a cap to -Infinity and says which they are. Where all break one,
 * none is left out: a request has to go somewhere.
 */
export function applyCaps(
  candidates: readonly InstanceSnapshot[],
  caps: LoadCaps,
  scores: Float64Array,
): readonly FilteredOut[] {
  const out: FilteredOut[] = [];
  for (const instance of candidates) {
    const filter = brokenCap(instance, caps);
    if (filter !== '') out.push({ instance: instance.instance, id: instance.id, filter });
  }
  if (out.length === candidates.length) return [];
  for (const { instance } of out) {
    scores[candidates.findIndex((candidate) => candidate.instance === instance)] = -Infinity;
  }
  return out;
}
