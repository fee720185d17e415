/** Evaluation plans: the ones that tierkv brings, and those of a file. */

export { loadPlan, type PlanChanges, planNames } from './load.ts';
export { planScales, refuseIdleScaling } from './scales.ts';
