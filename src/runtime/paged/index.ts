/** Pages for the requests of a continuous batch, over whatever holds the blocks. */

export { CacheAllocation, CachePage } from './cacheAllocation.ts';
export { type Compaction, compact } from './compaction.ts';
export type { KVCacheConfiguration, ResolvedKVCacheConfiguration } from './config.ts';
export { ContinuousBatchKVCacheManager, type IKVCacheManager } from './continuousBatchKVCacheManager.ts';
export type { BlockPlacement, CacheBlockData, IPagedAttentionCache } from './pagedAttentionCache.ts';
