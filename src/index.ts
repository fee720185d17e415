/**
 * tierkv's front door: the runtime that a server embeds. Parts and drivers of your own: `tierkv/runtime`,
 * `tierkv/backends`.
 */

import './requireNode.ts';

export { BufferUsage, MapMode, ShaderStage } from './backends/webgpu/device.ts';
export {
  type KVTensor,
  type LayerTensors,
  packBlock,
  type TensorPlace,
  unpackBlock,
} from './compute/hostTensors.ts';
export type { BeginOptions, RetentionHint, Room } from './embed/begin.ts';
export type { BlockExtra } from './embed/blockBook.ts';
export type { BlockPort, HeldBlock, PromptOptions, PromptUnit, PromptUnits } from './embed/blockPort.ts';
export type { KVRuntimeConfig } from './embed/config.ts';
export type { DeviceBlockTable, StepEnd } from './embed/context.ts';
export type { EntryEnd, StepEntry } from './embed/grow.ts';
export {
  KVRuntime,
  type LookupOptions,
  type NextPartOptions,
  type OpenUnit,
  type PrefetchOptions,
} from './embed/kvRuntime.ts';
export type { LayerGroup } from './embed/layerGroups.ts';
export type { WaitOptions } from './embed/managerLoop.ts';
export type { RuntimeMetrics } from './embed/metrics.ts';
export type { BlockUseEvent, CacheEvent, EventOptions } from './embed/observability.ts';
export { PagedAttentionCache } from './embed/pagedAttentionCache.ts';
export { ReadyLayers } from './embed/partialPrefill.ts';
export { RequestQueue, WaitingRequest } from './embed/reuse.ts';
export type { KVRequest } from './embed/scheduledRequest.ts';
export {
  type FinishedRequest,
  KVScheduler,
  type KVSchedulerConfig,
  type KVStepOutcome,
  type KVStepPlan,
  type PlannedRequest,
  type SampledToken,
} from './embed/scheduler.ts';
export type { KVSequence, PrefillPart } from './embed/sequenceState.ts';
export type { OpenStores, StoreConfig } from './embed/stores.ts';
export { type ErrorCode, type ErrorFacts, TierKVError } from './runtime/errors.ts';
export { type KVLayout, kvLayout } from './runtime/geometry/layout.ts';
export type { KeyElements, RequestExtra, RequestExtras } from './runtime/keys/keyChain.ts';
export {
  type CalibratedLink,
  type StorageBackend,
  type StorageTier,
  type StoredUnit,
  storageTiers,
  type TierConfig,
  type TieredStorageConfig,
} from './views/tieredConfig.ts';
export { type StorageTierUsage, TieredKVStorage } from './views/tieredKVStorage.ts';
