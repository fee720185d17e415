/** What observed transfers would take on modeled links, each issued when it was. */

import { LinkModel, type LinkProfiles } from '../../sim/driver/index.ts';
import type { ObservedTransfer } from './observer.ts';

/**
 * @param bytes of each transfer
 * @returns microseconds, in the order of `transfers`
 */
export function priceTransfers(
  transfers: readonly ObservedTransfer[],
  links: LinkProfiles,
  bytes: number,
): Float64Array {
  const model = new LinkModel(links, { baseLatencyUs: 0, bandwidthBytesPerS: 1e15 });
  const endsUs = new Float64Array(transfers.length);
  const inOrder = transfers.map((_, i) => i).sort((a, b) => transfers[a].issue - transfers[b].issue);
  /** By link: the copy under way. */
  const copies: Map<string, { issuedUs: number; bytes: number; members: number[] }> = new Map();
  for (const i of inOrder) {
    const { link, from, to, issuedUs } = transfers[i];
    endsUs[i] = model.endUs(from, to, bytes, issuedUs);
    const most = model.batchBytes(from, to);
    const copy = copies.get(link);
    if (copy === undefined || copy.issuedUs !== issuedUs || copy.bytes + bytes > most) {
      copies.set(link, { issuedUs, bytes, members: [i] });
      continue;
    }
    copy.bytes += bytes;
    copy.members.push(i);
    for (const member of copy.members) endsUs[member] = endsUs[i];
  }
  return endsUs.map((endUs, i) => endUs - transfers[i].issuedUs);
}
