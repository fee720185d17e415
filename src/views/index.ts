/**
 * The door `tierkv/views`: the names of the original design notes, each thin over the manager of `tierkv/runtime`.
 * `TieredKVStorage` and `PagedAttentionCache`, which move bytes, are
 * exported by `tierkv`.
 */

export {
  CrossRequestKVCache,
  type ReuseConfig,
  type ReuseResult,
  type ReuseStats,
} from '../embed/crossRequestKVCache.ts';
export {
  type ClassifierOptions,
  HotColdClassifier,
  type Temperature,
  temperatures,
  type Used,
} from '../embed/hotColdClassifier.ts';
export {
  BlockMoves,
  CachedMigration,
  KVMigrator,
  type MigratableContent,
  type MigrationPort,
  type MigrationResult,
  type MigrationStats,
  type MoveEnd,
} from '../embed/kvMigrator.ts';
export {
  checkMigratorOptions,
  type MigratableBlock,
  type MigrationPlan,
  type MigrationTier,
  type MigratorOptions,
} from '../embed/migrationPlan.ts';
export type { BlockPlacement, CacheBlockData, IPagedAttentionCache } from '../embed/pagedAttentionCache.ts';
export {
  CacheAllocation,
  CachePage,
  type Compaction,
  ContinuousBatchKVCacheManager,
  compact,
  type IKVCacheManager,
  type KVCacheConfiguration,
  type ResolvedKVCacheConfiguration,
} from './continuousBatchKVCacheManager.ts';
export { KVBlockDescriptor, type PoolUnit, type UnitPlace } from './kvBlockDescriptor.ts';
export {
  type KVStore,
  type KVStoreConfig,
  ManagedKVStore,
  newKVStore,
  SingleTierKVStore,
  type StoreRequest,
  TieredKVCache,
} from './kvStore.ts';
export { MultiGranularKVPool, type PoolStats, type PoolTierUsage } from './multiGranularKVPool.ts';
export type { CommitOptions } from './poolBlocks.ts';
export type { KVPoolConfig } from './poolConfig.ts';
export type { AllocateRequest, FoundBlock, PrefixOptions } from './poolState.ts';
