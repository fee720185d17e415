/**
 * Pages for the requests of a continuous batch, all or nothing: an allocation or extension that does not fit
 * leaves everything as it was. Usage is what is allocated, to the byte. When releases leave the pages of the
 * pool sparsely used, blocks are moved together so that whole pages come free.
 */

import { configError, requireInteger, TierKVError } from '../errors.ts';
import { CacheAllocation } from './cacheAllocation.ts';
import { type Compaction, compact } from './compaction.ts';
import {
  type KVCacheConfiguration,
  type ResolvedKVCacheConfiguration,
  resolveCacheConfiguration,
} from './config.ts';
import type { IPagedAttentionCache } from './pagedAttentionCache.ts';

export interface IKVCacheManager {
  allocateCache(requestId: string, maxTokens: number): number;
  releaseCache(requestId: string): void;
  getCurrentUsageBytes(): number;
  tryExtendCache(requestId: string, additionalTokens: number): boolean;
  getAllocation(requestId: string): CacheAllocation | undefined;
  compactCache(): Compaction;
}

const nothingMoved: Compaction = { movedBlocks: 0, freedPages: 0 };

export class ContinuousBatchKVCacheManager implements IKVCacheManager {
  readonly config: ResolvedKVCacheConfiguration;
  readonly #cache: IPagedAttentionCache<unknown, unknown>;
  readonly #allocations: Map<string, CacheAllocation> = new Map();
  #pages = 0;

  /** @throws TKV_CONFIG with the field at fault, also when a page is not as large as a block of the cache */
  constructor(cache: IPagedAttentionCache<unknown, unknown>, config: KVCacheConfiguration = {}) {
    this.config = resolveCacheConfiguration(config);
    const { pageBytes, pageSizeTokens } = this.config;
    if (pageBytes !== cache.blockBytes) {
      throw configError(
        'cacheBlockSizeBytes',
        `makes pages of ${pageBytes} bytes, and the blocks of the cache have ${cache.blockBytes}`,
        `Name ${cache.blockBytes / pageSizeTokens}, the bytes of a token in that cache.`,
      );
    }
    this.#cache = cache;
  }

  /** Requests that have an allocation. */
  get size(): number {
    return this.#allocations.size;
  }

  /**
   * Gives the request pages for `maxTokens` tokens, and at least the initial ones. 0 tokens get those alone.
   * @returns bytes that it has now
   * @throws TKV_STATE when it has an allocation already, TKV_CAPACITY for more than the pages of one request
   * or the whole cache hold, TKV_FULL when there is no room now; nothing is allocated then
   */
  allocateCache(requestId: string, maxTokens: number): number {
    requireInteger('maxTokens', maxTokens, 0);
    if (this.#allocations.has(requestId)) {
      throw new TierKVError(
        'TKV_STATE',
        `requestId ${requestId} has an allocation. Extend it, or release it first.`,
        { field: 'requestId' },
      );
    }
    const { pageSizeTokens, pageBytes, initialPagesPerRequest } = this.config;
    const pages = Math.max(initialPagesPerRequest, Math.ceil(maxTokens / pageSizeTokens));
    this.#requireCanEverFit(maxTokens, pages);
    const blocks = this.#take(pages);
    if (blocks === null) {
      throw new TierKVError(
        'TKV_FULL',
        `${pages} pages find no room, ${this.#cache.getFreeBlockCount()} are free. Release others first.`,
        { field: 'maxTokens' },
      );
    }
    const page = { tokens: pageSizeTokens, bytes: pageBytes };
    const allocation = new CacheAllocation(requestId, maxTokens, this.#cache.nowUs(), page);
    allocation.addPages(blocks);
    this.#allocations.set(requestId, allocation);
    return allocation.totalBytesAllocated;
  }

  /** Lets the request's pages go, the last first. A request that has none is no error. */
  releaseCache(requestId: string): void {
    const allocation = this.#allocations.get(requestId);
    if (allocation === undefined) return;
    this.#allocations.delete(requestId);
    for (let i = allocation.pageCount - 1; i >= 0; i--) {
      this.#cache.releaseBlock(allocation.pages[i].blockIndex);
    }
    this.#pages -= allocation.pageCount;
    if (this.config.enableCompaction) this.compactCache();
  }

  /** Bytes of all allocations. */
  getCurrentUsageBytes(): number {
    return this.#pages * this.config.pageBytes;
  }

  /**
   * Room for so many tokens more than the request asked for so far; pages that it has are used first.
   * @returns false, with nothing changed, when it would have too many pages or they find no room
   * @throws TKV_UNKNOWN_ID for a request without an allocation
   */
  tryExtendCache(requestId: string, additionalTokens: number): boolean {
    requireInteger('additionalTokens', additionalTokens, 0);
    const allocation = this.#allocations.get(requestId);
    if (allocation === undefined) {
      throw new TierKVError('TKV_UNKNOWN_ID', `requestId ${requestId} has no allocation. Allocate first.`, {
        field: 'requestId',
      });
    }
    const tokens = allocation.requestedTokens + additionalTokens;
    const pages = Math.ceil(tokens / this.config.pageSizeTokens);
    if (pages > this.config.maxPagesPerRequest) return false;
    const missing = Math.max(0, pages - allocation.pageCount);
    const blocks = this.#take(missing);
    if (blocks === null) return false;
    allocation.addPages(blocks);
    allocation.requestedTokens = tokens;
    return true;
  }

  getAllocation(requestId: string): CacheAllocation | undefined {
    return this.#allocations.get(requestId);
  }

  /**
   * Below the target utilisation, starts to move blocks together. Block numbers stay; where the blocks lie
   * changes when their copies end, so read block tables anew then.
   */
  compactCache(): Compaction {
    const { placement } = this.#cache;
    if (placement === undefined || placement.utilization() >= this.config.targetUtilization) {
      return nothingMoved;
    }
    return compact(placement);
  }

  #take(pages: number): readonly number[] | null {
    if (pages === 0) return [];
    const blocks = this.#cache.allocateBlock(pages);
    if (blocks.length === 0) return null;
    this.#pages += pages;
    return blocks;
  }

  #requireCanEverFit(maxTokens: number, pages: number): void {
    const most = Math.min(this.config.maxPagesPerRequest, this.#cache.getTotalBlockCount());
    if (pages <= most) return;
    throw new TierKVError(
      'TKV_CAPACITY',
      `maxTokens is ${maxTokens}, which takes ${pages} pages, and a request has at most ${most}. ` +
        'Ask for fewer, or raise maxPagesPerRequest or the cache.',
      { field: 'maxTokens' },
    );
  }
}
