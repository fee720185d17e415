/** Simulations by name: a deployment and its workload described, run, and told. */

export type { Conservation } from '../sim/cluster/core.ts';
export type { MetricsOutput } from '../sim/report/metricsOutput.ts';
export { type SimulationResult, simulate } from './simulate.ts';
export type { ChosenPolicy, DeploymentSpec, LengthChoice } from './spec.ts';
