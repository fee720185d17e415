/** Each preset decides otherwise than its neighbours somewhere: runs of one workload on a small cluster. */

import { expect, test } from 'vitest';
import type { SimulationObserver } from '../../../src/sim/cluster/parts.ts';
import { admissionPolicies } from '../../../src/sim/control/admission.ts';
import type { ControlConfig } from '../../../src/sim/control/controlPlane.ts';
import type { PolicyChoice } from '../../../src/sim/control/policy.ts';
import { routingPolicies } from '../../../src/sim/control/routing/routing.ts';
import { AutoScaler, noTriggers, Replicas } from '../../../src/sim/control/scaling/autoScaler.ts';
import { scalingPolicies } from '../../../src/sim/control/scaling/registry.ts';
import { PartitionedRandom } from '../../../src/sim/random/goRand.ts';
import { type SmallRequest, smallPool, smallSimulation } from '../../sim/cluster/smallCluster.ts';
import { choiceOf } from './rows.ts';

/** Prefixes of different weight, three tenants, all classes, long and short ones, in bursts. */
function workload(requests: number, gapUs: number): SmallRequest[] {
  let seed = 12345;
  const next = (bound: number): number => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return (seed >>> 8) % bound;
  };
  const classes = ['critical', 'standard', 'batch', 'sheddable', 'background'];
  let atUs = 0;
  return Array.from({ length: requests }, (): SmallRequest => {
    atUs += next(4) === 0 ? next(6 * gapUs) : next(gapUs);
    return {
      atUs,
      prompt: 8 + 4 * [next(8), next(30)][next(2)],
      output: 1 + next(20),
      stream: [1, 1, 1, 2, 2, 3, 4, 5 + next(40)][next(8)],
      sloClass: classes[next(5)],
      tenant: `tenant ${next(3)}`,
      session: `session ${next(30)}`,
      ttftTargetUs: next(3) === 0 ? 4000 : 0,
    };
  });
}

const signals: ControlConfig['signals'] = { snapshotIntervalUs: 3000, cacheSignalUs: 3000 };

type Scaling = Parameters<typeof smallSimulation>[4];

function run(
  pool: Parameters<typeof smallPool>[0],
  requests: readonly SmallRequest[],
  control: Partial<ControlConfig>,
  watch: SimulationObserver,
  scaling: Scaling = [],
): void {
  const simulation = smallSimulation([smallPool(pool)], requests, { signals, ...control }, watch, scaling);
  for (let i = 0; simulation.runSome(64); i++) if (i % 16 === 0) simulation.checkIntegrity();
  simulation.close();
}

/** Each of them decides as it did before, and as none of the others. @param alike one formula, two names */
function expectAllDiffer(
  names: readonly string[],
  decisionsOf: (name: string) => string,
  alike: readonly (readonly [string, string])[] = [],
): void {
  const seen = new Map<string, string>();
  for (const name of names) {
    const decisions = decisionsOf(name);
    const other = seen.get(decisions) ?? name;
    const isAlike = other === name || alike.some(([one, two]) => one === other && two === name);
    if (!isAlike) expect.fail(`${name} and ${other} decide alike`);
    seen.set(decisions, name);
    expect(decisionsOf(name), name).toBe(decisions);
  }
}

/** What differs from the defaults for short prompts and a load that is over within a second. */
const small: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  'preble-e2': { prefillUs: 2000, tpotUs: 100 },
  'aibrix-preble': { prefillUs: 2000, tpotUs: 100 },
  hpa: { target: 10 },
  kpa: { target: 10, stableWindowUs: 100_000, panicWindowUs: 20_000 },
  apa: { target: 10 },
  'aibrix-kpa': { target: 10, stableWindowUs: 100_000, panicWindowUs: 20_000 },
  'model-based': { alphaUs: 1000, betaUs: 10, prefillUs: 30, ttftUs: 4000, tpotUs: 1100 },
  'dynamo-throughput': { alphaUs: 1000, betaUs: 10, prefillUs: 30, ttftUs: 4000, tpotUs: 1100 },
  'dynamo-load': { alphaUs: 1000, betaUs: 10, prefillUs: 30, ttftUs: 4000, tpotUs: 1100 },
  'dynamo-thresholds': { contextTokens: 256 },
};

test('no two presets of routing send all requests the same way', () => {
  const requests = workload(300, 900);
  const routes = (name: string): string => {
    const taken: number[] = [];
    const watch: SimulationObserver = { routing: (_, decision) => void taken.push(decision?.target ?? -1) };
    run(
      { replicas: 4, topBlocks: 48 },
      requests,
      { routing: { ...choiceOf('routing', name), ...small[name] } },
      watch,
    );
    expect(taken.length).toBe(300);
    expect(Math.min(...taken)).toBe(0);
    return taken.join('');
  };
  expectAllDiffer(routingPolicies.names, routes, [['weighted', 'precise-prefix']]);
});

test('no two presets of admission let the same requests in', () => {
  const flood = workload(400, 60);
  const calm = workload(200, 2500);
  const lastUs = calm[calm.length - 1].atUs;
  const requests = [...calm, ...flood.map((each) => ({ ...each, atUs: lastUs + each.atUs }))];
  expectAllDiffer(admissionPolicies.names, (name) => {
    const verdicts: string[] = [];
    const watch: SimulationObserver = { admission: (_, { verdict }) => void verdicts.push(verdict[0]) };
    run({ replicas: 2 }, requests, { admission: choiceOf('admission', name) }, watch);
    expect(verdicts.length).toBe(600);
    return verdicts.join('');
  });
});

test('no two presets of autoScale change replicas the same way', () => {
  const world = {
    blockTokens: 4,
    maxSequences: 8,
    stream: (name: string) => new PartitionedRandom(1n).stream(name),
  };
  const delay = { meanUs: 5000, stddevUs: 0 };
  const requests = [
    ...workload(300, 800),
    ...workload(100, 6000).map((each) => ({ ...each, atUs: each.atUs + 500_000 })),
  ];
  const changesOf = (policy: PolicyChoice): string => {
    const changes: string[] = [];
    const scaler = new AutoScaler(
      {
        policy,
        mode: 'periodic',
        pollIntervalUs: 10_000,
        minReplicas: 1,
        maxReplicas: 12,
        upWindowUs: 0,
        downWindowUs: 20_000,
        triggers: noTriggers,
      },
      world,
    );
    const actuation = {
      decisionDelay: delay,
      provisioningDelay: delay,
      modelLoadTime: delay,
      warmup: { durationUs: 0, curve: 'step', initialPenaltyFactor: 1 },
      drain: { mode: 'wait', drainTimeoutUs: 0 },
    } as const;
    const replicas = new Replicas(actuation, { min: 1, max: 12 }, 2, world);
    const watch: SimulationObserver = {
      scaled: ({ timeUs, newCount }) => void changes.push(`${timeUs}: ${newCount}`),
    };
    run({ replicas: 2, maxSequences: 8 }, requests, {}, watch, [
      { configId: 'all', scaler, replicas, capacityTokens: 256 },
    ]);
    return changes.join(', ');
  };
  expectAllDiffer(scalingPolicies.names, (name) => {
    const changes = changesOf({ ...choiceOf('autoScale', name), ...small[name] });
    if (name === 'none') expect(changes).toBe('');
    else expect(changes, name).not.toBe('');
    return changes;
  });
});
