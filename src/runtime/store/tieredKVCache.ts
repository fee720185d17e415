/**
 * HBM over host memory and disk. After a release, least recently used cached blocks are offloaded while HBM
 * holds more than the threshold; a block found below is reloaded and its tokens need no prefill. A reloaded
 * block keeps its lower copy, so that offloading it again costs nothing.
 */

import type { ManagerConfig } from '../manager/config.ts';
import type { ResolvedStoreConfig } from './config.ts';
import { ManagedKVStore } from './managedKVStore.ts';

export class TieredKVCache extends ManagedKVStore {
  constructor(config: ResolvedStoreConfig) {
    super(config, tiersOf(config));
  }

  /** Blocks that left HBM for a lower tier so far. */
  offloadCount(): number {
    return this.manager.counters.offloads;
  }

  /** Blocks brought up to HBM so far. */
  reloadCount(): number {
    return this.manager.counters.reloads.reduce((sum, reloads) => sum + reloads, 0);
  }
}

function tiersOf(config: ResolvedStoreConfig): ManagerConfig {
  const { hbmBlocks, ddrBlocks, nvmeBlocks } = config;
  return {
    unitBytes: [1],
    hbm: { capacityBytes: hbmBlocks },
    ...(ddrBlocks > 0 ? { ddr: { capacityBytes: ddrBlocks } } : {}),
    ...(nvmeBlocks > 0 ? { nvme: { capacityBytes: nvmeBlocks } } : {}),
    offloadThreshold: config.offloadThreshold,
    whenLowerFull: config.whenLowerFull,
    thrashingWindowUs: config.thrashingWindow,
    maxJobs: 4 * (hbmBlocks + Math.min(ddrBlocks, hbmBlocks) + Math.min(nvmeBlocks, hbmBlocks)) + 64,
  };
}
