/**
 * Where no two requests share tokens, a run leaves block keys out. Its metrics are those of a run with keys,
 * and the first request that gives way has the run made again with keys.
 */

import { describe, expect, it } from 'vitest';
import { buildPlanned, runToEnd } from '../../../../src/sim/build/build.ts';
import type { BuiltSimulation } from '../../../../src/sim/build/built.ts';
import { planSimulation } from '../../../../src/sim/build/plan.ts';
import { askedBy, readWords } from '../../../../src/sim/description/readers.ts';
import { KeysNeeded } from '../../../../src/sim/instance/simRequest.ts';
import { clusterMetrics } from '../../../../src/sim/report/metricsOutput.ts';

function build(args: string, skipsKeys: boolean): BuiltSimulation {
  const { deployment } = askedBy(readWords(`--model qwen3-14b --max-model-len 8000 ${args}`.split(' ')));
  return buildPlanned(planSimulation(deployment), { skipsKeys });
}

const metricsOf = ({ simulation }: BuiltSimulation): string =>
  JSON.stringify(clusterMetrics(simulation.table, simulation.instances));

describe('block keys that are left out', () => {
  const roomy = '--workload chatbot --rate 30 --num-requests 150 --num-instances 2';
  const tight = '--workload chatbot --rate 60 --num-requests 150 --total-kv-blocks 600';

  it.each([roomy, tight])('%s: the metrics are the same', (args) => {
    expect(metricsOf(runToEnd((skipsKeys) => build(args, skipsKeys)))).toBe(
      metricsOf(runToEnd(() => build(args, false))),
    );
  });

  it.each(['glia', 'least-kv', 'aibrix-throughput'])(
    'a run by %s leaves them out, with the same metrics',
    (policy) => {
      const args = `${roomy} --routing-policy ${policy}`;
      const built = build(args, true);
      expect(() => built.simulation.run()).not.toThrow();
      expect(metricsOf(built)).toBe(metricsOf(runToEnd(() => build(args, false))));
    },
  );

  it('a request that gives way needs them, and a run with room does not', () => {
    expect(() => build(tight, true).simulation.run()).toThrow(KeysNeeded);
    expect(() => build(roomy, true).simulation.run()).not.toThrow();
  });

  it('they are not left out where prompts share a prefix', () => {
    const shared = `${tight} --prefix-tokens 64`;
    expect(() => build(shared, true).simulation.run()).not.toThrow();
    expect(metricsOf(runToEnd((skipsKeys) => build(shared, skipsKeys)))).toBe(
      metricsOf(runToEnd(() => build(shared, false))),
    );
  });
});
