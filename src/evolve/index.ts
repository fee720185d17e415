/** Policies as data: read, bound, scored, explained and searched. */

export {
  defaultLimits,
  type EvaluateOptions,
  type EvaluatorOptions,
  evaluate,
  SimulationEvaluator,
} from '../evaluate/evaluator.ts';
export { openPolicy } from '../evaluate/openPolicy.ts';
export { loadPlan, type PlanChanges, planNames } from '../evaluate/plans.ts';
export type { CaseTask, ExplainOptions, Explanation, TaskResult } from '../evaluate/runCase.ts';
export type { PolicyLanguage } from '../sandbox/program.ts';
export { classOf, meetsTargets } from '../sim/metrics/statistics.ts';
export { openRunner } from '../workers/openRunner.ts';
export type { CaseAnswer, Tasks } from '../workers/thread.ts';
export {
  type PoolLimits,
  type TaskAnswer,
  type TaskKind,
  type TaskRunner,
  type Unanswered,
  WorkerPool,
} from '../workers/workerPool.ts';
export { type BoundBundle, bindBundle } from './binding/bind.ts';
export { batchRules, type RankAll, type RankingRule, victimRules } from './bundle/batchRules.ts';
export {
  type CodePolicy,
  type DecisionTreePolicy,
  type ParameterizedPolicy,
  type PolicyBundle,
  type PolicySlot,
  type PolicySpec,
  policySlots,
  type TreeBranch,
  type TreeComparison,
  type TreeLeaf,
  type TreeNode,
} from './bundle/policyBundle.ts';
export {
  baseline,
  canonicalJson,
  contentHash,
  policyId,
  preset,
  presets,
  withItsScheduler,
} from './bundle/presets.ts';
export { bundleLimits, parseBundle, readBundle, treeComparisons } from './bundle/readBundle.ts';
export { bundleSchema, describePolicies, descriptionText, type PolicyDescription } from './bundle/schema.ts';
export {
  evictionPolicies,
  observerFunction,
  type SlotAction,
  type SlotContract,
  type SlotFunction,
  schedulerOrders,
  slotContracts,
  treeFeatures,
} from './bundle/slots.ts';
export { type ClusterFacts, clusterFeatures, type RouterFacts, routerFeatures } from './features/cluster.ts';
export {
  anyIsReported,
  type Feature,
  type FeatureKind,
  type FeatureTable,
  type FeatureValue,
  type Freshness,
} from './features/feature.ts';
export {
  cacheFeatures,
  type InstanceFacts,
  instanceFeatures,
  type MemoryName,
  memoryNames,
  memoryOf,
} from './features/instance.ts';
export { outcomeFeatures, type RequestFacts, requestFeatures } from './features/request.ts';
export { scalingFeatures } from './features/scaling.ts';
export {
  cachedBlocks,
  dueUs,
  type EngineFacts,
  engineFeatures,
  type SchedulingFacts,
  schedulingFeatures,
  uncachedTokens,
} from './features/scheduling.ts';
export {
  type CaseResult,
  type Evaluation,
  type EvaluationError,
  type EvaluationPlan,
  type Evaluator,
  meansBySetting,
  type SuiteCase,
  type SuiteName,
  settingOf,
  suiteNames,
} from './fitness/evaluation.ts';
export {
  caseScore,
  FAILED_SCORE,
  GAIN_MAX,
  GAIN_MIN,
  gainOf,
  gainsOf,
  isMetricName,
  type MetricDescription,
  metricDescriptions,
  metricsText,
  type ObjectiveSpec,
  policyNodes,
  type Scalariser,
  type ScoreMode,
  type Scoring,
  scalarisers,
  scoreModes,
} from './fitness/objectives.ts';
export {
  attainmentOf,
  LOST_MS,
  type LostTimes,
  type RawMetrics,
  RunWatch,
  rawMetrics,
} from './fitness/rawMetrics.ts';
export {
  type Chosen,
  choose,
  finalistsOf,
  type GenerationRecord,
  type Judged,
  judge,
  readState,
  type SearchPlan,
  type SearchState,
} from './search/breeding.ts';
export { SearchBudget, TimeIsUp } from './search/budget.ts';
export type { Individual, Origin, SlotGuide, SlotGuides } from './search/individual.ts';
export type { ProgramFields } from './search/programs.ts';
export type { BySetting, Rung } from './search/racing.ts';
export { Search } from './search/search.ts';
export { firstPolicies, slotGuides } from './search/seeds.ts';
export {
  type BranchState,
  dominates,
  type Elite,
  type FeatureAxis,
  type Grid,
  hypervolume,
  type IslandsState,
  type Objectives,
  paretoRanks,
} from './search/selection.ts';
export type { TreeAction, TreeFeature, TreeVocabulary } from './search/trees.ts';
export {
  EvaluationService,
  type RequestId,
  type Response,
  type ScenarioAnswer,
  type ServiceAnswer,
  type ServiceOptions,
  type Texts,
} from './serve.ts';
export {
  defaultSummary,
  type RequestFact,
  type RunFacts,
  type SummaryConfig,
  type SummaryStrategy,
  summarise,
  summaryStrategies,
} from './summary.ts';
export {
  type Anomaly,
  type AnomalyType,
  anomalyTypes,
  type Severity,
  severities,
} from './trace/anomalies.ts';
export { TraceRecorder } from './trace/recorder.ts';
export { type RoutingRecord, type TraceLevel, type TraceRecord, traceLevels } from './trace/records.ts';
export { type Alternative, type Regret, regretsOf, sampleDecisions } from './trace/regret.ts';
