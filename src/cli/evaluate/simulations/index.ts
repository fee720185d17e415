/** Cases simulated on worker threads: what a bundle comes to, kept by content, and told. */

export type { ExplainOptions, Explanation } from './explain.ts';
export type { PoolLimits } from './pool.ts';
export { type EvaluatorOptions, SimulationEvaluator } from './simulationEvaluator.ts';
