/** HBM only: blocks are cached until their room is needed, then dropped. */

import type { ResolvedStoreConfig } from './config.ts';
import { ManagedKVStore } from './managedKVStore.ts';

export class SingleTierKVStore extends ManagedKVStore {
  constructor(config: ResolvedStoreConfig) {
    super(config, {
      unitBytes: [1],
      hbm: { capacityBytes: config.hbmBlocks },
      maxJobs: 4 * config.hbmBlocks + 64,
    });
  }
}
