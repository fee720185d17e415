/**
 * One world of the campaign, drawn from its seed: how large its tiers are, which faults it has, and how many.
 */

import type { ManagerConfig, TierName } from '../../src/runtime/index.ts';
import { type FaultKind, type FaultPlanOptions, faultKinds } from '../../src/testing/faults.ts';
import type { SeededRandom } from '../../src/testing/patternItems.ts';

export const blockBytes = 1024;
/** Deadline of every job, in virtual microseconds. */
export const deadlineUs = 1000;

export interface WorldConfig {
  readonly manager: ManagerConfig;
  readonly plan: FaultPlanOptions;
  readonly stagingSlots: number;
  readonly actors: number;
  readonly blocksMax: number;
  /** Chance that the device is lost, at each of the operator's turns. */
  readonly lossRate: number;
}

/** @param below a tier behind all others, which every world has then; drawn last, so worlds without it stay as they are */
export function worldConfig(random: SeededRandom, seed: number, below?: TierName): WorldConfig {
  const between = (min: number, max: number): number => min + random.below(max - min + 1);
  const tier = (min: number, max: number): { capacityBytes: number; landingBytes: number } => ({
    capacityBytes: blockBytes * between(min, max),
    landingBytes: blockBytes * between(0, 2),
  });
  const hbm = tier(6, 14);
  const shape = random.below(5);
  const manager: ManagerConfig = {
    unitBytes: [blockBytes],
    hbm,
    ...(shape === 0 ? {} : { ddr: tier(2, 12) }),
    ...(shape === 1 ? {} : { nvme: tier(2, 20) }),
    lowerCopy: random.chance(0.5) ? 'keep' : 'move',
    whenLowerFull: random.chance(0.8) ? 'evict' : 'refuse',
    offloadThreshold: [1, 0.9, 0.5][random.below(3)],
    maxJobs: [16, 64][random.below(2)],
  };
  const config: WorldConfig = {
    manager,
    plan: {
      seed: seed ^ 0x5eed,
      rates: rates(random),
      latencyUs: [1, between(20, 300)],
      lateUs: [deadlineUs, 5 * deadlineUs],
      stalledMax: 2,
    },
    stagingSlots: between(1, 4),
    actors: between(2, 5),
    blocksMax: Math.max(2, Math.floor(hbm.capacityBytes / blockBytes / 2)),
    lossRate: random.chance(0.6) ? 0.15 : 0,
  };
  return below === undefined ? config : { ...config, manager: { ...manager, [below]: tier(2, 20) } };
}

/** Every kind a little, or one kind much and the others rarely. */
function rates(random: SeededRandom): Partial<Record<FaultKind, number>> {
  const favourite = random.chance(0.5) ? faultKinds[random.below(faultKinds.length)] : null;
  const rates: Partial<Record<FaultKind, number>> = {};
  for (const kind of faultKinds) {
    const holdsUp = kind === 'stalled' || kind === 'lateAfterCancel';
    const base = holdsUp ? 0.02 : 0.08;
    rates[kind] = favourite === null ? base : kind === favourite ? base * 5 : base / 4;
  }
  return rates;
}
