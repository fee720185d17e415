/** How long it would take to bring a part of a sequence up, as loads go now. */

import type { LoadEstimate } from '../../planning/loadOrRecompute.ts';
import { type Core, HBM } from '../core.ts';
import { fastestIncomingBelow } from '../sequences/blockTable/entries.ts';
import { Entry, type Sequence } from '../sequences/blockTable/sequence.ts';

/** A block that another sequence has computed is there as soon as its digest is taken. */
const SEAL_BYTES_PER_S = 1e12;

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
  nowUs: number,
): LoadEstimate | undefined {
  const bytes = new Float64Array(core.tiers);
  const ownBytes = new Float64Array(core.tiers);
  for (let i = from; i < to; i++) {
    const state = sequence.state[i];
    if (state !== Entry.MATCHED && state !== Entry.LOADING) continue;
    const tier = tierItComesFrom(core, sequence, i);
    const size = core.unitBytes(core.contents.sizeClass[sequence.content[i]]);
    bytes[tier] += size;
    if (state === Entry.LOADING) ownBytes[tier] += size;
  }
  let startUs = 0;
  let behindCompute = 0;
  let allBytes = bytes[HBM];
  let seconds = bytes[HBM] / SEAL_BYTES_PER_S;
  for (let tier = HBM + 1; tier < core.tiers; tier++) {
    if (bytes[tier] === 0) continue;
    const link = core.links[tier].estimate(nowUs, ownBytes[tier]);
    startUs += link.startUs;
    allBytes += bytes[tier];
    seconds += bytes[tier] / link.bandwidthBytesPerS;
    behindCompute = Math.max(behindCompute, link.behindCompute ?? 0);
  }
  return allBytes === 0 ? undefined : { startUs, bandwidthBytesPerS: allBytes / seconds, behindCompute };
}

/** HBM for a block that is being sealed there. */
function tierItComesFrom(core: Core, sequence: Sequence, i: number): number {
  const { replicas, jobs } = core;
  const held = sequence.replica[i];
  if (held !== -1) return replicas.tierOf(held);
  const row = core.incomingTo(sequence.content[i], HBM);
  if (row !== -1 && jobs.source[row] !== -1) return replicas.tierOf(jobs.source[row]);
  const below = fastestIncomingBelow(core, sequence.content[i], HBM);
  return below === -1 ? HBM : below;
}
