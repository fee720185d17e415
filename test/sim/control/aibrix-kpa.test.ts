/** AIBrix's KPA over time: panic keeps what there is and ends at once, and a snapshot has it. */

import { expect, it } from 'vitest';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import type {
  AutoScaleContext,
  AutoScalePolicy,
  LoadSample,
} from '../../../src/sim/control/scaling/autoScalePolicy.ts';
import { scalingPolicies } from '../../../src/sim/control/scaling/registry.ts';
import { world } from './fixtures.ts';
import { idleMetrics } from './idleMetrics.ts';

const second = 1_000_000;
const make = (): AutoScalePolicy => scalingPolicies.make({ policy: 'aibrix-kpa', target: 10 }, world());

function context(history: readonly LoadSample[], ready: number, pending: number = 0): AutoScaleContext {
  return {
    configId: 'default',
    nowUs: history[history.length - 1].timeUs,
    currentReplicas: ready + pending,
    readyReplicas: ready,
    pendingReplicas: pending,
    minReplicas: 1,
    maxReplicas: 100,
    metrics: idleMetrics,
    replicas: [],
    loadHistory: history,
    pendingRequests: 0,
    sinceLastScaleUs: Infinity,
  };
}

const sample = (seconds: number, concurrency: number): LoadSample => {
  return { timeUs: seconds * second, concurrency, requestRate: 0, avgQueueDepth: 0, avgUtilization: 0 };
};

it('does not shrink in panic, and goes by the stable window as soon as panic is over', () => {
  const history: LoadSample[] = [];
  let policy = make();
  let replicas = 2;
  const at = (seconds: number, concurrency: number): number => {
    history.push(sample(seconds, concurrency));
    // what it remembers is all in its snapshot
    const state = structuredClone(saveState(policy));
    policy = make();
    restoreState(policy, state);
    replicas = policy.evaluate(context(history, replicas)).targetReplicas;
    return replicas;
  };
  expect(at(0, 20)).toBe(2);
  // stable (20 + 22) / 2 = 21 is 1.05 of two
  expect(at(10, 22)).toBe(2);
  // panic: 120 is more than 2 x 54; 12 replicas, of which 2 x 2
  expect(at(20, 120)).toBe(4);
  // 170 is more than 2 x 83; 17, of which 2 x 4
  expect(at(30, 170)).toBe(8);
  // 76.4 over the stable window is 0.955 of eight: they stay
  expect(at(40, 50)).toBe(8);
  // (20 + 22 + 120 + 170 + 50 + 0) / 6 = 63.7 is 0.796: 7
  expect(at(50, 0)).toBe(7);
  // without the first: 362 / 6 = 60.3 is 0.86: 7; then 340 / 6 = 56.7: 6
  expect([at(60, 0), at(70, 0)]).toEqual([7, 6]);
});

it('remembers the most of a panic, and forgets it with the panic', () => {
  const quiet = Array.from({ length: 20 }, (_, i) => sample(i, 1));
  const policy = make();
  // (20 + 400) / 21 = 20: 400 is panic; 40, of which 2 x 3
  expect(policy.evaluate(context([...quiet, sample(30, 400)], 3)).targetReplicas).toBe(6);
  // fewer are there, still in panic: 8 of 2 x 2, but 6 were wanted
  expect(policy.evaluate(context([...quiet, sample(30, 80)], 2)).targetReplicas).toBe(6);
  expect(policy.evaluate(context([...quiet, sample(30, 1)], 2)).targetReplicas).toBe(1);
  expect(policy.evaluate(context([...quiet, sample(30, 80)], 2)).targetReplicas).toBe(4);
});

it('leaves pending ones alone while the ready ones are within the tolerance', () => {
  expect(make().evaluate(context([sample(0, 21)], 2, 1)).targetReplicas).toBe(3);
});
