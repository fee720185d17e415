/**
 * The door `tierkv`: the runtime that a server embeds, the manager and the scheduler under it for an engine with transfers of
 * its own, and what a tier of your own is made of.
 */

import './requireNode.ts';

export type {
  DurableTier,
  OpenedTier,
  SharedTier,
  TierFacts,
  TierRequest,
  TierRow,
} from './backends/tierRow.ts';
export { registerTier } from './backends/tierRows.ts';
export { BufferUsage, MapMode, ShaderStage } from './backends/webgpu/device.ts';
export type { SlotBuffer } from './backends/webgpu/types.ts';
export { type KVTensor, type LayerTensors, packBlock, unpackBlock } from './compute/hostTensors.ts';
export type { BeginOptions, RetentionHint, Room } from './embed/begin.ts';
export type { KVRuntimeConfig } from './embed/config.ts';
export type { DeviceBlockTable, StepEnd } from './embed/context.ts';
export type { EntryEnd, StepEntry } from './embed/grow.ts';
export { KVRuntime } from './embed/kvRuntime.ts';
export type { LayerGroup } from './embed/layerGroups.ts';
export type { RuntimeMetrics } from './embed/metrics.ts';
export type { BlockUseEvent, CacheEvent } from './embed/observability.ts';
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
export { StepOutcome, StepPlan } from './runtime/batching/batch.ts';
export type { SchedulerConfig } from './runtime/batching/config.ts';
export { ManagerPort } from './runtime/batching/kvPort.ts';
export { FinishReason, type ServingRequest } from './runtime/batching/request.ts';
export { Scheduler } from './runtime/batching/scheduler.ts';
export { type ErrorCode, TierKVError } from './runtime/errors.ts';
export type { EvictionChoice } from './runtime/eviction/evictionPolicy.ts';
export { evictionPolicyNames } from './runtime/eviction/registry.ts';
export { type KVDtype, type KVLayout, type KVLayoutConfig, kvLayout } from './runtime/geometry/layout.ts';
export {
  KeyChain,
  type KeyElements,
  type KeyNamespace,
  type RequestExtra,
  type RequestExtras,
} from './runtime/keys/keyChain.ts';
export { LogReader, LogWriter } from './runtime/log/decisionLog.ts';
export { replayLog } from './runtime/log/replayer.ts';
export type { ManagerConfig, TierSize } from './runtime/manager/config.ts';
export type { Counters } from './runtime/manager/counters.ts';
export type { CachedBlock, Match, TierUsage } from './runtime/manager/lookup.ts';
export { KVManager } from './runtime/manager/manager.ts';
export type { OffloadChoice } from './runtime/manager/offloadPolicies.ts';
export { BlockTable, type Sequence } from './runtime/manager/sequence.ts';
export { type KVBudget, type KVMetrics, kvBudget, kvMetrics } from './runtime/outputs.ts';
export { loadOrRecompute } from './runtime/planning/loadOrRecompute.ts';
export { JobPriority, type Place, type Transfer } from './runtime/tables/jobTable.ts';
export type { PoolShape } from './runtime/tables/slotPool.ts';
export { type Completion, type IssuedJobs, JobCarrier, type TransferDriver } from './runtime/tier/driver.ts';
export {
  addTierName,
  Outcome,
  Tier,
  type TierName,
  type TierTitles,
  TOP,
  tierNames,
} from './runtime/tier/tier.ts';
export {
  corrupt,
  type HostTierStore,
  loaded,
  refused,
  SlotLedger,
  type StoreItem,
  type StoreResult,
  type TierStore,
  type TopTierStore,
} from './runtime/tier/tierStore.ts';
