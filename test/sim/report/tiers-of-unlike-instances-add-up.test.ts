/**
 * Instances of one deployment need not have the same tiers: figures are summed by a tier's name, and the tier that all
 * share counts once, with what is in it.
 */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { planCase, runCase } from '../../../src/policy/evaluate/runCase.ts';
import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import { fromFields } from '../../../src/sim/description/readers.ts';
import { Occupancy, transferMetrics } from '../../../src/sim/report/tierMetrics.ts';

const pool = (name: string, tiers: string): string =>
  `  - {name: ${name}, replicas: 1, engine: {total_kv_blocks: 900}${tiers}}\n`;

const deployment = `version: 1
seed: 7
models: [{name: qwen3-14b, hardware: H100, tp: 1}]
shared_tier: {capacity_bytes: 4000000000, read_gb_per_s: 10, write_gb_per_s: 10}
pools:
${pool('without', '')}${pool('with', ', tiers: {cpu_bytes_to_use: 5000000000}')}control: {routing: {policy: round-robin}}
workload:
  spec:
    version: "2"
    aggregate_rate: 2
    num_requests: 60
    clients:
      - id: talk
        rate_fraction: 1
        arrival: {process: poisson}
        prefix_group: system
        prefix_length: 1024
        input_distribution: {type: exponential, params: {mean: 700}}
        output_distribution: {type: constant, params: {value: 40}}
        reasoning: {multi_turn: {max_rounds: 6, think_time_us: 20000000, context_growth: accumulate}}
`;

it('by name, and what is shared once', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tierkv-unlike-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'deployment.yaml');
  writeFileSync(file, deployment);
  const planned = planCase({ id: 'unlike', seed: 7, perturbation: 0, deployment: fromFields({ file }) });
  const begun: { instances: ConstructorParameters<typeof Occupancy>[0] } = { instances: () => [] };
  const occupancy = new Occupancy(() => begun.instances());
  const { metrics, built } = runCase(
    await bindBundle({ name: 'live' }),
    planned,
    [occupancy],
    (simulation) => {
      begun.instances = () => simulation.instances;
    },
  );
  const { instances, shared } = built.simulation;
  const { tiers, links } = transferMetrics(instances);
  expect(tiers.map(({ tier }) => tier)).toEqual(['hbm', 'ddr', 'remote']);
  expect(occupancy.tiers).toEqual(['hbm', 'ddr', 'remote']);

  const own = instances.map(({ engine }) => engine.traffic().tiers);
  expect(own.map((each) => each.map(({ tier }) => tier))).toEqual([
    ['hbm', 'remote'],
    ['hbm', 'ddr', 'remote'],
  ]);
  for (const { tier, hits, readBytes, capacityBlocks } of tiers) {
    const each = own.flat().filter((one) => one.tier === tier);
    expect(hits, tier).toBe(each.reduce((sum, one) => sum + one.hits, 0));
    if (tier === 'hbm') continue;
    expect(hits, tier).toBeGreaterThan(0);
    // what came up from a tier is what its links carried up
    const up = links.filter(({ link }) => link.startsWith(`${tier}To`) && !link.endsWith('Remote'));
    expect(readBytes, tier).toBe(up.reduce((sum, { bytes }) => sum + bytes, 0));
    // one instance has host memory, and all have the same server
    expect(capacityBlocks, tier).toBe(each[0].capacityBlocks);
  }

  const fill = (shared?.residentBytes ?? 0) / (shared?.config.capacityBytes ?? 1);
  expect(fill).toBeGreaterThan(0.5);
  expect(occupancy.samples.at(-1)?.shares[2]).toBeCloseTo(fill, 2);
  expect(metrics['kv_utilization_max.remote']).toBeCloseTo(fill, 2);
  expect(metrics['hit_rate.ddr']).toBeCloseTo(
    (tiers[1].hits / own.flat().reduce((sum, one) => sum + one.hits, 0)) * metrics.cache_hit_rate,
    10,
  );
});
