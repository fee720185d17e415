import { describe, expect, it } from 'vitest';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import type { GatewayStage } from '../../../src/sim/control/flowControl.ts';
import { type FlowControl, gateways } from '../../../src/sim/control/flowControl.ts';
import type { RequestView } from '../../../src/sim/control/policy.ts';
import { priorityPolicies } from '../../../src/sim/control/priority.ts';
import { cluster, instance, request, router, world } from './fixtures.ts';

const priorities = priorityPolicies.make({ policy: 'slo-class' }, world());
const make = (
  parameters: Record<string, number | string | boolean | Record<string, number>> = {},
): GatewayStage => gateways.make({ policy: 'banded', ...parameters }, world());

let number = 0;
function enqueue(queue: FlowControl, sloClass: string, tenantId = '', nowUs = 0, sloTargetUs = 0) {
  const view = request({ number: number++, sloClass, tenantId, sloTargetUs });
  return { view, result: queue.enqueue(view, priorities.prioritise(view, router()), nowUs) };
}
const order = (queue: FlowControl, saturation = 0): number[] => {
  const numbers: number[] = [];
  for (
    let entry = queue.dispatch(saturation, 0);
    entry !== undefined;
    entry = queue.dispatch(saturation, 0)
  ) {
    numbers.push(entry.request.number);
  }
  return numbers;
};

