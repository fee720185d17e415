/**
 * Random deployments of several pools that scale on their own: pools alike, pools of two models, prefill and
 * decode pools, pools of a fixed size among them. The same seed gives the same deployment.
 */

import { keyOfSeed, type SimulationObserver } from '../../../../src/sim/cluster/parts.ts';
import { PolicyControlPlane } from '../../../../src/sim/control/plane.ts';
import type { PoolConfig, SimulationSetup } from '../../../../src/sim/description/deployment.ts';
import { SeededRandom } from '../../../../src/testing/index.ts';
import { controlOf, engineOf, handoffOf, pick, requestsOf, scalingOf } from '../randomCluster.ts';
import { plainLatency, smallWorkload, streamOf } from '../smallCluster.ts';

type Shape = readonly (readonly [configId: string, role: PoolConfig['role'], model: string])[];

const shapes: readonly Shape[] = [
  [
    ['prefill', 'prefill', ''],
    ['decode', 'decode', ''],
  ],
  [
    ['small', 'monolithic', ''],
    ['large', 'monolithic', ''],
  ],
  [
    ['of-a', 'monolithic', 'a'],
    ['of-b', 'monolithic', 'b'],
  ],
  [
    ['prefill', 'prefill', ''],
    ['decode', 'decode', ''],
    ['whole', 'monolithic', ''],
  ],
  [
    ['a-prefill', 'prefill', 'a'],
    ['a-decode', 'decode', 'a'],
    ['b-one', 'monolithic', 'b'],
    ['b-two', 'monolithic', 'b'],
  ],
  [
    ['prefill-one', 'prefill', ''],
    ['prefill-two', 'prefill', ''],
    ['decode', 'decode', ''],
  ],
];

/** @param observer watches the run; @returns a setup of its own for each call */
export function randomPools(seed: number, observer: SimulationObserver = {}): SimulationSetup {
  const random = new SeededRandom(seed);
  const key = keyOfSeed(BigInt(seed), 'pools');
  const shape = pick(random, shapes);
  const isPair = shape.some(([, role]) => role === 'prefill');
  const pools = shape.map(([configId, role, model]): PoolConfig => {
    return {
      configId,
      role,
      model,
      replicas: 1 + random.below(3),
      latency: plainLatency,
      ...engineOf(random),
    };
  });
  const scaled = pools.filter((_, i) => i === 0 || random.chance(0.8));
  const models = [...new Set(pools.map(({ model }) => model))];
  const requests = requestsOf(random).map((request) => ({
    ...request,
    model: pick(random, [...models, '']),
  }));
  const control = controlOf(random, isPair);
  return {
    key,
    deployment: { pools },
    workload: { stream: streamOf(smallWorkload(requests)), sessions: undefined },
    control: new PolicyControlPlane(
      { ...control, decider: { policy: isPair ? pick(random, ['always', 'always', 'token-cap']) : 'never' } },
      { key: key.simulationSeed, blockTokens: 4, maxSequences: 16 },
    ),
    observer,
    scaling: scaled.map((pool) => scalingOf(random, pool, key)),
    options: {
      horizonUs: random.below(8) === 0 ? 60_000 : Infinity,
      admissionLatencyUs: random.below(2) * 300,
      routingLatencyUs: random.below(2) * 300,
      lastTokenInContext: true,
      gateway: { tickUs: 500, ttlUs: random.below(2) * 20_000 },
      handoff: handoffOf(random),
    },
  };
}
