/** How an owner gets its quota: checked first, then put into the books of all that is cached. */

import { configError } from '../../errors.ts';
import type { Core } from '../core.ts';
import { OwnerQuotas } from './ownerQuotas.ts';

/** @throws TKV_CONFIG when the quotas of the tier would be more than its capacity */
export function requireQuotaFits(core: Core, owner: number, tier: number, bytes: number): void {
  const others = core.quotas?.quotasOfOthers(owner, tier) ?? 0;
  const left = core.capacityBytes[tier] - others;
  if (bytes <= left) return;
  throw configError(
    'quotaBytes',
    `is ${bytes}, and the tier has ${left} bytes left of ${core.capacityBytes[tier]}`,
    `Name at most ${left}, or lower the quota of another owner.`,
  );
}

export function setQuota(core: Core, owner: number, tier: number, bytes: number | null): void {
  if (bytes === null && core.quotas === null) return;
  core.quotas ??= quotasOfWhatIsCached(core);
  core.quotas.set(owner, tier, bytes);
  core.agenda.mayBeCrowded(tier); // what is protected no more may be in the way
}

function quotasOfWhatIsCached(core: Core): OwnerQuotas {
  const { tiers, replicas, ownedBytes } = core;
  const { owners } = core.config;
  const quotas = new OwnerQuotas({ tiers, owners, replicas: replicas.size, ownedBytes });
  for (let tier = 0; tier < tiers; tier++) {
    for (const replica of core.policy.dump(tier)) {
      const bytes = core.unitBytes(core.sizeClassOf(replica, tier));
      quotas.entered(replica, tier, replicas.owner[replica], bytes);
    }
  }
  return quotas;
}
