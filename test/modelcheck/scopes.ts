/**
 * The worlds that are explored: as small as they can be while everything that can happen still happens in
 * them.
 */

import type { Scope } from './model.ts';

const oneOfEach = {
  corrupt: 1,
  missing: 1,
  refused: 1,
  cancelled: 1,
  deadline: 1,
  evict: 1,
  lose: 1,
} as const;

/** Two requests of one block each, the same one; it lies below and must come up. */
export const oneBlock: Scope = {
  name: 'one shared block, 1 slot of HBM and 1 of DDR',
  manager: { unitBytes: [1], hbm: { capacityBytes: 1 }, ddr: { capacityBytes: 1 }, maxJobs: 8 },
  chains: [[1], [1]],
  cachedBelow: [1],
  faults: oneOfEach,
  faultsMax: 2,
};

/** Two requests with different blocks fight for the only slot. */
export const rivals: Scope = {
  name: 'two different blocks, 1 slot of HBM and 1 of DDR',
  manager: { unitBytes: [1], hbm: { capacityBytes: 1 }, ddr: { capacityBytes: 1 }, maxJobs: 8 },
  chains: [[1], [2]],
  cachedBelow: [1],
  faults: oneOfEach,
  faultsMax: 2,
};

/** A shared head and two tails. */
export const sharedPrefix: Scope = {
  name: 'a shared block and a block of each, 2 slots of HBM and 2 of DDR',
  manager: { unitBytes: [1], hbm: { capacityBytes: 2 }, ddr: { capacityBytes: 2 }, maxJobs: 8 },
  chains: [
    [1, 2],
    [1, 3],
  ],
  cachedBelow: [1],
  faults: oneOfEach,
  faultsMax: 1,
};

/** Blocks move up rather than being copied, and HBM has a landing zone. */
export const moving: Scope = {
  name: 'blocks that move up, 1 slot of HBM, 1 to land in and 1 of DDR',
  manager: {
    unitBytes: [1],
    hbm: { capacityBytes: 1, landingBytes: 1 },
    ddr: { capacityBytes: 1 },
    lowerCopy: 'move',
    maxJobs: 8,
  },
  chains: [[1], [2]],
  cachedBelow: [1],
  faults: oneOfEach,
  faultsMax: 2,
};

/** Three tiers: a block goes down two steps and comes back from either. */
export const threeTiers: Scope = {
  name: 'two different blocks, 1 slot of HBM, 1 of DDR and 2 of NVMe',
  manager: {
    unitBytes: [1],
    hbm: { capacityBytes: 1 },
    ddr: { capacityBytes: 1 },
    nvme: { capacityBytes: 2 },
    maxJobs: 8,
  },
  chains: [[1], [2]],
  cachedBelow: [1],
  faults: oneOfEach,
  faultsMax: 1,
};

function withFaults(scope: Scope, faultsMax: number): Scope {
  return { ...scope, faultsMax, name: `${scope.name}, ${faultsMax} faults` };
}

/** What CI explores: every way with at most two faults where two blocks fight for a slot, with one in the others. One block shared by both is copied early only with two. */
export const smallScopes: readonly Scope[] = [
  withFaults(oneBlock, 1),
  withFaults(rivals, 2),
  withFaults(moving, 1),
  withFaults(threeTiers, 1),
];

/** What the command explores: three faults on one way, and four slots for two blocks each. */
export const largeScopes: readonly Scope[] = [
  ...[oneBlock, rivals, moving, threeTiers].map((scope) => withFaults(scope, 3)),
  withFaults(sharedPrefix, 2),
];
