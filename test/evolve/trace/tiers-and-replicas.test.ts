/** Anomalies of tiers, hand-offs and replicas, and the blocks that a trace names. */

import { describe, expect, test } from 'vitest';
import type { Anomaly, AnomalyType } from '../../../src/policy/evolve/trace/anomalies.ts';
import { TraceRecorder } from '../../../src/policy/evolve/trace/recorder.ts';
import type { RoutingRecord, TraceRecord } from '../../../src/policy/evolve/trace/records.ts';
import { keyToHex } from '../../../src/runtime/keys/keyChain.ts';
import { observers, type SimulationObserver } from '../../../src/sim/cluster/parts.ts';
import type { Simulation } from '../../../src/sim/cluster/simulation.ts';
import { managerConfigOf } from '../../../src/sim/instance/engine.ts';
import { scaleChange } from '../../sim/cluster/scaling/scaleChange.ts';
import {
  type SmallPool,
  type SmallRequest,
  smallPool,
  smallSimulation,
} from '../../sim/cluster/smallCluster.ts';

function watched(recorder: TraceRecorder, simulation: Simulation): TraceRecorder {
  recorder.attach(simulation);
  simulation.run();
  simulation.checkIntegrity();
  simulation.close();
  return recorder;
}

function found(recorder: TraceRecorder, type: AnomalyType): Anomaly[] {
  return recorder.anomalies.found({}).filter((anomaly) => anomaly.type === type);
}

/**
 * A reload within so long of the block's offload is thrashing. A whole memory of blocks may be in flight, so that all that
 * leaves so small a memory goes down.
 */
function tiered(thrashingWindowUs: number, topBlocks: number): ReturnType<typeof smallPool> {
  const ddrBlocks = 64;
  const options: SmallPool = { topBlocks, ddrBlocks };
  const pool = smallPool(options);
  const { leavingShare: _, ...manager } = managerConfigOf(pool.engine);
  const size = (blocks: number): { capacityBytes: number; landingBytes: number } => {
    const capacityBytes = blocks * pool.engine.blockBytes;
    return { capacityBytes, landingBytes: capacityBytes };
  };
  const sizes = { hbm: size(topBlocks), ddr: size(ddrBlocks), leavingShare: 0.5 };
  return { ...pool, engine: { ...pool.engine, manager: { ...manager, ...sizes, thrashingWindowUs } } };
}

/** Three prompts of 10 blocks in turn, 20 ms apart, four times each. */
const inTurn: SmallRequest[] = Array.from({ length: 12 }, (_, i) => ({
  atUs: 20_000 * i,
  prompt: 41,
  output: 2,
  stream: i % 3,
}));

describe('cache_thrashing', () => {
  const run = (windowUs: number, topBlocks: number): Anomaly[] => {
    const recorder = new TraceRecorder('minimal');
    return found(
      watched(recorder, smallSimulation([tiered(windowUs, topBlocks)], inTurn, {}, recorder)),
      'cache_thrashing',
    );
  };

  test('blocks that come back soon after they went down', () => {
    const recorder = new TraceRecorder('decisions');
    watched(recorder, smallSimulation([tiered(1e9, 24)], inTurn, {}, recorder));
    const [anomaly, ...others] = found(recorder, 'cache_thrashing');
    expect(others).toEqual([]);
    const transfers = recorder.records.filter((record) => record.kind === 'transfer');
    const thrashed = transfers.reduce((sum, { thrashedBlocks }) => sum + thrashedBlocks, 0);
    expect(thrashed).toBeGreaterThan(0);
    expect(anomaly.count).toBe(thrashed);
    // all but the first three prompts find their blocks below HBM
    expect(anomaly.description).toBe(
      `instance 0: ${thrashed} blocks were reloaded soon after they were offloaded, for 9 requests`,
    );
    expect(anomaly).toMatchObject({
      requests: ['request_3', 'request_4', 'request_5', 'request_6', 'request_7'],
      concerned: 9,
      severity: 'high',
    });
  });

  test('is as grave as the share of requests that it hits, for any number of blocks', () => {
    const severities = [0, 200, 800].map((count) => {
      const others = Array.from({ length: count }, (_, i) => {
        return { atUs: 300_000 + 10_000 * i, prompt: 8, output: 2 };
      });
      const recorder = new TraceRecorder('minimal');
      watched(recorder, smallSimulation([tiered(1e9, 24)], [...inTurn, ...others], {}, recorder));
      return found(recorder, 'cache_thrashing')[0].severity;
    });
    expect(severities).toEqual(['high', 'medium', 'low']);
  });

  test('names requests whose blocks are fetched before they queue as well', () => {
    const pool = tiered(1e9, 24);
    const loads = { kind: 'deferred', links: {}, prefetch: true } as const;
    const recorder = new TraceRecorder('minimal');
    const pools = [{ ...pool, engine: { ...pool.engine, loads } }];
    watched(recorder, smallSimulation(pools, inTurn, {}, recorder));
    const [{ count, concerned, requests }] = found(recorder, 'cache_thrashing');
    expect(count).toBeGreaterThan(0);
    expect(concerned).toBe(9);
    expect(requests[0]).toBe('request_3');
  });

  test('finds none if blocks come back late or all have room', () => {
    expect(run(0, 24)).toEqual([]);
    expect(run(1e9, 64)).toEqual([]);
  });
});

