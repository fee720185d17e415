/** Presets of routing: scores and choices worked out by hand from the formulas. */

import { describe, expect, test } from 'vitest';
import { routingPolicies } from '../../../src/sim/control/routing/routing.ts';
import { PartitionedRandom } from '../../../src/sim/random/goRand.ts';
import { instance, request, router, world } from '../../sim/control/fixtures.ts';
import { expectRow, priority, type RoutingRow } from './routingRow.ts';
import { choiceOf, eachPresetHasARow } from './rows.ts';
import { ruleRows } from './ruleRows.ts';

/** q + r + f: 20, 15 and 4; no two signals have their least at one place. */
const uneven = [
  instance(0, { queueDepth: 8, batchSize: 11, inFlight: 1 }),
  instance(1, { queueDepth: 4, batchSize: 6, inFlight: 5 }),
  instance(2, { queueDepth: 2, batchSize: 0, inFlight: 2 }),
  instance(3, { queueDepth: 1, batchSize: 6, inFlight: 3 }),
];

/** Leading blocks 0, 5, 10 of 10; min-max 0, 0.5, 1. Queue min-max 1, 0.5, 0. Free KV 0.5, 0.75, 0. */
const cached = router({ cached: [0, 5, 10] });
const spread = [
  instance(0, { queueDepth: 0, used: 500 }),
  instance(1, { queueDepth: 4, used: 250 }),
  instance(2, { queueDepth: 8, used: 1000 }),
];
/** (2 x prefix + queue + KV) / 4 */
const prefixQueueKv = [0 + 0.25 + 0.125, 0.25 + 0.125 + 0.1875, 0.5 + 0 + 0];

/** 20 blocks, of which a prompt of 10 had the first half. */
const half = { view: request({ promptTokens: 320 }), before: [[request(), 1]] } as const;
const decayed = 0.5 / (1 + 0.6 * 2);

const llmD = [(0 + 2 + 1) / 7, (1.5 + 1 + 1.5) / 7, 0];

/** What the second choice of a run draws; the first belongs to the request before. */
function drawn(template: string, scores: readonly number[]): number {
  const stream = new PartitionedRandom(42n).stream('router');
  const wants = {
    // the first request finds no prefix anywhere: 3 / 7, 2.5 / 7 and 0
    'llm-d-weighted-random': (all: readonly number[]): number => {
      const keys = all.map((score) => (stream.float64() || 1) ** (1 / score));
      return keys.indexOf(Math.max(...keys));
    },
    'llm-d-softmax': (all: readonly number[]): number => {
      const weights = all.map((score) => Math.exp(score / 0.1));
      const sum = weights.reduce((a, b) => a + b, 0);
      const at = stream.float64() * sum;
      return at < weights[0] ? 0 : at < weights[0] + weights[1] ? 1 : 2;
    },
    'llm-d-two-choices': (all: readonly number[]): number => {
      const first = stream.intn(3);
      const other = stream.intn(2);
      const second = other < first ? other : other + 1;
      return all[second] > all[first] ? second : first;
    },
  };
  const draw = wants[template as keyof typeof wants];
  draw([3 / 7, 2.5 / 7, 0]);
  return draw(scores);
}

