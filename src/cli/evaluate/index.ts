/** Bundles judged by simulation. */

export { openPolicy } from './openPolicy.ts';
export { loadPlan, type PlanChanges, planNames } from './plans/index.ts';
export {
  type EvaluatorOptions,
  type ExplainOptions,
  type Explanation,
  type PoolLimits,
  SimulationEvaluator,
} from './simulations/index.ts';
