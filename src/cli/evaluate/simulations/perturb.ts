/**
 * A workload that is a little different: rate and lengths times factors that are drawn from a key, so that a
 * search does not learn one workload by heart. The same key gives the same factors.
 */

import { type LengthSpec, PartitionedRandom } from '../../../sim/random/index.ts';
import type { WorkloadSpec } from '../../../sim/workload/index.ts';

export interface Factors {
  readonly rate: number;
  readonly prompt: number;
  readonly output: number;
}

/** Factors within 1 - most and 1 + most. */
export function drawFactors(key: bigint, most: number): Factors {
  const random = new PartitionedRandom(key).stream('perturbation');
  const draw = (): number => 1 + most * (2 * random.float64() - 1);
  return { rate: draw(), prompt: draw(), output: draw() };
}

function scaled(length: LengthSpec, by: number): LengthSpec {
  switch (length.type) {
    case 'gaussian': {
      const { mean, std_dev: deviation, min, max } = length;
      return {
        ...length,
        mean: mean * by,
        std_dev: deviation * by,
        min: Math.max(1, min * by),
        max: max * by,
      };
    }
    case 'exponential':
      return { ...length, mean: length.mean * by };
    case 'constant':
      return { ...length, value: Math.max(1, Math.round(length.value * by)) };
    case 'empirical':
      return {
        ...length,
        bins: length.bins.map(([tokens, weight]) => [Math.max(1, Math.round(tokens * by)), weight] as const),
      };
    // their scale is a logarithm: they stay as they are
    case 'lognormal':
    case 'pareto_lognormal':
      return length;
  }
}

export function perturbed(spec: WorkloadSpec, { rate, prompt, output }: Factors): WorkloadSpec {
  const change = <T extends { inputLength: LengthSpec; outputLength: LengthSpec }>(traffic: T): T => ({
    ...traffic,
    inputLength: scaled(traffic.inputLength, prompt),
    outputLength: scaled(traffic.outputLength, output),
  });
  return {
    ...spec,
    aggregateRate: spec.aggregateRate * rate,
    clients: spec.clients.map(change),
    cohorts: spec.cohorts.map(change),
  };
}
