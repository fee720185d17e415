/** Whether the simulations of a plan can have another number of instances than they begin with. */

import type { PolicyBundle } from '../../../evolve/bundle/index.ts';
import type { EvaluationPlan } from '../../../evolve/fitness/index.ts';
import { configError } from '../../../runtime/errors.ts';

/** Arguments of `tierkv simulate` with which instances may come and go. */
const scalingArguments = ['--deployment', '--policy-config', '--model-autoscaler-interval-us'];

export function planScales({ suites }: EvaluationPlan): boolean {
  return suites.train[0].args.some((arg) => scalingArguments.includes(arg.split('=')[0]));
}

/** @throws TKV_CONFIG for a bundle that would scale, and cannot */
export function refuseIdleScaling({ autoScale }: PolicyBundle, plan: EvaluationPlan): void {
  if (autoScale === undefined || planScales(plan)) return;
  if (autoScale.type === 'parameterized' && autoScale.template === 'none') return;
  const remedy = 'Leave the slot out, or take --plan scaling.';
  throw configError('autoScale', 'decides nothing where the plan scales no instances', remedy);
}
