/**
 * The router-search experiment: five routing policies on two workloads, with each model of time, over ten
 * seeds. Prints for each model the mean v of a policy and workload, v = E2E mean / 2 + E2E P95 / 2 in ms, and
 * the gain over 1:1, 1 - v / v(1:1) in percent, averaged over workloads and seeds; on how many seeds the
 * evolved rule is the best on prefix_heavy; and JSON with --json. Four instances of qwen2.5-7b-instruct on
 * one H100 each, 67,659 blocks, snapshots refreshed every 5 s.
 *
 *   node bench/sim/routerSearch.ts FOLDER [--seeds 1,2,42] [--models roofline,blackbox] [--as starlark] [--json]
 *
 * FOLDER holds the workload files glia_40qps.yaml and prefix_heavy.yaml. With --as the policies are the bundles
 * of examples/policies: data (parameters or a tree), starlark or wasm; then ties go to the lowest instance.
 */

import path from 'node:path';
import { parseArgs } from 'node:util';
import { openPolicy } from '../../src/policy/evaluate/openPolicy.ts';
import { bindBundle } from '../../src/policy/evolve/binding/bind.ts';
import type { BoundPolicies } from '../../src/sim/build/built.ts';
import { engineHardware, engineSetup } from '../../src/sim/build/engineSettings.ts';
import { openSimulation } from '../../src/sim/build/workloadSettings.ts';
import { PolicyControlPlane } from '../../src/sim/control/plane.ts';
import type { PolicyChoice } from '../../src/sim/control/policy.ts';
import { newSimulation } from '../../src/sim/description/deployment.ts';
import { askedBy, readWords } from '../../src/sim/description/readers.ts';
import type { Deployment } from '../../src/sim/description/settings.ts';
import { Status } from '../../src/sim/metrics/requestTable.ts';

const workloads = ['glia_40qps', 'prefix_heavy'] as const;
type WorkloadName = (typeof workloads)[number];

const affinity = { 'prefix-affinity': 1, 'load-balance': 1 };
/** 1:1 and evolved break ties by the router's stream, as upstream's weighted policy does. */
const policies: Readonly<Record<string, PolicyChoice>> = {
  evolved: { policy: 'evolved', scorers: affinity, ties: 'random' },
  '1:1': { policy: 'weighted', scorers: affinity, ties: 'random' },
  LOR: { policy: 'lor' },
  Glia: { policy: 'glia' },
  LLQ: { policy: 'llq' },
};
const names = Object.keys(policies);
/** Files of examples/policies by the names above. */
const files: Readonly<Record<string, string>> = {
  evolved: 'evolved',
  '1:1': 'oneToOne',
  LOR: 'lor',
  Glia: 'glia',
  LLQ: 'llq',
};

/** Undefined for the policies by name. */
async function bundleOf(name: string, way: string | undefined): Promise<BoundPolicies | undefined> {
  if (way === undefined) return undefined;
  const endings: Readonly<Record<string, string>> = {
    data: 'bundles/$.json',
    starlark: 'starlark/$.star',
    wasm: 'wasm/$.wasm',
  };
  if (!Object.hasOwn(endings, way)) throw new Error(`--as is ${way}. Use data, starlark or wasm`);
  const folder = path.join(import.meta.dirname, '..', '..', 'examples', 'policies');
  return bindBundle(openPolicy(path.join(folder, endings[way].replace('$', files[name]))));
}

function deploymentFor(file: string, seed: string, latencyModel: string): Deployment {
  const given = ['--model', 'qwen/qwen2.5-7b-instruct', '--hardware', 'H100', '--tp', '1'];
  // as the published runs were: no floor under the models of time, and requests that give way begin anew
  const shape = [
    '--num-instances',
    '4',
    '--total-kv-blocks',
    '67659',
    '--latency-model',
    latencyModel,
    '--no-floor',
    '--preemption-mode',
    'restart',
  ];
  const load = ['--workload-spec', file, '--seed', seed];
  return askedBy(readWords([...given, ...shape, ...load])).deployment;
}

