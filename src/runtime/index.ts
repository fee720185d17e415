/** The door `tierkv/runtime`: the manager and the scheduler. They decide where KV lies and move no bytes; drivers do. */

export { StepOutcome, StepPlan } from './batching/batch.ts';
export {
  type PreemptionMode,
  publishNames,
  type ResolvedSchedulerConfig,
  type SchedulerConfig,
} from './batching/config.ts';
export type { SchedulerCounters, SchedulerNames } from './batching/core.ts';
export { type KVPort, ManagerPort, type ManagerPortConfig } from './batching/kvPort.ts';
export { FinishReason, finishReasonNames, type ServingRequest } from './batching/request.ts';
export {
  type AbortResult,
  type RequestProgress,
  type RequestRank,
  Scheduler,
  type StepResult,
} from './batching/scheduler.ts';
export {
  type AddedRequest,
  SchedulerDecision,
  SchedulerInput,
  type SchedulerSink,
} from './batching/schedulerSink.ts';
export { type Digest, digestBytes } from './digest.ts';
export { type ErrorCode, type ErrorFacts, TierKVError } from './errors.ts';
export type { EvictionChoice, Retention, Visit } from './eviction/evictionPolicy.ts';
export { defaultEviction, evictionPolicyNames, resolvePolicy } from './eviction/registry.ts';
export {
  type Axis,
  boxBytes,
  boxShape,
  type CoveringUnit,
  contains,
  cover,
  Granularity,
  type GranularityName,
  intersect,
  type KVBox,
  requireBox,
  rowOffsetBytes,
  split,
  type UnitConfig,
  type UnitSpec,
  unitBox,
  unitCount,
  unitSpec,
} from './geometry/box.ts';
export {
  choosePageBytes,
  dtypeBytes,
  type KVDtype,
  type KVLayout,
  type KVLayoutConfig,
  kvLayout,
  layoutFingerprint,
  type PageSize,
  type PageSizeOptions,
  requireKVLayout,
} from './geometry/layout.ts';
export {
  countRuns,
  type RunArray,
  valuesPerCopyRun,
  writeBlockRuns,
  writeCopyRuns,
} from './geometry/runs.ts';
export { blake2s } from './keys/blake2s.ts';
export {
  BlockKeys,
  ExternalKeys,
  type ExternalNamespace,
  elementAt,
  KeyChain,
  type KeyElements,
  type KeyNamespace,
  type KeySource,
  keyToHex,
  type RequestExtra,
  type RequestExtras,
  requireElements,
  wordsPerKey,
} from './keys/keyChain.ts';
export { type LogOutput, LogReader, LogWriter, type RecordedInput } from './log/decisionLog.ts';
export { DecisionOp, type DecisionSink, InputOp, type SchedulerHead } from './log/decisionSink.ts';
export { LogReplayer, type ReplayListener, replayLog } from './log/replayer.ts';
export type { RecordedSchedulerInput } from './log/schedulerLog.ts';
export { type MoveAnswer, moveAnswers } from './manager/blocks.ts';
export type { ManagerConfig, ResolvedConfig, ResolvedTier, TierSize } from './manager/config.ts';
export type { ManagerListener, StoredBlock } from './manager/core.ts';
export type { Counters } from './manager/counters.ts';
export type { ManagerDump } from './manager/dump.ts';
export type { BlockPlace, CachedBlock, CachedBlocks, Match, TierUsage } from './manager/lookup.ts';
export type { AdoptedBlock, NamedBlock, SharedBlock, TierLoss } from './manager/loss.ts';
export { type Eviction, KVManager } from './manager/manager.ts';
export type { ManagerObserver } from './manager/observer.ts';
export { type OffloadChoice, offloadPolicyNames, type WriteBudgetConfig } from './manager/offloadPolicies.ts';
export { Openings, type TopTier, type WipedSlot } from './manager/openings.ts';
export {
  BlockTable,
  Entry,
  entryNames,
  LoadedBlock,
  OpenBlock,
  type ReadableBlock,
  SealingBlock,
  type Sequence,
  type SequenceId,
} from './manager/sequence.ts';
export {
  type KVBudget,
  type KVMetrics,
  kvBudget,
  kvMetrics,
  type TierBudget,
  type TierMetrics,
} from './outputs.ts';
export {
  type ComputeEstimate,
  type FoundPrefix,
  isOurs,
  type LoadEstimate,
  type LoadPlan,
  loadOrRecompute,
  nextPart,
  type PrefixLeft,
  passArrived,
  planOf,
  squaresOf,
  type TwoEndedPart,
} from './planning/loadOrRecompute.ts';
export { ComputePace, LinkPace } from './planning/pace.ts';
export {
  restoreState,
  type SavedState,
  type Stateful,
  type StateVisitor,
  saveState,
  type TypedArray,
} from './snapshot.ts';
export { BlockUse, type UseHistory, type UseRates, useRates } from './tables/contentTable.ts';
export { type JobId, JobPriority, type Place, type Transfer } from './tables/jobTable.ts';
export { type PoolShape, poolShape } from './tables/slotPool.ts';
export type { TableMemory } from './tables/tableMemory.ts';
export {
  type Completion,
  type EndListener,
  type IssuedJobs,
  JobCarrier,
  type JobSource,
  type TransferDriver,
} from './tier/driver.ts';
export {
  linkName,
  Outcome,
  type OutcomeName,
  outcomeNames,
  Tier,
  type TierName,
  type TierTitles,
  TOP,
  tierName,
  tierNames,
  tierTitle,
} from './tier/tier.ts';
export type {
  CopyItem,
  HostTierStore,
  ItemEnded,
  SealItem,
  SealResult,
  StoreItem,
  StoreResult,
  TierStore,
  TopTierStore,
} from './tier/tierStore.ts';
export { isHostStore, type SlotUse } from './tier/tierStore.ts';
