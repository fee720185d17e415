/** Presets of autoscaling: targets worked out by hand from the formulas. */

import { describe, expect, test } from 'vitest';
import type {
  AutoScaleContext,
  LoadSample,
  ReplicaSignals,
} from '../../../src/sim/control/scaling/autoScalePolicy.ts';
import { scalingPolicies } from '../../../src/sim/control/scaling/registry.ts';
import { world } from '../../sim/control/fixtures.ts';
import { idleMetrics } from '../../sim/control/idleMetrics.ts';
import { choiceOf, eachPresetHasARow } from './rows.ts';

const second = 1_000_000;

interface Load {
  readonly ready?: number;
  readonly pending?: number;
  /** Requests in flight: over the last minute, and over its last six seconds. */
  readonly concurrency?: readonly [number, number];
  /** Arrivals a second. */
  readonly rate?: number;
  /** One by one, in place of `ready`. */
  readonly replicas?: readonly Partial<ReplicaSignals>[];
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
function history([minute, now]: readonly [number, number], requestRate: number): LoadSample[] {
  return Array.from({ length: 30 }, (_, i) => {
    const timeUs = (2 + 2 * i) * second;
    const concurrency = timeUs > 54 * second ? now : minute;
    return { timeUs, concurrency, requestRate, avgQueueDepth: 0, avgUtilization: 0 };
  });
}

function context(load: Load): AutoScaleContext {
  const { pending = 0, concurrency = [0, 0], rate = 0, replica, replicas, metrics } = load;
  const ready = replicas?.length ?? load.ready ?? 2;
  return {
    configId: 'default',
    nowUs: 60 * second,
    currentReplicas: ready + pending,
    readyReplicas: ready,
    pendingReplicas: pending,
    minReplicas: 1,
    maxReplicas: 100,
    metrics: { ...idleMetrics, ...metrics },
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
      ...replicas?.[instance],
    })),
    loadHistory: history(concurrency, rate),
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
      [{ concurrency: [20, 200] }, 1], // 3 / 2 is below panic; (27 x 20 + 3 x 200) / 30 = 38
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
    template: 'aibrix-kpa',
    formula:
      'ceil(avg / 50) within [n / 2, 2 n]; n within 0.1 of 50 n; where avg 6 s > 2 avg 60 s the larger of both',
    wanted: [
      [{ concurrency: even(109) }, 2], // 1.09
      [{ concurrency: even(111) }, 3], // 2.22
      [{ ready: 20, concurrency: even(910) }, 20], // 0.91
      [{ ready: 20, concurrency: even(890) }, 18], // 17.8
      [{ concurrency: even(2000) }, 4], // 40, of which 2 x 2
      [{ ready: 8, concurrency: even(10) }, 4], // no less than a half
      [{ concurrency: [20, 500] }, 4], // 500 / 68: 10, of which 2 x 2
      [{ ready: 3, concurrency: [150, 290] }, 3], // 290 / 164 is below panic; 164 / 150
      [{ ready: 6, concurrency: [10, 100] }, 6], // 100 / 19: 2 and 3, but it does not shrink
      [{ concurrency: even(0) }, 1],
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
  {
    template: 'dynamo-throughput',
    formula:
      'ceil(max(r P, P / 0.5 s) + r O (alpha + beta b) / b), P = I x 20 µs, b slots of 7 ms + 25 µs x b each token',
    wanted: [
      // P 2 ms, 10 tokens of 7025 µs: 10 x 0.002 + 10 x 0.07025
      [{ rate: 10, metrics: { avgPromptTokens: 100, avgOutputTokens: 10 } }, 1],
      [{ rate: 14, metrics: { avgPromptTokens: 100, avgOutputTokens: 10 } }, 2], // 0.028 + 0.9835
      // b = 256 of 13.4 ms, up to 10000 / 110 = 90 of 9250 µs by memory: 0.2 + 100 x 10 x 0.00925 / 90
      [
        {
          rate: 100,
          replica: { maxBatch: 256, kvCapacityTokens: 10_000 },
          metrics: { avgPromptTokens: 105, avgOutputTokens: 10 },
        },
        1,
      ],
      // prefill alone: 100 x 0.2 s, and 0.2 / 0.5
      [
        {
          rate: 100,
          replica: { maxBatch: 256, kvCapacityTokens: 1e6 },
          metrics: { avgPromptTokens: 10_000, avgOutputTokens: 10 },
        },
        21, // 20 + 100 x 10 x 0.0095 / 99
      ],
      [{ rate: 0.1, metrics: { avgPromptTokens: 100_000, avgOutputTokens: 1 } }, 100], // fits no batch: all
    ],
  },
  {
    template: 'dynamo-load',
    formula:
      '+1 where all have (q + 1) I 20 µs > 0.5 s or 7 ms + 25 µs x b > 50 ms; -1 where N / (N - 1) keeps 0.8',
    wanted: [
      // 0.2 s each: 3 miss it
      [{ replica: { queueDepth: 2 }, metrics: { avgPromptTokens: 10_000 } }, 3],
      [{ replicas: [{ queueDepth: 2 }, { queueDepth: 1 }], metrics: { avgPromptTokens: 10_000 } }, 2],
      [{ replica: { batchSize: 1721 } }, 3], // 50.025 ms
      [{ replica: { batchSize: 1720 } }, 2],
      // 2 x 660 is 40 ms, which is not below
      [{ replica: { batchSize: 660 } }, 2],
      [{ replica: { batchSize: 659 } }, 1],
      [{ replica: { batchSize: 659, kvUtilization: 0.5 } }, 2], // does not fit
      // in the queue 2 x 0.6 x 0.2 = 0.24 s against (0.5 - 0.2) x 0.8
      [{ ready: 3, replica: { queueDepth: 1 }, metrics: { avgPromptTokens: 10_000 } }, 3], // 0.3
      [{ ready: 6, replica: { queueDepth: 1 }, metrics: { avgPromptTokens: 10_000 } }, 6], // 0.24
      [{ ready: 7, replica: { queueDepth: 1 }, metrics: { avgPromptTokens: 10_000 } }, 6], // 0.233
      [{ ready: 2, pending: 1, replica: { queueDepth: 9 }, metrics: { avgPromptTokens: 10_000 } }, 3],
    ],
  },
  {
    template: 'dynamo-thresholds',
    formula: '+1 from 1 context of 8192 queued or above 1 of KV; -1 below 0.1 and 0.6',
    wanted: [
      [{ replica: { queueDepth: 8, kvCapacityTokens: 1e6 }, metrics: { avgPromptTokens: 1024 } }, 3],
      [{ replica: { queueDepth: 7, kvCapacityTokens: 1e6 }, metrics: { avgPromptTokens: 1024 } }, 2],
      [{ replica: { kvUsedTokens: 1000 } }, 2],
      [{ replica: { kvUsedTokens: 1000, queueDepth: 1 }, metrics: { avgPromptTokens: 1 } }, 3],
      [{ replica: { kvUsedTokens: 600 } }, 2],
      [{ replica: { kvUsedTokens: 599 } }, 1],
      [{ ready: 2, pending: 1, replica: { kvUsedTokens: 0 } }, 3],
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
