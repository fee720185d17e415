/**
 * Autoscalers of several pools side by side: each with its policy, bounds, period and delays; what a pool's
 * drain sends on stays in the pool; a hand-off outlives the instances at both its ends as far as it can.
 */

import { describe, expect, it } from 'vitest';
import type { ReplicaChange, ScaleChange, ScalingSetup } from '../../../../src/sim/cluster/scaling.ts';
import type { Simulation } from '../../../../src/sim/cluster/simulation.ts';
import { StatelessPolicy } from '../../../../src/sim/control/policy.ts';
import type { AutoScaleContext, DrainMode } from '../../../../src/sim/control/scaling/autoScalePolicy.ts';
import {
  AutoScaler,
  type AutoScalerConfig,
  noTriggers,
  Replicas,
} from '../../../../src/sim/control/scaling/autoScaler.ts';
import { Status } from '../../../../src/sim/metrics/requestTable.ts';
import { PartitionedRandom } from '../../../../src/sim/random/goRand.ts';
import { type ScaleRecord, ScaleRecords } from '../../../../src/sim/report/scaling.ts';
import { type SmallRequest, smallPool, smallSimulation } from '../smallCluster.ts';

const world = {
  blockTokens: 4,
  maxSequences: 16,
  stream: (name: string) => new PartitionedRandom(1n).stream(name),
};

interface Plan extends Partial<AutoScalerConfig> {
  readonly configId: string;
  readonly initial: number;
  /** Replicas from each time on, in microseconds. */
  readonly plan: readonly (readonly [fromUs: number, replicas: number])[];
  readonly drain?: DrainMode;
  readonly drainTimeoutUs?: number;
  readonly targets?: ScalingSetup['targets'];
  readonly seen?: AutoScaleContext[];
}

/** An autoscaler that follows a plan. */
function planned({
  configId,
  initial,
  plan,
  drain,
  drainTimeoutUs,
  targets,
  seen,
  ...config
}: Plan): ScalingSetup {
  const delay = (meanUs: number): { meanUs: number; stddevUs: number } => ({ meanUs, stddevUs: 0 });
  class Follow extends StatelessPolicy {
    readonly name: string = 'planned';
    evaluate(context: AutoScaleContext): ReturnType<AutoScaler['evaluate']> {
      seen?.push(context);
      const targetReplicas = plan.findLast(([fromUs]) => fromUs <= context.nowUs)?.[1] ?? initial;
      return { action: targetReplicas > context.currentReplicas ? 'up' : 'down', targetReplicas, reason: '' };
    }
  }
  const scaler = new AutoScaler(
    {
      policy: { policy: 'none' },
      mode: 'periodic',
      pollIntervalUs: 5000,
      minReplicas: 1,
      maxReplicas: 4,
      upWindowUs: 0,
      downWindowUs: 0,
      triggers: noTriggers,
      ...config,
    },
    world,
    () => new Follow(),
  );
  const { minReplicas: min, maxReplicas: max } = scaler.config;
  const replicas = new Replicas(
    {
      decisionDelay: delay(1000),
      provisioningDelay: delay(3000),
      modelLoadTime: delay(2000),
      warmup: { durationUs: 7000, curve: 'step', initialPenaltyFactor: 2 },
      drain: { mode: drain ?? 'wait', drainTimeoutUs: drainTimeoutUs ?? 0 },
    },
    { min, max },
    initial,
    world,
  );
  return { configId, scaler, replicas, capacityTokens: 256, ...(targets === undefined ? {} : { targets }) };
}

const fresh = { signals: { snapshotIntervalUs: 0, cacheSignalUs: 0 }, routing: { policy: 'least-loaded' } };

interface Ran {
  readonly simulation: Simulation;
  readonly changes: ScaleChange[];
  readonly replicas: ReplicaChange[];
}

