/** Telling of items whose results are all there: each once, after the call has returned. */

import type { ItemEnded, StoreResult } from '../../runtime/tier/tierStore.ts';

export async function tellEnds(
  results: readonly StoreResult[],
  ended: ItemEnded | undefined,
): Promise<readonly StoreResult[]> {
  await undefined;
  results.forEach((result, index) => {
    ended?.(index, result);
  });
  return results;
}