describe('the banded gateway', () => {
  it('serves bands by priority, and first in first out in each', () => {
    const { queue } = make();
    const [a, b, c, d] = ['batch', 'critical', 'batch', 'standard'].map(
      (name) => enqueue(queue, name).view.number,
    );
    expect(queue.size).toBe(4);
    expect(order(queue)).toEqual([b, d, a, c]);
    expect(queue.size).toBe(0);
  });

  it('holds band i of n from 1 - i x (1 - usageLimit) / (n - 1) on, with all behind it', () => {
    const { queue } = make({ usageLimit: 0.6 });
    const [a, b, c] = ['critical', 'standard', 'batch'].map((name) => enqueue(queue, name).view.number);
    // ceilings 1, 0.8, 0.6
    expect(order(queue, 1)).toEqual([]);
    expect(order(queue, 0.8)).toEqual([a]);
    expect(order(queue, 0.7)).toEqual([b]);
    expect(order(queue, 0.6)).toEqual([]);
    expect(order(queue, 0.59)).toEqual([c]);
  });

  it('is fair to tenants by turns where that is asked for', () => {
    for (const fairness of ['global-strict', 'round-robin']) {
      const { queue } = make({ fairness });
      const tenants = ['a', 'a', 'a', 'c', 'b'];
      const numbers = tenants.map((tenant) => enqueue(queue, 'standard', tenant).view.number);
      const served = order(queue).map((n) => tenants[n - numbers[0]]);
      expect(served.join('')).toBe(fairness === 'round-robin' ? 'abcaa' : 'aaacb');
    }
  });

  describe('program-aware: 0.8 x (1 - attained service) + 0.2 x wait of the first, each over the flows', () => {
    const second = 1e6;
    /** Of a tenant that completed a request. */
    const completed = (queue: FlowControl, tenantId: string, prompt: number, output: number, atS = 0): void =>
      queue.completed?.({
        request: request({ tenantId, promptTokens: prompt }),
        instance: 0,
        completed: true,
        outputTokens: output,
        ttftUs: 1,
        e2eUs: 2,
        nowUs: atS * second,
      });
    /** Tenants in the order in which their only requests are served. */
    const served = (queue: FlowControl, atS: number): string => {
      let tenants = '';
      for (;;) {
        const entry = queue.dispatch(0, atS * second);
        if (entry === undefined) return tenants;
        tenants += entry.request.tenantId;
      }
    };
    const three = (parameters: Record<string, number> = {}): FlowControl => {
      const { queue } = make({ fairness: 'program-aware', ...parameters });
      // 400, 200 and nothing; a minute later half of it
      completed(queue, 'a', 100, 150);
      completed(queue, 'b', 100, 50);
      for (const [tenant, atS] of [
        ['a', 0],
        ['b', 30],
        ['c', 60],
      ] as const) {
        enqueue(queue, 'standard', tenant, atS * second);
      }
      return queue;
    };

    it('the least served goes first', () => {
      // a 0.2, b 0.4 + 0.1, c 0.8; then b 0.8 and a 0.2
      expect(served(three(), 60)).toBe('cba');
    });

    it('by the weights that it is given', () => {
      // a 1, b 0.4 + 0.5, c 0.8; then b 1 and c 0.8
      expect(served(three({ waitWeight: 1 }), 60)).toBe('abc');
      // a 0, b 0.5, c 1
      expect(served(three({ serviceWeight: 1, waitWeight: 0 }), 60)).toBe('cba');
      expect(served(three({ serviceWeight: 0, waitWeight: 1 }), 60)).toBe('abc');
    });

    it.each([
      // 400 at 0 s is 200 at 60 s: as much, so that the longest wait goes first
      [50, 60_000_000, 'ba'],
      [51, 60_000_000, 'ab'],
      [49, 60_000_000, 'ba'],
      // of 400 there are 100 left after two half-lives
      [1, 30_000_000, 'ab'],
    ])('what was attained halves in each half-life: %i output tokens, %i µs', (output, halfLifeUs, order) => {
      const { queue } = make({ fairness: 'program-aware', halfLifeUs });
      completed(queue, 'a', 100, 150);
      completed(queue, 'b', 100, output, 60);
      enqueue(queue, 'standard', 'b', 0);
      enqueue(queue, 'standard', 'a', second);
      expect(served(queue, 60)).toBe(order);
    });

    it('adds what is new to what is left', () => {
      const { queue } = make({ fairness: 'program-aware' });
      completed(queue, 'a', 400, 0);
      completed(queue, 'a', 100, 0, 60); // 200 + 100
      completed(queue, 'b', 301, 0, 60);
      enqueue(queue, 'standard', 'b', 0);
      enqueue(queue, 'standard', 'a', second);
      expect(served(queue, 60)).toBe('ab');
    });

    it('knows nothing of bands, and goes by arrival where all are alike', () => {
      const { queue } = make({ fairness: 'program-aware' });
      completed(queue, 'a', 9000, 0);
      enqueue(queue, 'standard', 'b');
      enqueue(queue, 'critical', 'a');
      enqueue(queue, 'standard', 'c');
      expect(served(queue, 0)).toBe('abc');
    });

    it('goes on from a snapshot', () => {
      const views: RequestView[] = [];
      const one = make({ fairness: 'program-aware' }).queue;
      for (const [i, tenant] of ['a', 'b', 'c', 'a', 'b', 'c'].entries()) {
        completed(one, tenant, 100 * (i + 1), 7, i);
        views.push(enqueue(one, 'standard', tenant, i * second).view);
      }
      one.dispatch(0, 7 * second);
      const two = make({ fairness: 'program-aware' }).queue;
      restoreState(two, structuredClone(saveState(one)));
      two.adopt((n) => views.find((view) => view.number === n) ?? request());
      completed(one, 'c', 5000, 0, 8);
      const went = served(one, 9);
      completed(two, 'c', 5000, 0, 8);
      expect(served(two, 9)).toBe(went);
      expect(went.slice(-2)).toBe('cc');
    });

    it('other rules learn nothing', () => {
      expect(make().queue.completed).toBeUndefined();
    });
  });

  it("slo-deadline takes the earliest due of a flow, by its own target or its class's", () => {
    const { queue } = make({ order: 'slo-deadline', targetsUs: { standard: 500 } });
    const late = enqueue(queue, 'standard', 'a', 100).view.number; // due 600
    const none = enqueue(queue, 'other', 'a', 0).view.number;
    const own = enqueue(queue, 'standard', 'a', 100, 50).view.number; // due 150
    expect(order(queue)).toEqual([own, late, none]);
    // names that every object has are classes without a target
    const named = enqueue(queue, 'constructor', 'a', 0).view.number;
    const due = enqueue(queue, 'standard', 'a', 100).view.number;
    expect(order(queue)).toEqual([due, named]);
  });

  it('a full queue rejects; with shedding it puts the newest least urgent sheddable one out', () => {
    const plain = make({ maxDepth: 1 }).queue;
    enqueue(plain, 'batch');
    expect(enqueue(plain, 'critical').result).toEqual({
      outcome: 'rejected',
      reason: 'the gateway queue is full',
    });
    const { queue } = make({ maxDepth: 3, shedding: true });
    enqueue(queue, 'standard');
    enqueue(queue, 'background');
    const newest = enqueue(queue, 'background').view;
    expect(enqueue(queue, 'background').result.outcome).toBe('rejected');
    const { result } = enqueue(queue, 'critical');
    expect(result.outcome === 'evicted' && result.evicted.request).toBe(newest);
    expect(queue.size).toBe(3);
    enqueue(queue, 'critical');
    // nothing sheddable is left
    expect(enqueue(queue, 'critical').result.outcome).toBe('rejected');
    const banded = make({ perBandCapacity: 1 }).queue;
    expect(['batch', 'critical', 'batch'].map((name) => enqueue(banded, name).result.outcome)).toEqual([
      'queued',
      'queued',
      'rejected',
    ]);
  });

  it('lets a request be taken out, once', () => {
    const { queue } = make();
    const { view } = enqueue(queue, 'batch');
    expect([queue.remove(view), queue.remove(view), queue.size]).toEqual([true, false, 0]);
  });

  it('sees saturation by its detector', () => {
    const busy = cluster([
      instance(0, { queueDepth: 4, inFlight: 30 }),
      instance(1, { used: 400, inFlight: 10 }),
    ]);
    expect(make().saturation(busy)).toBe(0);
    // (4 / 5 + 0.4 / 0.8) / 2
    expect(make({ detector: 'utilization' }).saturation(busy)).toBeCloseTo(0.65, 12);
    expect(make({ detector: 'concurrency', maxConcurrency: 50 }).saturation(busy)).toBe(0.4);
    expect(make({ detector: 'concurrency' }).saturation(cluster([]))).toBe(1);
    const filled = cluster([
      instance(0, { inFlight: 50, inFlightTokens: 500_000 }),
      instance(1, { inFlight: 10, inFlightTokens: 100_000 }),
    ]);
    const kind = (concurrencyKind: string, more = {}): number =>
      make({ detector: 'concurrency', concurrencyKind, ...more }).saturation(filled);
    // 60 of 200 requests, 600000 of 2000000 tokens
    expect([kind('requests'), kind('tokens'), kind('hybrid')]).toEqual([0.3, 0.3, 0.3]);
    expect([
      kind('tokens', { maxTokenConcurrency: 600_000 }),
      kind('requests', { maxConcurrency: 300 }),
    ]).toEqual([0.5, 0.1]);
    expect(kind('hybrid', { maxTokenConcurrency: 600_000 })).toBe(0.5);
    expect(kind('hybrid', { maxConcurrency: 40 })).toBe(0.75);
    expect(() => make({ detector: 'utilisation' })).toThrow(/gateway\.detector.*utilization/);
  });

  it('goes on from a snapshot, with the requests that it is given back', () => {
    const { queue } = make({ fairness: 'round-robin' });
    const views = ['a', 'a', 'b', 'c', 'b'].map((tenant) => enqueue(queue, 'standard', tenant).view);
    queue.dispatch(0, 0);
    const copy = make({ fairness: 'round-robin' }).queue;
    restoreState(copy, structuredClone(saveState(queue)));
    copy.adopt((n) => views.find((view) => view.number === n) ?? request());
    expect(copy.size).toBe(4);
    expect(order(copy)).toEqual(order(queue));
  });
});