function run(
  pools: Parameters<typeof smallSimulation>[0],
  requests: readonly SmallRequest[],
  scaling: readonly ScalingSetup[],
  control: Parameters<typeof smallSimulation>[2] = {},
  handoff: Parameters<typeof smallSimulation>[5] = {},
): Ran {
  const changes: ScaleChange[] = [];
  const replicas: ReplicaChange[] = [];
  const observer = {
    scaled: (change: ScaleChange) => changes.push(change),
    replica: (change: ReplicaChange) => replicas.push(change),
  };
  const simulation = smallSimulation(pools, requests, { ...fresh, ...control }, observer, scaling, handoff);
  for (let i = 0; simulation.runSome(256); i++) expect(i).toBeLessThan(500);
  simulation.checkIntegrity();
  simulation.close();
  return { simulation, changes, replicas };
}

function ends({ table }: Simulation): Record<string, number> {
  const count = (status: Status): number =>
    [...table.status.subarray(0, table.size)].filter((each) => each === status).length;
  return { completed: count(Status.COMPLETED), lost: count(Status.LOST), all: table.size };
}

const steady: SmallRequest[] = Array.from({ length: 60 }, (_, i) => ({
  atUs: 2000 * i,
  prompt: 20,
  output: 10,
}));

describe('each pool', () => {
  const two = [smallPool({ configId: 'a', model: 'a' }), smallPool({ configId: 'b', model: 'b' })];
  const ofBoth = steady.map((request, i) => ({ ...request, model: i % 2 === 0 ? 'a' : 'b' }));

  it('looks at its own period, with its own policy, bounds and traffic', () => {
    const [seenA, seenB]: [AutoScaleContext[], AutoScaleContext[]] = [[], []];
    const scaling = [
      planned({ configId: 'a', initial: 1, plan: [[20_000, 9]], pollIntervalUs: 10_000, seen: seenA }),
      planned({
        configId: 'b',
        initial: 1,
        plan: [[30_000, 9]],
        maxReplicas: 2,
        pollIntervalUs: 15_000,
        seen: seenB,
      }),
    ];
    const { changes, simulation } = run(two, ofBoth.slice(0, 45), scaling);
    expect(seenA.map(({ nowUs }) => nowUs).slice(0, 5)).toEqual([0, 10_000, 20_000, 30_000, 40_000]);
    expect(seenB.map(({ nowUs }) => nowUs).slice(0, 4)).toEqual([0, 15_000, 30_000, 45_000]);
    expect(changes.map(({ configId, timeUs, newCount }) => [configId, timeUs, newCount])).toEqual([
      ['a', 20_000, 4],
      ['b', 30_000, 2],
    ]);
    // one request each 4 ms and model: at 24 and 28 ms, and at 18, 22, 26 and 30 ms
    expect(seenA[3].metrics.requestRate).toBeCloseTo(200, 6);
    expect(seenB[2].metrics.requestRate).toBeCloseTo(4 / 0.015, 6);
    expect(
      seenA.every(({ replicas }) =>
        replicas.every(({ instance }) => simulation.instances[instance].configId === 'a'),
      ),
    ).toBe(true);
    expect(ends(simulation)).toEqual({ completed: 45, lost: 0, all: 45 });
  });

  it('counts, of requests that could go to several pools, its share of the routed ones', () => {
    const [left, right]: [AutoScaleContext[], AutoScaleContext[]] = [[], []];
    const pools = [smallPool({ configId: 'left', replicas: 3 }), smallPool({ configId: 'right' })];
    const scaling = [
      planned({ configId: 'left', initial: 3, plan: [], pollIntervalUs: 40_000, seen: left }),
      planned({ configId: 'right', initial: 1, plan: [], pollIntervalUs: 40_000, seen: right }),
    ];
    run(pools, steady, scaling, { routing: { policy: 'round-robin' } });
    // 500 a second, in turn to four instances
    expect(left[2].metrics.requestRate).toBeCloseTo(375, 6);
    expect(right[2].metrics.requestRate).toBeCloseTo(125, 6);
  });

  it('is scaled in order of the pools at one time, however the setups are ordered', () => {
    const make = (): ScalingSetup[] => [
      planned({ configId: 'a', initial: 1, plan: [[5000, 3]] }),
      planned({ configId: 'b', initial: 1, plan: [[5000, 2]] }),
    ];
    const one = run(two, ofBoth, make());
    const other = run(two, ofBoth, make().reverse());
    expect(one.changes.map(({ configId }) => configId)).toEqual(['a', 'b']);
    expect(other.changes).toEqual(one.changes);
    expect(other.replicas).toEqual(one.replicas);
    // instances of one time are numbered in order of the pools
    expect(one.simulation.instances.map(({ configId }) => configId)).toEqual(['a', 'b', 'a', 'a', 'b']);
  });

  it('sees what share of its requests met their targets, and a trigger goes by it', () => {
    const seen: AutoScaleContext[] = [];
    const plan = [[0, 2]] as const;
    const triggers = { ...noTriggers, sloAttainment: 0.5 };
    const slow = planned({
      configId: 'all',
      initial: 1,
      plan,
      mode: 'event',
      triggers,
      seen,
      targets: { default: { e2eUs: 1 } },
    });
    const { changes } = run([smallPool()], steady, [slow]);
    expect(changes[0]?.reason).toMatch(/^SLO attainment/);
    expect(seen[0].metrics.sloAttainment).toEqual({ default: 0 });
    const quick = planned({
      configId: 'all',
      initial: 1,
      plan,
      mode: 'event',
      triggers,
      targets: { default: { e2eUs: 1e9 } },
    });
    expect(run([smallPool()], steady, [quick]).changes).toEqual([]);
  });

  it('has its record: delays and the end of the warm-up as they came', () => {
    const records = new ScaleRecords();
    const kept: ScaleRecord[] = [];
    const scaling = [
      planned({
        configId: 'a',
        initial: 1,
        plan: [
          [5000, 3],
          [60_000, 1],
        ],
      }),
      planned({ configId: 'b', initial: 1, plan: [[105_000, 2]] }),
    ];
    const simulation = smallSimulation(
      two,
      ofBoth,
      fresh,
      { scaled: (change) => kept.push(records.scaled(change)), replica: (change) => records.replica(change) },
      scaling,
    );
    simulation.run();
    expect(
      kept.map(({ configId, provisioningDelayUs, readyUs, warmupEndUs }) => {
        return [configId, provisioningDelayUs, readyUs, warmupEndUs];
      }),
    ).toEqual([
      ['a', 3000, 11_000, 18_000],
      ['a', -1, -1, -1],
      ['b', 3000, 111_000, 118_000],
    ]);
    expect(kept[0].metrics.avgPromptTokens).toBe(20);
  });
});

