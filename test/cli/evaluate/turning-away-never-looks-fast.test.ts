/** A policy that turns requests away has no better time than one that serves them, whatever time is the objective. */

import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { TaskRunner } from '../../../src/io/workerPool.ts';
import { SimulationEvaluator } from '../../../src/policy/evaluate/evaluator.ts';
import { type CaseTask, planCase, runCase, runTask } from '../../../src/policy/evaluate/runCase.ts';
import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import type { PolicyBundle } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import { preset } from '../../../src/policy/evolve/bundle/presets.ts';
import { gainsOf } from '../../../src/policy/evolve/fitness/objectives.ts';
import type { RawMetrics } from '../../../src/policy/evolve/fitness/rawMetrics.ts';
import type { Tasks } from '../../../src/policy/workers/thread.ts';
import { argumentCase } from './argumentCase.ts';

const workload = path.join(import.meta.dirname, '../../evolve/frameworks/two-groups.yaml');
const args = ['--workload-spec', workload, '--model', 'qwen/qwen2.5-7b-instruct', '--hardware', 'H100'];

function admitting(body: string): PolicyBundle {
  const source = `def admit(request, cluster, instances, state):\n${body}`;
  return { name: 'gate', admission: { type: 'code', language: 'starlark', source } } as PolicyBundle;
}

async function metricsOf(bundle: PolicyBundle, more: readonly string[] = []): Promise<RawMetrics> {
  return runCase(await bindBundle(bundle), planCase(argumentCase([...args, ...more]))).metrics;
}

describe('of a policy that turns away', () => {
  for (const [name, body] of [
    ['all', '    return "reject"\n'],
    [
      'every second',
      '    n = state.get("n", 0)\n    state["n"] = n + 1\n    return "admit" if n % 2 else "reject"\n',
    ],
    ['the longest', '    return "admit" if request.promptTokens < 200 else "reject"\n'],
  ]) {
    it(name, async () => {
      const base = await metricsOf(preset('routing/lor'));
      const gated = await metricsOf(admitting(body));
      expect(gated.completed).toBeLessThan(base.completed);
      const times = Object.keys(base).filter((metric) => /_ms(\.|$)/.test(metric));
      expect(times.length).toBeGreaterThan(20);
      const tails = times.filter((metric) => /latency|mean|p95|p99/.test(metric));
      for (const metric of tails) {
        const of = [{ name: metric, metric, direction: 'min' as const, weight: 1 }];
        expect(gainsOf(gated, base, of)[0], metric).toBeLessThanOrEqual(0);
      }
      expect(gated.slo_attainment).toBeCloseTo(gated.completion_rate, 12);
      expect(base.slo_attainment).toBe(1);
      expect(gated.jain_index).toBeLessThanOrEqual(1);
      // with times of served requests alone, serving none would be the best there is
      expect(gainsOf({ t: 0 }, { t: 5 }, [{ name: 't', metric: 't', direction: 'min', weight: 1 }])).toEqual([
        1,
      ]);
    });
  }
});

describe('where requests take longer than a minute, of a policy that turns away', () => {
  // a request waits 70 s before it is queued, and each step takes 2 s, whatever is in it
  const steps = ['--alpha-coeffs', '70000000,0,0', '--beta-coeffs', '0,0,0,0,0,0,2000000'];
  const slow = ['--latency-model', 'trained-physics', ...steps];
  const suite = [argumentCase([...args, ...slow])];
  const runner: TaskRunner<Tasks> = {
    run: async (kind, make) => {
      expect(kind).toBe('case');
      const task = make() as CaseTask;
      return { result: runTask(await bindBundle(task.bundle), task) } as never;
    },
    close: async () => {},
  };
  const figures = ['mean', 'p50', 'p95', 'p99', 'max'];
  const objectives = ['ttft', 'e2e']
    .flatMap((time) => figures.map((figure) => `${time}_${figure}_ms`))
    .map((metric) => ({ name: metric, metric, direction: 'min' as const, weight: 1 }));
  const evaluator = new SimulationEvaluator({
    plan: {
      suites: { train: suite, validation: suite, hidden: suite },
      scoring: { objectives, scalariser: 'weighted-sum', mode: 'weighted', attainmentTarget: 1 },
      baseline: preset('routing/lor'),
      slots: ['admission'],
    },
    limits: { workers: 1, wallMs: 60_000 },
    runner,
  });

  it('all: its times are the slowest of the baseline', async () => {
    const all = admitting('    return "reject"\n');
    const [{ objectives: gains, metrics, error }] = await evaluator.evaluate([all], 'train');
    expect(error).toBeUndefined();
    const [{ metrics: base }] = await evaluator.evaluate([preset('routing/lor')], 'train');
    expect([base.completion_rate, metrics.completion_rate]).toEqual([1, 0]);
    expect(base.e2e_max_ms).toBeGreaterThan(60_000);
    expect(metrics.e2e_p50_ms).toBeCloseTo(base.e2e_max_ms, 6);
    for (const [i, gain] of gains.entries()) expect(gain, objectives[i].name).toBeLessThanOrEqual(0);
  });

  it('some: no lost request is faster than one that completed', async () => {
    const bound = await bindBundle(
      admitting('    return "admit" if request.promptTokens < 500 else "reject"\n'),
    );
    const { metrics, built } = runCase(bound, planCase(suite[0]));
    const { table } = built.simulation;
    const slowest = Math.max(...table.e2eUs.subarray(0, table.size)) / 1000;
    expect(metrics.completed).toBeGreaterThan(0);
    expect(metrics.completed).toBeLessThan(metrics.requests);
    expect(slowest).toBeGreaterThan(60_000);
    expect(metrics.e2e_max_ms).toBeCloseTo(slowest, 6);
    const completed = [...table.e2eUs.subarray(0, table.size)].filter((us) => us >= 0);
    const lost = table.size - completed.length;
    const sum = completed.reduce((total, us) => total + us / 1000, 0);
    expect(metrics.e2e_mean_ms).toBeCloseTo((sum + lost * slowest) / table.size, 3);
  });
});
