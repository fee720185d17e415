/**
 * Pages for the requests of a continuous batch, over a paged cache: allocation all or nothing, extension, release,
 * and compaction of sparsely used pages. Usage is what is allocated, to the byte.
 */

import type { BlockPlacement, IPagedAttentionCache } from '../embed/pagedAttentionCache.ts';
import { configError, requireInteger, TierKVError } from '../runtime/errors.ts';
import * as is from '../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../runtime/options.ts';

/** A page of a `CacheAllocation`, and the block that holds it. */
export class CachePage {
  readonly pageIndex: number;
  readonly startToken: number;
  readonly tokenCount: number;
  /** The block of the paged cache that holds it. */
  readonly blockIndex: number;

  constructor(pageIndex: number, tokenCount: number, blockIndex: number) {
    this.pageIndex = pageIndex;
    this.startToken = pageIndex * tokenCount;
    this.tokenCount = tokenCount;
    this.blockIndex = blockIndex;
  }

  /** The first token behind the page. */
  get endToken(): number {
    return this.startToken + this.tokenCount;
  }
}

/** The pages of one request of a `ContinuousBatchKVCacheManager`. */
export class CacheAllocation {
  readonly requestId: string;
  /** In microseconds of the cache's clock. */
  readonly allocatedTimeUs: number;
  /** Tokens that were asked for, extensions included; `totalTokensAllocated` have room. */
  requestedTokens: number;
  readonly #pageTokens: number;
  readonly #pageBytes: number;
  readonly #pages: CachePage[] = [];

  constructor(
    requestId: string,
    requestedTokens: number,
    allocatedTimeUs: number,
    page: { readonly tokens: number; readonly bytes: number },
  ) {
    is.name().read(requestId, 'requestId');
    requireInteger('requestedTokens', requestedTokens, 0);
    is.fields({ tokens: is.number(), bytes: is.number() }).read(page, 'page');
    this.requestId = requestId;
    this.requestedTokens = requestedTokens;
    this.allocatedTimeUs = allocatedTimeUs;
    this.#pageTokens = page.tokens;
    this.#pageBytes = page.bytes;
  }

  get pages(): readonly CachePage[] {
    return this.#pages;
  }

  get pageCount(): number {
    return this.#pages.length;
  }

  get totalTokensAllocated(): number {
    return this.#pages.length * this.#pageTokens;
  }

  get totalBytesAllocated(): number {
    return this.#pages.length * this.#pageBytes;
  }

  /** In microseconds. */
  age(nowUs: number): number {
    return nowUs - this.allocatedTimeUs;
  }

  /** For the cache manager: adds pages at the end. */
  addPages(blocks: readonly number[]): void {
    for (const block of blocks) this.#pages.push(new CachePage(this.#pages.length, this.#pageTokens, block));
  }
}

// Compaction empties sparsely used pages: copy jobs move their blocks onto fuller ones. A page is a source if
// everything on it can be moved and fits on used pages that are not sources, so each emptied page comes free when its
// copies have ended. The sparsest page goes first: it costs the fewest copies.

interface Compaction {
  /** Copies that were started. */
  readonly movedBlocks: number;
  /** Pages that are free once these have ended. */
  readonly freedPages: number;
}

/** Moves blocks together, so that whole pages become free. */
export function compact(placement: BlockPlacement): Compaction {
  checkInputs({ placement }, { placement: is.fields({ movableBlocks: is.func() }) });
  const { blocksPerPage } = placement;
  const emptied = new Set<number>();
  let room = placement.freeOnUsedPages();
  let movedBlocks = 0;
  let freedPages = 0;
  for (const [page, blocks] of sources(placement)) {
    const others = room - (blocksPerPage - blocks.length);
    if (blocks.length > others) break; // no page behind it has fewer blocks
    const moved = emptyPage(placement, page, blocks, emptied);
    movedBlocks += moved;
    if (moved < blocks.length) continue;
    emptied.add(page);
    freedPages++;
    room = others - moved;
  }
  return { movedBlocks, freedPages };
}

/** Pages on which nothing but movable blocks lies, with room beside them; the sparsest first. */
function sources(placement: BlockPlacement): [page: number, blocks: number[]][] {
  const byPage = new Map<number, number[]>();
  for (const index of placement.movableBlocks()) {
    const page = placement.pageOf(index);
    const blocks = byPage.get(page);
    if (blocks === undefined) byPage.set(page, [index]);
    else blocks.push(index);
  }
  return [...byPage]
    .filter(([page, { length }]) => length === placement.takenOn(page) && length < placement.blocksPerPage)
    .sort(([pageA, a], [pageB, b]) => a.length - b.length || pageB - pageA);
}

function emptyPage(
  placement: BlockPlacement,
  page: number,
  blocks: readonly number[],
  emptied: ReadonlySet<number>,
): number {
  let moved = 0;
  for (const index of blocks) {
    const target = placement.nextPage();
    if (target === -1 || target === page || emptied.has(target) || !placement.move(index)) break;
    moved++;
  }
  return moved;
}

// The configuration of a continuous batch's cache, with the defaults of the design note.

