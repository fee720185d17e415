/** One call from a description to what a simulation of it came to. */

import { formatCount } from '../printing/text.ts';
import { TierKVError } from '../runtime/errors.ts';
import type { Conservation } from '../sim/cluster/core.ts';
import { clusterMetrics, type MetricsOutput, metricsOutput } from '../sim/report/metricsOutput.ts';
import { buildPlanned, runToEnd } from './build.ts';
import type { BuiltSimulation } from './built.ts';
import { goodputTargets, requireKnownTargets } from './options.ts';
import { planSimulation } from './plan.ts';
import { askedFor, type DeploymentSpec, inFieldNames } from './spec.ts';

export interface SimulationResult {
  /** Of the whole run, as `tierkv simulate` prints them. */
  readonly metrics: MetricsOutput;
  /** Of each instance. */
  readonly instances: readonly MetricsOutput[];
  /** Where every request was at the end. */
  readonly conservation: Conservation;
  /** GPUs of all instances. */
  readonly gpus: number;
}

/**
 * Simulates a deployment under its workload, on virtual time: the same description gives the same result.
 * @throws {TierKVError} TKV_CONFIG with the field at fault; TKV_CAPACITY where no request has room
 */
export function simulate(spec: DeploymentSpec): SimulationResult {
  return inFieldNames(() => {
    const plan = planSimulation(undefined, askedFor(spec).options);
    const { options } = plan;
    const built = runToEnd((skipsKeys) => buildPlanned(plan, { skipsKeys }));
    requireKnownTargets(options, built.opened.spec === undefined ? classesOf(built) : []);
    requireRoom(built);
    const { table, instances } = built.simulation;
    return {
      metrics: clusterMetrics(table, instances, goodputTargets(options, built.opened.spec), false),
      instances: instances.map(({ id }, i) => metricsOutput(table, instances, id, i, false)),
      conservation: built.conservation,
      gpus: built.gpus(),
    };
  });
}

/** Classes of the requests that a run had. */
export function classesOf({ simulation: { table } }: BuiltSimulation): Set<string> {
  const classes = new Set<string>();
  for (let row = 0; row < table.size; row++) classes.add(table.originOf(row).sloClass);
  return classes;
}

/** Refuses a deployment on which no request of the workload has room. */
export function requireRoom({
  deployment,
  conservation,
}: BuiltSimulation & { conservation: Conservation }): void {
  const { injected, unservable } = conservation;
  if (injected === 0 || unservable < injected) return;
  const sizes = deployment.pools.map(({ engine: { hbmBlocks, blockTokens } }) => {
    return `${formatCount(hbmBlocks)} blocks of ${formatCount(blockTokens)} tokens`;
  });
  throw new TierKVError(
    'TKV_CAPACITY',
    `none of ${formatCount(injected)} requests fits: an instance has ${sizes.join(', or ')}, and each request ` +
      'needs more, or is longer than the model takes. Give more KV blocks (--hbm) or ' +
      'a larger --max-model-len, or serve shorter prompts.',
    { field: '--hbm' },
  );
}
