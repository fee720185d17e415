/**
 * The door `tierkv/views`: the names of the original design notes, each thin over the manager of `tierkv/runtime`.
 * `TieredKVStorage` and `PagedAttentionCache`, which move bytes, are exported by `tierkv`.
 */

export {
  type BlockPlacement,
  CacheAllocation,
  type CacheBlockData,
  CachePage,
  type Compaction,
  ContinuousBatchKVCacheManager,
  compact,
  type IKVCacheManager,
  type IPagedAttentionCache,
  type KVCacheConfiguration,
  type ResolvedKVCacheConfiguration,
} from './continuousBatchKVCacheManager.ts';
export {
  CrossRequestKVCache,
  type ReuseConfig,
  type ReuseResult,
  type ReuseStats,
  SharingGroups,
} from './crossRequestKVCache.ts';
export {
  type ClassifierOptions,
  HotColdClassifier,
  type Temperature,
  temperatures,
  type Used,
} from './hotColdClassifier.ts';
export {
  BlockMoves,
  CachedMigration,
  checkMigratorOptions,
  KVMigrator,
  type MigratableBlock,
  type MigratableContent,
  type MigrationPlan,
  type MigrationPort,
  type MigrationResult,
  type MigrationStats,
  type MigrationTier,
  type MigratorOptions,
  type MoveEnd,
} from './kvMigrator.ts';
export {
  type KVStore,
  type KVStoreConfig,
  ManagedKVStore,
  newKVStore,
  SingleTierKVStore,
  type StoreRequest,
  TieredKVCache,
} from './kvStore.ts';
export {
  type CommitOptions,
  MultiGranularKVPool,
  type PoolStats,
  type PoolTierUsage,
} from './multiGranularKVPool.ts';
export { KVBlockDescriptor, type KVPoolConfig, type PoolUnit, type UnitPlace } from './poolConfig.ts';
export type { AllocateRequest, FoundBlock, PrefixOptions } from './poolState.ts';
