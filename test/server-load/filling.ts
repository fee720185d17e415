/**
 * What the eviction policy keeps of blocks that were let go: a row for each of the last 65,536 groups of them
 * that went together, in arrays that double as they come (src/runtime/eviction/hazard/learning.ts). A server
 * that runs fills them once.
 */

import type { KvCache } from '../../examples/server/engine/kvCache.ts';

const REQUESTS = 2 ** 16;

/** 2^16 requests, each of which finds a block and lets it go. */
export async function fillMemories({ kv, layout }: KvCache): Promise<void> {
  const tokens = Uint32Array.from({ length: layout.blockTokens + 1 }, (_, i) => i);
  const tenant = 'fills';
  for (let i = 0; i <= REQUESTS; i++) {
    const sequence = await kv.begin(tokens, { tenant, shareWaitMs: 0 });
    if (i === 0) await kv.seal(sequence);
    else if (sequence.cachedTokens === 0) throw new Error(`request ${i} found nothing`);
    kv.release(sequence);
  }
}
