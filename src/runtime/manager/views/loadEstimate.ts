/** How long it would take to bring a part of a sequence up, as loads go now. */

import type { LoadEstimate } from '../../planning/loadOrRecompute.ts';
import { type Core, HBM } from '../core.ts';
import { Entry, type Sequence } from '../sequences/sequence.ts';

/**
 * Of the blocks [from, to) that are below HBM or on their way. Where they lie in several tiers, one is loaded
 * behind the other: the bandwidth is that of the mixture.
 * @returns undefined when all of them are in HBM
 */
export function loadEstimate(
  core: Core,
  sequence: Sequence,
  from: number,
  to: number,
): LoadEstimate | undefined {
  const bytes = new Float64Array(core.tiers);
  const ownBytes = new Float64Array(core.tiers);
  for (let i = from; i < to; i++) {
    const state = sequence.state[i];
    if (state !== Entry.MATCHED && state !== Entry.LOADING) continue;
    const replica = sequence.replica[i];
    const tier = replica === -1 ? HBM + 1 : core.replicas.tierOf(replica);
    const size = core.unitBytes(core.contents.sizeClass[sequence.content[i]]);
    bytes[tier] += size;
    if (state === Entry.LOADING) ownBytes[tier] += size;
  }
  let startUs = 0;
  let allBytes = 0;
  let seconds = 0;
  for (let tier = HBM + 1; tier < core.tiers; tier++) {
    if (bytes[tier] === 0) continue;
    const link = core.links[tier].estimate(core.nowUs, ownBytes[tier]);
    startUs += link.startUs;
    allBytes += bytes[tier];
    seconds += bytes[tier] / link.bandwidthBytesPerS;
  }
  return allBytes === 0 ? undefined : { startUs, bandwidthBytesPerS: allBytes / seconds };
}
