import { describe, expect, test } from 'vitest';
import { loadPlan } from '../../../src/policy/evaluate/plans.ts';
import { planCase, runCase } from '../../../src/policy/evaluate/runCase.ts';
import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import type { PolicyBundle } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import { policyId } from '../../../src/policy/evolve/bundle/presets.ts';
import type { RawMetrics } from '../../../src/policy/evolve/fitness/rawMetrics.ts';
import type { SimulationObserver } from '../../../src/sim/cluster/parts.ts';
import { withValue } from '../../../src/sim/description/settings.ts';
import { sized } from '../../sized.ts';
import { bundleOf, rules, ways } from './threeWays.ts';

interface Run {
  readonly targets: readonly number[];
  readonly metrics: RawMetrics;
}

const requests = sized(120, 250);
const [prefixes] = loadPlan('routing').suites.train;
const tails = loadPlan('routing').suites.train.find(({ id }) => id.startsWith('heavy-tail'));

async function run(bundle: PolicyBundle, workload: typeof prefixes): Promise<Run> {
  // with reports every 5 s, as the plan has them, most of a short run would go by none
  const { deployment } = workload;
  const short = {
    ...workload,
    deployment: withValue(
      withValue(deployment, 'control.snapshotUs', 300_000),
      'workload.requests',
      requests,
    ),
  };
  const targets: number[] = [];
  const watch: SimulationObserver = {
    routing: (_, decision) => void targets.push(decision?.target ?? -1),
  };
  const { metrics } = runCase(await bindBundle(bundle), planCase(short), [watch]);
  return { targets, metrics };
}

describe.each(rules)('%s', (rule) => {
  test('decides alike as data, in Starlark and in WASM', async () => {
    for (const workload of [prefixes, tails ?? prefixes]) {
      const [data, ...programs] = await Promise.all(ways.map((way) => run(bundleOf(rule, way), workload)));
      expect(data.targets.length).toBe(requests);
      expect(new Set(data.targets).size).toBeGreaterThan(1);
      for (const program of programs) {
        expect(program.targets).toEqual(data.targets);
        expect(program.metrics).toEqual(data.metrics);
      }
    }
  });

  test('has a name of its own in each way', () => {
    expect(new Set(ways.map((way) => policyId(bundleOf(rule, way)))).size).toBe(3);
  });
});

test('the five rules differ', async () => {
  const runs = await Promise.all(rules.map((rule) => run(bundleOf(rule, 'data'), prefixes)));
  expect(new Set(runs.map(({ targets }) => targets.join())).size).toBe(rules.length);
});
