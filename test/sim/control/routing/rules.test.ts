/** Whole-router rules beyond their defaults: parameters, draws, and what they learn from requests that end. */

import { describe, expect, it } from 'vitest';
import type { PolicyChoice, RequestView } from '../../../../src/sim/control/policy.ts';
import type { RouterState } from '../../../../src/sim/control/routerState.ts';
import { routingPolicies } from '../../../../src/sim/control/routing/routing.ts';
import type { RoutingPolicy } from '../../../../src/sim/control/routing/routingPolicy.ts';
import { PartitionedRandom } from '../../../../src/sim/random/goRand.ts';
import { instance, request, router, world } from '../fixtures.ts';

const make = (choice: PolicyChoice): RoutingPolicy => routingPolicies.make(choice, world());
const priority = { score: 3, rank: 1, hints: { sheddable: false, dueUs: 0 } };
const four = [0, 1, 2, 3].map((number) => instance(number));

function choose(
  policy: RoutingPolicy,
  candidates = four,
  view: RequestView = request(),
  state: RouterState = router(),
): { readonly to: number; readonly scores: number[] } {
  const context = { request: view, priority, candidates, router: state };
  const { index, scores } = policy.choose(context);
  const made = Array.from(scores ?? []).slice(0, candidates.length);
  policy.routed?.(context, candidates[index].instance);
  return { to: candidates[index].instance, scores: made };
}

const ends = (view: RequestView, number: number, nowUs = 0) => ({
  request: view,
  instance: number,
  completed: true,
  outputTokens: 1,
  ttftUs: 1,
  e2eUs: 2,
  nowUs,
});

describe('dynamo-kv', () => {
  const tiers = router({
    observedKv: { topBlocks: () => 2, place: () => ({ blocks: 10, byTier: [2, 4, 3, 1] }) },
  });
  const two = [instance(0, { inFlightTokens: 320, inFlight: 3 }), instance(1)];

  it('weighs hits by tier: 2 + 0.75 x 4 + 0.25 x (3 + 1) of 10 to prefill', () => {
    // 30 - 6 and 10 - 6, and 10 under way on either
    expect(choose(make({ policy: 'dynamo-kv' }), two, request(), tiers).scores).toEqual([-34, -14]);
  });

  it('lets hits count less where more prefill is under way than elsewhere', () => {
    const policy = make({ policy: 'dynamo-kv', creditDecay: 1, overlapWeight: 3 });
    // 320 / 16 / 10 = 2: 3 x 2 / 3 + 4 and 3 x 2 + 4
    expect(choose(policy, two, request(), tiers).scores).toEqual([-(30 - 6 + 10), -(10 - 10 + 10)]);
  });

  it('scales prefill and adds requests in flight', () => {
    const policy = make({ policy: 'dynamo-kv', prefillScale: 2, activeWeight: 0.5 });
    expect(choose(policy, two, request(), tiers).scores).toEqual([-(48 + 10 + 1.5), -(8 + 10)]);
  });

  it('takes hits from the decode blocks of an instance that is handed its prompts', () => {
    const decoding = [instance(0, { role: 'decode' }), instance(1, { role: 'decode' })];
    const cached = router({ cached: [4, 20] });
    expect(choose(make({ policy: 'dynamo-kv' }), decoding, request(), cached).scores).toEqual([-6, -0]);
  });

  it('forgets the blocks of a request that ended, and of an instance that is gone', () => {
    const policy = make({ policy: 'dynamo-kv' });
    const first = request({ number: 1, group: 2 });
    const shared = request({ number: 2, group: 2 });
    expect(choose(policy, [four[0]], first).scores).toEqual([-20]);
    expect(choose(policy, [four[0]], shared).scores).toEqual([-20]);
    const third = request({ number: 3, group: 3, promptTokens: 16 });
    policy.completed?.(ends(first, 0));
    expect(choose(policy, [four[0]], third).scores).toEqual([-(1 + 11)]);
    policy.completed?.(ends(shared, 0));
    policy.completed?.(ends(third, 0));
    expect(choose(policy, [four[0]], third).scores).toEqual([-2]);
    policy.removed?.(0);
    policy.completed?.(ends(third, 0));
    expect(choose(policy, [four[0]], third).scores).toEqual([-2]);
  });

  it('draws at a temperature with weights exp(-cost / T), by its stream', () => {
    const policy = make({ policy: 'dynamo-kv', temperature: 0.5 });
    const draws = new PartitionedRandom(42n).stream('router');
    // costs 30 + 0 and 10 + 0 without prompt blocks of their own, scaled 1 and 0
    const likely = 1 / (1 + Math.exp(-2));
    let second = 0;
    for (let i = 0; i < 2000; i++) {
      const context = { request: request(), priority, candidates: two, router: router() };
      const { index } = policy.choose(context);
      expect(index).toBe(draws.float64() * (1 + Math.exp(-2)) < Math.exp(-2) ? 0 : 1);
      second += index;
    }
    expect(Math.abs(second / 2000 - likely)).toBeLessThan(0.03);
  });
});