describe('scale_oscillation', () => {
  const changes = (...all: readonly (readonly ['up' | 'down', number])[]): Anomaly[] => {
    const recorder = new TraceRecorder('minimal');
    recorder.attach(smallSimulation([smallPool()], []));
    let replicas = 4;
    for (const [action, atS] of all) {
      const targetReplicas = replicas + (action === 'up' ? 1 : -1);
      recorder.scaled(scaleChange('all', replicas, targetReplicas, atS * 1e6));
      replicas = targetReplicas;
    }
    return found(recorder, 'scale_oscillation');
  };

  test('finds a change that is taken back within two minutes, with the mean time until then', () => {
    const [anomaly, ...others] = changes(['up', 10], ['down', 40], ['up', 130]);
    expect(others).toEqual([]);
    expect(anomaly).toMatchObject({ count: 2, timeUs: 10e6 });
    expect(anomaly.description).toBe(
      'all: 2 changes of the replicas were taken back after 60 s on average, with 0 requests in between',
    );
  });

  const between = (requests: number, ...taken: readonly (readonly [up: number, down: number])[]): Anomaly => {
    const recorder = new TraceRecorder('minimal');
    const arrivals = Array.from({ length: requests }, (_, i) => ({
      atUs: 1e6 * i,
      prompt: i === 13 ? 400 : 8,
      output: 2,
    }));
    watched(recorder, smallSimulation([smallPool({ topBlocks: 128 })], arrivals, {}, recorder));
    for (const [up, down] of taken) {
      recorder.scaled(scaleChange('all', 1, 2, up * 1e6));
      recorder.scaled(scaleChange('all', 2, 1, down * 1e6));
    }
    return found(recorder, 'scale_oscillation')[0];
  };

  test('names the requests in between, the slowest to its first token first', () => {
    expect(between(40, [10.5, 15.5])).toMatchObject({
      requests: ['request_13', 'request_11', 'request_12', 'request_14', 'request_15'],
      concerned: 5,
      severity: 'high',
    });
    expect(between(40, [50, 60])).toMatchObject({ requests: [], concerned: 0, severity: 'low' });
  });

  test('is as grave as the share of the requests that came in between', () => {
    const severities = [2, 5, 12].map((seconds) => between(100, [20.5, 20.5 + seconds]).severity);
    expect(severities).toEqual(['low', 'medium', 'high']);
  });

  test('counts those alone that were sent to the configuration', () => {
    const pools = [smallPool({ configId: 'a', model: 'a' }), smallPool({ configId: 'b', model: 'b' })];
    const requests = Array.from({ length: 6 }, (_, i) => {
      return { atUs: 1e6 * i, prompt: 8, output: 2, model: i < 4 ? 'a' : 'b' };
    });
    const recorder = new TraceRecorder('minimal');
    watched(recorder, smallSimulation(pools, requests, {}, recorder));
    recorder.scaled(scaleChange('b', 1, 2, 0));
    recorder.scaled(scaleChange('b', 2, 1, 60e6));
    expect(found(recorder, 'scale_oscillation')[0].requests).toEqual(['request_4', 'request_5']);
  });

  test('of each configuration on its own: the other one grows while this one shrinks', () => {
    const recorder = new TraceRecorder('minimal');
    recorder.attach(smallSimulation([smallPool()], []));
    recorder.scaled(scaleChange('prefill', 1, 2, 10e6));
    recorder.scaled(scaleChange('decode', 4, 3, 20e6));
    recorder.scaled(scaleChange('prefill', 2, 3, 30e6));
    expect(found(recorder, 'scale_oscillation')).toEqual([]);
    recorder.scaled(scaleChange('decode', 3, 4, 60e6));
    recorder.scaled(scaleChange('prefill', 3, 2, 40e6));
    expect(found(recorder, 'scale_oscillation').map(({ description }) => description)).toEqual([
      'decode: 1 changes of the replicas were taken back after 40 s on average, with 0 requests in between',
      'prefill: 1 changes of the replicas were taken back after 10 s on average, with 0 requests in between',
    ]);
  });

  test('finds none for changes in one direction, or far apart', () => {
    expect(changes(['up', 10], ['up', 20], ['up', 30])).toEqual([]);
    expect(changes(['up', 10], ['down', 131])).toEqual([]);
  });
});

