/** Autoscaling in a running cluster: replicas take their time to come, are slow at first, and lose nothing. */

import { describe, expect, it } from 'vitest';
import type { ScalingSetup } from '../../../../src/sim/cluster/scaling.ts';
import type {
  DrainMode,
  ScalingActuationConfig,
} from '../../../../src/sim/control/scaling/autoScalePolicy.ts';
import { AutoScaler, noTriggers, Replicas } from '../../../../src/sim/control/scaling/autoScaler.ts';
import { Status } from '../../../../src/sim/metrics/requestTable.ts';
import { PartitionedRandom } from '../../../../src/sim/random/goRand.ts';
import { type SmallRequest, smallPool, smallSimulation } from '../smallCluster.ts';

const world = {
  blockTokens: 4,
  maxSequences: 2,
  stream: (name: string) => new PartitionedRandom(1n).stream(name),
};

interface Change {
  readonly atUs: number;
  readonly from: number;
  readonly to: number;
}

function setup(initial: number, drain: DrainMode, warmup = 1): ScalingSetup {
  const delay = (meanUs: number): { meanUs: number; stddevUs: number } => ({ meanUs, stddevUs: 0 });
  const actuation: ScalingActuationConfig = {
    decisionDelay: delay(1_000),
    provisioningDelay: delay(20_000),
    modelLoadTime: delay(10_000),
    warmup: { durationUs: 50_000, curve: 'step', initialPenaltyFactor: warmup },
    drain: { mode: drain, drainTimeoutUs: 0 },
  };
  const scaler = new AutoScaler(
    {
      policy: { policy: 'saturation', queueThreshold: 2, spareQueue: 1 },
      mode: 'periodic',
      pollIntervalUs: 10_000,
      minReplicas: 1,
      maxReplicas: 3,
      upWindowUs: 0,
      downWindowUs: 0,
      triggers: noTriggers,
    },
    world,
  );
  const replicas = new Replicas(actuation, { min: 1, max: 3 }, initial, world);
  return { configId: 'all', scaler, replicas, capacityTokens: 256 };
}

/** Many requests at first, few later. */
const wave: SmallRequest[] = [
  ...Array.from({ length: 60 }, (_, i) => ({ atUs: 1000 * i, prompt: 20, output: 20 })),
  ...Array.from({ length: 20 }, (_, i) => ({ atUs: 400_000 + 40_000 * i, prompt: 20, output: 4 })),
];

function run(scaling: ScalingSetup): { changes: Change[]; simulation: ReturnType<typeof smallSimulation> } {
  const changes: Change[] = [];
  const signals = { snapshotIntervalUs: 0, cacheSignalUs: 0 };
  const simulation = smallSimulation(
    [smallPool({ maxSequences: 2, replicas: scaling.replicas.ready })],
    wave,
    { routing: { policy: 'least-loaded' }, signals },
    {
      scaled: ({ timeUs, previousCount, newCount }) =>
        changes.push({ atUs: timeUs, from: previousCount, to: newCount }),
    },
    [scaling],
  );
  for (let i = 0; simulation.runSome(256); i++) {
    expect(i).toBeLessThan(500);
    scaling.replicas.checkIntegrity();
  }
  simulation.checkIntegrity();
  simulation.close();
  return { changes, simulation };
}

describe('replicas', () => {
  it('Scale up on sustained load, and down when it is gone', () => {
    const { changes, simulation } = run(setup(1, 'wait'));
    expect(changes.some(({ from, to }) => to > from)).toBe(true);
    expect(changes.some(({ from, to }) => to < from)).toBe(true);
    expect(simulation.instances.length).toBeGreaterThan(1);
    const { table } = simulation;
    expect([...table.status.subarray(0, table.size)]).toEqual(wave.map(() => Status.COMPLETED));
  });

  it('Scale-up takes its time: no request is on the new instance before it has loaded', () => {
    const { changes, simulation } = run(setup(1, 'wait'));
    const firstUs = changes[0].atUs;
    const { table } = simulation;
    for (let row = 0; row < table.size; row++) {
      if (table.instance[row] === 0) continue;
      expect(table.arrivalUs[row] + table.schedulingDelayUs[row]).toBeGreaterThanOrEqual(firstUs + 31_000);
    }
  });

  it('a replica that warms up is slower in simulated time', () => {
    const busyOf = (factor: number): number =>
      run(setup(1, 'wait', factor)).simulation.instances[1].counters.busyUs;
    expect(busyOf(3)).toBeGreaterThan(busyOf(1));
  });

  it.each(['wait', 'redirect'] as const)('with %s nothing is lost when replicas go', (mode) => {
    const { changes, simulation } = run(setup(3, mode));
    expect(changes.some(({ from, to }) => to < from)).toBe(true);
    const { table } = simulation;
    expect([...table.status.subarray(0, table.size)]).toEqual(wave.map(() => Status.COMPLETED));
  });

  it('with immediate, what a replica runs is lost and counted', () => {
    const { simulation } = run(setup(3, 'immediate'));
    const { table } = simulation;
    const ended = [...table.status.subarray(0, table.size)];
    expect(ended.every((status) => status === Status.COMPLETED || status === Status.LOST)).toBe(true);
    expect(simulation.unfinished()).toEqual([]);
  });
});
