/** The manager and the stores on it: what decides where KV lies. It moves no bytes; drivers do. */

export * from './batching/index.ts';
export type { TableMemory } from './content/tableMemory.ts';
export type { Digest } from './digest.ts';
export { digestBytes, digestWords } from './digest.ts';
export { type ErrorCode, type ErrorFacts, TierKVError } from './errors.ts';
export * from './geometry/index.ts';
export * from './granular/index.ts';
export * from './keys/index.ts';
export * from './log/index.ts';
export type { ManagerConfig, ResolvedConfig, ResolvedTier, TierSize } from './manager/config.ts';
export { type Eviction, KVManager } from './manager/kvManager.ts';
export type { TierLoss } from './manager/loss.ts';
export type { AdoptedBlock } from './manager/residency/adoption.ts';
export { type MoveAnswer, moveAnswers } from './manager/residency/moving.ts';
export { type OffloadChoice, offloadPolicyNames } from './manager/residency/offloadPolicies.ts';
export type { WriteBudgetConfig } from './manager/residency/writeBudget.ts';
export {
  BlockTable,
  LoadedBlock,
  OpenBlock,
  type ReadableBlock,
  SealingBlock,
} from './manager/sequences/blockTable/handles.ts';
export {
  Entry,
  entryNames,
  type Sequence,
  type SequenceId,
} from './manager/sequences/blockTable/sequence.ts';
export { type BlockSealer, ToldBlocks } from './manager/sequences/blockTable/toldBlocks.ts';
export type { Counters } from './manager/tables/counters.ts';
export type { ManagerListener, StoredBlock } from './manager/tables/listener.ts';
export type { CachedBlock, CachedBlocks } from './manager/views/cachedBlocks.ts';
export type { ManagerDump } from './manager/views/dump.ts';
export type { Match } from './manager/views/lookup.ts';
export type { BlockPlace } from './manager/views/place.ts';
export type { TierUsage } from './manager/views/usage.ts';
export * from './migration/index.ts';
export * from './outputs/index.ts';
export * from './paged/index.ts';
export * from './planning/index.ts';
export * from './policy/index.ts';
export { type PoolShape, poolShape } from './pool/shape.ts';
export * from './reuse/index.ts';
export * from './snapshot/index.ts';
export * from './store/index.ts';
export { SlotLocks, type SlotUse } from './tier/slotLocks.ts';
export { linkName, Tier, type TierName, tierName, tierNames } from './tier/tier.ts';
export type {
  CopyItem,
  DeviceTierStore,
  HostTierStore,
  ItemEnded,
  SealItem,
  SealResult,
  StoreItem,
  StoreResult,
  TierStore,
} from './tier/tierStore.ts';
export type { Completion, EndListener, TransferDriver } from './transfer/driver.ts';
export { JobCarrier, type JobSource } from './transfer/jobCarrier.ts';
export { type JobId, Priority } from './transfer/jobTable.ts';
export { Outcome, type OutcomeName, outcomeNames } from './transfer/outcome.ts';
export type { Place, Transfer } from './transfer/transfer.ts';
export * from './usage/index.ts';
