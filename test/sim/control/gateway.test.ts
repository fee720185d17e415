import { describe, expect, it } from 'vitest';
import type { Gateway } from '../../../src/sim/control/flowControl/index.ts';
import { type FlowControl, gateways, priorityPolicies } from '../../../src/sim/control/index.ts';
import { cluster, instance, request, router, world } from './fixtures.ts';

const priorities = priorityPolicies.make({ policy: 'slo-class' }, world());
const make = (parameters: Record<string, number | string | boolean | Record<string, number>> = {}): Gateway =>
  gateways.make({ policy: 'banded', ...parameters }, world());

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

  it('slo-deadline takes the earliest due of a flow, by its own target or that of its class', () => {
    const { queue } = make({ order: 'slo-deadline', targetsUs: { standard: 500 } });
    const late = enqueue(queue, 'standard', 'a', 100).view.number; // due 600
    const none = enqueue(queue, 'other', 'a', 0).view.number;
    const own = enqueue(queue, 'standard', 'a', 100, 50).view.number; // due 150
    expect(order(queue)).toEqual([own, late, none]);
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
    copy.restore(structuredClone(queue.snapshot()));
    copy.adopt((n) => views.find((view) => view.number === n) ?? request());
    expect(copy.size).toBe(4);
    expect(order(copy)).toEqual(order(queue));
  });
});
