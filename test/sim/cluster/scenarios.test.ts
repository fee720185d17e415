/**
 * The scenarios of the cluster's design on whole simulations. "Scale up on sustained load" and "Scale-up
 * takes its time" are in test/sim/control/scaling.test.ts, "Prefill/decode hand-off" beside this file.
 */

import { describe, expect, it } from 'vitest';
import type { ShadowDivergence } from '../../../src/sim/control/controlPlane.ts';
import type { RoutingDecision } from '../../../src/sim/control/policy.ts';
import { Status } from '../../../src/sim/metrics/requestTable.ts';
import { type SmallRequest, smallPool, smallSimulation } from './smallCluster.ts';

const live = { snapshotIntervalUs: 0, cacheSignalUs: 0 };

describe('scenarios', () => {
  it('Route to the instance with the cached prefix', () => {
    for (const [policy, target] of [
      ['precise-prefix', 0],
      // round robin, which does not look, sends the third request to instance 0 and the fourth to 1
      ['round-robin', 1],
    ] as const) {
      const decisions: (RoutingDecision | null)[] = [];
      const requests: SmallRequest[] = [
        { atUs: 0, prompt: 40, output: 2, stream: 1 },
        { atUs: 10, prompt: 40, output: 2, stream: 2 },
        { atUs: 100_000, prompt: 40, output: 2, stream: 3 },
        { atUs: 200_000, prompt: 40, output: 2, stream: 1 },
      ];
      const simulation = smallSimulation(
        [smallPool({ replicas: 2 })],
        requests,
        { routing: { policy }, signals: live },
        { routing: (_, decision) => decisions.push(decision) },
      );
      simulation.run();
      expect(decisions[0]?.target).toBe(0);
      expect(decisions[3]?.target, policy).toBe(target);
      if (policy === 'precise-prefix') expect(decisions[3]?.expectedBlocks).toBe(10);
      simulation.checkIntegrity();
    }
  });

  it('Realtime before batch', () => {
    for (const queueOrder of ['priority-fcfs', 'fcfs']) {
      const pool = smallPool({ maxSequences: 1 });
      pool.engine.scheduler.queueOrder = queueOrder;
      const simulation = smallSimulation(
        [pool],
        [
          { atUs: 0, prompt: 8, output: 2, sloClass: 'standard' },
          { atUs: 100, prompt: 8, output: 2, sloClass: 'batch' },
          { atUs: 101, prompt: 8, output: 2, sloClass: 'critical' },
        ],
      );
      simulation.run();
      const [, batch, realtime] = simulation.table.firstTokenUs;
      if (queueOrder === 'fcfs') expect(100 + batch).toBeLessThan(101 + realtime);
      else expect(101 + realtime).toBeLessThan(100 + batch);
    }
  });

  it('Offload under pressure', () => {
    const requests: SmallRequest[] = [
      // 120 blocks each: the second leaves 80 of 320 free, so the third needs room; a step takes 16 blocks, and as many
      // may be on their way down
      { atUs: 0, prompt: 480, output: 2, stream: 1 },
      { atUs: 50_000, prompt: 480, output: 2, stream: 2 },
      { atUs: 100_000, prompt: 800, output: 2, stream: 3 },
      { atUs: 200_000, prompt: 480, output: 2, stream: 1 },
    ];
    const run = (ddrBlocks?: number) => {
      const pool = smallPool({ topBlocks: 320, ...(ddrBlocks === undefined ? {} : { ddrBlocks }) });
      const simulation = smallSimulation([pool], requests);
      simulation.run();
      simulation.checkIntegrity();
      return simulation.instances[0].engine;
    };
    const tiered = run(1000);
    expect(tiered.counters.offloads).toBeGreaterThan(0);
    // the least recently used prompt went down, and is found there when it comes back
    expect(tiered.counters.hits[1]).toBeGreaterThan(0);
    const single = run();
    expect(single.counters.offloads).toBe(0);
    expect(single.counters.hits.reduce((sum, hits) => sum + hits, 0)).toBe(0);
  });

  it('Deterministic replay', () => {
    const run = (policy: string): string => {
      const events: unknown[] = [];
      const requests: SmallRequest[] = Array.from({ length: 60 }, (_, i) => ({
        atUs: i * 300,
        prompt: 8 + (i % 5) * 8,
        output: 3 + (i % 4),
        stream: i % 7,
        sloClass: i % 3 === 0 ? 'batch' : 'critical',
      }));
      const simulation = smallSimulation(
        [smallPool({ replicas: 3, topBlocks: 24 })],
        requests,
        { routing: { policy, ties: 'random' }, admission: { policy: 'probabilistic' }, topK: 2 },
        {
          admission: (request, decision, nowUs) => events.push([request.number, decision.verdict, nowUs]),
          routing: (request, decision, nowUs) => events.push([request.number, decision, nowUs]),
          ended: (request, status, timeUs) => events.push([request.number, status, timeUs]),
        },
      );
      simulation.run();
      return JSON.stringify(events);
    };
    expect(run('weighted')).toBe(run('weighted'));
    expect(run('least-loaded')).toBe(run('least-loaded'));
    expect(run('weighted')).not.toBe(run('least-loaded'));
  });

  it('Shadow divergence', () => {
    const diverged: ShadowDivergence[] = [];
    const decisions: (RoutingDecision | null)[] = [];
    const requests: SmallRequest[] = [
      { atUs: 0, prompt: 32, output: 2, stream: 1 },
      // these two put it out of 16 blocks, and a shadow of 64 blocks does not know
      { atUs: 50_000, prompt: 48, output: 2, stream: 2 },
      { atUs: 100_000, prompt: 48, output: 2, stream: 3 },
      { atUs: 150_000, prompt: 32, output: 2, stream: 1 },
    ];
    const simulation = smallSimulation(
      [smallPool({ topBlocks: 16 })],
      requests,
      { shadow: { model: 'approximate', blocks: 64, eventDelayUs: 0, speculativeTtlUs: 0 } },
      {
        routing: (_, decision) => decisions.push(decision),
        diverged: (divergence) => diverged.push(divergence),
      },
    );
    simulation.run();
    expect(decisions[3]?.expectedBlocks).toBe(8);
    expect(diverged).toMatchObject([{ request: 3, instance: 0, expectedBlocks: 8, actualBlocks: 0 }]);
    expect(simulation.control.counters.shadowOverestimates).toBe(1);
    expect(simulation.table.status[3]).toBe(Status.COMPLETED);
    // fed with events the router knows better, and nothing diverges
    const fed = smallSimulation([smallPool({ topBlocks: 16 })], requests, {
      shadow: { model: 'events', blocks: 0, eventDelayUs: 0, speculativeTtlUs: 0 },
    });
    fed.run();
    expect(fed.control.counters).toMatchObject({ shadowChecks: 4, shadowOverestimates: 0 });
  });
});
