import { describe, expect, it } from 'vitest';
import { restoreState, saveState } from '../../../../src/runtime/snapshot.ts';
import type { InstanceSnapshot, PolicyChoice, RequestView } from '../../../../src/sim/control/policy.ts';
import type { RouterState } from '../../../../src/sim/control/routerState.ts';
import { routingPolicies } from '../../../../src/sim/control/routing/routing.ts';
import type { RoutingChoice, RoutingPolicy } from '../../../../src/sim/control/routing/routingPolicy.ts';
import { scorers } from '../../../../src/sim/control/routing/scorers.ts';
import { PartitionedRandom } from '../../../../src/sim/random/goRand.ts';
import { instance, request, router, world } from '../fixtures.ts';

const make = (choice: PolicyChoice): RoutingPolicy => routingPolicies.make(choice, world());
const priority = { score: 3, rank: 1, hints: { sheddable: false, dueUs: 0 } };

/** Chooses and tells the policy so. @returns the choice, and the number of the instance */
function route(
  policy: RoutingPolicy,
  candidates: readonly InstanceSnapshot[],
  view: RequestView = request(),
  state: RouterState = router(),
): RoutingChoice & { readonly to: number } {
  const context = { request: view, priority, candidates, router: state };
  const choice = policy.choose(context);
  const to = candidates[choice.index].instance;
  policy.routed?.(context, to);
  return { ...choice, to };
}

/** Scores of one scorer alone. */
function scores(
  name: string,
  candidates: readonly InstanceSnapshot[],
  view: RequestView = request(),
  state: RouterState = router(),
): number[] {
  const { parts } = route(make({ policy: 'weighted', scorers: { [name]: 1 } }), candidates, view, state);
  return Array.from(parts[0].values).slice(0, candidates.length);
}

