/**
 * The traffic of a parity run that names none: conversations that come back after others have pushed their
 * blocks down, behind a system prompt that all share. Half a minute of it uses every tier of the default
 * sizes.
 */

import { parseWorkloadSpec, type WorkloadSpec } from '../../../sim/workload/index.ts';

const text = `version: "2"
seed: 42
aggregate_rate: 2
clients:
  - id: talk
    rate_fraction: 1
    arrival: {process: poisson}
    prefix_group: system
    prefix_length: 256
    input_distribution: {type: gaussian, params: {mean: 300, std_dev: 120, min: 60, max: 700}}
    output_distribution: {type: gaussian, params: {mean: 40, std_dev: 12, min: 10, max: 80}}
    reasoning:
      multi_turn: {max_rounds: 4, think_time_us: 6000000, context_growth: accumulate}
`;

export function defaultSpec(): WorkloadSpec {
  return parseWorkloadSpec(text, 'the default traffic');
}
