/** The tiers, ordered from fast to slow, and the names that logs and tables use for them. */

export const Tier = { HBM: 0, DDR: 1, NVME: 2, REMOTE: 3 } as const;
export type Tier = (typeof Tier)[keyof typeof Tier];

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