describe('sglang', () => {
  it('prefix-hash: one prefix has one owner, whatever follows it, and half of the owners stay when one goes', () => {
    const policy = make({ policy: 'sglang-prefix-hash' });
    const owner = (group: number, promptTokens: number, candidates = four): number =>
      choose(policy, candidates, request({ group, promptTokens })).to;
    const owners = Array.from({ length: 200 }, (_, group) => owner(group, 256));
    for (const [group, each] of owners.entries()) expect(owner(group, 700)).toBe(each);
    for (const number of [0, 1, 2, 3]) {
      const share = owners.filter((each) => each === number).length / owners.length;
      expect(share).toBeGreaterThan(0.1);
      expect(share).toBeLessThan(0.45);
    }
    const without = four.slice(0, 3);
    for (const [group, each] of owners.entries())
      if (each !== 3) expect(owner(group, 256, without)).toBe(each);
  });

  it('prefix-hash: an owner above 1.25 x (all + 1) / n gives way to the least loaded', () => {
    const policy = make({ policy: 'sglang-prefix-hash' });
    const to = choose(policy).to;
    const loaded = (inFlight: number) =>
      four.map((each) => (each.instance === to ? { ...each, inFlight } : { ...each, inFlight: 4 }));
    // (f + 12 + 1) x 1.25 / 4: 5 has a bound of 5.6, 6 one of 5.9
    expect(choose(policy, loaded(5)).to).toBe(to);
    expect(choose(policy, loaded(6)).to).toBe(to === 0 ? 1 : 0);
  });

  it('cache-aware: a prompt unknown to all may go where the least is remembered', () => {
    const policy = make({ policy: 'sglang-cache-aware', cold: 'smallest-tree' });
    const busy = [instance(0, { inFlight: 1 }), instance(1, { inFlight: 9 })];
    expect(choose(policy, busy, request({ group: 1 })).to).toBe(0);
    expect(choose(policy, busy, request({ group: 2, promptTokens: 32 })).to).toBe(1);
    expect(choose(policy, busy, request({ group: 3 })).to).toBe(1);
    expect(choose(policy, busy, request({ group: 4 })).scores).toEqual([-10, -12]);
  });
});

describe('draws', () => {
  it('power-of-two never takes the busiest of several, and random takes all alike', () => {
    const loads = [3, 9, 1, 2].map((inFlight, number) => instance(number, { inFlight }));
    const taken = (policy: string): number[] => {
      const made = make({ policy });
      const counts = [0, 0, 0, 0];
      for (let i = 0; i < 2400; i++) counts[choose(made, loads).to]++;
      return counts;
    };
    const [third, busiest, least, second] = taken('power-of-two');
    // of 6 pairs 3, 2, 1 and 0 have it as their least
    expect(busiest).toBe(0);
    expect(Math.abs(least - 1200)).toBeLessThan(120);
    expect(Math.abs(second - 800)).toBeLessThan(120);
    expect(Math.abs(third - 400)).toBeLessThan(120);
    for (const count of taken('random')) expect(Math.abs(count - 600)).toBeLessThan(100);
  });
});