/** Configuration of a `ContinuousBatchKVCacheManager`. */
export interface KVCacheConfiguration {
  /** Tokens of a page. Default 16. */
  readonly pageSizeTokens?: number;
  /** Pages that a request gets at least. Default 16. */
  readonly initialPagesPerRequest?: number;
  /** Pages that a request gets at most. Default 256. */
  readonly maxPagesPerRequest?: number;
  /** Bytes of one token's KV. Default 1024. */
  readonly cacheBlockSizeBytes?: number;
  /** Below this share of taken places on pages in use, compaction is worth it. Default 0.85. */
  readonly targetUtilization?: number;
  /** Whether a release compacts by itself below the target. Default true. */
  readonly enableCompaction?: boolean;
}

const kvCacheConfigurationTable = optionTable(
  {
    pageSizeTokens: is.optional(is.integer(1), 16),
    initialPagesPerRequest: is.optional(is.passed()),
    maxPagesPerRequest: is.optional(is.integer(1), 256),
    cacheBlockSizeBytes: is.optional(is.integer(1), 1024),
    targetUtilization: is.optional(is.fraction(), 0.85),
    enableCompaction: is.optional(is.flag(), true),
  } satisfies Kinds<KVCacheConfiguration>,
  'TKV_CONFIG',
);

type ResolvedKVCacheConfiguration = Required<KVCacheConfiguration> & {
  /** Bytes of a page: those of its tokens. */
  readonly pageBytes: number;
};

/** @throws TKV_CONFIG with the field at fault */
function resolveCacheConfiguration(config: KVCacheConfiguration): ResolvedKVCacheConfiguration {
  const read = kvCacheConfigurationTable.read(config, 'config');
  const pageSizeTokens = read.pageSizeTokens;
  const cacheBlockSizeBytes = read.cacheBlockSizeBytes;
  const maxPagesPerRequest = read.maxPagesPerRequest;
  const initialPagesPerRequest = requireInteger(
    'initialPagesPerRequest',
    config.initialPagesPerRequest ?? Math.min(16, maxPagesPerRequest),
    0,
  );
  if (initialPagesPerRequest > maxPagesPerRequest) {
    throw configError(
      'initialPagesPerRequest',
      `is ${initialPagesPerRequest}, more than maxPagesPerRequest (${maxPagesPerRequest})`,
      'Lower it, or raise maxPagesPerRequest.',
    );
  }
  return {
    pageSizeTokens,
    initialPagesPerRequest,
    maxPagesPerRequest,
    cacheBlockSizeBytes,
    targetUtilization: read.targetUtilization,
    enableCompaction: read.enableCompaction,
    pageBytes: pageSizeTokens * cacheBlockSizeBytes,
  };
}

// The cache manager. An allocation or extension that does not fit leaves everything as it was. When releases leave
// the pool's pages sparsely used, blocks are moved together so that whole pages come free.

/** The calls of `ContinuousBatchKVCacheManager` in the design notes. */
export interface IKVCacheManager {
  allocateCache(requestId: string, maxTokens: number): number;
  releaseCache(requestId: string): void;
  getCurrentUsageBytes(): number;
  tryExtendCache(requestId: string, additionalTokens: number): boolean;
  getAllocation(requestId: string): CacheAllocation | undefined;
  compactCache(): Compaction;
}

const nothingMoved: Compaction = { movedBlocks: 0, freedPages: 0 };

/** The KV of a batch in pages: each request gets some, and extends all or nothing. */
export class ContinuousBatchKVCacheManager implements IKVCacheManager {
  readonly config: ResolvedKVCacheConfiguration;
  readonly #cache: IPagedAttentionCache<unknown, unknown>;
  readonly #allocations: Map<string, CacheAllocation> = new Map();
  #pages = 0;

  /** @throws TKV_CONFIG with the field at fault, also if a page and a block of the cache differ in size */
  constructor(cache: IPagedAttentionCache<unknown, unknown>, config: KVCacheConfiguration = {}) {
    checkInputs(
      { cache, config },
      { cache: is.fields({ allocateBlock: is.func() }), config: is.optional(is.object()) },
    );
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
   * Gives the request pages for `maxTokens` tokens, and at least the initial ones. 0 tokens get only these.
   * @returns bytes of the allocation
   * @throws TKV_STATE if it has an allocation already, TKV_CAPACITY for more pages than one request or the whole
   * cache may hold, TKV_FULL if room is missing now; nothing is allocated then
   */
  allocateCache(requestId: string, maxTokens: number): number {
    is.name('Name the request.').read(requestId, 'requestId');
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

  /** Releases the request's pages, the last first. Unknown ids have no effect. */
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
   * Room for `additionalTokens` tokens beyond those asked for so far; pages with room are used first.
   * @returns false, with nothing changed, if the request would exceed its pages or they do not fit
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
    const blocks = this.#take(missing, allocation.pageCount > 0);
    if (blocks === null) return false;
    allocation.addPages(blocks);
    allocation.requestedTokens = tokens;
    return true;
  }

  getAllocation(requestId: string): CacheAllocation | undefined {
    return this.#allocations.get(requestId);
  }

  /**
   * Starts to move blocks together if utilisation is below the target. Block numbers stay; places change when the
   * copies end, so read block tables anew then.
   */
  compactCache(): Compaction {
    const { placement } = this.#cache;
    if (placement === undefined || placement.utilization() >= this.config.targetUtilization) {
      return nothingMoved;
    }
    return compact(placement);
  }

  #take(pages: number, goesOn = false): readonly number[] | null {
    if (pages === 0) return [];
    const blocks = this.#cache.allocateBlock(pages, goesOn);
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
