/** Presets of autoscaling: targets worked out by hand from the formulas. */

import { describe, expect, test } from 'vitest';
import {
  type AutoScaleContext,
  type LoadSample,
  type ReplicaSignals,
  scalingPolicies,
} from '../../../src/sim/control/index.ts';
import { world } from '../../sim/control/fixtures.ts';
import { choiceOf, eachPresetHasARow } from './rows.ts';

const second = 1_000_000;

interface Load {
  readonly ready?: number;
  readonly pending?: number;
  /** Requests in flight: over the last minute, and over its last six seconds. */
  readonly concurrency?: readonly [number, number];
  /** Of each replica. */
  readonly replica?: Partial<ReplicaSignals>;
  readonly metrics?: Partial<AutoScaleContext['metrics']>;
}

interface Row {
  readonly template: string;
  readonly formula: string;
  readonly wanted: readonly (readonly [Load, number])[];
}

/** A reading each two seconds of the last minute. */
function history([minute, now]: readonly [number, number]): LoadSample[] {
  return Array.from({ length: 30 }, (_, i) => {
    const timeUs = (2 + 2 * i) * second;
    const concurrency = timeUs > 54 * second ? now : minute;
    return { timeUs, concurrency, requestRate: 0, avgQueueDepth: 0, avgUtilization: 0 };
  });
}

function context({ ready = 2, pending = 0, concurrency = [0, 0], replica, metrics }: Load): AutoScaleContext {
  return {
    configId: 'default',
    nowUs: 60 * second,
    currentReplicas: ready + pending,
    readyReplicas: ready,
    pendingReplicas: pending,
    minReplicas: 1,
    maxReplicas: 100,
    metrics: {
      avgQueueDepth: 0,
      avgUtilization: 0,
      requestRate: 0,
      avgPromptTokens: 0,
      avgOutputTokens: 0,
      sloAttainment: {},
      avgLatencyUs: 0,
      p99LatencyUs: 0,
      avgTtftUs: 0,
      avgTpotUs: 0,
      ...metrics,
    },
    replicas: Array.from({ length: ready }, (_, instance) => ({
      instance,
      queueDepth: 0,
      batchSize: 0,
      inFlight: 0,
      maxBatch: 1,
      kvUtilization: 0,
      kvCapacityTokens: 1000,
      kvUsedTokens: 0,
      ...replica,
    })),
    loadHistory: history(concurrency),
    pendingRequests: 0,
    sinceLastScaleUs: Infinity,
  };
}

const even = (concurrency: number): readonly [number, number] => [concurrency, concurrency];

const rows: readonly Row[] = [
  { template: 'none', formula: 'n', wanted: [[{ ready: 3, pending: 1, concurrency: even(900) }, 4]] },
  {
    template: 'hpa',
    formula: 'ceil(ready x metric / 50); n within 0.1 of 1; at most max(n, 4) more',
    wanted: [
      [{ concurrency: even(150) }, 3], // 75 / 50
      [{ concurrency: even(104) }, 2], // 1.04
      [{ concurrency: even(2000) }, 6], // 40, of which 2 + 4
      [{ concurrency: even(30) }, 1], // ceil(0.6)
      [{ ready: 8, concurrency: even(4000) }, 16], // 80, of which 8 + 8
    ],
  },
  {
    template: 'kpa',
    formula: 'ceil(avg 60 s / 70) within [n / 2, 1000 n]; panic where ceil(avg 6 s / 70) >= 2 n',
    wanted: [
      [{ concurrency: even(200) }, 3], // 2.86
      [{ concurrency: [20, 500] }, 8], // 7.14: 8 / 2 is 4
      [{ concurrency: [20, 200] }, 1], // 3 / 2 is no panic; (27 x 20 + 3 x 200) / 30 = 38
      [{ ready: 8, concurrency: even(10) }, 4], // no less than a half
    ],
  },
  {
    template: 'apa',
    formula: 'r = metric / 50; r > 1.1: min(ceil(n r), 2 n); r < 0.9: max(ceil(n r), n / 2); else n',
    wanted: [
      [{ ready: 4, concurrency: even(300) }, 6],
      [{ ready: 4, concurrency: even(600) }, 8], // 12, of which 2 x 4
      [{ ready: 4, concurrency: even(20) }, 2], // 1, but 4 / 2
      [{ ready: 4, concurrency: even(210) }, 4], // 1.05
    ],
  },
  {
    template: 'saturation',
    formula: 'open: kv < 0.8 and q < 5; +1 below 0.1 KV or 3 queued to spare, -1 where N - 1 keep both',
    wanted: [
      [{ replica: { kvUtilization: 0.75 } }, 3], // 0.05 to spare
      [{ replica: { queueDepth: 4 } }, 3], // 1 to spare
      [{ replica: { kvUtilization: 0.9 } }, 3], // none is open
      [{ replica: { kvUtilization: 0.3 } }, 1], // 0.6 on one: 0.2 to spare
      [{ replica: { kvUtilization: 0.5 } }, 2], // 1 on one
      [{ ready: 2, pending: 1, replica: { kvUtilization: 0.9 } }, 3], // pending ones first
    ],
  },
  {
    template: 'token-capacity',
    formula:
      'capacity 0.8 x KV; ceil((D / 0.8 - supply) / capacity) more; floor((supply - D / 0.4) / capacity) fewer',
    wanted: [
      [{ replica: { kvUsedTokens: 800 } }, 3], // 1600 / 0.8 - 1600 = 400
      // 800 + 20 x 100 = 2800; 3500 - 1600 = 1900
      [{ replica: { kvUsedTokens: 400, queueDepth: 10 }, metrics: { avgPromptTokens: 100 } }, 5],
      [{ replica: { kvUsedTokens: 170 } }, 2], // 340 / 0.4 = 850 does not fit on one
      [{ replica: { kvUsedTokens: 100 } }, 1], // 500 does; (1600 - 500) / 800
    ],
  },
  {
    template: 'model-based',
    formula:
      'fewest n with TTFT = rho S / (1 - rho) + prefill + alpha + beta b <= 0.5 s; one slot, S = 72.25 ms',
    wanted: [
      // prefill 100 x 20 µs, 10 tokens of 7025 µs: rho 0.7225, TTFT 0.197 s
      [{ metrics: { requestRate: 10, avgPromptTokens: 100, avgOutputTokens: 10 } }, 1],
      // rho 0.939 is 1.1 s, with two 0.47 is 0.073 s
      [{ metrics: { requestRate: 13, avgPromptTokens: 100, avgOutputTokens: 10 } }, 2],
      // each of two has rho 0.903: 0.68 s; of three 0.602
      [{ metrics: { requestRate: 25, avgPromptTokens: 100, avgOutputTokens: 10 } }, 3],
    ],
  },
];

describe('autoScale', () => {
  test.each(rows)('$template: $formula', ({ template, wanted }) => {
    for (const [load, replicas] of wanted) {
      const policy = scalingPolicies.make(choiceOf('autoScale', template), world());
      expect(policy.evaluate(context(load)).targetReplicas, JSON.stringify(load)).toBe(replicas);
    }
  });

  eachPresetHasARow('autoScale', rows);
});
