/** The tiers, ordered from fast to slow, the outcomes of a transfer, and the names of both in logs and tables. */

export const Tier = { HBM: 0, DDR: 1, NVME: 2, REMOTE: 3 } as const;
export type Tier = (typeof Tier)[keyof typeof Tier];

/** Position of HBM in every list of tiers: the fastest tier is the first. */
export const HBM = 0;

export const tierNames = ['hbm', 'ddr', 'nvme', 'remote'] as const;
export type TierName = (typeof tierNames)[number];

export function tierName(tier: Tier): TierName {
  return tierNames[tier];
}

const links: readonly (readonly string[])[] = tierNames.map((from) =>
  tierNames.map((to) => `${from}To${to[0].toUpperCase()}${to.slice(1)}`),
);

/** The name of the link that carries blocks from one tier to another, such as `hbmToDdr`. */
export function linkName(from: Tier, to: Tier): string {
  return links[from][to];
}

/**
 * How a transfer can end. `loaded` is the only success, of reads and writes alike; "done" cannot be built from an
 * error.
 *
 *   loaded     the bytes are in place and, where the destination verifies, they are right
 *   missing    the source holds nothing under that name
 *   corrupt    the bytes differ from what was asked for: digest, key, layout or generation disagree
 *   timedOut   the deadline passed; the slots stay taken until the job retires
 *   refused    nothing was done and nothing harmed: disk full, I/O error, device lost, stale generation
 *   cancelled  its last waiter has gone
 */
export const Outcome = { LOADED: 0, MISSING: 1, CORRUPT: 2, TIMED_OUT: 3, REFUSED: 4, CANCELLED: 5 } as const;
export type Outcome = (typeof Outcome)[keyof typeof Outcome];

export const outcomeNames = ['loaded', 'missing', 'corrupt', 'timedOut', 'refused', 'cancelled'] as const;
export type OutcomeName = (typeof outcomeNames)[number];
