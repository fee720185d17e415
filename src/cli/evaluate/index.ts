/** Bundles judged by simulation. */

export { openPolicy } from './openPolicy.ts';
export { loadPlan, type PlanChanges, planNames, planScales, refuseIdleScaling } from './plans/index.ts';
export {
  type EvaluatorOptions,
  type ExplainOptions,
  type Explanation,
  type PoolLimits,
  SimulationEvaluator,
} from './simulations/index.ts';