/** E2E mean / 2 + E2E P95 / 2 of the completed requests in ms. */
function scoreOf(
  file: string,
  seed: string,
  latencyModel: string,
  routing: PolicyChoice,
  bundle: BoundPolicies | undefined,
): number {
  const asked = deploymentFor(file, seed, latencyModel);
  const machine = engineHardware(asked);
  const { engine, limits } = engineSetup(asked, machine);
  const opened = openSimulation(asked);
  const { blockTokens } = engine;
  const { maxSequences } = limits;
  const control = new PolicyControlPlane(
    {
      routing,
      ...bundle?.control,
      signals: { snapshotIntervalUs: 5_000_000, cacheSignalUs: 50_000 },
      topK: -1,
    },
    { key: BigInt(seed), blockTokens, maxSequences, policies: bundle?.policies ?? {} },
  );
  const { latency } = machine;
  const pool = { configId: 'default', role: 'monolithic', model: '', replicas: 4 } as const;
  const simulation = newSimulation({
    deployment: { pools: [{ ...pool, engine, latency, limits }] },
    workload: opened.workload,
    control,
    options: {
      horizonUs: opened.horizonUs,
      admissionLatencyUs: 0,
      routingLatencyUs: 0,
      lastTokenInContext: true,
      handoff: { baseLatencyUs: 0, bandwidthBytesPerS: 1e9 },
    },
  });
  simulation.run();
  simulation.close();
  const { table } = simulation;
  const e2e: number[] = [];
  for (let row = 0; row < table.size; row++) {
    if (table.status[row] === Status.COMPLETED) e2e.push(table.e2eUs[row] / 1000);
  }
  e2e.sort((a, b) => a - b);
  const mean = e2e.reduce((sum, value) => sum + value, 0) / e2e.length;
  const rank = 0.95 * (e2e.length - 1);
  const below = Math.floor(rank);
  const above = e2e[Math.min(below + 1, e2e.length - 1)];
  return (mean + e2e[below] + (above - e2e[below]) * (rank - below)) / 2;
}

const { values: args, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seeds: { type: 'string', default: '1,2,3,4,5,6,7,8,42,456' },
    models: { type: 'string', default: 'roofline,blackbox,trained-physics,calibrated' },
    as: { type: 'string' },
    json: { type: 'boolean', default: false },
  },
});
const [folder] = positionals;
if (folder === undefined) throw new Error('name the folder with the two workload files');
const seeds = args.seeds.split(',');

/** v by workload and policy, one value a seed. */
type Measured = Record<WorkloadName, Record<string, number[]>>;
const results: Record<string, Measured> = {};
for (const model of args.models.split(',')) {
  const measured: Measured = { glia_40qps: {}, prefix_heavy: {} };
  for (const workload of workloads) {
    const file = path.join(folder, `${workload}.yaml`);
    for (const name of names) {
      const bundle = await bundleOf(name, args.as);
      measured[workload][name] = seeds.map((seed) => scoreOf(file, seed, model, policies[name], bundle));
    }
  }
  results[model] = measured;
  if (!args.json) print(model, measured);
}
if (args.json) console.log(JSON.stringify({ seeds, results }, null, 2));

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function print(model: string, measured: Measured): void {
  const line = (head: string, cells: readonly string[]): void =>
    console.log(head.padEnd(14) + cells.map((cell) => cell.padStart(9)).join(''));
  line(model, names);
  for (const workload of workloads) {
    line(
      workload,
      names.map((name) => mean(measured[workload][name]).toFixed(0)),
    );
  }
  const gain = (name: string): number =>
    mean(
      workloads.map((workload) =>
        mean(measured[workload][name].map((v, i) => 1 - v / measured[workload]['1:1'][i])),
      ),
    );
  line(
    'gain in %',
    names.map((name) => (100 * gain(name)).toFixed(1)),
  );
  const heavy = measured.prefix_heavy;
  const best = seeds.filter((_, i) => names.every((name) => heavy.evolved[i] <= heavy[name][i])).length;
  console.log(`evolved is the best on prefix_heavy for ${best} of ${seeds.length} seeds\n`);
}
