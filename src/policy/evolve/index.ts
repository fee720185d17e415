/** Policies as data: read, bound, scored, explained and searched. */

export {
  type PoolLimits,
  type TaskRunner,
  type Unanswered,
  WorkerPool,
} from '../../io/workerPool.ts';
export { classOf, meetsTargets } from '../../sim/metrics/statistics.ts';
export {
  defaultLimits,
  type EvaluateOptions,
  type EvaluatorOptions,
  evaluate,
  SimulationEvaluator,
} from '../evaluate/evaluator.ts';
export { openPolicy } from '../evaluate/openPolicy.ts';
export { loadPlan, type PlanChanges } from '../evaluate/plans.ts';
export type { CaseTask, ExplainOptions, Explanation, TaskResult } from '../evaluate/runCase.ts';
export { loadProgram } from '../sandbox/loadProgram.ts';
export type { PolicyLanguage } from '../sandbox/program.ts';
export {
  type Budget,
  type DecisionShape,
  type InputKind,
  type InputShape,
  InputTable,
  Meter,
  PolicyError,
  type PolicyErrorFacts,
  type PolicyErrorKind,
  type PolicyFunction,
  type PolicyInstance,
  type PolicyProgram,
  policyErrorKinds,
  policyLanguages,
  quoted,
  type Signature,
} from '../sandbox/program.ts';
export { repr } from '../sandbox/starlark/operations.ts';
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
export { openRunner } from '../workers/openRunner.ts';
export type { CaseAnswer, TaskAnswer, TaskKind, Tasks } from '../workers/thread.ts';
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
export { baseline, policyId, preset, presets } from './bundle/presets.ts';
export { parseBundle } from './bundle/readBundle.ts';
export { cachedBlocks, dueUs, type EngineFacts, type SchedulingFacts } from './features/scheduling.ts';
export type {
  CaseResult,
  Evaluation,
  EvaluationError,
  EvaluationPlan,
  Evaluator,
  SuiteCase,
  SuiteName,
} from './fitness/evaluation.ts';
export {
  metricsText,
  type ObjectiveSpec,
  type Scalariser,
  type ScoreMode,
  type Scoring,
  scalarisers,
  scoreModes,
} from './fitness/objectives.ts';
export type { RawMetrics } from './fitness/rawMetrics.ts';
export {
  type Chosen,
  choose,
  type GenerationRecord,
  type Judged,
  judge,
  type SearchPlan,
  type SearchState,
} from './search/breeding.ts';
export { SearchBudget } from './search/budget.ts';
export type { Individual, Origin, SlotGuide, SlotGuides } from './search/individual.ts';
export type { ProgramFields } from './search/programs.ts';
export type { BySetting, Rung } from './search/racing.ts';
export { Search } from './search/search.ts';
export {
  type Elite,
  type FeatureAxis,
  type Grid,
  hypervolume,
  type IslandsState,
  type Objectives,
} from './search/selection.ts';
export type { TreeAction, TreeFeature, TreeVocabulary } from './search/trees.ts';
export {
  EvaluationService,
  type RequestId,
  type Response,
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
export { type RoutingRecord, type TraceLevel, traceLevels } from './trace/records.ts';
export type { Alternative, Regret } from './trace/regret.ts';
