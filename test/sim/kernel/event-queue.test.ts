import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { horizonFromInt64, NO_HORIZON, VirtualClock } from '../../../src/sim/kernel/clock.ts';
import { EventQueue } from '../../../src/sim/kernel/eventQueue.ts';

const PRIORITIES = [0, 1, 2, 3, -2, 5, -64];

interface Plain {
  timeUs: number;
  type: number;
  sequence: number;
}

/** The order that the queue promises, by sorting. */
const before = (x: Plain, y: Plain): number =>
  x.timeUs - y.timeUs || PRIORITIES[x.type] - PRIORITIES[y.type] || x.sequence - y.sequence;

const operations = fc.array(
  fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({
        push: fc.constant(true),
        gapUs: fc.oneof(fc.nat(20), fc.nat(1_000_000), fc.constantFrom(0, 2 ** 40, 2 ** 52)),
        type: fc.nat(PRIORITIES.length - 1),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({ push: fc.constant(false), gapUs: fc.constant(0), type: fc.constant(0) }),
    },
  ),
  { maxLength: 400 },
);

describe('event queue', () => {
  it('leaves by time, then priority of the type, then order of scheduling', () => {
    fc.assert(
      fc.property(operations, (steps) => {
        const queue = new EventQueue(PRIORITIES, 4);
        const reference: Plain[] = [];
        let nowUs = 0;
        for (const step of steps) {
          if (step.push && nowUs + step.gapUs < 2 ** 53) {
            const timeUs = nowUs + step.gapUs;
            const sequence = queue.schedule(timeUs, step.type, reference.length, -1.5);
            reference.push({ timeUs, type: step.type, sequence });
          } else {
            reference.sort(before);
            const expected = reference.shift();
            expect(queue.nextTimeUs).toBe(expected?.timeUs ?? Infinity);
            expect(queue.pop()).toBe(expected !== undefined);
            if (expected === undefined) continue;
            expect([queue.timeUs, queue.type, queue.b]).toEqual([expected.timeUs, expected.type, -1.5]);
            nowUs = queue.timeUs;
          }
          expect(queue.size).toBe(reference.length);
        }
      }),
      { numRuns: 300 },
    );
  });

  it('takes events earlier than what already left the calendar', () => {
    const queue = new EventQueue([0]);
    for (let i = 0; i < 1000; i++) queue.schedule(1000 + i * 10, 0, i);
    for (let i = 0; i < 500; i++) queue.pop();
    queue.schedule(5, 0, 7777);
    queue.pop();
    expect([queue.timeUs, queue.a]).toEqual([5, 7777]);
  });

  it('forks into two queues that do not see each other', () => {
    const queue = new EventQueue(PRIORITIES);
    for (let i = 0; i < 5000; i++) queue.schedule((i * 7919) % 10007, i % PRIORITIES.length, i, i / 2);
    for (let i = 0; i < 1234; i++) queue.pop();
    const state = structuredClone(queue.snapshot());
    const fork = EventQueue.restore(state);
    const drain = (q: EventQueue): number[][] => {
      const out: number[][] = [];
      while (q.pop()) out.push([q.timeUs, q.type, q.a, q.b]);
      return out;
    };
    queue.schedule(99999, 0, 1, 1);
    fork.schedule(99999, 0, 1, 1);
    const third = queue.fork();
    const drained = drain(queue);
    expect(drained).toHaveLength(5000 - 1234 + 1);
    expect(drain(fork)).toEqual(drained);
    expect(drain(third)).toEqual(drained);
  });

  it('refuses what would break the order', () => {
    const queue = new EventQueue([0]);
    expect(() => queue.schedule(0.5, 0)).toThrow(/integer microseconds/);
    expect(() => queue.schedule(2 ** 53, 0)).toThrow(/2\^53/);
    expect(() => queue.schedule(1, 1)).toThrow(/no priority/);
    expect(() => new EventQueue([64])).toThrow(/-64/);
  });
});

describe('virtual time', () => {
  it('never goes back', () => {
    const clock = new VirtualClock();
    clock.advanceTo(10);
    clock.advanceTo(10);
    expect(() => clock.advanceTo(9)).toThrow(/back/);
    expect(() => clock.advanceTo(10.5)).toThrow();
    expect(clock.nowUs).toBe(10);
  });

  it('reads 64-bit horizons', () => {
    expect(horizonFromInt64('horizon', 2n ** 63n - 1n)).toBe(NO_HORIZON);
    expect(horizonFromInt64('horizon', 2n ** 53n - 1n)).toBe(2 ** 53 - 1);
    expect(() => horizonFromInt64('horizon', -1n)).toThrow(/horizon is -1/);
  });

  it('of equal time and priority, lower ranks leave first, and equal ranks in order of scheduling', () => {
    const queue = new EventQueue([1, 0]);
    queue.schedule(5, 0, 1, 0, 7);
    queue.schedule(5, 0, 2, 0, 3);
    queue.schedule(5, 1, 3, 0, 9);
    queue.schedule(5, 0, 4, 0, 3);
    queue.schedule(4, 0, 5, 0, 1000);
    const order: number[] = [];
    const copy = queue.fork();
    while (queue.pop()) order.push(queue.a);
    expect(order).toEqual([5, 3, 2, 4, 1]);
    while (copy.pop()) expect(copy.a).toBe(order.shift());
    expect(() => queue.schedule(1, 0, 0, 0, 1024)).toThrow(/rank/);
  });
});
