/**
 * Upstream's own regression experiments: 15 workloads of several stages under each of two latency models, and
 * what a run of one instance came to. CPU tiers that they name have nothing to do: HBM holds all prefixes.
 */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { stringify } from 'yaml';
import type { BuildExtras } from '../../../src/sim/build/built.ts';
import { clusterMetrics } from '../../../src/sim/report/metricsOutput.ts';
import { caseAsUpstream, UpstreamCaseEngine } from '../upstream/upstreamCaseEngine.ts';
import { simulated } from '../upstream/wholeCases.ts';

export interface Experiment {
  readonly id: string;
  readonly model_config_dir: string;
  readonly hardware: string;
  readonly tp: number;
  readonly max_num_seqs: number;
  readonly max_num_batched_tokens: number;
  readonly total_kv_blocks: number;
  readonly workload: { readonly num_requests: number };
  readonly expected: Readonly<Record<string, number>>;
}

export interface ExperimentSet {
  readonly backend: 'roofline' | 'trained-physics';
  readonly alpha_coeffs?: readonly number[];
  readonly beta_coeffs?: readonly number[];
  readonly experiments: readonly Experiment[];
}

export const experimentFiles = ['roofline_goldendataset.json', 'trained_physics_iter29.json'] as const;

/** @param folder `upstream-testdata` of the goldens */
export function loadExperiments(folder: URL, file: string): ExperimentSet {
  return JSON.parse(readFileSync(new URL(file, folder), 'utf8')) as ExperimentSet;
}

export const underModel: BuildExtras = {
  makeEngine: (pool) => new UpstreamCaseEngine(pool, caseAsUpstream),
};

/** Figures that differ by more than 1e-9 of themselves; whole numbers by anything. */
export function experimentDifferences(
  { backend, alpha_coeffs: alpha, beta_coeffs: beta = [] }: ExperimentSet,
  experiment: Experiment,
  extras: BuildExtras = {},
): string[] {
  const folder = mkdtempSync(path.join(tmpdir(), 'tierkv-experiment-'));
  try {
    const file = path.join(folder, 'workload.yaml');
    writeFileSync(file, stringify(experiment.workload));
    // the eleventh coefficient is the fourth again
    const coefficients =
      alpha === undefined
        ? []
        : ['--alpha-coeffs', alpha.join(','), '--beta-coeffs', [...beta, beta[3]].join(',')];
    const { simulation } = simulated(
      [
        ...['--model', path.basename(experiment.model_config_dir), '--hardware', experiment.hardware],
        ...['--tp', experiment.tp, '--max-num-seqs', experiment.max_num_seqs].map(String),
        ...['--max-num-batched-tokens', experiment.max_num_batched_tokens].map(String),
        ...['--total-kv-blocks', String(experiment.total_kv_blocks), '--workload-spec', file],
        ...['--as-upstream', '--latency-model', backend, ...coefficients],
        ...['--snapshot-refresh-interval', '0', '--cache-signal-delay', '0'],
      ],
      extras,
    );
    const { table, instances } = simulation;
    const ttftUs = table.firstTokenUs.subarray(0, table.size);
    const ours: Readonly<Record<string, unknown>> = {
      ...clusterMetrics(table, instances),
      ttft_sum_us: ttftUs.reduce((sum, us) => sum + us, 0),
    };
    return Object.entries(experiment.expected)
      .filter(([name, theirs]) => {
        const mine = Number(ours[name]);
        return !(Number.isInteger(theirs) ? mine === theirs : Math.abs(mine - theirs) <= 1e-9 * theirs);
      })
      .map(([name, theirs]) => `${name}: ${String(ours[name])} is not ${theirs}`);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
