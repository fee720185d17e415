/** One call from a policy to its evaluation on a plan. */

import os from 'node:os';
import type { PolicyBundle } from '../evolve/bundle/policyBundle.ts';
import type { Evaluation, EvaluationPlan, SuiteName } from '../evolve/fitness/evaluation.ts';
import { type PoolLimits, SimulationEvaluator } from './evaluator.ts';
import { loadPlan } from './plans.ts';

export interface EvaluateOptions extends Partial<PoolLimits> {
  /** Which cases of the plan. Default `train`. */
  readonly suite?: SuiteName;
  /** Where results are kept between runs. */
  readonly cacheFolder?: string;
  readonly signal?: AbortSignal;
}

/** One simulation takes two minutes and 4 GiB at most, and there is a thread for each core. */
export function defaultLimits(): PoolLimits {
  return { workers: os.availableParallelism(), wallMs: 120_000, heapMiB: 4096 };
}

/**
 * Scores a policy on the cases of a plan, on worker threads. The result is the same for any number of threads.
 * @param plan a name of `planNames`, the path of a JSON file, or a plan
 * @returns score and metrics; a policy that cannot run has its `error` there
 * @throws the signal's reason after a stop, TKV_CONFIG for a plan or a baseline that cannot be run
 */
export async function evaluate(
  bundle: PolicyBundle,
  plan: string | EvaluationPlan = 'routing',
  { suite = 'train', cacheFolder, signal, ...limits }: EvaluateOptions = {},
): Promise<Evaluation> {
  const evaluator = new SimulationEvaluator({
    plan: typeof plan === 'string' ? loadPlan(plan) : plan,
    limits: { ...defaultLimits(), ...limits },
    ...(cacheFolder === undefined ? {} : { cacheFolder }),
  });
  try {
    const [evaluation] = await evaluator.evaluate([bundle], suite, signal);
    return evaluation;
  } finally {
    await evaluator.close();
  }
}
