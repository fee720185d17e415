/** A workload of one client, to which a test adds what it is about. */

import { parseWorkloadSpec } from '../../../../src/sim/description/readWorkload.ts';
import type { WorkloadSpec } from '../../../../src/sim/description/workloadSpec.ts';
import { generateWorkload } from '../../../../src/sim/workload/workload.ts';

export const client = (more: string): string => `
  - id: a
    rate_fraction: 1
    arrival: {process: poisson}
    input_distribution: {type: constant, params: {value: 10}}
    output_distribution: {type: constant, params: {value: 5}}
${more}`;
export const spec = (top: string, more: string = ''): WorkloadSpec =>
  parseWorkloadSpec(`version: "2"\n${top}\nclients:${client(more)}`, 'spec.yaml');
export const turns = (rounds: number, more = ''): string =>
  `    closed_loop: false\n    reasoning: {multi_turn: {max_rounds: ${rounds}, think_time_us: 1000${more}}}`;
/** Takes all requests, and keeps none of them. */
export const drain = (of: WorkloadSpec) => (): void => {
  const stream = generateWorkload(of).stream();
  while (stream.next() !== undefined);
};
