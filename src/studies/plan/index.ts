/** Finds the cheapest deployment that meets targets, by simulations, and says how sure the answer is. */

export type { TaskRunner } from '../../io/workerPool.ts';
export type { DeploymentChoice, RoutingName } from './choice.ts';
export {
  type NextConstraint,
  type PlanAnswer,
  type PlanCheck,
  type PlanOption,
  type PlanOptions,
  type PlanProgress,
  plan,
  simulateCommandOf,
} from './plan.ts';
export type { PlanQuestion, PlanRole, PlanWorkload } from './question.ts';
export type { FigureName, PlanTargets, TargetMeasured } from './targets.ts';
