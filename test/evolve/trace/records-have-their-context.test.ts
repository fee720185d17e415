/** Each record of a trace has what its decision was made by, as it was before the decision. */

import { expect, test } from 'vitest';
import { TraceRecorder } from '../../../src/policy/evolve/trace/recorder.ts';
import type { TraceRecord } from '../../../src/policy/evolve/trace/records.ts';
import type { ControlConfig } from '../../../src/sim/control/controlPlane.ts';
import { type SmallRequest, smallPool, smallSimulation } from '../../sim/cluster/smallCluster.ts';

type Of<K extends TraceRecord['kind']> = Extract<TraceRecord, { readonly kind: K }>;

function traced<K extends TraceRecord['kind']>(
  kind: K,
  requests: readonly SmallRequest[],
  { pools = [smallPool()], control = {} }: { pools?: ReturnType<typeof smallPool>[]; control?: object } = {},
): Of<K>[] {
  const recorder = new TraceRecorder('decisions');
  const simulation = smallSimulation(pools, requests, control as Partial<ControlConfig>, recorder);
  recorder.attach(simulation);
  simulation.run();
  simulation.close();
  return recorder.records.filter((record): record is Of<K> => record.kind === kind);
}

/** Requests of two tenants in turn, 100 µs apart, that all run for long. */
const inTurn: SmallRequest[] = Array.from({ length: 8 }, (_, i) => ({
  atUs: 100 * i,
  prompt: 16,
  output: 20,
  tenant: i % 2 === 0 ? 'red' : 'blue',
}));

test('admission, priority and routing tell of the router and of the tenant', () => {
  for (const kind of ['admission', 'priority', 'routing'] as const) {
    const records = traced(kind, inTurn);
    expect(records.map(({ routerState }) => routerState.inFlight)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(records.map(({ routerState }) => routerState.pending)).toEqual([1, 1, 1, 1, 1, 1, 1, 1]);
    expect(records.map(({ tenantState }) => tenantState.requestCount)).toEqual([1, 1, 2, 2, 3, 3, 4, 4]);
    expect(records.map(({ tenantState }) => tenantState.activeRequests)).toEqual([0, 0, 1, 1, 2, 2, 3, 3]);
    const { routerState, tenantState } = records[7];
    expect(routerState.requestRate).toBe(2 * tenantState.recentRate);
    expect(tenantState.recentRate).toBeGreaterThan(0);
    expect(routerState.throughput).toBe(0);
    expect(tenantState.burstDetected).toBe(false);
  }
});

test('a rejected request is pending when it is decided about', () => {
  const control = { admission: { policy: 'reject-all' } };
  const records = traced('admission', inTurn, { control });
  expect(records.map(({ verdict }) => verdict)).toEqual(inTurn.map(() => 'reject'));
  expect(records.map(({ routerState }) => routerState.pending)).toEqual(inTurn.map(() => 1));
});

test('admission tells of all instances together', () => {
  const pools = [smallPool({ replicas: 3, maxSequences: 1 })];
  const late = inTurn.map((request, i) => ({ ...request, atUs: 5000 * i, output: 100 }));
  const control = { signals: { snapshotIntervalUs: 0, cacheSignalUs: 0 } };
  const records = traced('admission', late, { pools, control });
  expect(records.map(({ cluster }) => cluster.instances)).toEqual(inTurn.map(() => 3));
  expect(records[0].cluster).toMatchObject({ queueDepth: 0, batchSize: 0, kvUtilization: 0 });
  const { queueDepth, batchSize, kvUtilization } = records[7].cluster;
  expect(queueDepth + batchSize).toBe(7);
  expect(batchSize).toBe(3);
  expect(kvUtilization).toBeGreaterThan(0);
  expect(kvUtilization).toBeLessThan(1);
});

test('a request that joins tells of the step that it joins', () => {
  const pools = [smallPool({ maxSequences: 2 })];
  const records = traced('batch', inTurn, { pools });
  expect(records).toHaveLength(8);
  for (const { batch } of records) expect(batch.decodes + batch.prefills).toBeLessThanOrEqual(2);
  // request 0 is computed alone; request 1 beside it, while no other has come
  expect(records[0].batch).toMatchObject({
    tokens: 16,
    decodes: 0,
    prefills: 1,
    queueDepth: 0,
    batchSize: 1,
  });
  expect(records[1].batch).toMatchObject({
    tokens: 17,
    decodes: 1,
    prefills: 1,
    queueDepth: 6,
    batchSize: 2,
  });
  expect(records[0].batch.kvUtilization).toBeGreaterThan(0);
});

test('a request that gives way tells how often it did, and of the batch that goes on', () => {
  const requests = Array.from({ length: 16 }, (_, i) => ({ atUs: i, prompt: 8, output: 60 }));
  const pools = [smallPool({ topBlocks: 40 })];
  const records = traced('preemption', requests, { pools });
  expect(records.length).toBeGreaterThan(8);
  const seen = new Map<string, number>();
  for (const { requestId, preemptions, batch } of records) {
    seen.set(requestId, (seen.get(requestId) ?? 0) + 1);
    expect(preemptions).toBe(seen.get(requestId));
    expect(batch.queueDepth).toBeGreaterThan(0);
    expect(batch.batchSize + batch.queueDepth).toBeLessThanOrEqual(16);
    expect(batch.kvUtilization).toBeGreaterThan(0);
  }
});

test.each(['weighted', 'llm-d', 'least-loaded', 'round-robin'])(
  'a routing by %s names the best three others, the best first',
  (policy) => {
    const pools = [smallPool({ replicas: 5 })];
    const records = traced('routing', inTurn, { pools, control: { routing: { policy } } });
    for (const { chosenInstance, topKCandidates, instances } of records) {
      const others = instances.filter(({ instance }) => instance !== chosenInstance);
      const best = others.sort((a, b) => (b.score ?? 0) - (a.score ?? 0) || a.instance - b.instance);
      expect(topKCandidates).toEqual(best.slice(0, 3).map(({ instance, score }) => ({ instance, score })));
      expect(topKCandidates).toHaveLength(3);
    }
  },
);
