/** Each metric that a run gives is described, and each that is described is given by some run. */

import path from 'node:path';
import { expect, test } from 'vitest';
import { planCase, runCase } from '../../../src/policy/evaluate/runCase.ts';
import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import { preset } from '../../../src/policy/evolve/bundle/presets.ts';
import { metricDescriptions, metricsText } from '../../../src/policy/evolve/fitness/objectives.ts';
import { argumentCase } from '../../cli/evaluate/argumentCase.ts';

const workload = path.join(import.meta.dirname, '../frameworks/two-groups.yaml');
const args = ['--workload-spec', workload, '--model', 'qwen/qwen2.5-7b-instruct', '--hardware', 'H100'];
const targets = ['--slo-ttft', 'standard=60ms', '--slo-itl', 'standard=9ms'];

function patternOf(name: string): RegExp {
  const part = name.replaceAll('.', '\\.').replace(/CLASS|TENANT|TIER|CONFIG/, '[^.]+');
  return new RegExp(`^${part.replace('TARGET', '(ttft|tpot|e2e)')}$`);
}

test('in both directions', async () => {
  const bound = await bindBundle(preset('routing/lor'));
  const { metrics } = runCase(bound, planCase(argumentCase([...args, ...targets])));
  const given = [...Object.keys(metrics), 'policy_nodes'];
  const patterns = metricDescriptions.map(({ name }) => ({ name, pattern: patternOf(name) }));
  for (const name of given)
    expect(
      patterns.some(({ pattern }) => pattern.test(name)),
      name,
    ).toBe(true);
  const lacking = patterns.filter(({ pattern }) => !given.some((name) => pattern.test(name)));
  expect(lacking.map(({ name }) => name)).toEqual([]);
  expect(metricsText()).toContain('- slo_attainment.CLASS.TARGET (0..1): ');
});

test('targets alone are met at least as often as together, and a tenant has its own times', async () => {
  const bound = await bindBundle(preset('routing/lor'));
  const { metrics } = runCase(bound, planCase(argumentCase([...args, ...targets])));
  const classes = Object.keys(metrics).filter((name) => /^slo_attainment\.[^.]+$/.test(name));
  expect(classes.length).toBeGreaterThan(0);
  for (const name of classes) {
    const [ttft, tpot] = [metrics[`${name}.ttft`], metrics[`${name}.tpot`]];
    expect(metrics[name]).toBeLessThanOrEqual(Math.min(ttft, tpot));
    // no fewer can miss both than each misses
    expect(metrics[name]).toBeGreaterThanOrEqual(ttft + tpot - 1 - 1e-12);
  }
  const tenants = Object.keys(metrics).filter((name) => name.startsWith('tenant_e2e_mean_ms.'));
  expect(tenants.length).toBeGreaterThan(0);
  for (const name of tenants) {
    expect(metrics[name]).toBeGreaterThan(0);
    expect(metrics[name.replace('mean', 'p99')]).toBeGreaterThanOrEqual(metrics[name]);
  }
});
