/** Filters of weighted routing: who is left out, worked out by hand from llm-d's rules. */

import { describe, expect, it } from 'vitest';
import { restoreState, saveState } from '../../../../src/runtime/snapshot.ts';
import type { InstanceSnapshot, PolicyChoice, RequestView } from '../../../../src/sim/control/policy.ts';
import { routingPolicies } from '../../../../src/sim/control/routing/routing.ts';
import type { RoutingPolicy } from '../../../../src/sim/control/routing/routingPolicy.ts';
import { PartitionedRandom } from '../../../../src/sim/random/goRand.ts';
import { instance, request, router, world } from '../fixtures.ts';

type Filters = Readonly<Record<string, number | string | boolean>>;

/** All instances score alike, so that the first that is left takes a request. */
const make = (filters: Filters, more: Partial<PolicyChoice> = {}): RoutingPolicy =>
  routingPolicies.make({ policy: 'weighted', scorers: { 'lora-affinity': 1 }, ...filters, ...more }, world());

const priority = { score: 3, rank: 1, hints: { sheddable: false, dueUs: 0 } };

/** Numbers of the instances that are left out, with the filters that did it, and who takes the request. */
function route(
  policy: RoutingPolicy,
  candidates: readonly InstanceSnapshot[],
  view: RequestView = request(),
  cached: readonly number[] = [],
): { readonly out: readonly number[]; readonly by: string; readonly to: number } {
  const context = { request: view, priority, candidates, router: router({ cached }) };
  const { index, filteredOut } = policy.choose(context);
  const to = candidates[index].instance;
  policy.routed?.(context, to);
  const by = [...new Set(filteredOut.map(({ filter }) => filter))].join();
  return { out: filteredOut.map((each) => each.instance), by, to };
}

const tokens = (...each: readonly number[]): InstanceSnapshot[] =>
  each.map((inFlightTokens, i) => instance(i, { inFlightTokens, inFlight: inFlightTokens > 0 ? 1 : 0 }));

/** The first draws of the filters' stream. */
function draws(count: number, name: string = 'router-filters'): number[] {
  const stream = new PartitionedRandom(42n).stream(name);
  return Array.from({ length: count }, () => stream.float64());
}

describe('prefix-cache-affinity', () => {
  const on = { prefixCacheAffinity: true, prefixSource: 'caches' };

  it('keeps instances that have 0.8 of the prompt', () => {
    // 7, 8 and 10 of 10 blocks
    expect(route(make(on), tokens(0, 0, 0), request(), [7, 8, 10])).toEqual({
      out: [0],
      by: 'prefix-cache-affinity',
      to: 1,
    });
    expect(route(make({ ...on, minPrefixMatch: 0.9 }), tokens(0, 0, 0), request(), [7, 8, 10]).out).toEqual([
      0, 1,
    ]);
    // none, and all
    expect(route(make(on), tokens(0, 0), request(), [7, 0]).out).toEqual([]);
    expect(route(make(on), tokens(0, 0), request(), [8, 9]).out).toEqual([]);
    expect(route(make(on), tokens(0), request(), [0]).out).toEqual([]);
    // no full block matches nothing
    expect(route(make(on), tokens(0, 0), request({ promptTokens: 15 }), [1, 0]).out).toEqual([]);
    expect(route(make({}), tokens(0, 0), request(), [0, 10]).out).toEqual([]);
  });

  it('lets go where the best of them is more than 18 s slower than the best of the others', () => {
    // 286704 tokens at 15928 a second are 18 s
    expect(route(make(on), tokens(0, 286_704), request(), [0, 10]).out).toEqual([0]);
    expect(route(make(on), tokens(0, 286_705), request(), [0, 10]).out).toEqual([]);
    // the best of each: 300000 - 20000 tokens are 17.6 s
    expect(route(make(on), tokens(20_000, 30_000, 400_000, 300_000), request(), [0, 0, 10, 9]).out).toEqual([
      0, 1,
    ]);
    const fast = { ...on, maxTtftPenaltyUs: 1_000_000, tokensPerS: 1000 };
    expect(route(make(fast), tokens(500, 1500), request(), [0, 10]).out).toEqual([0]);
    expect(route(make(fast), tokens(500, 1501), request(), [0, 10]).out).toEqual([]);
    expect(route(make({ ...on, maxTtftPenaltyUs: 0 }), tokens(0, 9e9), request(), [0, 10]).out).toEqual([0]);
  });

  it('keeps all with the chance of exploration, by draws of its own stream', () => {
    const policy = make({ ...on, affinityExploration: 0.3 });
    const expected = draws(50).map((draw) => (draw < 0.3 ? [] : [0]));
    expect(expected.map((out) => out.length)).toContain(0);
    const seen = expected.map(() => route(policy, tokens(0, 0), request(), [0, 10]).out);
    expect(seen).toEqual(expected);
  });

  it('goes by where the router sent the prefix before, until that instance is gone', () => {
    const policy = make({ prefixCacheAffinity: true });
    const two = tokens(0, 0);
    expect(route(policy, [two[1]], request({ group: 5 })).to).toBe(1);
    // the same 10 blocks, then 10 of 12 and of 13
    expect(route(policy, two, request({ group: 5 }), [10, 0]).to).toBe(1);
    const before = saveState(policy);
    expect(route(policy, two, request({ group: 5, promptTokens: 192 })).to).toBe(1);
    restoreState(policy, before);
    expect(route(policy, two, request({ group: 5, promptTokens: 208 })).out).toEqual([]);
    policy.removed?.(1);
    expect(route(policy, two, request({ group: 5 })).to).toBe(0);
  });
});

