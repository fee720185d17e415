/**
 * A tier as the original notes describe it: how large, how fast, on which device or in which directory. What
 * is not said of its speed comes from a calibrated profile (`tierkv calibrate`).
 */

import { configError, requireFinite, requireInteger, requirePositive } from '../../runtime/errors.ts';
import { nearestName } from '../../runtime/nearestName.ts';
import { described, optionNames, requireArray, requireOptions } from '../../runtime/options.ts';

export const storageTiers = ['hbm', 'ddr', 'nvme'] as const;
export type StorageTier = (typeof storageTiers)[number];

export interface TierConfig {
  readonly tier: StorageTier;
  readonly capacityBytes: number;
  /** 10^9 bytes a second from this tier to HBM. Default: as calibrated. */
  readonly bandwidthGbps?: number;
  /** Microseconds that a transfer to HBM takes beside its bytes. Default: as calibrated. */
  readonly latencyUs?: number;
  /** HBM: a name for its device in descriptors. Default 0. */
  readonly deviceId?: number;
  /** NVME: the directory of its files, which must exist. */
  readonly path?: string;
}

export const tierConfigNames: readonly string[] = optionNames<TierConfig>({
  tier: true,
  capacityBytes: true,
  bandwidthGbps: true,
  latencyUs: true,
  deviceId: true,
  path: true,
});

/** What `tierkv calibrate` writes for a link, or `parseLinkCalibration` reads. */
export interface CalibratedLink {
  readonly baseLatencyUs: number;
  readonly bandwidthBytesPerS: number;
  readonly delayUs?: number;
}

export interface TierSet {
  readonly hbm: TierConfig;
  readonly ddr: TierConfig | undefined;
  readonly nvme: TierConfig | undefined;
}

/** @throws TKV_CONFIG for a tier that is missing, unknown or named twice, or a field that is wrong */
export function tierSet(tiers: readonly TierConfig[]): TierSet {
  requireArray(tiers, 'tiers', "Pass [{ tier: 'hbm', capacityBytes }, ...].", 'TKV_CONFIG');
  const byTier = new Map<string, TierConfig>();
  for (const [i, config] of tiers.entries()) {
    const { tier } = requireOptions(config, tierConfigNames, `tiers[${i}]`, 'TKV_CONFIG');
    if (!storageTiers.includes(tier)) {
      const near = nearestName(String(tier), storageTiers);
      const remedy = near === undefined ? `Use ${storageTiers.join(', ')}.` : `Did you mean ${near}?`;
      throw configError(`tiers[${i}].tier`, `is ${described(tier)}`, remedy);
    }
    if (byTier.has(tier)) throw configError(`tiers[${i}].tier`, `is ${tier} again`, 'Name each tier once.');
    byTier.set(tier, config);
    requireInteger(`${tier}.capacityBytes`, config.capacityBytes, 1);
    if (config.bandwidthGbps !== undefined) requirePositive(`${tier}.bandwidthGbps`, config.bandwidthGbps);
    if (config.latencyUs !== undefined) requireFinite(`${tier}.latencyUs`, config.latencyUs);
  }
  const hbm = byTier.get('hbm');
  if (hbm === undefined) throw configError('tiers', 'have no hbm', 'Blocks are written there: name it.');
  const nvme = byTier.get('nvme');
  if (nvme !== undefined && (typeof nvme.path !== 'string' || nvme.path === '')) {
    throw configError(
      'nvme.path',
      `is ${described(nvme.path)}`,
      'Name a directory that exists, or leave nvme out.',
    );
  }
  return { hbm, ddr: byTier.get('ddr'), nvme };
}

/**
 * Microseconds until `bytes` of the tier are in HBM if nothing else moves: latency + bytes / bandwidth.
 * @throws TKV_CONFIG where neither the tier nor a profile says how fast it is
 */
export function estimatedLatencyUs(
  { tier, bandwidthGbps, latencyUs }: TierConfig,
  bytes: number,
  links: Readonly<Record<string, CalibratedLink>>,
): number {
  requireFinite('bytes', bytes);
  const link = links[`${tier}ToHbm`];
  const isHere = tier === 'hbm';
  const fixedUs = latencyUs ?? (link === undefined ? undefined : link.baseLatencyUs + (link.delayUs ?? 0));
  const bytesPerS = bandwidthGbps === undefined ? link?.bandwidthBytesPerS : bandwidthGbps * 1e9;
  if (bytesPerS === undefined && isHere) return latencyUs ?? 0;
  if (bytesPerS === undefined || fixedUs === undefined) {
    throw configError(
      `${tier}.${bytesPerS === undefined ? 'bandwidthGbps' : 'latencyUs'}`,
      'is not set and there is no calibrated profile',
      'Set it, or pass the links that tierkv calibrate measured.',
    );
  }
  return fixedUs + (bytes * 1e6) / bytesPerS;
}
