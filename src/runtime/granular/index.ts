/** Blocks of a sequence's KV at four granularities, on the one manager. */

export type { KVPoolConfig } from './config.ts';
export type { KVBlockDescriptor, PoolUnit, UnitPlace } from './descriptor.ts';
export type { FoundBlock } from './finding.ts';
export { MultiGranularKVPool, type PoolStats, type PoolTierUsage } from './multiGranularKVPool.ts';
export type { AllocateRequest, PrefixOptions } from './requests.ts';
export type { CommitOptions } from './sequences/committing.ts';
