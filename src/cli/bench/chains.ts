/** Chains of blocks as the manager's benches cache them: chain c is the same chain in every bench and at every size. */

import { type KVManager, Outcome } from '../../runtime/index.ts';

export const CHAIN_BLOCKS = 64;

/** Writes the keys of a chain from word `at` on. From block `shared` on they are those of nobody but `own`, which is not 0. */
export function chainKeys(
  keys: Uint32Array,
  chain: number,
  at = 0,
  shared: number = CHAIN_BLOCKS,
  own = 0,
): Uint32Array {
  for (let i = 0; i < CHAIN_BLOCKS; i++) {
    keys[at + i * 4] = chain;
    keys[at + i * 4 + 1] = i;
    keys[at + i * 4 + 2] = i < shared ? 0 : own;
    keys[at + i * 4 + 3] = 7;
  }
  return keys;
}

export function cacheChain(manager: KVManager, keys: Uint32Array): void {
  const sequence = manager.open(keys, CHAIN_BLOCKS, 0);
  manager.allocate(sequence, 0, CHAIN_BLOCKS, 0);
  endJobs(manager);
  manager.seal(sequence, 0, CHAIN_BLOCKS, keys, 0, 16, 0);
  endJobs(manager);
  manager.release(sequence, 0);
  endJobs(manager);
}

function endJobs(manager: KVManager): void {
  for (let job = manager.nextJob(); job !== 0; job = manager.nextJob())
    manager.complete(job, Outcome.LOADED, 0);
}
