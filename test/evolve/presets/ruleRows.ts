/** Whole-router rules: scores and choices worked out by hand from the formulas. Blocks are of 16 tokens. */

import { PartitionedRandom } from '../../../src/sim/random/goRand.ts';
import { instance, request, router } from '../../sim/control/fixtures.ts';
import type { RoutingRow } from './routingRow.ts';

const inFlight = (...each: readonly number[]) => each.map((count, i) => instance(i, { inFlight: count }));
const draws = () => new PartitionedRandom(42n).stream('router');
/** 20 blocks, of which a prompt of 10 is the first half. */
const long = request({ promptTokens: 320 });

function powerOfTwo(loads: readonly number[]): number {
  const stream = draws();
  const first = stream.intn(loads.length);
  const other = stream.intn(loads.length - 1);
  const second = other < first ? other : other + 1;
  return loads[second] < loads[first] ? second : first;
}

const jitter = Array.from(
  { length: 3 },
  (_, i, stream = draws()) => [...Array(i + 1)].map(() => stream.float64())[i],
);

export const ruleRows: readonly RoutingRow[] = [
  {
    template: 'random',
    formula: 'intn(n)',
    candidates: inFlight(9, 0, 0, 0),
    scores: null,
    to: draws().intn(4),
  },
  {
    template: 'power-of-two',
    formula: 'the one with fewer in flight of two draws',
    candidates: inFlight(1, 5, 2, 3),
    scores: null,
    to: powerOfTwo([1, 5, 2, 3]),
  },
  {
    template: 'dynamo-kv',
    formula: '-(max(0, (tokens ahead + prompt) / 16 - cached) + prompt blocks under way with it)',
    candidates: [instance(0, { inFlightTokens: 320 }), instance(1)],
    state: router({ cached: [10, 0] }),
    // one with the same 10 blocks, and one with 5 others
    before: [
      [request({ number: 1 }), 0],
      [request({ number: 2, group: 2, promptTokens: 80 }), 1],
    ],
    // 480 / 16 - 10 = 20, and 10 that are there already; 160 / 16 = 10, and 5 + 10
    scores: [-30, -25],
    to: 1,
  },
  {
    template: 'sglang-cache-aware',
    formula: 'm / B where m > 0.3 B',
    candidates: inFlight(10, 0),
    view: long,
    before: [[request(), 0]],
    scores: [0.5, 0],
    to: 0,
  },
  {
    template: 'sglang-cache-aware',
    formula: '-f where max - min > 64 and max > 1.5 min',
    candidates: inFlight(100, 30), // 70 apart, and above 45
    view: long,
    before: [[request(), 0]],
    scores: [-100, -30],
    to: 1,
  },
  {
    template: 'sglang-cache-aware',
    formula: 'still m / B at max = 1.5 min',
    candidates: inFlight(210, 140),
    view: long,
    before: [[request(), 0]],
    scores: [0.5, 0],
    to: 0,
  },
  {
    template: 'sglang-cache-aware',
    formula: '-f where nothing matches more than 0.3',
    candidates: inFlight(3, 2),
    view: request({ promptTokens: 640 }), // 10 of 40 blocks
    before: [[request(), 0]],
    scores: [-3, -2],
    to: 1,
  },
  {
    template: 'sglang-lmetric',
    formula: '-(uncached tokens x (f + 1)), of equal ones the fewest in flight',
    candidates: inFlight(3, 1, 2),
    view: long,
    before: [[request(), 0]],
    // 160 x 4, 320 x 2 and 320 x 3
    scores: [-640, -640, -960],
    to: 1,
  },
  {
    template: 'sglang-prefix-hash',
    formula: '-f without a full block',
    candidates: inFlight(2, 1, 3),
    view: request({ promptTokens: 8 }),
    scores: [-2, -1, -3],
    to: 1,
  },
  {
    template: 'aibrix-prefix-cache',
    formula: '-f where max - min > 8',
    candidates: inFlight(9, 0),
    before: [[request(), 0]],
    scores: [-9, 0],
    to: 1,
  },
  {
    template: 'aibrix-prefix-cache',
    formula: '-f among the longest matches, f <= mean + deviation',
    candidates: inFlight(2, 0, 1, 1),
    view: long,
    before: [
      [request(), 2],
      [request(), 3],
      [request({ promptTokens: 80 }), 1],
    ],
    scores: [-Infinity, -Infinity, -1, -1],
    to: 2,
  },
  {
    template: 'aibrix-prefix-cache',
    formula: '-f where the match is above mean + deviation',
    candidates: inFlight(3, 0, 1), // 4 / 3 + sqrt(42 / 27) = 2.58
    before: [[request(), 0]],
    scores: [-3, 0, -1],
    to: 1,
  },
  {
    template: 'aibrix-prefix-cache-readme',
    formula: 'the same with 2 deviations',
    candidates: inFlight(3, 0, 1), // up to 3.83
    before: [[request(), 0]],
    scores: [-3, -Infinity, -Infinity],
    to: 0,
  },
  {
    template: 'aibrix-prefix-cache-readme',
    formula: '-f where max - min > 16',
    candidates: inFlight(17, 0, 16),
    before: [[request(), 0]],
    scores: [-17, 0, -16],
    to: 1,
  },
  {
    template: 'aibrix-preble',
    formula: '-(work sent in 3 min + f x 128 x 7000 µs) where half of the prompt or less is cached',
    candidates: inFlight(1, 0),
    view: long,
    before: [[request(), 1]],
    // 896000; 160 tokens of 20 µs
    scores: [-896_000, -3200],
    to: 1,
  },
  {
    template: 'aibrix-preble',
    formula: '-f among the longest matches where more is cached',
    candidates: inFlight(2, 1, 0),
    before: [
      [request(), 0],
      [request(), 1],
    ],
    scores: [-2, -1, -Infinity],
    to: 1,
  },
  {
    template: 'preble-e2',
    formula: 'its own work beside: uncached blocks x 320 µs / instances that have each',
    candidates: inFlight(1, 0),
    view: long,
    before: [[request(), 1]],
    // 10 x 320 / 2 + 10 x 320; 10 x 320
    scores: [-896_000 - 4800, -3200 - 3200],
    to: 1,
  },
  {
    template: 'preble-e2',
    formula: '-cost among the longest matches where more than half is cached',
    candidates: inFlight(1, 1, 0),
    before: [
      [request(), 0],
      [request(), 1],
    ],
    // the second shared its blocks with the first: 10 x 320 / 2
    scores: [-896_000 - 3200, -896_000 - 1600, -Infinity],
    to: 1,
  },
  {
    template: 'aibrix-vtc-basic',
    formula: '-(|i - clamp(tokens / bucket)| + min(f / 100, 1) + U(0, 0.1))',
    candidates: inFlight(50, 0, 0),
    view: request({ tenantId: 'a' }),
    // 1000 + 2 x 500 and 4000: a bucket of 3000, a at 2 / 3
    ended: [
      [0, 1000, 500, 1, 2, 'a'],
      [0, 4000, 0, 1, 2, 'b'],
    ],
    scores: [2 / 3 + 0.5, 1 / 3, 4 / 3].map((cost, i) => -(cost + 0.1 * jitter[i])),
    to: 1,
  },
  {
    template: 'aibrix-pd',
    formula: '-((100 - match %) x 0.1 + f / max f) to prefill',
    candidates: [1, 4].map((count, i) => instance(i, { role: 'prefill', inFlight: count })),
    before: [[request(), 1]],
    scores: [-10.25, -1],
    to: 1,
  },
  {
    template: 'aibrix-pd',
    formula: '-(f / max f + 1 - t / max t) / (free / max free) to decode',
    candidates: [
      instance(0, { role: 'decode', inFlight: 2, used: 500 }),
      instance(1, { role: 'decode', inFlight: 4 }),
    ],
    ended: [
      [0, 10, 100, 1, 2, ''],
      [1, 10, 300, 1, 2, ''],
    ],
    // (0.5 + 1 - 1 / 3) / 0.5; (1 + 1 - 1) / 1
    scores: [-7 / 3, -1],
    to: 1,
  },
  {
    template: 'aibrix-pd-conductor',
    formula: '-(f x TTFT + 5 hit + 1000 + miss^1.5 + 5000) to prefill, in µs',
    candidates: [
      instance(0, { role: 'prefill', inFlight: 2, recentTtftUs: 10_000 }),
      instance(1, { role: 'prefill', inFlight: 1 }),
    ],
    view: long,
    before: [[request(), 0]],
    // 20000, 160 tokens that are there and 160 that are not; 512^1.5 + 5000 for an unknown one, and all 320
    scores: [-(20_000 + 1800 + 160 ** 1.5 + 5000), -(512 ** 1.5 + 5000 + 320 ** 1.5 + 5000)],
    to: 1,
  },
  {
    template: 'aibrix-pd-conductor',
    formula: '-(60 s / t x (1 + 1 / max(f, 1))) to decode, x 1.5 above 0.9 of KV; 20 ms without t',
    candidates: [
      instance(0, { role: 'decode', inFlight: 2, used: 901 }),
      instance(1, { role: 'decode', inFlight: 4, used: 900 }),
      instance(2, { role: 'decode' }),
    ],
    ended: [
      [0, 10, 600, 1, 2, ''],
      [1, 10, 300, 1, 2, ''],
    ],
    scores: [-100_000 * 1.5 * 1.5, -200_000 * 1.25, -20_000 * 2],
    to: 2,
  },
  {
    template: 'aibrix-throughput',
    formula: '-(2 x mean prompt + mean output)',
    candidates: inFlight(0, 0, 9),
    ended: [
      [0, 100, 50, 1, 2, ''],
      [1, 60, 200, 1, 2, ''],
      [2, 10, 10, 1, 2, ''],
      [2, 30, 50, 1, 2, ''],
    ],
    scores: [-250, -320, -70],
    to: 2,
  },
  {
    template: 'aibrix-least-latency',
    formula: '-(TTFT / prompt x 200 + decode / output x 20), the means over all',
    candidates: inFlight(0, 0),
    ended: [
      [0, 100, 10, 1000, 2000, ''],
      [1, 300, 30, 1500, 4500, ''],
    ],
    scores: [-2000 - 2000, -1000 - 2000],
    to: 1,
  },
  {
    template: 'prodstack-kvaware',
    formula: 'm where it lacks 2000 tokens or less',
    candidates: inFlight(0, 0, 9),
    state: router({ cached: [0, 5, 10] }),
    scores: [0, 5, 10],
    to: 2,
  },
  {
    template: 'prodstack-kvaware',
    formula: '-(requests sent in a minute) where it lacks more',
    candidates: inFlight(0, 0, 9),
    view: request({ promptTokens: 2176 }), // 160 of it are cached
    state: router({ cached: [10, 0, 0] }),
    before: [
      [request(), 0],
      [request(), 0],
      [request(), 1],
    ],
    scores: [-2, -1, 0],
    to: 2,
  },
  {
    template: 'prodstack-prefixaware',
    formula: 'm',
    candidates: inFlight(0, 9, 0),
    view: long,
    before: [[request(), 1]],
    scores: [0, 10, 0],
    to: 1,
  },
  {
    template: 'prodstack-prefixaware',
    formula: 'm, drawn of equal ones',
    candidates: inFlight(0, 9, 0),
    scores: [0, 0, 0],
    to: draws().intn(3),
  },
  {
    template: 'llm-d-latency',
    formula: '-(0.8 TTFT + 0.2 TPOT) of the head room, scaled over the instances with both',
    // 1991, 3982 and 7964 tokens at 15928 a second: 125, 250 and 500 ms
    candidates: [
      instance(0, { inFlight: 1, inFlightTokens: 1831, recentTpotUs: 10_000 }),
      instance(1, { inFlight: 1, inFlightTokens: 3822, recentTpotUs: 30_000 }),
      instance(2, { inFlight: 1, inFlightTokens: 7804 }),
    ],
    view: request({ sloTargetUs: 400_000 }),
    scores: [-1, 0, -Infinity],
    to: 1,
  },
  {
    template: 'llm-d-latency',
    formula: 'an idle one where none has both',
    candidates: [
      instance(0, { inFlight: 1, recentTpotUs: 60_000 }),
      instance(1, { inFlight: 0, recentTpotUs: 60_000 }),
    ],
    scores: [-Infinity, 1],
    to: 1,
  },
  {
    template: 'llm-d-latency',
    formula: 'the most head room of the instances that miss TPOT alone, before the ones that miss TTFT',
    candidates: [
      instance(0, { inFlight: 1, inFlightTokens: 7804 }),
      instance(1, { inFlight: 1, inFlightTokens: 1831, recentTpotUs: 70_000 }),
      instance(2, { inFlight: 1, inFlightTokens: 3822, recentTpotUs: 60_000 }),
    ],
    view: request({ sloTargetUs: 400_000 }),
    // the first of the two has all of TTFT, the second all of TPOT
    scores: [-Infinity, 0.8, 0.2],
    to: 1,
  },
];