describe('pickers', () => {
  it.each([
    // scores 1 / 2 and 1 / 4 of a sum; e^(0.5 / 0.5) and e^(0.25 / 0.5)
    ['llm-d-weighted-random', {}, 2 / 3],
    ['llm-d-softmax', { temperature: 0.5 }, 1 / (1 + Math.exp(-0.5))],
    ['llm-d-two-choices', {}, 1],
  ] as const)('%s takes the better of two with its chance', (policy, parameters, chance) => {
    const made = make({ policy, scorers: { 'load-balance': 1 }, ...parameters });
    const loads = [instance(0, { inFlight: 1 }), instance(1, { inFlight: 3 })];
    let better = 0;
    for (let i = 0; i < 3000; i++) if (choose(made, loads).to === 0) better++;
    expect(Math.abs(better / 3000 - chance)).toBeLessThan(0.03);
  });

  it('leave out what breaks a cap', () => {
    const loads = [instance(0, { inFlight: 1 }), instance(1, { inFlight: 30 })];
    for (const policy of ['llm-d-weighted-random', 'llm-d-softmax', 'llm-d-two-choices']) {
      const made = make({ policy, maxInFlight: 8 });
      for (let i = 0; i < 50; i++) expect(choose(made, loads).to, policy).toBe(0);
    }
  });
});

describe('what is learned', () => {
  it('aibrix-vtc-basic: tokens count for five minutes', () => {
    const policy = make({ policy: 'aibrix-vtc-basic', jitter: 0 });
    const view = request({ tenantId: 'a', promptTokens: 4000 });
    policy.completed?.(ends(view, 0, 0));
    policy.completed?.(ends(request({ tenantId: 'b', promptTokens: 16 }), 0, 0));
    // 4002 and 18: a bucket of 2010, a at 1.99
    expect(choose(policy, four, view, router({ nowUs: 299_999_999 })).to).toBe(2);
    expect(choose(policy, four, view, router({ nowUs: 300_000_000 })).to).toBe(0);
  });

  it('preble-e2: work that was sent counts for three minutes, and outputs are the ones seen', () => {
    const policy = make({ policy: 'preble-e2', tpotUs: 10 });
    const two = [instance(0, { inFlight: 2 }), instance(1)];
    // 10 x 320, and 2 x 128 x 10 beside it on the first
    expect(choose(policy, two).scores).toEqual([-5760, -3200]);
    const other = request({ group: 2 });
    expect(choose(policy, two, other, router({ nowUs: 1 })).scores).toEqual([-5760, -6400]);
    policy.completed?.({ ...ends(other, 0), outputTokens: 50 });
    const third = request({ group: 3 });
    // the first counts no more: 50 x 2 x 10 and the second's 3200
    expect(choose(policy, two, third, router({ nowUs: 180_000_000 })).scores).toEqual([
      -3200 - 3200 - 1000,
      -3200,
    ]);
  });

  it('prodstack-kvaware: a session has one owner', () => {
    const policy = make({ policy: 'prodstack-kvaware' });
    const far = { promptTokens: 16_000 };
    const owner = (sessionId: string): number => choose(policy, four, request({ ...far, sessionId })).to;
    const owners = Array.from({ length: 40 }, (_, i) => owner(`session ${i}`));
    expect(Array.from({ length: 40 }, (_, i) => owner(`session ${i}`))).toEqual(owners);
    expect(new Set(owners).size).toBe(4);
  });
});

describe('llm-d-latency', () => {
  const busy = [instance(0, { inFlight: 1, queueDepth: 4 }), instance(1, { inFlight: 1, used: 500 })];

  it('goes by KV, queue and prefix without a target', () => {
    // (1 + 0 + 0) / 3 and (0.5 + 1 + 0) / 3
    const { scores, to } = choose(make({ policy: 'llm-d-latency', tpotUs: 0 }), busy);
    expect(scores[0]).toBeCloseTo(1 / 3, 12);
    expect(scores[1]).toBeCloseTo(0.5, 12);
    expect(to).toBe(1);
  });

  it('spreads with the strategy `most`', () => {
    const loads = [instance(0, { inFlightTokens: 900 }), instance(1, { inFlightTokens: 100 })];
    const view = request({ sloTargetUs: 1e6 });
    expect(choose(make({ policy: 'llm-d-latency' }), loads, view).to).toBe(0);
    expect(choose(make({ policy: 'llm-d-latency', strategy: 'most' }), loads, view).to).toBe(1);
  });
});
