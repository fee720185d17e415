/**
 * The door `tierkv/views`: the names of the original design notes, each thin over the manager.
 */

export { CrossRequestKVCache, type ReuseConfig, type ReuseResult } from '../embed/crossRequestKVCache.ts';
export { type ClassifierOptions, HotColdClassifier, type Temperature } from '../embed/hotColdClassifier.ts';
export { KVMigrator, type MigrationPort, type MigrationResult } from '../embed/kvMigrator.ts';
export type { MigrationPlan, MigratorOptions } from '../embed/migrationPlan.ts';
export {
  type CacheBlockData,
  type IPagedAttentionCache,
  PagedAttentionCache,
} from '../embed/pagedAttentionCache.ts';
export { Granularity, type KVBox, type UnitConfig } from '../runtime/geometry/box.ts';
export {
  CacheAllocation,
  CachePage,
  ContinuousBatchKVCacheManager,
  compact,
  type IKVCacheManager,
  type KVCacheConfiguration,
} from './continuousBatchKVCacheManager.ts';
export { KVBlockDescriptor } from './kvBlockDescriptor.ts';
export { type KVStore, type KVStoreConfig, newKVStore, SingleTierKVStore, TieredKVCache } from './kvStore.ts';
export { MultiGranularKVPool, type PoolStats } from './multiGranularKVPool.ts';
export type { KVPoolConfig } from './poolConfig.ts';
export type { AllocateRequest, PrefixOptions } from './poolState.ts';
export type { StorageBackend, StorageTier, TierConfig, TieredStorageConfig } from './tieredConfig.ts';
export { TieredKVStorage } from './tieredKVStorage.ts';
