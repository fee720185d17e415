/** The manager and the scheduler, as other rooms of the sources import them. They decide where KV lies and move no bytes. */

export { StepOutcome, StepPlan } from './batching/batch.ts';
export type { SchedulerConfig } from './batching/config.ts';
export type { SchedulerCounters } from './batching/core.ts';
export { ManagerPort } from './batching/kvPort.ts';
export { finishReasonNames, type ServingRequest } from './batching/request.ts';
export { type AbortResult, type RequestProgress, type RequestRank, Scheduler } from './batching/scheduler.ts';
export type { Digest } from './digest.ts';
export { TierKVError } from './errors.ts';
export type { EvictionChoice } from './eviction/evictionPolicy.ts';
export { defaultEviction, evictionPolicyNames, resolvePolicy } from './eviction/registry.ts';
export { boxBytes, intersect, type KVBox, requireBox } from './geometry/box.ts';
export {
  choosePageBytes,
  type KVLayout,
  kvLayout,
  layoutFingerprint,
  requireKVLayout,
} from './geometry/layout.ts';
export { countRuns, valuesPerCopyRun, writeCopyRuns } from './geometry/runs.ts';
export { blake2s } from './keys/blake2s.ts';
export {
  BlockKeys,
  ExternalKeys,
  elementAt,
  KeyChain,
  type KeyElements,
  type KeyNamespace,
  keyToHex,
  type RequestExtras,
  requireElements,
  wordsPerKey,
} from './keys/keyChain.ts';
export { LogReader, LogWriter } from './log/decisionLog.ts';
export { DecisionOp, type DecisionSink, InputOp, type SchedulerHead } from './log/decisionSink.ts';
export { LogReplayer } from './log/replayer.ts';
export type { ManagerConfig, TierSize } from './manager/config.ts';
export type { ManagerListener } from './manager/core.ts';
export type { Match } from './manager/lookup.ts';
export { KVManager } from './manager/manager.ts';
export type { ManagerObserver } from './manager/observer.ts';
export type { OffloadChoice, WriteBudgetConfig } from './manager/offloadPolicies.ts';
export type { TopTier, WipedSlot } from './manager/openings.ts';
export {
  BlockTable,
  Entry,
  OpenBlock,
  type ReadableBlock,
  type Sequence,
  type SequenceId,
} from './manager/sequence.ts';
export { type KVBudget, type KVMetrics, kvBudget, kvMetrics } from './outputs.ts';
export {
  type ComputeEstimate,
  type FoundPrefix,
  isOurs,
  nextPart,
  passArrived,
  squaresOf,
  type TwoEndedPart,
} from './planning/loadOrRecompute.ts';
export { ComputePace } from './planning/pace.ts';
export { type JobId, JobPriority, type Transfer } from './tables/jobTable.ts';
export { type PoolShape, poolShape } from './tables/slotPool.ts';
export type { TableMemory } from './tables/tableMemory.ts';
export {
  type Completion,
  type EndListener,
  type IssuedJobs,
  JobCarrier,
  type TransferDriver,
} from './tier/driver.ts';
export {
  linkName,
  Outcome,
  outcomeNames,
  Tier,
  type TierName,
  TOP,
  tierName,
  tierNames,
  tierTitle,
} from './tier/tier.ts';
export type { HostTierStore, StoreResult, TierStore } from './tier/tierStore.ts';
export { isHostStore } from './tier/tierStore.ts';