describe('slo-headroom-tier', () => {
  const on = { sloHeadroomTier: true, tpotUs: 0, prefixSource: 'caches' };
  /** 160 tokens of its own: 1433 ahead are 100.01 ms in all, 1432 are 99.95 ms. */
  const view = request({ sloTargetUs: 100_000 });

  it('keeps the instances that are predicted to meet the targets', () => {
    const policy = make({ ...on, tierExploration: 0 });
    expect(route(policy, tokens(1433, 1432, 5000), view)).toEqual({
      out: [0, 2],
      by: 'slo-headroom-tier',
      to: 1,
    });
    // 5 blocks of it are cached there: 80 tokens fewer
    expect(route(policy, tokens(1512, 1433), view, [5, 0]).to).toBe(0);
    expect(route(policy, tokens(1513, 1433), view, [5, 0]).out).toEqual([]);
    expect(route(policy, tokens(0, 0), view).out).toEqual([]);
    // without a target there is nothing to miss
    expect(route(policy, tokens(1e6, 0)).out).toEqual([]);
    expect(route(make({ ...on, ttftUs: 100_000 }), tokens(1433, 1432)).to).toBe(1);
  });

  it('the time between tokens counts as well: 50 ms', () => {
    const policy = make({ sloHeadroomTier: true });
    const slow = [instance(0, { recentTpotUs: 50_001 }), instance(1, { recentTpotUs: 50_000 })];
    expect(route(policy, slow).to).toBe(1);
  });

  it('takes the other tier with a chance of 0.01, and draws only where there are two', () => {
    const policy = make(on);
    const two = tokens(1433, 0);
    const expected = draws(400).map((draw) => (draw < 0.01 ? 0 : 1));
    expect(new Set(expected)).toEqual(new Set([0, 1]));
    const seen = expected.map(() => {
      route(policy, tokens(0, 0), view);
      return route(policy, two, view).to;
    });
    expect(seen).toEqual(expected);
  });
});

