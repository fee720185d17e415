/**
 * The registration of tiers in simulations: which ones lie below the top of a usual machine, what their sizes are asked as,
 * and how fast their links are. Options, deployment files and typed deployments go over these rows.
 */

import { linkName, type Tier, type TierName, tierNames } from '../../runtime/tier/tier.ts';
import type { LinkProfile } from './modeledDriver.ts';

/** Between host memory and the GPU: PCIe 4.0 x16 at 80 % of its 31.5 GB/s. */
export const pcie: LinkProfile = { baseLatencyUs: 10, bandwidthBytesPerS: 25e9 };

/** Read and write bandwidth in bytes a microsecond and latency in microseconds, by upstream's names. */
export const deviceClasses: Readonly<Record<string, readonly [read: number, write: number, base: number]>> = {
  nvme_gen4: [7000, 5000, 80],
  nvme_gen3: [3500, 3000, 100],
  sata_ssd: [550, 500, 150],
  cpu_dram: [20_000, 20_000, 1],
  s3: [1000, 1000, 30_000],
};

/** The links of a class. */
export function linksOfClass(name: string): { readonly read: LinkProfile; readonly write: LinkProfile } {
  const [read, write, baseLatencyUs] = deviceClasses[name];
  const link = (rate: number): LinkProfile => ({ baseLatencyUs, bandwidthBytesPerS: rate * 1e6 });
  return { read: link(read), write: link(write) };
}

/** The class of a disk that names none. */
export const usualDisk = 'nvme_gen4';

export type SizedTierName = Extract<TierName, 'ddr' | 'nvme'>;
export interface SizedTierRow {
  readonly tier: SizedTierName;
  /** Help of the tier's option, which has the tier's name. */
  readonly about: string;
  readonly read: LinkProfile;
  readonly write: LinkProfile;
  /** GiB that a plan tries, of each instance. */
  readonly usualGib: readonly number[];
  /** GiB of host memory that a GiB of it counts as, where nothing has a price. */
  readonly weight: number;
}

/** Tiers that a size alone adds, from fast to slow. */
export const sizedTierRows: readonly SizedTierRow[] = [
  {
    tier: 'ddr',
    about: 'KV cache in host memory per instance, as 256GiB or in blocks (default: none)',
    read: pcie,
    write: pcie,
    usualGib: [0, 128, 512],
    weight: 1,
  },
  {
    tier: 'nvme',
    about: 'KV cache on disk per instance, as 2TiB or in blocks (default: none)',
    ...linksOfClass(usualDisk),
    usualGib: [0, 4096],
    weight: 1 / 64,
  },
];
export const sizedTierNames: readonly SizedTierName[] = sizedTierRows.map(({ tier }) => tier);

/** Host memory, which upstream's options give in blocks or bytes. */
export const hostTier: TierName = sizedTierNames[0];
/** The tiers below it that upstream's files list without names, in order. */
export const secondaryTiers: readonly TierName[] = tierNames.slice(tierNames.indexOf(hostTier) + 1);
/** The tier that instances share. */
export const sharedTier: TierName = 'remote';

const number = (tier: TierName): Tier => tierNames.indexOf(tier);

/** Links by which a tier gets blocks from each tier in `from`. */
export function linksDown(
  from: readonly TierName[],
  tier: TierName,
  link: LinkProfile,
): Record<string, LinkProfile> {
  return Object.fromEntries(from.map((upper) => [linkName(number(upper), number(tier)), link]));
}

/** Links by which a tier's blocks come up: into the top tier and into host memory. */
export function linksUp(tier: TierName, link: LinkProfile): Record<string, LinkProfile> {
  const targets = [tierNames[0], hostTier].filter((upper) => upper !== tier);
  return Object.fromEntries(targets.map((upper) => [linkName(number(tier), number(upper)), link]));
}