const rows: readonly RoutingRow[] = [
  { template: 'round-robin', formula: 'in turn', candidates: uneven, scores: null, to: 0 },
  {
    template: 'least-loaded',
    formula: '-(q + r + f)',
    candidates: uneven,
    scores: [-20, -15, -4, -10],
    to: 2,
  },
  {
    template: 'always-busiest',
    formula: 'q + r + f',
    candidates: uneven,
    scores: [20, 15, 4, 10],
    to: 0,
  },
  { template: 'llq', formula: '-q', candidates: uneven, scores: [-8, -4, -2, -1], to: 3 },
  { template: 'lor', formula: '-f', candidates: uneven, scores: [-1, -5, -2, -3], to: 0 },
  {
    template: 'glia',
    formula: '-(used + needed) / T - 0.001 x load, -10 below 0.03 T free; needed = (1.6 in + bs - 1) / bs',
    // needed: (256 + 15) / 16 = 16.9375 of 1000
    candidates: [
      instance(0, { used: 500, queueDepth: 4 }),
      instance(1, { used: 960 }),
      instance(2, { used: 500, queueDepth: 2 }),
    ],
    scores: [-0.5169375 - 0.004, -0.9769375 - 10, -0.5169375 - 0.002],
    to: 2,
  },
  {
    template: 'least-kv',
    formula: '-kv',
    candidates: spread,
    scores: [-0.5, -0.25, -1],
    to: 1,
  },
  {
    template: 'llm-d',
    formula: '(3 m / B + 2 queue + 2 KV) / 7',
    ...half,
    candidates: spread,
    scores: llmD,
    to: 1,
  },
  {
    template: 'llm-d-prefix-length',
    formula: '(1.5 min(1, m bs / 8192)^2 + 1.5 m / B + 2 queue + 2 KV) / 7',
    ...half,
    candidates: spread,
    // 160 / 8192 = 5 / 256
    scores: [(0 + 2 + 1) / 7, ((1.5 * 25) / 65_536 + 0.75 + 1 + 1.5) / 7, 0],
    to: 1,
  },
  {
    template: 'llm-d-pd',
    formula: '(2 m / B + queue) / 3',
    ...half,
    candidates: spread,
    scores: [1 / 3, (1 + 0.5) / 3, 0],
    to: 1,
  },
  ...(['llm-d-weighted-random', 'llm-d-softmax', 'llm-d-two-choices'] as const).map((template) => ({
    template,
    formula: 'the same scores, drawn',
    ...half,
    candidates: spread,
    scores: llmD,
    to: drawn(template, llmD),
  })),
  {
    template: 'weighted',
    formula: '(2 x precise prefix + queue + KV) / 4',
    candidates: spread,
    state: cached,
    scores: prefixQueueKv,
    to: 1,
  },
  {
    template: 'precise-prefix',
    formula: '(2 x precise prefix + KV + queue) / 4',
    candidates: spread,
    state: cached,
    scores: prefixQueueKv,
    to: 1,
  },
  {
    template: 'prefix-affinity',
    formula: '(m / B + 1 / (1 + q + r + f)) / 2',
    ...half,
    candidates: [instance(0, { queueDepth: 3 }), instance(1, { inFlight: 1 })],
    scores: [(0 + 1 / 4) / 2, (0.5 + 1 / 2) / 2],
    to: 1,
  },
  {
    template: 'session-affinity',
    formula: '(2 x (last instance of the session) + 1 / (1 + q + r + f)) / 3',
    view: request({ sessionId: 's' }),
    before: [[request({ sessionId: 's' }), 2]],
    candidates: [instance(0), instance(1), instance(2, { queueDepth: 2 })],
    scores: [1 / 3, 1 / 3, (2 + 1 / 3) / 3],
    to: 2,
  },
  {
    template: 'evolved',
    formula: 'w m/B + (1 - w) load-balance - 0.5 (kv - 0.9) / 0.1 + 0.01 / (1 + f), w = 0.5 / (1 + 0.6 d)',
    view: request(),
    before: [[request(), 0]],
    candidates: [instance(0, { inFlight: 3, used: 950 }), instance(1, { inFlight: 1 })],
    // d = 2; 0.05 over 0.9 of KV costs 0.25
    scores: [decayed + (1 - decayed) / 4 - 0.25 + 0.0025, (1 - decayed) / 2 + 0.005],
    to: 1,
  },
];

describe('routing', () => {
  test.each([...rows, ...ruleRows])('$template: $formula', (row) => {
    expectRow(choiceOf('routing', row.template), row);
  });

  test('round-robin: 0, 1, 2, 3, 0', () => {
    const policy = routingPolicies.make(choiceOf('routing', 'round-robin'), world());
    const turns = Array.from({ length: 5 }, () => {
      const context = { request: request(), priority, candidates: uneven, router: router() };
      const { index } = policy.choose(context);
      policy.routed?.(context, index);
      return index;
    });
    expect(turns).toEqual([0, 1, 2, 3, 0]);
  });

  eachPresetHasARow('routing', [...rows, ...ruleRows]);
});
