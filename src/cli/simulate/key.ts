/** The key of a simulation: its policies by name, and the seeds of what is drawn. */

import { policiesName, type SimulationKey } from '../../sim/cluster/index.ts';
import { seedOption } from '../workload/options.ts';
import type { Options } from './input/options.ts';
import type { OpenedSimulation } from './input/workload.ts';

/** @param policies everything that decides, as plain data */
export function simulationKey(
  options: Options,
  { seed, spec }: OpenedSimulation,
  policies: readonly unknown[],
): SimulationKey {
  return {
    policies: policiesName(...policies),
    workloadSeed: spec?.seed ?? seed,
    simulationSeed: seedOption(options, 'simulationSeed', '--simulation-seed') ?? seed,
    jitterSeed: seedOption(options, 'jitterSeed', '--jitter-seed') ?? seed,
  };
}
