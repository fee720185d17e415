/** KV of one request for another one: within a tenant or a declared group, and never across. */

export {
  CrossRequestKVCache,
  type ReuseConfig,
  type ReuseResult,
  type ReuseStats,
} from './crossRequestKVCache.ts';
export { SharingGroups } from './sharingGroups.ts';
