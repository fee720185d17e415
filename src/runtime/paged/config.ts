/** The configuration of a continuous batch's cache, with the defaults of the design note. */

import { configError, requireFraction, requireInteger } from '../errors.ts';
import { optionNames, requireOptions } from '../options.ts';

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

export const kvCacheConfigurationNames: readonly string[] = optionNames<KVCacheConfiguration>({
  pageSizeTokens: true,
  initialPagesPerRequest: true,
  maxPagesPerRequest: true,
  cacheBlockSizeBytes: true,
  targetUtilization: true,
  enableCompaction: true,
});

export type ResolvedKVCacheConfiguration = Required<KVCacheConfiguration> & {
  /** Bytes of a page: those of its tokens. */
  readonly pageBytes: number;
};

/** @throws TKV_CONFIG with the field at fault */
export function resolveCacheConfiguration(config: KVCacheConfiguration): ResolvedKVCacheConfiguration {
  requireOptions(config, kvCacheConfigurationNames, 'config', 'TKV_CONFIG');
  const pageSizeTokens = requireInteger('pageSizeTokens', config.pageSizeTokens ?? 16, 1);
  const cacheBlockSizeBytes = requireInteger('cacheBlockSizeBytes', config.cacheBlockSizeBytes ?? 1024, 1);
  const maxPagesPerRequest = requireInteger('maxPagesPerRequest', config.maxPagesPerRequest ?? 256, 1);
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
    targetUtilization: requireFraction('targetUtilization', config.targetUtilization ?? 0.85),
    enableCompaction: config.enableCompaction ?? true,
    pageBytes: pageSizeTokens * cacheBlockSizeBytes,
  };
}
