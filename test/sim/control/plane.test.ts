import { describe, expect, it } from 'vitest';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import type { ControlConfig } from '../../../src/sim/control/controlPlane.ts';
import { checkControl, PolicyControlPlane } from '../../../src/sim/control/plane.ts';
import type { InstanceProbe, RequestView } from '../../../src/sim/control/policy.ts';
import { blockTokens, keyOf, probe, request } from './fixtures.ts';

const plane = (
  config: Partial<ControlConfig> = {},
  probes: readonly InstanceProbe[] = [probe(0), probe(1)],
) => {
  const made = new PolicyControlPlane(config, { key: 42n, blockTokens, maxSequences: 256 });
  for (const each of probes) {
    made.addInstance(each);
    made.setRoutable(each.instance, true);
  }
  return made;
};
const send = (made: PolicyControlPlane, view: RequestView, nowUs: number) => {
  made.arrived(view, nowUs);
  if (made.admit(view, nowUs).verdict !== 'admit') return null;
  return made.route(view, made.prioritise(view, nowUs), nowUs);
};
const live = { snapshotIntervalUs: 0, cacheSignalUs: 0 };

describe('the control plane', () => {
  it('Route to the instance with the cached prefix', () => {
    const made = plane({ routing: { policy: 'precise-prefix' }, signals: live });
    expect(made.wantsCacheEvents).toBe(true);
    for (let block = 0; block < 10; block++) made.kvStored(0, 0, keyOf(1, block), 5);
    expect(send(made, request({ number: 0, group: 1 }), 10)).toMatchObject({ target: 0, expectedBlocks: 10 });
    // the other way round: the prefix is on instance 1
    for (let block = 0; block < 10; block++) made.kvStored(1, 0, keyOf(2, block), 20);
    expect(send(made, request({ number: 1, group: 2 }), 30)?.target).toBe(1);
  });

  it('tells the gateway queue what tenants had, and keeps it in a snapshot', () => {
    const config = { gateway: { policy: 'banded', fairness: 'program-aware' } };
    const made = plane(config);
    const first = request({ number: 0, tenantId: 'a' });
    expect(send(made, first, 0)).not.toBeNull();
    made.ended(first, 0, 'completed', 4, 10);
    const copy = plane(config);
    restoreState(copy, structuredClone(saveState(made)));
    const other = plane(config);
    for (const each of [made, copy, other]) {
      for (const [number, tenantId] of [
        [1, 'a'],
        [2, 'b'],
      ] as const) {
        const view = request({ number, tenantId });
        each.gateway?.enqueue(view, each.prioritise(view, 20), 20);
      }
    }
    const next = (each: PolicyControlPlane) => each.gateway?.dispatch(0, 30)?.request.tenantId;
    expect([next(made), next(copy), next(other)]).toEqual(['b', 'b', 'a']);
  });

  it('Shadow divergence', () => {
    const made = plane({
      routing: { policy: 'weighted', scorers: { 'shadow-prefix': 1 } },
      shadow: { model: 'approximate', blocks: 0, eventDelayUs: 0, speculativeTtlUs: 0 },
    });
    const first = request({ number: 0 });
    expect(send(made, first, 0)?.target).toBe(0);
    expect(made.scheduled(first, 0, 0, 1)).toBeNull(); // nothing was expected, nothing was there
    made.ended(first, 0, 'completed', 4, 2);
    // evicted meanwhile, and the shadow does not know
    const second = request({ number: 1 });
    expect(send(made, second, 3)).toMatchObject({ target: 0, expectedBlocks: 10 });
    expect(made.scheduled(second, 0, 0, 4)).toEqual({
      timeUs: 4,
      request: 1,
      instance: 0,
      expectedBlocks: 10,
      actualBlocks: 0,
    });
    expect(made.counters).toMatchObject({ shadowChecks: 2, shadowOverestimates: 1, shadowUnderestimates: 0 });
    // asked a second time, after a preemption, it does not count again
    expect(made.scheduled(second, 0, 0, 5)).toBeNull();
    const third = request({ number: 2, group: 9 });
    send(made, third, 6);
    expect(made.scheduled(third, 0, 3, 7)).toMatchObject({ expectedBlocks: 0, actualBlocks: 3 });
    expect(made.counters).toMatchObject({ shadowChecks: 3, shadowUnderestimates: 1 });
  });

  it('reported signals are read at their interval, zero before it; counts in flight are fresh', () => {
    const one = probe(0);
    const made = plane({ routing: { policy: 'lor' } }, [one, probe(1)]);
    one.queueDepth = 7;
    const queue = (nowUs: number): number => made.cluster(nowUs).instances[0].queueDepth;
    expect([queue(0), queue(49_999), queue(50_000)]).toEqual([0, 0, 7]);
    one.queueDepth = 3;
    expect([queue(99_999), queue(100_000)]).toEqual([7, 3]);
    const views = [0, 1, 2].map((number) => request({ number, promptTokens: 100 }));
    expect(views.map((view) => send(made, view, 100_000)?.target)).toEqual([0, 1, 0]);
    const counts = () =>
      made.cluster(100_000).instances.map(({ inFlight, inFlightTokens }) => [inFlight, inFlightTokens]);
    expect(counts()).toEqual([
      [2, 200],
      [1, 100],
    ]);
    made.firstToken(views[0], 0, 0);
    made.ended(views[1], 1, 'timedOut', 0, 100_001);
    expect(counts()).toEqual([
      [2, 100],
      [0, 0],
    ]);
    expect(made.router.global.inFlight).toBe(2);
  });

  it('hands off between pools: decode is chosen first, then prefill, and both are counted', () => {
    const pools: InstanceProbe[] = (['prefill', 'prefill', 'decode', 'decode'] as const).map(
      (role, number) => ({
        ...probe(number),
        role,
      }),
    );
    const made = plane({ routing: { policy: 'lor' }, decider: { policy: 'always' } }, pools);
    const view = request({ number: 0 });
    expect(send(made, view, 0)).toMatchObject({ target: 2, prefillInstance: 0, decodeInstance: 2 });
    const inFlight = (): number[] => made.cluster(0).instances.map((each) => each.inFlight);
    expect(inFlight()).toEqual([1, 0, 1, 0]);
    expect(send(made, request({ number: 1 }), 0)).toMatchObject({ target: 3, prefillInstance: 1 });
    made.ended(view, 0, 'handedOff', 0, 5);
    expect(inFlight()).toEqual([0, 1, 1, 1]);
    expect(made.router.global.inFlight).toBe(2);
    made.ended(view, 2, 'completed', 3, 9);
    expect(inFlight()).toEqual([0, 1, 0, 1]);
    expect(made.router.global.inFlight).toBe(1);
    // one that gives up while its prompt is computed is nowhere any more
    made.ended(request({ number: 1 }), 1, 'timedOut', 0, 9);
    expect(inFlight()).toEqual([0, 0, 0, 0]);
    const decider = { policy: 'prefix-threshold', tokens: 160 };
    const whole = plane({ routing: { policy: 'lor' }, decider }, pools);
    expect(send(whole, request({ number: 0, promptTokens: 160 }), 0)?.prefillInstance).toBe(-1);
    expect(send(whole, request({ number: 1, promptTokens: 161 }), 0)?.prefillInstance).toBe(0);
  });

  it('records scores with their parts, and the best others', () => {
    const made = plane({ routing: { policy: 'least-loaded' }, topK: 1 }, [probe(0), probe(1), probe(2)]);
    send(made, request({ number: 0 }), 0);
    const decision = send(made, request({ number: 1 }), 0);
    expect(decision?.scores.map(({ score }) => score)).toEqual([-1, -0, -0]);
    expect(decision?.topKCandidates.map(({ id }) => id)).toEqual(['instance_2']);
    const weighted = plane({
      routing: { policy: 'weighted', scorers: { 'load-balance': 3, 'queue-depth': 1 } },
    });
    expect(send(weighted, request(), 0)?.scores[1].scoreBreakdown).toEqual({
      'load-balance': 0.75,
      'queue-depth': 0.25,
    });
  });

  it('keeps tenants, bursts and windows', () => {
    const made = plane({ history: { windowUs: 1_000_000, windows: 3, burstFactor: 3 } });
    let number = 0;
    for (let nowUs = 0; nowUs < 2_000_000; nowUs += 100_000) {
      made.ended(
        sent(made, request({ number: number++, tenantId: 'steady' }), nowUs),
        0,
        'completed',
        5,
        nowUs,
      );
    }
    for (let i = 0; i < 30; i++) send(made, request({ number: number++, tenantId: 'bursty' }), 1_999_999);
    made.cluster(2_000_000);
    expect(made.router.tenant('steady')).toMatchObject({
      requestCount: 20,
      activeRequests: 0,
      outputTokens: 100,
    });
    expect(made.router.tenant('steady').burstDetected).toBe(false);
    expect(made.router.tenant('bursty')).toMatchObject({ activeRequests: 30, burstDetected: true });
    expect(made.router.tenant('unknown').requestCount).toBe(0);
    expect(made.router.history.map(({ arrivals, completions }) => [arrivals, completions])).toEqual([
      [10, 10],
      [40, 10],
    ]);
    expect(made.router.global).toMatchObject({ inFlight: 30, pending: 0 });
  });

  it('forks: a plane restored from a snapshot decides as the one it was taken from', () => {
    const config: Partial<ControlConfig> = {
      admission: { policy: 'probabilistic' },
      routing: { policy: 'evolved', ties: 'random' },
      shadow: { model: 'speculative', blocks: 0, eventDelayUs: 500, speculativeTtlUs: 5000 },
    };
    const run = (made: PolicyControlPlane, from: number): (number | null)[] =>
      Array.from({ length: 100 }, (_, i) => {
        const n = from + i;
        const view = request({ number: n, group: n % 6, sloClass: n % 4 === 0 ? 'batch' : 'standard' });
        const target = send(made, view, n * 700)?.target ?? null;
        if (target !== null && n % 3 === 0) made.ended(view, target, 'completed', 2, n * 700);
        if (target !== null) made.kvStored(target, 0, keyOf(n % 6, n % 10), n * 700);
        return target;
      });
    const one = plane(config);
    run(one, 0);
    const two = plane(config);
    restoreState(two, structuredClone(saveState(one)));
    expect(run(two, 100)).toEqual(run(one, 100));
    expect(saveState(two)).toEqual(saveState(one));
  });

  it('has nowhere to send a request without an instance, or for a model without a server', () => {
    const made = plane({}, []);
    expect(send(made, request(), 0)).toBeNull();
    expect(made.counters.unroutable).toBe(1);
    const other = plane({}, [{ ...probe(0), model: 'a' }]);
    expect(send(other, request({ model: 'b' }), 0)).toBeNull();
    expect(send(other, request({ number: 1, model: 'a' }), 0)?.target).toBe(0);
  });

  it.each([
    [{ signals: { snapshotIntervalUs: -1, cacheSignalUs: 0 } }, /signals\.snapshotIntervalUs is -1/],
    [{ topK: -2 }, /topK is -2/],
    [{ decider: { policy: 'allways' } }, /decider\.policy.*always/],
    [{ gateway: { policy: 'band' } }, /gateway\.policy.*banded/],
    [{ history: { windowUs: 10, windows: 1, burstFactor: 2 } }, /history\.windowUs is 10/],
    [
      { shadow: { model: 'speculative', blocks: 0, eventDelayUs: 0, speculativeTtlUs: 0 } },
      /shadow\.speculativeTtlUs is 0/,
    ],
  ] satisfies readonly (readonly [Partial<ControlConfig>, RegExp])[])('refuses %j', (config, message) => {
    expect(() => checkControl(config)).toThrow(message);
  });
});

function sent(made: PolicyControlPlane, view: RequestView, nowUs: number): RequestView {
  const decision = send(made, view, nowUs);
  if (decision?.target === 0) return view;
  // round robin: the request went to instance 1, where it ends at once; the next one goes to 0
  made.ended(view, 1, 'redirected', 0, nowUs);
  made.route(view, made.prioritise(view, nowUs), nowUs);
  return view;
}
