/** The blocks of a tier that may be moved to another one, with what is known of their use. */

import type { UseHistory } from '../../usage/index.ts';
import type { Core } from '../core.ts';

export interface CachedBlock {
  /** Number of its content; used again once the content is gone. */
  readonly content: number;
  /** Four words. */
  readonly key: Uint32Array;
  readonly sizeBytes: number;
  readonly use: UseHistory;
}

export interface CachedBlocks {
  readonly blocks: readonly CachedBlock[];
  /** Where to go on looking. */
  readonly nextSlot: number;
}

const unknownUse: UseHistory = { uses: 0, firstUseUs: 0, lastUseUs: 0, frequencyAt: () => 0 };

export function cachedBlocks(core: Core, tier: number, fromSlot: number, slots: number): CachedBlocks {
  const { replicas, contents, pools, use } = core;
  const limit = pools[tier].shape.slotLimit;
  const count = Math.min(slots, limit);
  const blocks: CachedBlock[] = [];
  let slot = fromSlot < limit ? fromSlot : 0;
  for (let looked = 0; looked < count; looked++) {
    const replica = replicas.base[tier] + slot;
    slot = slot + 1 === limit ? 0 : slot + 1;
    if (replicas.evictable[replica] === 0) continue;
    const content = replicas.content[replica];
    if (contents.replica[content] < replicas.base[tier]) continue;
    blocks.push({
      content,
      key: contents.key(content),
      sizeBytes: core.unitBytes(core.sizeClassOf(replica, tier)),
      use: use === null ? unknownUse : use.of(content),
    });
  }
  return { blocks, nextSlot: slot };
}
