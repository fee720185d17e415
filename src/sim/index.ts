/** BLIS: the simulator's parts. */

export { type Conservation, RequestTape } from './cluster/core.ts';
export {
  type Handoff,
  type HandoffConfig,
  type HandoffGranularity,
  type HandoffSend,
  type HandoffState,
  handoffGranularities,
} from './cluster/handoffs.ts';
export type {
  ForcedDecisions,
  PoolPart,
  SimulatedWorkload,
  SimulationKey,
  SimulationObserver,
  SimulationOptions,
  SimulationParts,
  StepSpan,
} from './cluster/parts.ts';
export type { ReplicaChange, ScaleChange, ScalingSetup } from './cluster/scaling.ts';
export { type ForkOptions, Simulation } from './cluster/simulation.ts';
export { SimulationSnapshot, type SnapshotData } from './cluster/snapshot.ts';
export { kvUtilization } from './control/admission.ts';
export type {
  ControlConfig,
  ControlCounters,
  ControlPlane,
  EndKind,
  HistoryConfig,
  ShadowConfig,
  ShadowDivergence,
  SignalConfig,
} from './control/controlPlane.ts';
export { type EnqueueResult, type FlowControl, type GatewayEntry, gateways } from './control/flowControl.ts';
export { checkControl } from './control/plane.ts';
export {
  ADMIT,
  type AdmissionDecision,
  type CandidateScore,
  type ClusterState,
  type FilteredOut,
  type ForcedRouting,
  type InstanceProbe,
  type InstanceReport,
  type InstanceSnapshot,
  type NamedPolicy,
  type ObservedKV,
  type ObservedTier,
  type ParameterValue,
  type PlainState,
  type PolicyChoice,
  type PolicyWorld,
  type PriorityHints,
  type RequestOutcome,
  type RequestPriority,
  type RequestView,
  type Role,
  type RoutingDecision,
  type SnapshotState,
  type Stay,
} from './control/policy.ts';
export {
  type NumberRule,
  type ParameterRule,
  type ParameterRules,
  type PolicyEntry,
  Registry,
} from './control/registry.ts';
export {
  type GlobalRouterMetrics,
  type HistoryPoint,
  type PrefixPlace,
  type PrefixView,
  type RouterState,
  type ShadowName,
  type ShadowView,
  shadowNames,
  type TenantState,
} from './control/routerState.ts';
export type { RoutingContext } from './control/routing/routingPolicy.ts';
export { type Scorer, scorers } from './control/routing/scorers.ts';
export {
  type AutoScaleContext,
  type AutoScalePolicy,
  type DelayDistribution,
  type DeploymentMetrics,
  type DrainMode,
  type DrainPolicy,
  drainModes,
  type LoadSample,
  type ReplicaSignals,
  type ScaleDecision,
  type ScalingActuationConfig,
  type WarmupCurve,
  type WarmupProfile,
  warmupCurves,
} from './control/scaling/autoScalePolicy.ts';
export {
  AutoScaler,
  type AutoScalerConfig,
  checkActuation,
  checkAutoScaler,
  noTriggers,
  type ReplicaAction,
  type ReplicaPhase,
  type ReplicaStart,
  Replicas,
  type ScaleTriggers,
  type ServingReplica,
} from './control/scaling/autoScaler.ts';
export {
  type Fleet,
  type MakeEngine,
  newSimulation,
  type PoolConfig,
  resumeSimulation,
  type SimulationSetup,
} from './description/deployment.ts';
export { type ParseOptions, parseWorkloadSpec } from './description/readWorkload.ts';
export {
  type ActiveWindow,
  CATEGORIES,
  type CancellationSpec,
  type Category,
  type ClientSpec,
  type CohortSpec,
  type InferencePerfSpec,
  type ModalitySpec,
  type MultimodalSpec,
  type MultiTurnSpec,
  type NetworkSpec,
  type ReasoningSpec,
  type ServeGenSpec,
  SLO_CLASSES,
  type SloClass,
  type SloTargets,
  type TrafficSpec,
  type WorkloadSpec,
} from './description/workloadSpec.ts';
export type { AdapterConfig } from './instance/adapterSlots.ts';
export type {
  CacheListener,
  EngineConfig,
  EngineCounters,
  EngineStep,
  EngineTraffic,
  InstanceEngine,
  InstanceTierMetrics,
  LinkMetrics,
  LoadTiming,
  LowerTier,
  TierReport,
} from './instance/engine.ts';
export {
  Instance,
  type InstanceConfig,
  type InstanceCounters,
  type InstanceHost,
  type InstanceLimits,
} from './instance/instance.ts';
export { PromptKeys, SimRequest, TokenTimes } from './instance/simRequest.ts';
export type { CalibratedCoefficients, EngineOverhead } from './latency/calibrated.ts';
export { weightBytes } from './latency/capacity.ts';
export { type Coefficients, parseCoefficients } from './latency/coefficients.ts';
export { type EngineMemory, type EngineMemoryOptions, engineMemory } from './latency/engineMemory.ts';
export { fitLinear, type LinearFit, type StepPrediction } from './latency/fit/linearFit.ts';
export { formatStepRecords, type StepRecord } from './latency/fit/stepRecords.ts';
export type { HybridLayers } from './latency/hybridLayers.ts';
export type { SideBlocks } from './latency/kvLayout.ts';
export {
  type BatchedRequest,
  BatchSums,
  type LatencyModel,
  type SpeculationChoice,
  type SpeculativeDecoding,
  type StepPart,
  withAdapterOverhead,
} from './latency/latencyModel.ts';
export {
  type LatencyBackend,
  latencyBackends,
  type MoeCommBackend,
  moeCommBackends,
} from './latency/latencyNames.ts';
export { Linear, type LinearCoefficients } from './latency/linear.ts';
export { type LatencySetup, newLatencyModel } from './latency/makeModel.ts';
export { type Hardware, type ModelConfig, parseHardware, parseModelConfig } from './latency/modelConfig.ts';
export type { AttentionEfficiency, GemmEfficiency } from './latency/physics.ts';
export type { TrainedPhysicsCoefficients } from './latency/trainedPhysics.ts';
export {
  Flights,
  LinkModel,
  type LinkProfile,
  type LinkProfiles,
  ModeledDriver,
  type Timeline,
} from './links/modeledDriver.ts';
export { ModeledTier } from './links/modeledTier.ts';
export { SharedServer, type SharedServerConfig, type SharedServerCounts } from './links/sharedServer.ts';
export { RequestTable, Status, ValueCounts } from './metrics/requestTable.ts';
export { classOf, meetsTargets, type Targets, type TargetsByClass } from './metrics/statistics.ts';
export * as elementary from './random/elementary.ts';
export { GoRandom, type PooledStream, StreamPool } from './random/goRand.ts';
export type { SourceState } from './random/laggedFibonacci.ts';
export type { ArrivalProcess, ArrivalSpec, LengthSpec } from './random/samplers.ts';
export { type DecisionSummary, Decisions } from './report/decisions.ts';
export {
  type ClassGoodput,
  clusterMetrics,
  type Goodput,
  type MetricsOutput,
  type RequestRow,
} from './report/metricsOutput.ts';
export type { CacheMetrics, OccupancySample } from './report/tierMetrics.ts';
export { type WekaOptions, wekaRequests, wekaSessionRequests } from './workload/agentSessions.ts';
export {
  type RequestEnd,
  SessionManager,
  type SessionManagerState,
  type SessionPlan,
} from './workload/closedLoop.ts';
export {
  bailianRequests,
  byteTokens,
  type MooncakeOptions,
  mooncakeRequests,
  type TextTraceOptions,
  type Tokenizer,
  textTraceRequests,
} from './workload/importers.ts';
export type { Limits } from './workload/plan.ts';
export { type DistributionOptions, distributionSpec, type LengthRange } from './workload/presets.ts';
export {
  type BlockRuns,
  deadlineUs,
  type ModalityTokens,
  type PromptIdentity,
  type RequestOrigin,
  type RequestStream,
  requestsOf,
  type TokenSpan,
  type WorkloadRequest,
} from './workload/request.ts';
export { type LengthFileOptions, lengthFileRequests } from './workload/tables.ts';
export { blockHashes, TokenReader } from './workload/tokens.ts';
export { type Lines, shown, TakenColumns, TraceLine } from './workload/traceLines.ts';
export { generateWorkload, type Workload } from './workload/workload.ts';