describe('pd_backpressure', () => {
  const run = (decodeBlocks: number, later = 0): { anomalies: Anomaly[]; longest: number } => {
    const requests = Array.from({ length: 30 + later }, (_, i) => ({
      atUs: 100 * i + (i < 30 ? 0 : 1e6 + 100_000 * i),
      prompt: 32,
      output: 40,
    }));
    const pools = [
      smallPool({ role: 'prefill', topBlocks: 256 }),
      smallPool({ role: 'decode', topBlocks: decodeBlocks }),
    ];
    const recorder = new TraceRecorder('minimal');
    const simulation = smallSimulation(pools, requests, { decider: { policy: 'always' } }, recorder);
    watched(recorder, simulation);
    return {
      anomalies: found(recorder, 'pd_backpressure'),
      longest: simulation.handoffs.counters.longestQueue,
    };
  };

  test('eight hand-offs and more wait for one decode instance', () => {
    const { anomalies, longest } = run(24);
    expect(longest).toBeGreaterThanOrEqual(8);
    expect(anomalies.map(({ description }) => description)).toEqual([
      expect.stringMatching(/^instance 1: hand-offs piled up 1 times, 8 and more waiting, of \d+ requests$/),
    ]);
    const [{ requests, concerned, severity }] = anomalies;
    expect(requests).toHaveLength(5);
    expect(new Set(requests).size).toBe(5);
    expect(concerned).toBeGreaterThanOrEqual(8);
    expect(concerned).toBeLessThanOrEqual(30);
    expect(severity).toBe('high');
  });

  test('is as grave as the share of requests that waited', () => {
    const severities = [30, 300, 2000].map((later) => run(24, later).anomalies[0].severity);
    expect(severities).toEqual(['high', 'medium', 'low']);
  });

  test('finds none if there is room', () => {
    const { anomalies, longest } = run(1024);
    expect(longest).toBeLessThan(8);
    expect(anomalies).toEqual([]);
  });
});

