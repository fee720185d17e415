/**
 * Time and memory to generate a million requests, lengths and arrivals sampled and every stream advanced over
 * its tokens as upstream's is. Each workload runs in a process of its own, so that the peak memory is its
 * own. Prints a table, JSON with --json; --requests N changes the number.
 */

import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseWorkloadSpec } from '../../src/sim/description/readWorkload.ts';
import type { WorkloadSpec } from '../../src/sim/description/workloadSpec.ts';
import { SessionManager } from '../../src/sim/workload/closedLoop.ts';
import { distributionSpec, presetLengths } from '../../src/sim/workload/presets.ts';
import { generateWorkload } from '../../src/sim/workload/workload.ts';

const MIXED = `
version: "2"
seed: 7
aggregate_rate: 400
clients:
  - {id: a, tenant_id: t0, slo_class: critical, rate_fraction: 0.4, prefix_group: g, prefix_length: 512, arrival: {process: poisson},
     input_distribution: {type: lognormal, params: {mu: 5, sigma: 0.6, max: 4096}}, output_distribution: {type: exponential, params: {mean: 128}}}
  - {id: b, tenant_id: t1, slo_class: standard, rate_fraction: 0.4, arrival: {process: gamma, cv: 3},
     input_distribution: {type: pareto_lognormal, params: {alpha: 1.5, xm: 64, mu: 5, sigma: 0.7, mix_weight: 0.3}}, output_distribution: {type: exponential, params: {mean: 128}}}
  - {id: c, tenant_id: t2, slo_class: batch, rate_fraction: 0.2, arrival: {process: weibull, cv: 2},
     input_distribution: {type: gaussian, params: {mean: 256, std_dev: 100, min: 2, max: 800}}, output_distribution: {type: gaussian, params: {mean: 256, std_dev: 100, min: 2, max: 800}}}
`;
const COHORT = `
version: "2"
seed: 7
aggregate_rate: 1000
cohorts:
  - {id: u, population: 10000, slo_class: standard, rate_fraction: 1, prefix_group: p, prefix_sharing: per_member, prefix_length: 64, arrival: {process: poisson},
     input_distribution: {type: exponential, params: {mean: 100}}, output_distribution: {type: exponential, params: {mean: 100}}}
`;
const CHAT = `
version: "2"
seed: 42
aggregate_rate: 500
clients:
  - {id: chat, slo_class: standard, rate_fraction: 1, arrival: {process: poisson},
     input_distribution: {type: gaussian, params: {mean: 128, std_dev: 30, min: 32, max: 512}}, output_distribution: {type: gaussian, params: {mean: 64, std_dev: 20, min: 16, max: 256}},
     reasoning: {multi_turn: {max_rounds: 5, think_time_us: 500000, context_growth: accumulate}}}
`;

const WORKLOADS: Readonly<Record<string, (requests: number) => WorkloadSpec>> = {
  ...Object.fromEntries(
    ['chatbot', 'distribution', 'contentgen', 'summarization', 'multidoc'].map((name) => [
      name,
      (numRequests: number) => distributionSpec({ ...presetLengths(name), rate: 20, numRequests }),
    ]),
  ),
  'three clients': (numRequests) => ({ ...parseWorkloadSpec(MIXED, 'mixed'), numRequests }),
  '10,000 members': (numRequests) => ({ ...parseWorkloadSpec(COHORT, 'cohort'), numRequests }),
  'multi-turn, closed loop': (numRequests) => ({
    ...parseWorkloadSpec(CHAT, 'chat'),
    numRequests: Math.floor(numRequests * 0.6),
  }),
};

interface Row {
  workload: string;
  requests: number;
  tokens: number;
  seconds: number;
  peakMiB: number;
}

function measure(name: string, wanted: number): Row {
  const started = performance.now();
  const workload = generateWorkload(WORKLOADS[name](wanted));
  const stream = workload.stream();
  const manager = workload.sessions === undefined ? undefined : new SessionManager(workload.sessions);
  let requests = 0;
  let tokens = 0;
  for (let request = stream.next(); request !== undefined; request = stream.next()) {
    for (let turn: typeof request | undefined = request; turn !== undefined; ) {
      requests++;
      tokens += turn.inputTokens + turn.outputTokens;
      turn = manager?.next(turn, {
        outcome: 'completed',
        timeUs: turn.arrivalUs,
        contextTokens: turn.outputTokens - 1,
      });
    }
  }
  const seconds = (performance.now() - started) / 1000;
  return { workload: name, requests, tokens, seconds, peakMiB: process.resourceUsage().maxRSS / 1024 };
}

const option = (name: string): string | undefined => {
  const at = process.argv.indexOf(name);
  return at < 0 ? undefined : process.argv[at + 1];
};
const requests = Number(option('--requests') ?? 1_000_000);
const one = option('--only');
if (one !== undefined && process.argv.includes('--child')) {
  console.log(JSON.stringify(measure(one, requests)));
} else {
  const names = one === undefined ? Object.keys(WORKLOADS) : [one];
  const rows = names.map((name): Row => {
    const child = ['--only', name, '--requests', String(requests), '--child'];
    return JSON.parse(
      execFileSync(process.execPath, [fileURLToPath(import.meta.url), ...child], { encoding: 'utf8' }),
    );
  });
  if (process.argv.includes('--json')) console.log(JSON.stringify({ bench: 'workload', rows }));
  else {
    console.log('workload                   requests     tokens (M)   seconds   peak MiB');
    for (const row of rows) {
      const cells = [
        row.requests.toLocaleString('en-US'),
        (row.tokens / 1e6).toFixed(0),
        row.seconds.toFixed(2),
        row.peakMiB.toFixed(0),
      ];
      console.log(
        `${row.workload.padEnd(25)}${cells.map((cell, i) => cell.padStart([10, 15, 10, 11][i])).join('')}`,
      );
    }
  }
}
