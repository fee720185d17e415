/** A policy that turns requests away has no better time than one that serves them, whatever time is the objective. */

import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { planCase, runCase } from '../../../src/evaluate/runCase.ts';
import { bindBundle } from '../../../src/evolve/binding/bind.ts';
import type { PolicyBundle } from '../../../src/evolve/bundle/policyBundle.ts';
import { preset } from '../../../src/evolve/bundle/presets.ts';
import { gainsOf } from '../../../src/evolve/fitness/objectives.ts';
import type { RawMetrics } from '../../../src/evolve/fitness/rawMetrics.ts';
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
