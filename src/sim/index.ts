/** BLIS: the simulator's parts. */

export { nearestName, unknownName } from '../runtime/errors.ts';
export { loadProgram } from '../sandbox/loadProgram.ts';
export {
  type Budget,
  type DecisionShape,
  decidedInput,
  type InputKind,
  type InputShape,
  InputTable,
  invalidDecision,
  Meter,
  mentions,
  PolicyError,
  type PolicyErrorFacts,
  type PolicyErrorKind,
  type PolicyFunction,
  type PolicyInstance,
  type PolicyLanguage,
  type PolicyProgram,
  policyErrorKinds,
  policyLanguages,
  quoted,
  requireChoice,
  requireChoicePlace,
  requireIndex,
  requireNumber,
  requireSignature,
  SCALARS,
  type Signature,
} from '../sandbox/program.ts';
export { repr } from '../sandbox/starlark/operations.ts';
export {
  StarlarkInstance,
  StarlarkProgram,
} from '../sandbox/starlark/starlarkPolicy.ts';
export {
  type FieldKind,
  RecordShape,
  StarDict,
  StarFloat,
  StarFunction,
  StarList,
  StarRecord,
  StarTuple,
  type Value,
} from '../sandbox/starlark/value.ts';
export { textHash } from '../sandbox/wasm/wasmPolicy.ts';
export { type Conservation, conservationOf, RequestTape } from './cluster/core.ts';
export {
  type Handoff,
  type HandoffConfig,
  type HandoffCounters,
  type HandoffGranularity,
  type HandoffSend,
  type HandoffState,
  handoffGranularities,
} from './cluster/handoffs.ts';
export {
  eventPriorities,
  type ForcedDecisions,
  keyOfSeed,
  observers,
  type PoolPart,
  policiesName,
  SimEvent,
  type SimulatedWorkload,
  type SimulationKey,
  type SimulationObserver,
  type SimulationOptions,
  type SimulationParts,
  type StepSpan,
} from './cluster/parts.ts';
export type { ReplicaChange, ScaleChange, ScalingSetup } from './cluster/scaling.ts';
export { type ForkOptions, Simulation } from './cluster/simulation.ts';
export { SimulationSnapshot, type SnapshotData, snapshotVersion } from './cluster/snapshot.ts';
export {
  type AdmissionPolicy,
  admissionPolicies,
  kvUtilization,
  utilizationSaturation,
} from './control/admission.ts';
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
export {
  type PrefillDecodeDecider,
  type PrefillDecodeDecision,
  prefillDecodeDeciders,
} from './control/disaggregation.ts';
export { type EnqueueResult, type FlowControl, type GatewayEntry, gateways } from './control/flowControl.ts';
export {
  type ControlWorld,
  checkControl,
  defaultControl,
  type MadePolicies,
  PolicyControlPlane,
} from './control/plane.ts';
export {
  ADMIT,
  type AdmissionDecision,
  type CandidateScore,
  type ClusterState,
  effectiveLoad,
  estimatedWaitUs,
  type FilteredOut,
  type ForcedRouting,
  type InstanceProbe,
  type InstanceReport,
  type InstanceSnapshot,
  type NamedPolicy,
  noMemory,
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
  StatelessPolicy,
  type Stay,
} from './control/policy.ts';
export { type PriorityPolicy, priorityPolicies, SloPriorities } from './control/priority.ts';
export {
  checkParameters,
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
export { type InstanceScore, instanceScores, routingPolicies } from './control/routing/routing.ts';
export type {
  RoutingChoice,
  RoutingContext,
  RoutingPolicy,
  ScorePart,
} from './control/routing/routingPolicy.ts';
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
  warmupFactor,
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
export { scalingPolicies } from './control/scaling/registry.ts';
export {
  checkDeployment,
  type Fleet,
  type MakeEngine,
  newSimulation,
  type PoolConfig,
  resumeSimulation,
  type SimulationSetup,
} from './description/deployment.ts';
export { lengthSpecOf } from './description/distribution.ts';
export { type ParseOptions, parseWorkloadSpec, readWorkloadSpec } from './description/readWorkload.ts';
export {
  type ActiveWindow,
  CATEGORIES,
  type CancellationSpec,
  type Category,
  type ClientSpec,
  type CohortSpec,
  type InferencePerfSpec,
  isClosedLoop,
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
export { formatWorkloadSpec } from './description/writeWorkload.ts';
export type { AdapterConfig } from './instance/adapterSlots.ts';
export {
  type CacheListener,
  type EngineConfig,
  type EngineCounters,
  type EngineStep,
  type EngineTraffic,
  type InstanceEngine,
  type InstanceTierMetrics,
  type LinkMetrics,
  type LoadTiming,
  type LowerTier,
  managerConfigOf,
  type TierReport,
} from './instance/engine.ts';
export {
  Instance,
  type InstanceConfig,
  type InstanceCounters,
  type InstanceHost,
  type InstanceLimits,
} from './instance/instance.ts';
export { SchedulerEngine } from './instance/schedulerEngine.ts';
export { KeysNeeded, PromptKeys, SimRequest, TokenTimes } from './instance/simRequest.ts';
export { horizonFromInt64, NO_HORIZON, VirtualClock } from './kernel/clock.ts';
export { EventQueue, type EventQueueState, RANKS } from './kernel/eventQueue.ts';
export { Calibrated, type CalibratedCoefficients, type EngineOverhead } from './latency/calibrated.ts';
export {
  automaticBlockCount,
  type BlockCountOptions,
  fitLink,
  kvBytesPerToken,
  type LinkCalibration,
  type LinkSample,
  linkSchema,
  parseLinkCalibration,
  weightBytes,
} from './latency/capacity.ts';
export { type Coefficients, coefficientSchema, parseCoefficients } from './latency/coefficients.ts';
export {
  type EngineMemory,
  type EngineMemoryOptions,
  engineMemory,
  localKvBytesPerToken,
  localWeightBytes,
} from './latency/engineMemory.ts';
export {
  crossValidate,
  type Fold,
  fitEngine,
  kernelCoefficients,
  type ModelLookup,
  predictRecords,
  prepareRecords,
  type RecordPrediction,
} from './latency/fit/engineFit.ts';
export {
  composedPrefillUs,
  type DecodeSample,
  type GemmSample,
  isWarmUp,
  type KernelTables,
  type PrefillSample,
  parseDecodeTable,
  parseGemmTable,
  parsePrefillTable,
  predictDecodeAttention,
  predictGemm,
  predictPrefillAttention,
  prefillTokenRange,
} from './latency/fit/kernelFit.ts';
export {
  fitLinear,
  type LinearFit,
  largePrefillTokens,
  nonNegativeLeastSquares,
  type Regime,
  regimeOf,
  regimes,
  type Score,
  type StepPrediction,
  scoreOf,
  scoresBy,
} from './latency/fit/linearFit.ts';
export {
  type MeasuredRequest,
  type MeasuredRunFile,
  type RunFormat,
  readMeasuredRun,
  runFormats,
} from './latency/fit/measuredRuns.ts';
export { fitRun, type MeasuredRun, replayRun } from './latency/fit/runFit.ts';
export {
  type BatchLimits,
  type RequestTimes,
  replayRequests,
  type StepSeen,
} from './latency/fit/runReplay.ts';
export {
  averageStep,
  batchOf,
  formatStepRecords,
  parseEngineLog,
  parseRunSummaries,
  parseStepRecords,
  type RunSummary,
  type StepRecord,
} from './latency/fit/stepRecords.ts';
export type { HybridLayers } from './latency/hybridLayers.ts';
export type { SideBlocks } from './latency/kvLayout.ts';
export {
  type BatchedRequest,
  BatchSums,
  type LatencyModel,
  type Parallelism,
  type SpeculationChoice,
  type SpeculativeDecoding,
  type StepPart,
  sumBatch,
  toTicks,
  withAdapterOverhead,
} from './latency/latencyModel.ts';
export {
  type LatencyBackend,
  latencyBackends,
  type MoeCommBackend,
  moeCommBackends,
} from './latency/latencyNames.ts';
export { Linear, type LinearCoefficients, linearFeatures, linearTerms } from './latency/linear.ts';
export { type LatencySetup, newLatencyModel } from './latency/makeModel.ts';
export {
  type Hardware,
  type ModelConfig,
  modelFileName,
  parseHardware,
  parseModelConfig,
  parseUpstreamHardware,
  requireKnownName,
} from './latency/modelConfig.ts';
export {
  type AttentionEfficiency,
  type EngineShape,
  engineShape,
  expertsTouched,
  FlooredModel,
  type GemmEfficiency,
  gemmUs,
  PhysicalFloor,
  type PhysicalWork,
} from './latency/physics.ts';
export { Roofline } from './latency/roofline.ts';
export { TrainedPhysics, type TrainedPhysicsCoefficients } from './latency/trainedPhysics.ts';
export {
  Flights,
  LinkModel,
  type LinkProfile,
  type LinkProfiles,
  ModeledDriver,
  modeledDigest,
  type Timeline,
  TransferTimeline,
} from './links/modeledDriver.ts';
export { ModeledTier } from './links/modeledTier.ts';
export { SharedServer, type SharedServerConfig, type SharedServerCounts } from './links/sharedServer.ts';
export { RequestTable, Status, statusNames, ValueCounts } from './metrics/requestTable.ts';
export {
  classOf,
  countedMeanMs,
  countedPercentileMs,
  jainIndex,
  meanMs,
  meetsTargets,
  metTargets,
  percentile,
  percentileMs,
  type Summary,
  summarize,
  type Targets,
  type TargetsByClass,
  wasTurnedAway,
} from './metrics/statistics.ts';
export * as elementary from './random/elementary.ts';
export {
  fnv1a64,
  GoRandom,
  PartitionedRandom,
  type PooledStream,
  partitionSeed,
  StreamPool,
} from './random/goRand.ts';
export type { SourceState } from './random/laggedFibonacci.ts';
export {
  type ArrivalProcess,
  type ArrivalSampler,
  type ArrivalSpec,
  arrivalSampler,
  gammaVariate,
  type LengthSampler,
  type LengthSpec,
  lengthSampler,
  MAX_LENGTH_TOKENS,
  normalizedExponentialGaps,
  weibullScale,
  weibullShape,
} from './random/samplers.ts';
export {
  ChromeTrace,
  type DecisionSummary,
  Decisions,
  headOfLineBlocking,
  priorityInversions,
} from './report/decisions.ts';
export {
  type Attained,
  attainedOf,
  type ClassGoodput,
  type ClassSummary,
  classSummaries,
  clusterMetrics,
  type Goodput,
  goodputOf,
  hitRateOf,
  type MetricsOutput,
  metricsOutput,
  type RequestRow,
  requestRow,
  type SessionSummary,
  sessionSummary,
  type TenantSummary,
  tenantSummaries,
} from './report/metricsOutput.ts';
export {
  compareRecorded,
  type MetricComparison,
  type RecordedComparison,
  type RequestTiming,
} from './report/recordedComparison.ts';
export { type ScaleRecord, ScaleRecords, type ScalingOf, ScalingReport } from './report/scaling.ts';
export {
  type CacheMetrics,
  cacheMetrics,
  Occupancy,
  type OccupancySample,
  Spread,
  type TransferMetrics,
  transferMetrics,
} from './report/tierMetrics.ts';
export {
  type WekaOptions,
  wekaFields,
  wekaRequests,
  wekaSessionFields,
  wekaSessionRequests,
} from './workload/agentSessions.ts';
export {
  type BenchmarkedRequest,
  benchmarkedRequests,
  benchmarkFields,
  benchmarkRequests,
} from './workload/benchmarkOutput.ts';
export {
  type RequestEnd,
  SessionManager,
  type SessionManagerState,
  type SessionPlan,
} from './workload/closedLoop.ts';
export {
  bailianFields,
  bailianRequests,
  byteTokens,
  type MooncakeOptions,
  mooncakeFields,
  mooncakeRequests,
  type TextTraceOptions,
  type Tokenizer,
  textTraceFields,
  textTraceRequests,
  tokenIdFields,
  tokenIdRequests,
} from './workload/importers.ts';
export { diurnalWindows, drainWindows, type Limits } from './workload/plan.ts';
export {
  type DistributionOptions,
  distributionSpec,
  type LengthRange,
  type LoadProfile,
  PRESETS,
  parseProfile,
  presetLengths,
  profileWindows,
  timeoutUsOf,
  withProfile,
  withTimeout,
} from './workload/presets.ts';
export {
  type BlockRuns,
  deadlineUs,
  type ModalityTokens,
  maxRequestTokens,
  type PromptIdentity,
  type RequestOrigin,
  type RequestStream,
  requestsOf,
  SESSION_TIMEOUT_US,
  type TokenSpan,
  type WorkloadRequest,
} from './workload/request.ts';
export {
  fitLognormal,
  type Histogram,
  type ServeGenChunk,
  type ServeGenLengths,
  type ServeGenWindow,
  servegenCohorts,
  servegenLengths,
  servegenWindows,
} from './workload/servegen.ts';
export {
  type Distribution,
  distributionOf,
  type GroupSummary,
  WorkloadDigest,
  WorkloadSummarizer,
  type WorkloadSummary,
} from './workload/summary.ts';
export {
  azureColumns,
  azureRequests,
  burstColumns,
  burstRequests,
  type ColumnMapping,
  type LengthFileOptions,
  lengthFileRequests,
  mappedRequests,
  parseColumnMapping,
} from './workload/tables.ts';
export { blockHash, blockHashes, TokenReader, VOCABULARY } from './workload/tokens.ts';
export {
  CsvHeader,
  type Lines,
  shown,
  shownPlain,
  splitCsv,
  TakenColumns,
  TraceLine,
} from './workload/traceLines.ts';
export {
  type ClosedLoopTrace,
  closedLoopTrace,
  readTraceHeader,
  recordedRequests,
  TRACE_VERSION,
  type TraceColumns,
  type TraceHeader,
  type TraceHeaderFields,
  type TraceTiming,
  type TraceV2Record,
  traceColumns,
  traceHeader,
  traceRecords,
  traceRow,
  traceV2Columns,
} from './workload/traceV2.ts';
export { generateWorkload, type Workload } from './workload/workload.ts';
