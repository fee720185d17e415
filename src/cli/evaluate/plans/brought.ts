/** The plans that tierkv brings. */

import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { baseline } from '../../../evolve/bundle/index.ts';
import type { ObjectiveSpec } from '../../../evolve/fitness/index.ts';
import type { PlanSource } from './source.ts';

/** Where their workloads lie. */
export const suiteFolder: string = fileURLToPath(new URL('../../../../data/suites/', import.meta.url));

const machine = ['--model', 'qwen/qwen2.5-7b-instruct', '--hardware', 'H100', '--tp', '1'];
const cluster = ['--num-instances', '4', '--snapshot-refresh-interval', '5000000'];

const latency: ObjectiveSpec = { name: 'latency', metric: 'latency_ms', direction: 'min', weight: 0.6 };
const tail: ObjectiveSpec = { name: 'ttft', metric: 'ttft_p99_ms', direction: 'min', weight: 0.2 };
const attainment: ObjectiveSpec = {
  name: 'attainment',
  metric: 'slo_attainment',
  direction: 'max',
  weight: 0.2,
};

const suites: PlanSource['suites'] = {
  train: { seeds: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], perturbation: 0.2 },
  validation: { seeds: [31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42], perturbation: 0.2 },
  hidden: { seeds: [101, 102, 103, 104, 105, 106, 107, 108], perturbation: 0.2 },
};

/** Plans by name. */
export const plans: Readonly<Record<string, PlanSource>> = {
  routing: {
    workloads: ['shared-prefixes.yaml', 'heavy-tail.yaml'],
    latencyModels: ['roofline', 'calibrated'],
    args: [...machine, ...cluster, '--total-kv-blocks', '20000'],
    suites,
    scoring: {
      objectives: [latency, tail, attainment],
      scalariser: 'weighted-sum',
      mode: 'weighted',
      attainmentTarget: 0.9,
    },
    baseline,
    slots: ['routing', 'priority', 'instanceScheduler'],
  },
  admission: {
    workloads: ['overload.yaml'],
    latencyModels: ['roofline', 'calibrated'],
    args: [...machine, ...cluster, '--total-kv-blocks', '20000'],
    suites,
    scoring: {
      objectives: [
        { name: 'attainment', metric: 'class_weighted_attainment', direction: 'max', weight: 0.5 },
        { name: 'throughput', metric: 'requests_per_s', direction: 'max', weight: 0.3 },
        { name: 'fairness', metric: 'jain_index', direction: 'max', weight: 0.2 },
      ],
      scalariser: 'weighted-sum',
      mode: 'weighted',
      attainmentTarget: 0.9,
    },
    baseline,
    slots: ['admission', 'priority', 'instanceScheduler'],
  },
  scaling: {
    workloads: ['waves.yaml'],
    latencyModels: ['roofline', 'calibrated'],
    args: [
      ...machine,
      ...['--num-instances', '2', '--snapshot-refresh-interval', '1000000', '--total-kv-blocks', '20000'],
      ...['--policy-config', path.join(suiteFolder, 'scaling.yaml')],
    ],
    suites,
    scoring: {
      objectives: [
        { name: 'attainment', metric: 'slo_attainment', direction: 'max', weight: 0.5 },
        { name: 'replicas', metric: 'mean_replicas', direction: 'min', weight: 0.3 },
        { ...tail, weight: 0.2 },
      ],
      scalariser: 'weighted-sum',
      mode: 'weighted',
      attainmentTarget: 0.9,
    },
    baseline,
    slots: ['autoScale'],
  },
};
