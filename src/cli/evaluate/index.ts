/** Bundles judged by simulation. */

export type { ExplainOptions, Explanation } from './explain.ts';
export { openPolicy } from './openPolicy.ts';
export { loadPlan, type PlanChanges, planNames } from './plans.ts';
export type { PoolLimits } from './pool.ts';
export { type EvaluatorOptions, SimulationEvaluator } from './simulationEvaluator.ts';