describe('scorers, by their formulas', () => {
  const loaded = [
    instance(0, { queueDepth: 8, batchSize: 2, inFlight: 10, used: 250 }),
    instance(1, { queueDepth: 4, batchSize: 6, inFlight: 5, used: 500 }),
    instance(2, { queueDepth: 0, batchSize: 4, inFlight: 0, used: 1000 }),
  ];
  const alike = [instance(0, { queueDepth: 3, inFlight: 3 }), instance(1, { queueDepth: 3, inFlight: 3 })];

  it.each([
    ['queue-depth', [0, 0.5, 1], [1, 1]],
    ['running-requests', [1, 0, 0.5], [1, 1]],
    // 4q + r: 34, 22, 4
    ['vllm-dp', [0, (34 - 22) / 30, 1], [1, 1]],
    ['kv-utilization', [0.75, 0.5, 0], [1, 1]],
    // 1 / (1 + q + r + f)
    ['load-balance', [1 / 21, 1 / 16, 1 / 5], [1 / 7, 1 / 7]],
    ['active-requests', [0, 0.5, 1], [0, 0]],
    ['load-aware', [0.5 * (1 - 8 / 128), 0.5 * (1 - 4 / 128), 0.5], [0.48828125, 0.48828125]],
  ])('%s', (name, uneven, even) => {
    expect(scores(name, loaded)).toEqual(uneven);
    expect(scores(name, alike)).toEqual(even);
  });

  it('load-aware ends at 128 queued; token-load at 4 Mi tokens', () => {
    expect(
      scores('load-aware', [instance(0, { queueDepth: 128 }), instance(1, { queueDepth: 500 })]),
    ).toEqual([0, 0]);
    const tokens = [instance(0, { inFlightTokens: 1_048_576 }), instance(1, { inFlightTokens: 9_000_000 })];
    expect(scores('token-load', tokens)).toEqual([0.75, 0]);
  });

  it('precise-prefix-cache: observed blocks scaled; all equal 1', () => {
    const three = [instance(0), instance(1), instance(2)];
    expect(scores('precise-prefix-cache', three, request(), router({ cached: [2, 10, 4] }))).toEqual([
      0, 1, 0.25,
    ]);
    expect(scores('precise-prefix-cache', three, request(), router({ cached: [5, 5, 5] }))).toEqual([
      1, 1, 1,
    ]);
  });

  it('tiered-prefix: HBM 1, host 0.8, disk 0.5, over the blocks of the prompt', () => {
    const place = { blocks: 8, byTier: [4, 2, 2] };
    const observedKv = { topBlocks: () => 4, place: () => place };
    const [score] = scores('tiered-prefix', [instance(0)], request(), router({ observedKv }));
    expect(score).toBeCloseTo((4 + 1.6 + 1) / 10, 12);
    expect(
      scores('tiered-prefix', [instance(0)], request({ promptTokens: 5 }), router({ observedKv })),
    ).toEqual([0]);
  });

  it('prefix-affinity: leading blocks that the router sent there, over the blocks of the prompt', () => {
    const policy = make({ policy: 'weighted', scorers: { 'prefix-affinity': 1 } });
    const two = [instance(0), instance(1)];
    expect(route(policy, two, request({ group: 1, promptTokens: 64 })).to).toBe(0);
    const longer = route(policy, two, request({ group: 1, promptTokens: 160 }));
    expect(Array.from(longer.parts[0].values).slice(0, 2)).toEqual([0.4, 0]);
    expect(Array.from(route(policy, two, request({ group: 2 })).parts[0].values).slice(0, 2)).toEqual([0, 0]);
    const short = route(policy, two, request({ promptTokens: 15 }));
    expect(Array.from(short.parts[0].values).slice(0, 2)).toEqual([0, 0]);
  });

  it('prefix-affinity forgets the oldest beyond 10,000 blocks, and an instance that left', () => {
    const policy = make({ policy: 'weighted', scorers: { 'prefix-affinity': 1 } });
    const one = [instance(0)];
    const matched = (group: number, promptTokens: number): number =>
      route(policy, one, request({ group, promptTokens })).parts[0].values[0];
    expect(matched(1, 160)).toBe(0);
    // 9,990 more blocks fit beside the first ten
    expect(matched(2, 9_990 * 16)).toBe(0);
    expect(matched(1, 160)).toBe(1);
    // ten blocks too many put out the oldest ten, which are the first of group 2
    expect(matched(3, 160)).toBe(0);
    expect(matched(1, 160)).toBe(1);
    expect(matched(2, 160)).toBe(0);
    policy.removed?.(0);
    expect(matched(1, 160)).toBe(0);
  });

  it('no-hit-lru: 0.5 with any hit; cold ones go to unused instances, then the longest unused', () => {
    const policy = make({ policy: 'weighted', scorers: { 'no-hit-lru': 1 } });
    const three = [instance(0), instance(1), instance(2)];
    expect([1, 2, 3, 4].map(() => route(policy, three).to)).toEqual([0, 1, 2, 0]);
    const warm = route(policy, three, request(), router({ cached: [0, 1] }));
    expect(Array.from(warm.parts[0].values).slice(0, 3)).toEqual([0.5, 0.5, 0.5]);
    const cold = route(policy, three);
    expect(Array.from(cold.parts[0].values).slice(0, 3)).toEqual([0, 1, 0.5]);
    expect(scores('no-hit-lru', [instance(0)])).toEqual([1]);
  });

  it('session-affinity: where the session was last', () => {
    const policy = make({ policy: 'session-affinity' });
    const at = (first: number, second: number): InstanceSnapshot[] => [
      instance(0, { inFlight: first }),
      instance(1, { inFlight: second }),
    ];
    expect(route(policy, at(5, 0), request({ sessionId: 's' })).to).toBe(1);
    expect(route(policy, at(0, 5), request({ sessionId: 's' })).to).toBe(1);
    expect(route(policy, at(0, 5), request({ sessionId: 't' })).to).toBe(0);
    expect(route(policy, at(0, 5), request()).to).toBe(0);
  });

  it('lora-affinity: 1 where the adapter is, 0 elsewhere; 1 for all without an adapter', () => {
    const two = [instance(0, { adapters: ['a'] }), instance(1, { adapters: ['b'] })];
    expect(scores('lora-affinity', two, request({ adapter: 'b' }))).toEqual([0, 1]);
    expect(scores('lora-affinity', two, request({ adapter: 'c' }))).toEqual([1, 1]);
    expect(scores('lora-affinity', two, request())).toEqual([1, 1]);
  });
});