describe('a drain in one of several pools', () => {
  const burst: SmallRequest[] = Array.from({ length: 40 }, (_, i) => ({
    atUs: 500 * i,
    prompt: 24,
    output: 12,
  }));

  it('redirect sends what waits to instances of the same pool', () => {
    const pools = [
      smallPool({ configId: 'one', replicas: 2, maxSequences: 1 }),
      smallPool({ configId: 'two', replicas: 2, maxSequences: 1 }),
    ];
    const targets = new Map<string, number[]>();
    const scaling = [planned({ configId: 'one', initial: 2, plan: [[10_000, 1]], drain: 'redirect' })];
    const simulation = smallSimulation(
      pools,
      burst,
      fresh,
      {
        routing: ({ id }, decision) => {
          targets.set(id, [...(targets.get(id) ?? []), decision?.target ?? -1]);
        },
      },
      scaling,
    );
    simulation.run();
    simulation.close();
    const again = [...targets.values()].filter((each) => each.length > 1);
    expect(again.length).toBeGreaterThan(2);
    for (const [first, second] of again) expect([first, second]).toEqual([0, 1]);
    expect(ends(simulation)).toEqual({ completed: 40, lost: 0, all: 40 });
  });

  const pair = (decodeBlocks: number): ReturnType<typeof smallPool>[] => [
    smallPool({ role: 'prefill', replicas: 2, topBlocks: 256 }),
    smallPool({ role: 'decode', replicas: 2, topBlocks: decodeBlocks }),
  ];
  const always = { decider: { policy: 'always' } };
  /** Slow enough that hand-offs are under way at any time. */
  const slow = { bandwidthBytesPerS: 2e6 };

  it.each(['wait', 'redirect'] as const)('with %s no hand-off is lost, whichever end goes', (drain) => {
    for (const [configId, atUs] of [
      ['prefill', 5000],
      ['prefill', 20_000],
      ['decode', 5000],
      ['decode', 20_000],
    ] as const) {
      const scaling = [planned({ configId, initial: 2, plan: [[atUs, 1]], drain })];
      const { simulation, replicas } = run(pair(24), burst, scaling, always, slow);
      const where = `${configId} at ${atUs}`;
      expect(ends(simulation), where).toEqual({ completed: 40, lost: 0, all: 40 });
      expect(
        replicas.map(({ phase }) => phase),
        where,
      ).toEqual(['draining', 'terminated']);
      expect(simulation.handoffs.size, where).toBe(0);
    }
  });

  it('a prefill instance that waits is there until its last KV is fetched', () => {
    const scaling = [planned({ configId: 'prefill', initial: 2, plan: [[20_000, 1]] })];
    const lastUs: number[] = [];
    const gone: number[] = [];
    const simulation = smallSimulation(
      pair(24),
      burst,
      { ...fresh, ...always },
      {
        handedOff: ({ from, endUs }) => {
          if (from === 0) lastUs.push(endUs);
        },
        replica: ({ phase, timeUs }) => {
          if (phase === 'terminated') gone.push(timeUs);
        },
      },
      scaling,
      slow,
    );
    simulation.run();
    expect(gone).toEqual([lastUs.at(-1)]);
    expect(gone[0]).toBeGreaterThan(20_000);
  });

  it('immediate on the decode side sends KV to another instance of the pool, and loses what runs there', () => {
    const scaling = [planned({ configId: 'decode', initial: 2, plan: [[20_000, 1]], drain: 'immediate' })];
    const running: number[] = [];
    const { simulation } = run(pair(24), burst, scaling, always, slow);
    const { table } = simulation;
    for (let row = 0; row < table.size; row++) {
      if (table.status[row] === Status.LOST) running.push(table.instance[row]);
    }
    expect(new Set(running)).toEqual(new Set([2]));
    const { completed, lost } = ends(simulation);
    expect(completed + lost).toBe(40);
    expect(completed).toBeGreaterThan(lost);
    expect(simulation.handoffs.size).toBe(0);
  });

  it.each(['immediate', 'wait'] as const)(
    'a prefill instance that goes (%s) while its KV waits counts each request off once',
    (drain) => {
      // the decode side is full, so that hand-offs wait on the prefill instance when it goes
      const plan = [[20_000, 1]] as const;
      const scaling = [planned({ configId: 'prefill', initial: 2, plan, drain, drainTimeoutUs: 1000 })];
      const { simulation } = run(pair(12), burst, scaling, always, slow);
      const { completed, lost } = ends(simulation);
      expect(lost).toBeGreaterThan(0);
      expect(completed + lost).toBe(40);
      // only with instance 0, or to go on elsewhere from there
      expect(
        simulation.control.cluster(simulation.nowUs).instances.every(({ inFlight }) => inFlight === 0),
      ).toBe(true);
    },
  );
});

describe('a setup that fits no deployment', () => {
  const one = (configId: string, initial = 1): ScalingSetup => planned({ configId, initial, plan: [] });
  it.each([
    [
      [one('x')],
      'scaling.configId names "x", which fits no pool. Name one of the pools, each with its own name.',
    ],
    [[one('all'), one('all')], 'scaling.configId names "all" twice. Give a pool one autoscaler.'],
    [
      [one('all', 2)],
      'all.replicas is 1, and its autoscaler begins with 2. Begin with as many as there are.',
    ],
  ])('%#', (scaling, says) => {
    expect(() => smallSimulation([smallPool()], [], {}, {}, scaling)).toThrow(says);
  });

  it('names a pool that is not alone in its name', () => {
    const pools = [
      smallPool({ role: 'prefill', configId: 'all' }),
      smallPool({ role: 'decode', configId: 'all' }),
    ];
    expect(() => smallSimulation(pools, [], {}, {}, [one('all')])).toThrow(
      'scaling.configId names "all", which 2 pools are called',
    );
  });
});
