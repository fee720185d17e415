/** Simulations of described deployments: `simulate`, its description, and its result. */

export type { Conservation } from '../sim/cluster/core.ts';
export type { DeploymentSpec } from '../sim/description/knobs.ts';
export type { MetricsOutput } from '../sim/report/metricsOutput.ts';
export type { CacheMetrics, OccupancySample } from '../sim/report/tierMetrics.ts';
export {
  type SimulateOptions,
  type SimulationDetail,
  type SimulationResult,
  simulate,
  simulationChoices,
} from './simulate.ts';
