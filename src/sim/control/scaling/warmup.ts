/** How much slower a new replica is. The curve lies in simulated time, so every step in it takes longer. */

import { elementary } from '../../random/index.ts';
import type { WarmupProfile } from './actuationConfig.ts';

/** Of the initial penalty, so much is left of an exponential curve at the end of the warm-up. */
const LEFT_AT_END = 0.01;
const DECAY = -elementary.log(LEFT_AT_END);

/**
 * Factor on the time of a step that begins `sinceReadyUs` after the replica was ready; 1 when it is warm.
 * With f the initial factor and x the share of the warm-up that has passed: linear f - (f - 1) x, exponential
 * 1 + (f - 1) e^(-x ln 100), step f until the end.
 */
export function warmupFactor(profile: WarmupProfile, sinceReadyUs: number): number {
  const { durationUs, curve, initialPenaltyFactor } = profile;
  if (sinceReadyUs >= durationUs || initialPenaltyFactor <= 1) return 1;
  const share = Math.max(0, sinceReadyUs) / durationUs;
  const penalty = initialPenaltyFactor - 1;
  switch (curve) {
    case 'linear':
      return 1 + penalty * (1 - share);
    case 'exponential':
      return 1 + penalty * elementary.exp(-DECAY * share);
    case 'step':
      return initialPenaltyFactor;
  }
}
