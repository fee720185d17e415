/** How many blocks the tiers hold now: the size of the cache for policies whose rules name one. */

import type { PolicyWorld } from '../evictionPolicy.ts';

/** Blocks of size class 0 that would take the bytes of all tiers together. */
export function blocksHeld({ tiers, residentBytes, unitBytes }: PolicyWorld): number {
  let bytes = 0;
  for (let tier = 0; tier < tiers; tier++) bytes += residentBytes[tier];
  return Math.floor(bytes / unitBytes[0]);
}
