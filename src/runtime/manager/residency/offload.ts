/** What the tiers' offload policies (offloadPolicies.ts) come to after blocks were let go. */

import { Priority } from '../../transfer/jobTable.ts';
import type { Core } from '../core.ts';
import { claim } from '../jobs/issuing.ts';
import type { ResolvedOffload } from './offloadPolicies.ts';
import {
  canMoveDown,
  createDemotion,
  evict,
  hasLowerCopy,
  lowerTierFor,
  makeRoom,
  victimFor,
} from './residency.ts';

/** After blocks were let go: each tier with a tier below does what its policy says. */
export function offload(core: Core): void {
  for (let tier = 0; tier + 1 < core.tiers; tier++) {
    const choice = core.config.offload[tier];
    if (choice.policy === 'threshold') trim(core, tier, choice.share);
    else if (choice.policy === 'intent') copyAhead(core, tier, choice);
    else if (choice.policy === 'eager') copyFresh(core, tier);
  }
}

/** Moves blocks down while the tier is fuller than the share and none would be lost. */
function trim(core: Core, tier: number, share: number): void {
  if (share >= 1) return;
  const limit = share * core.capacityBytes[tier];
  while (core.residentBytes[tier] > limit) {
    const victim = victimFor(core, tier, -1, 0);
    if (victim === -1 || !canMoveDown(core, victim, tier)) return;
    evict(core, victim, tier);
  }
}

function copyAhead(core: Core, tier: number, { share, ahead }: ResolvedOffload): void {
  if (core.residentBytes[tier] <= share * core.capacityBytes[tier]) return;
  for (const replica of core.policy.upcoming(tier, ahead)) copyDown(core, replica, tier);
}

/** Copies what became evictable since the last time, in that order. */
function copyFresh(core: Core, tier: number): void {
  const { fresh } = core.agenda;
  const replicas = fresh[tier].splice(0);
  for (const replica of replicas) if (core.replicas.evictable[replica] === 1) copyDown(core, replica, tier);
}

/** The block stays where it is: a copy of it goes to the next tier that takes it. */
function copyDown(core: Core, replica: number, tier: number): void {
  const content = core.replicas.content[replica];
  if (hasLowerCopy(core, content, tier)) return;
  const owner = core.contents.owner[content];
  const lower = lowerTierFor(core, tier, core.sizeClassOf(replica, tier), owner, false);
  if (lower === -1) return;
  const row = createDemotion(core, content, replica, lower, Priority.WRITE_THROUGH);
  if (row === -1) return;
  makeRoom(core, lower, 0, owner);
  claim(core, row);
}
