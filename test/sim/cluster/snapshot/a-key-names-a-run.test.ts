/**
 * A key and a setup name one run: the same rows, metrics and decisions, to the last byte. Each of its seeds
 * moves only what is drawn from it.
 */

import { describe, expect, it } from 'vitest';
import { policiesName, type SimulationKey } from '../../../../src/sim/cluster/parts.ts';
import type { Simulation } from '../../../../src/sim/cluster/simulation.ts';
import { PolicyControlPlane } from '../../../../src/sim/control/plane.ts';
import { AutoScaler, noTriggers, Replicas } from '../../../../src/sim/control/scaling/autoScaler.ts';
import { newSimulation } from '../../../../src/sim/description/deployment.ts';
import { PartitionedRandom } from '../../../../src/sim/random/goRand.ts';
import { clusterMetrics } from '../../../../src/sim/report/metricsOutput.ts';
import { distributionSpec } from '../../../../src/sim/workload/presets.ts';
import { generateWorkload } from '../../../../src/sim/workload/workload.ts';
import { smallPool } from '../smallCluster.ts';

interface Run {
  readonly metrics: string;
  readonly arrivals: string;
  readonly routings: string;
  readonly scalings: string;
}

/** Routing draws its ties, and replicas come after delays that vary. */
function run(key: SimulationKey): Run {
  const worldOf = (seed: bigint): ConstructorParameters<typeof AutoScaler>[1] => ({
    blockTokens: 4,
    maxSequences: 2,
    stream: (name) => new PartitionedRandom(seed).stream(name),
  });
  const delay = { meanUs: 20_000, stddevUs: 8_000 };
  const scaler = new AutoScaler(
    {
      policy: { policy: 'saturation', queueThreshold: 2, spareQueue: 1 },
      mode: 'periodic',
      pollIntervalUs: 10_000,
      minReplicas: 2,
      maxReplicas: 4,
      upWindowUs: 0,
      downWindowUs: 0,
      triggers: noTriggers,
    },
    worldOf(key.simulationSeed),
  );
  const actuation = {
    decisionDelay: delay,
    provisioningDelay: delay,
    modelLoadTime: delay,
    warmup: { durationUs: 0, curve: 'step', initialPenaltyFactor: 1 },
    drain: { mode: 'wait', drainTimeoutUs: 0 },
  } as const;
  const spec = distributionSpec({
    seed: key.workloadSeed,
    rate: 600,
    numRequests: 120,
    prompt: { mean: 20, stdDev: 8, min: 2, max: 40 },
    output: { mean: 20, stdDev: 8, min: 1, max: 40 },
  });
  const [arrivals, routings, scalings]: [unknown[], unknown[], unknown[]] = [[], [], []];
  const simulation: Simulation = newSimulation({
    key,
    deployment: { pools: [smallPool({ maxSequences: 2, replicas: 2 })] },
    workload: { stream: generateWorkload(spec).stream(), sessions: undefined },
    control: new PolicyControlPlane(
      {
        routing: { policy: 'least-loaded', ties: 'random' },
        signals: { snapshotIntervalUs: 0, cacheSignalUs: 0 },
      },
      { key: key.simulationSeed, blockTokens: 4, maxSequences: 2 },
    ),
    scaling: [
      {
        configId: 'all',
        scaler,
        replicas: new Replicas(actuation, { min: 2, max: 4 }, 2, worldOf(key.jitterSeed)),
        capacityTokens: 256,
      },
    ],
    observer: {
      arrived: ({ promptTokens, maxOutputTokens }, nowUs) =>
        arrivals.push([promptTokens, maxOutputTokens, nowUs]),
      routing: ({ id }, decision, nowUs) => routings.push([id, decision, nowUs]),
      scaled: (change) => scalings.push(change),
    },
    options: {
      horizonUs: Infinity,
      admissionLatencyUs: 0,
      routingLatencyUs: 0,
      lastTokenInContext: true,
      handoff: { baseLatencyUs: 50, bandwidthBytesPerS: 1e8 },
    },
  });
  simulation.run();
  simulation.close();
  const { table, instances } = simulation;
  return {
    metrics: JSON.stringify(clusterMetrics(table, instances)),
    arrivals: JSON.stringify(arrivals),
    routings: JSON.stringify(routings),
    scalings: JSON.stringify(scalings),
  };
}

const key: SimulationKey = {
  policies: 'policy_1',
  workloadSeed: 42n,
  simulationSeed: 99n,
  jitterSeed: 7n,
};

describe('a key', () => {
  const first = run(key);

  it('gives identical metrics and decisions twice', () => {
    expect(first.scalings).not.toBe('[]');
    expect(run({ ...key })).toEqual(first);
  });

  it("'s workload seed moves the requests", () => {
    expect(run({ ...key, workloadSeed: 43n }).arrivals).not.toBe(first.arrivals);
  });

  it("'s simulation seed moves what policies draw, and no request", () => {
    const other = run({ ...key, simulationSeed: 98n });
    expect(other.arrivals).toBe(first.arrivals);
    expect(other.routings).not.toBe(first.routings);
  });

  it("'s jitter seed moves when replicas come, and nothing before that", () => {
    const other = run({ ...key, jitterSeed: 8n });
    expect(other.arrivals).toBe(first.arrivals);
    expect(other.metrics).not.toBe(first.metrics);
    expect(JSON.parse(other.scalings)[0]).toEqual(JSON.parse(first.scalings)[0]);
    expect(JSON.parse(other.routings).slice(0, 4)).toEqual(JSON.parse(first.routings).slice(0, 4));
  });
});

describe('the name of policies', () => {
  it('is the key of their data, in whatever order its fields are written', () => {
    const name = policiesName({ policy: 'weighted', scorers: { a: 1, b: 2 } }, { seed: 1n });
    expect(policiesName({ scorers: { b: 2, a: 1 }, policy: 'weighted' }, { seed: 1n })).toBe(name);
    expect(policiesName({ scorers: { b: 2, a: 3 }, policy: 'weighted' }, { seed: 1n })).not.toBe(name);
    expect(name).toMatch(/^[0-9a-f]{16}$/);
  });
});
