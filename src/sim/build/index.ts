/** Simulations of described deployments: `simulate`, its description, and its result. */

export type { Conservation } from '../cluster/core.ts';
export type { DeploymentSpec } from '../description/knobs.ts';
export type { MetricsOutput } from '../report/metricsOutput.ts';
export type { CacheMetrics, OccupancySample } from '../report/tierMetrics.ts';
export {
  type SimulateOptions,
  type SimulationDetail,
  type SimulationResult,
  simulate,
  simulationChoices,
} from './simulate.ts';
