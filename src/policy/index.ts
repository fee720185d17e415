/**
 * The door `tierkv/sim`: described deployments simulated, the cheapest one found, and the parts of the simulator: workloads,
 * models of latency, and simulations that run step by step; and policies as data, evaluated and searched by simulation. In a page
 * it has `simulate`.
 */

import '../requireNode.ts';

export type { TaskRunner } from '../io/workerPool.ts';
export * from '../studies/index.ts';
export { type EvaluateOptions, evaluate, SimulationEvaluator } from './evaluate/evaluator.ts';
export { openPolicy } from './evaluate/openPolicy.ts';
export { loadPlan } from './evaluate/plans.ts';
export type { Explanation } from './evaluate/runCase.ts';
export {
  type PolicyBundle,
  type PolicySlot,
  type PolicySpec,
  policySlots,
} from './evolve/bundle/policyBundle.ts';
export { baseline, policyId, preset, presets } from './evolve/bundle/presets.ts';
export { parseBundle } from './evolve/bundle/readBundle.ts';
export type { CaseResult, Evaluation, EvaluationPlan, Evaluator } from './evolve/fitness/evaluation.ts';
export type { ObjectiveSpec, Scoring } from './evolve/fitness/objectives.ts';
export type { RawMetrics } from './evolve/fitness/rawMetrics.ts';
export type { SearchPlan } from './evolve/search/breeding.ts';
export { SearchBudget } from './evolve/search/budget.ts';
export type { Individual } from './evolve/search/individual.ts';
export { Search } from './evolve/search/search.ts';
export { hypervolume } from './evolve/search/selection.ts';
export { EvaluationService } from './evolve/serve.ts';
export { loadProgram } from './sandbox/loadProgram.ts';
export { PolicyError, type PolicyLanguage, type PolicyProgram } from './sandbox/program.ts';
export { openRunner } from './workers/openRunner.ts';
