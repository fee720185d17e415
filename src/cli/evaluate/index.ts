/** Bundles judged by simulation. */

export { loadPlan, planNames } from './plans.ts';
export type { PoolLimits } from './pool.ts';
export { type EvaluatorOptions, SimulationEvaluator } from './simulationEvaluator.ts';
