/**
 * What tenants have of the cache: the reuse of KV within a tenant or its group, and quotas of the tiers. Both
 * are the manager's; here tenants get their keys and owners, and tables their places on the device.
 */

import { configError, requireInteger } from '../../runtime/errors.ts';
import { CrossRequestKVCache, type Sequence, type TierName, tierName } from '../../runtime/index.ts';
import { nearestName } from '../../runtime/nearestName.ts';
import { described, optionNames, requireFlag, requireOptions } from '../../runtime/options.ts';
import { type DeviceBlockTable, deviceTable, readableBlocks } from '../requests/blockTables.ts';
import type { RequestContext } from '../requests/context.ts';
import { Scrubbing } from '../requests/scrubbing.ts';

export interface CrossRequestOptions {
  /** Whether each tenant has keys of its own. Default true. */
  readonly enableTenantIsolation?: boolean;
}

export const crossRequestOptionsNames: readonly string[] = optionNames<CrossRequestOptions>({
  enableTenantIsolation: true,
});

/** @throws TKV_CONFIG for a runtime with layer groups */
export function crossRequestCache(
  context: RequestContext,
  options: CrossRequestOptions,
): CrossRequestKVCache {
  const { enableTenantIsolation = true } = requireOptions(options, crossRequestOptionsNames);
  requireFlag(enableTenantIsolation, 'enableTenantIsolation');
  const { manager, blockTokens, chains, owners, sharing, units, nowUs } = context;
  if (units.groups.length > 1) {
    throw configError('layerGroups', 'are several, and reuse takes one', 'Open without them, or use begin.');
  }
  return new CrossRequestKVCache(manager, {
    blockTokens,
    enableTenantIsolation,
    domainOf: (tenant) => sharing.domainOf(tenant),
    keysOf: (tenant) => (enableTenantIsolation ? chains.of(tenant) : chains.ofDomain(tenant))[0],
    ownerOf: (tenant) => (enableTenantIsolation ? owners.of(tenant) : owners.ofDomain(tenant)),
    sizeClass: units.sizeClass[0],
    nowUs,
  });
}

export async function ready(context: RequestContext, table: Sequence): Promise<void> {
  context.manager.requireOwn(table);
  await context.loop.settled(table);
  const scrubbing = new Scrubbing(context);
  scrubbing.clear(table, 0, table.length);
  scrubbing.submit();
}

export function placesOf({ manager, hbm }: RequestContext, table: Sequence): DeviceBlockTable {
  manager.requireOwn(table);
  return deviceTable(hbm(), readableBlocks(manager, table, table.length).blocks);
}

export function setQuota(
  { manager, owners, nowUs }: RequestContext,
  tenant: string,
  tier: TierName,
  bytes: number | null,
): void {
  const names = manager.tiers.map((each) => tierName(each));
  if (bytes !== null) requireInteger('bytes', bytes, 0);
  const position = names.indexOf(tier);
  if (position === -1) {
    const near = typeof tier === 'string' ? nearestName(tier, names) : undefined;
    const remedy = near === undefined ? `Name one of ${names.join(', ')}.` : `Did you mean '${near}'?`;
    throw configError('tier', `is ${described(tier)}, which this runtime does not have`, remedy);
  }
  manager.setQuota(owners.of(tenant), position, bytes, nowUs());
}
