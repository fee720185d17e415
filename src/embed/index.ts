/** The runtime as embedders use it. */

export type { RemoteConfig } from '../backends/remote/remoteTier.ts';
export type { BeginOptions, RetentionHint, Room } from './begin.ts';
export type { BlockExtra } from './blockBook.ts';
export type { BlockPort, HeldBlock, PromptOptions, PromptUnit, PromptUnits } from './blockPort.ts';
export type { KVRuntimeConfig } from './config.ts';
export type { DeviceBlockTable, StepEnd } from './context.ts';
export type { EntryEnd, StepEntry } from './grow.ts';
export {
  KVRuntime,
  type LookupOptions,
  type NextPartOptions,
  type OpenUnit,
  type PrefetchOptions,
  type RuntimeObserver,
} from './kvRuntime.ts';
export type { LayerGroup } from './layerGroups.ts';
export type { WaitOptions } from './managerLoop.ts';
export type { RuntimeMetrics } from './metrics.ts';
export type {
  AskedRequest,
  BlockUseEvent,
  CacheEvent,
  EventOptions,
  RequestObserver,
  RequestWatch,
} from './observability.ts';
export { PagedAttentionCache } from './pagedAttentionCache.ts';
export type { ReadyLayers } from './partialPrefill.ts';
export type { RequestQueue, WaitingRequest } from './reuse.ts';
export type { KVRequest } from './scheduledRequest.ts';
export {
  type FinishedRequest,
  KVScheduler,
  type KVSchedulerConfig,
  type KVStepOutcome,
  type KVStepPlan,
  type PlannedRequest,
  type SampledToken,
} from './scheduler.ts';
export type { KVSequence, PrefillPart } from './sequenceState.ts';
export { type OpenStores, openStores, type StoreConfig } from './stores.ts';
export {
  type CalibratedLink,
  type StorageBackend,
  type StorageTier,
  type StoredUnit,
  storageTiers,
  type TierConfig,
  type TieredStorageConfig,
} from './tieredConfig.ts';
export { type StorageTierUsage, TieredKVStorage } from './tieredKVStorage.ts';
