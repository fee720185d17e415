/** The door `tierkv/sim` in a page or a worker: `simulate`, with the data files of the package in it and no disk. */

export {
  type SimulateOptions,
  type SimulationResult,
  simulate,
  simulationChoices,
} from './build/simulate.ts';
export type { DeploymentSpec } from './description/knobs.ts';
export type { MetricsOutput } from './report/metricsOutput.ts';
export type { CacheMetrics, OccupancySample } from './report/tierMetrics.ts';
