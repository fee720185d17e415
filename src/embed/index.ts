/** The runtime as embedders use it. */

export type { WaitOptions } from './abort.ts';
export type { PrefillPart } from './arriving/arrivingPrefix.ts';
export type { ReadyLayers } from './arriving/readyLayers.ts';
export type { KVRuntimeConfig } from './config.ts';
export { KVRuntime, type PrefetchOptions } from './kvRuntime.ts';
export type { LayerGroup } from './layerGroups.ts';
export type { BlockUse, CacheEvent, EventOptions } from './outputs/events.ts';
export type { Metrics } from './outputs/metrics.ts';
export { PagedAttentionCache } from './paged/pagedAttentionCache.ts';
export type { RequestQueue, WaitingRequest } from './prompts/requestQueue.ts';
export type { BeginOptions, RetentionHint } from './requests/beginOptions.ts';
export type { DeviceBlockTable } from './requests/blockTables.ts';
export type { StepEnd } from './requests/context.ts';
export type { EntryEnd, StepEntry } from './requests/growing.ts';
export type { KVSequence } from './requests/kvSequence.ts';
export type { Room } from './requests/room/admitting.ts';
export type { LookupOptions, OpenUnit } from './runtimeViews.ts';
export { KVScheduler, type KVSchedulerConfig } from './scheduling/kvScheduler.ts';
export type { KVStepPlan, PlannedRequest } from './scheduling/kvStepPlan.ts';
export type { KVRequest } from './scheduling/scheduledRequest.ts';
export type { FinishedRequest, KVStepOutcome, SampledToken } from './scheduling/stepResults.ts';
export type { NextPartOptions } from './sequenceCalls.ts';
export { type OpenStores, openStores, type StoreConfig } from './stores/openStores.ts';
export type { TieredStorageConfig } from './tiered/openTiers.ts';
export type { StorageBackend, StoredUnit } from './tiered/storageBackend.ts';
export { type CalibratedLink, type StorageTier, storageTiers, type TierConfig } from './tiered/tierConfig.ts';
export { type StorageTierUsage, TieredKVStorage } from './tiered/tieredKVStorage.ts';