describe('routing policies', () => {
  it('round-robin takes turns over what is there', () => {
    const policy = make({ policy: 'round-robin' });
    const three = [instance(0), instance(1), instance(4)];
    expect([0, 1, 2, 3].map(() => route(policy, three).to)).toEqual([0, 1, 4, 0]);
    expect(route(policy, three.slice(0, 2)).to).toBe(0);
  });

  it('least-loaded, llq, lor and always-busiest each go by their own signal', () => {
    const candidates = [
      instance(0, { queueDepth: 1, batchSize: 9, inFlight: 9 }),
      instance(1, { queueDepth: 4, batchSize: 1, inFlight: 8 }),
      instance(2, { queueDepth: 9, batchSize: 9, inFlight: 2 }),
    ];
    const to = (policy: string): number => route(make({ policy }), candidates).to;
    expect({ ll: to('least-loaded'), llq: to('llq'), lor: to('lor'), busy: to('always-busiest') }).toEqual({
      ll: 1,
      llq: 0,
      lor: 2,
      busy: 2,
    });
  });

  it('glia: the formula, 10 less without head room', () => {
    const candidates = [
      instance(0, { capacity: 1000, used: 500, inFlight: 110 }),
      instance(1, { capacity: 1000, used: 600 }),
      instance(2, { capacity: 1000, used: 960 }),
    ];
    // needed: (1.6 x 160 + 15) / 16 = 16.9375
    const { to, scores: all } = route(make({ policy: 'glia' }), candidates);
    expect(all?.[0]).toBeCloseTo(-(500 + 16.9375) / 1000 - 0.11, 12);
    expect(all?.[1]).toBeCloseTo(-(600 + 16.9375) / 1000, 12);
    // free after: 40 - 16.9 = 23.1, below the 30 that it keeps
    expect(all?.[2]).toBeCloseTo(-(960 + 16.9375) / 1000 - 10, 12);
    expect(to).toBe(1);
    const idle = [instance(0, { capacity: 1000, used: 500 }), candidates[1]];
    expect(route(make({ policy: 'glia' }), idle).to).toBe(0);
  });

  it('weighted: weights add up to 1 and parts are recorded', () => {
    const policy = make({ policy: 'weighted', scorers: { 'queue-depth': 3, 'kv-utilization': 1 } });
    const candidates = [instance(0, { queueDepth: 2, used: 0 }), instance(1, { queueDepth: 0, used: 1000 })];
    const { to, scores: all, parts } = route(policy, candidates);
    expect(parts.map(({ weight }) => weight)).toEqual([0.75, 0.25]);
    expect([all?.[0], all?.[1]]).toEqual([0.25, 0.75]);
    expect(to).toBe(1);
  });

  it('weighted: instances above a cap are left out, unless all are', () => {
    const policy = make({ policy: 'weighted', scorers: { 'kv-utilization': 1 }, maxQueueDepth: 3 });
    const { to, filteredOut } = route(policy, [instance(0, { queueDepth: 4 }), instance(1, { used: 900 })]);
    expect({ to, filteredOut }).toEqual({
      to: 1,
      filteredOut: [{ instance: 0, id: 'instance_0', filter: 'maxQueueDepth' }],
    });
    const all = route(policy, [instance(0, { queueDepth: 4 }), instance(1, { queueDepth: 9, used: 9 })]);
    expect(all.filteredOut).toEqual([]);
    expect(all.to).toBe(0);
  });

  it('evolved: the prefix weight decays with the crowd on the cached instance', () => {
    const sent = (inFlight: number, used: number = 0): RoutingChoice & { to: number } => {
      const policy = make({ policy: 'evolved' });
      route(policy, [instance(0)], request());
      return route(policy, [instance(0, { inFlight, used }), instance(1, { inFlight: 2 })], request());
    };
    // no more requests there than elsewhere: 0.5 x 1 + 0.5 / 3 + 0.01 / 3 against 0.5 / 3 + 0.01 / 3
    const calm = sent(2);
    expect(calm.scores?.[0]).toBeCloseTo(0.5 + 0.5 / 3 + 0.01 / 3, 12);
    expect(calm.scores?.[1]).toBeCloseTo(0.5 / 3 + 0.01 / 3, 12);
    expect(calm.to).toBe(0);
    // d = 10: w0 = 0.5 / 7, w1 = 1 - w0
    const crowded = sent(12);
    const w0 = 0.5 / 7;
    expect(crowded.scores?.[0]).toBeCloseTo(w0 + (1 - w0) / 13 + 0.01 / 13, 12);
    expect(crowded.scores?.[1]).toBeCloseTo((1 - w0) / 3 + 0.01 / 3, 12);
    expect(crowded.to).toBe(1);
    // utilisation 0.95 costs 0.25
    expect(sent(2, 950).scores?.[0]).toBeCloseTo(0.5 + 0.5 / 3 - 0.25 + 0.01 / 3, 12);
  });

  it('ties go to the lowest instance, or by a draw from the router stream where that is asked for', () => {
    const three = [instance(3), instance(5), instance(7)];
    const elsewhere = /random|power-of-two|prodstack-prefixaware|sglang-prefix-hash|softmax|two-choices/;
    for (const policy of routingPolicies.names.filter((name) => !elsewhere.test(name))) {
      expect(route(make({ policy }), three).to, policy).toBe(3);
    }
    const expected = new PartitionedRandom(42n).stream('router');
    const drawing = make({ policy: 'least-loaded', ties: 'random' });
    for (let i = 0; i < 20; i++) expect(route(drawing, three).index).toBe(expected.intn(3));
    // without a tie nothing is drawn
    expect(route(drawing, [instance(3, { inFlight: 1 }), instance(5)]).to).toBe(5);
    expect(route(drawing, three).index).toBe(expected.intn(3));
  });

  it('goes on from a snapshot as if nothing had been in between', () => {
    const run = (policy: RoutingPolicy, from: number): number[] =>
      Array.from({ length: 60 }, (_, n) => {
        const i = from + n;
        const candidates = [0, 1, 2].map((number) =>
          instance(number, { inFlight: (i * (number + 3)) % 5, queueDepth: (i * (number + 1)) % 2 }),
        );
        const view = (number: number): RequestView =>
          request({ number, group: number % 7, sessionId: `s${number % 4}`, tenantId: `t${number % 3}` });
        const state = router({ nowUs: i * 1000 });
        const { to } = route(policy, candidates, view(i), state);
        const outcome = { completed: true, outputTokens: i % 11, ttftUs: 50 + (i % 13), e2eUs: 900 };
        if (i > 4) policy.completed?.({ request: view(i - 4), instance: i % 3, nowUs: i * 1000, ...outcome });
        return to;
      });
    const choices: PolicyChoice[] = routingPolicies.names.map((policy) => ({ policy }));
    for (const name of scorers.names)
      choices.push({ policy: 'weighted', scorers: { [name]: 1 }, ties: 'random' });
    for (const choice of choices) {
      const one = make(choice);
      run(one, 0);
      const two = make(choice);
      restoreState(two, structuredClone(saveState(one)));
      expect(run(two, 60), JSON.stringify(choice)).toEqual(run(one, 60));
    }
  });

  it.each([
    [{ policy: 'weigthed' }, /routing\.policy.*weighted/],
    [{ policy: 'weighted', scorers: { 'queue-dept': 1 } }, /routing\.scorers\.queue-dept.*queue-depth/],
    [{ policy: 'weighted', scorers: { 'queue-depth': -1 } }, /routing\.scorers\.queue-depth is -1/],
    [{ policy: 'weighted', scorers: {} }, /routing\.scorers has no weight/],
    [{ policy: 'lor', tie: 'random' }, /routing\.tie.*ties/],
  ] satisfies readonly (readonly [PolicyChoice, RegExp])[])('refuses %j', (choice, message) => {
    expect(() => make(choice)).toThrow(message);
  });
});