describe('concurrency', () => {
  const loads = [
    instance(0, { inFlight: 12, inFlightTokens: 300 }),
    instance(1, { inFlight: 11, inFlightTokens: 900 }),
    instance(2, { inFlight: 20, inFlightTokens: 1000 }),
  ];

  it.each([
    // below 10 x 1.25 = 12 requests, 1000 tokens
    ['requests', { concurrencyHeadroom: 0.25 }, [0, 2]],
    ['tokens', {}, [2]],
    ['hybrid', { concurrencyHeadroom: 0.25 }, [0, 2]],
    // no instance is below 10: all stay
    ['requests', {}, []],
    ['hybrid', { concurrencyHeadroom: 9, maxTokenConcurrency: 40 }, [1, 2]],
  ])('%s %j', (concurrencyKind, more, out) => {
    const caps = { concurrencyKind, maxConcurrency: 10, maxTokenConcurrency: 1000, ...more };
    expect(route(make(caps), loads).out).toEqual(out);
  });

  it('may have 100 requests or a million tokens by default', () => {
    const full = [
      instance(0, { inFlight: 100 }),
      instance(1, { inFlight: 99, inFlightTokens: 1e6 }),
      instance(2, { inFlight: 99, inFlightTokens: 999_999 }),
    ];
    expect(route(make({ concurrencyKind: 'requests' }), full).out).toEqual([0]);
    expect(route(make({ concurrencyKind: 'tokens' }), full).out).toEqual([1]);
    expect(route(make({ concurrencyKind: 'hybrid' }), full)).toMatchObject({
      out: [0, 1],
      by: 'concurrency',
    });
  });
});

describe('filters', () => {
  it('see what those before them have left', () => {
    const policy = make({
      maxQueueDepth: 3,
      sloHeadroomTier: true,
      tierExploration: 0,
      prefixCacheAffinity: true,
      prefixSource: 'caches',
    });
    const candidates = [
      // the longest match, but a queue
      instance(0, { queueDepth: 4 }),
      // a match, but too slow
      instance(1, { recentTpotUs: 60_000 }),
      instance(2),
      instance(3),
    ];
    // of the two that are left the second has the prefix
    expect(route(policy, candidates, request(), [10, 9, 0, 8])).toEqual({
      out: [0, 1, 2],
      by: 'maxQueueDepth,slo-headroom-tier,prefix-cache-affinity',
      to: 3,
    });
  });

  it('a pick at random is among the instances that are left', () => {
    const policy = make({ prefixCacheAffinity: true, prefixSource: 'caches' }, { ties: 'random' });
    const seen = new Set(
      Array.from({ length: 40 }, () => route(policy, tokens(0, 0, 0), request(), [0, 9, 10]).to),
    );
    expect(seen).toEqual(new Set([1, 2]));
  });

  it.each(['weighted', 'evolved', 'llm-d-softmax'])('go on from a snapshot in %s', (policy) => {
    const filters = {
      prefixCacheAffinity: true,
      affinityExploration: 0.3,
      sloHeadroomTier: true,
      tierExploration: 0.4,
      ttftUs: 20_000,
    };
    const run = (from: number, on: RoutingPolicy): string =>
      Array.from({ length: 60 }, (_, i) => {
        const candidates = tokens(...[0, 1, 2, 3].map((n) => ((from + i) * (n + 3) * 97) % 500));
        return JSON.stringify(route(on, candidates, request({ group: i % 5 })));
      }).join();
    const one = routingPolicies.make({ policy, ...filters }, world());
    run(0, one);
    const two = routingPolicies.make({ policy, ...filters }, world());
    restoreState(two, structuredClone(saveState(one)));
    const went = run(60, one);
    expect(run(60, two)).toBe(went);
    expect(went).toContain('slo-headroom-tier');
    expect(went).toContain('prefix-cache-affinity');
  });

  it('ask caches where that is their source', () => {
    expect(make({ prefixCacheAffinity: true }).readsCaches).toBe(false);
    expect(make({ prefixSource: 'caches' }).readsCaches).toBe(false);
    expect(make({ prefixCacheAffinity: true, prefixSource: 'caches' }).readsCaches).toBe(true);
  });

  it.each([
    [{ minPrefixMatch: 0 }, /routing\.minPrefixMatch is 0, not a number above 0 and up to 1/],
    [{ tierExploration: 1.5 }, /routing\.tierExploration is 1\.5, not a number of at least 0 and up to 1\./],
    [{ concurrencyKind: 'token' }, /routing\.concurrencyKind.*tokens/],
    [
      { sloHeadroomTier: 'yes' },
      /routing\.sloHeadroomTier must be true or false, and it is "yes"\. Pass one of them/,
    ],
    [{ concurrencyHeadroom: -1 }, /routing\.concurrencyHeadroom is -1/],
  ])('refuse %j', (filters, message) => {
    expect(() => make(filters)).toThrow(message);
  });
});