describe('hand-offs of a trace', () => {
  const requests = Array.from({ length: 12 }, (_, i) => ({ atUs: 300 * i, prompt: 96, output: 6 }));
  const pools = [smallPool({ role: 'prefill' }), smallPool({ role: 'decode', topBlocks: 128 })];

  test.each([
    ['request', false],
    ['chunk', false],
    ['block', false],
    ['stream', false],
    ['chunk', true],
    ['block', true],
    ['stream', true],
  ] as const)(
    'by %s, pipelined %s: a row for each transfer, and one at the end',
    (granularity, pipelined) => {
      const recorder = new TraceRecorder('decisions');
      const simulation = smallSimulation(pools, requests, { decider: { policy: 'always' } }, recorder, [], {
        bandwidthBytesPerS: 1e7,
        granularity,
        pipelined,
      });
      const { records } = watched(recorder, simulation);
      const sent = records.filter((record) => record.kind === 'handoff_transfer');
      const done = records.filter((record) => record.kind === 'handoff');
      expect(done.length).toBe(12);
      const sum = (of: readonly number[]): number => of.reduce((a, b) => a + b, 0);
      for (const { requestId, timeUs, blocks, bytes, transfers, readyUs, askedUs, startUs } of done) {
        const own = sent.filter((record) => record.requestId === requestId);
        expect(
          own.reduce((next, { firstBlock, blocks: some }) => (firstBlock === next ? next + some : -1), 0),
        ).toBe(blocks);
        expect(sum(own.map((record) => record.bytes))).toBeCloseTo(bytes, 6);
        expect(sum(own.map((record) => record.transfers))).toBe(transfers);
        expect(own[0].timeUs).toBe(startUs);
        expect(own.at(-1)?.endUs).toBe(timeUs);
        expect(askedUs).toBeLessThanOrEqual(startUs);
        expect(readyUs).toBeLessThan(timeUs);
      }
      // the one link carries one after the other
      const inTurn = [...sent].sort((a, b) => a.startUs - b.startUs);
      for (const [i, { startUs }] of inTurn.entries()) {
        if (i > 0) expect(startUs).toBeGreaterThanOrEqual(inTurn[i - 1].endUs);
      }
      expect(sum(done.map(({ transfers }) => transfers))).toBe(simulation.handoffs.counters.transfers);
      if (pipelined) expect(sent.some(({ requestId }, i) => sent[i + 1]?.requestId === requestId)).toBe(true);
    },
  );
});

describe('blocks of a trace', () => {
  const trace = (level: 'minimal' | 'decisions'): TraceRecord[] => {
    const recorder = new TraceRecorder(level);
    return watched(recorder, smallSimulation([tiered(0, 24)], inTurn, {}, recorder)).records;
  };
  const routings = (records: readonly TraceRecord[]): RoutingRecord[] =>
    records.filter((record) => record.kind === 'routing');

  test('transfers name blocks and both tiers, and a block that went down comes up under its name', () => {
    const prompts = new Set<string>();
    const recorder = new TraceRecorder('decisions');
    const reader: SimulationObserver = {
      routing: ({ keys, promptBlocks }) => {
        for (let i = 0; i < promptBlocks; i++) prompts.add(keyToHex(keys.words, 4 * i).slice(0, 16));
      },
    };
    watched(recorder, smallSimulation([tiered(0, 24)], inTurn, {}, observers([recorder, reader])));
    const moved = recorder.records.flatMap((record) => (record.kind === 'transfer' ? record.blocks : []));
    const down = moved.filter(({ toTier }) => toTier === 'ddr');
    const up = moved.filter(({ toTier }) => toTier === 'hbm');
    expect(down.length).toBeGreaterThan(0);
    expect(up.length).toBeGreaterThan(0);
    expect(new Set(down.map(({ fromTier }) => fromTier))).toEqual(new Set(['hbm']));
    expect(new Set(up.map(({ fromTier }) => fromTier))).toEqual(new Set(['ddr']));
    for (const { block } of moved) expect(block).toMatch(/^[0-9a-f]{16}$/);
    const names = new Set(down.map(({ block }) => block));
    expect(up.every(({ block }) => names.has(block))).toBe(true);
    expect(prompts.size).toBe(30);
    expect(up.every(({ block }) => prompts.has(block))).toBe(true);
  });

  test('a routing says the slowest tier that had blocks of the prompt', () => {
    const tiers = routings(trace('decisions')).map(({ cacheTier }) => cacheTier);
    expect(tiers.slice(0, 3)).toEqual(['', '', '']);
    expect(tiers.slice(3)).toContain('ddr');
    const alone = new TraceRecorder('decisions');
    watched(alone, smallSimulation([tiered(0, 64)], inTurn, {}, alone));
    expect(routings(alone.records).map(({ cacheTier }) => cacheTier)).toEqual([
      ...['', '', ''],
      ...Array.from({ length: 9 }, () => 'hbm'),
    ]);
  });

  test('a listener changes nothing in the run', () => {
    const times = (recorder: TraceRecorder | undefined): number[] => {
      const simulation = smallSimulation([tiered(0, 24)], inTurn, {}, recorder);
      recorder?.attach(simulation);
      simulation.run();
      return [...simulation.table.e2eUs.subarray(0, simulation.table.size)];
    };
    const alone = times(undefined);
    expect(times(new TraceRecorder('minimal'))).toEqual(alone);
    expect(times(new TraceRecorder('full'))).toEqual(alone);
  });
});
