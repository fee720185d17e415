/** What is written to a lower tier, bounded by what is read from it. */

import { describe, expect, it } from 'vitest';
import { KVManager, type WriteBudgetConfig } from '../../../../src/runtime/index.ts';
import { Random } from '../../../fuzz/random.ts';
import { World } from '../world.ts';

const world = (writeBudget?: WriteBudgetConfig): World =>
  new World({
    maxJobs: 32,
    hbm: { capacityBytes: 4 },
    nvme: { capacityBytes: 8, ...(writeBudget === undefined ? {} : { writeBudget }) },
  });

/** Computes and drops `count` chains of one block that are never asked for again. */
function stream(on: World, count: number, from: number): void {
  for (let id = from; id < from + count; id++) on.cache(id);
}

describe('a write budget', () => {
  it('is off by default: everything that leaves HBM is written', () => {
    const free = world();
    stream(free, 100, 1);
    expect(free.manager.inspect.counters.writtenBytes[1]).toBe(96);
    expect(free.manager.inspect.counters.writesDeclined).toBe(0);
  });

  it('lets the tier fill once, and then writes nothing that reads have not paid for', () => {
    const bounded = world({ bytesPerByteRead: 2 });
    stream(bounded, 100, 1);
    expect(bounded.manager.inspect.counters.writtenBytes[1]).toBe(8);
    expect(bounded.manager.inspect.counters.writesDeclined).toBe(88);
    expect(bounded.manager.inspect.counters.dropped).toBe(88);

    bounded.cache(3);
    bounded.cache(4);
    expect(bounded.manager.inspect.counters.readBytes[1]).toBe(2);
    stream(bounded, 50, 1000);
    expect(bounded.manager.inspect.counters.writtenBytes[1]).toBe(8 + 4);
    bounded.manager.checkIntegrity();
  });

  it('gains with time where it is told so', () => {
    const bounded = world({ bytesPerByteRead: 0, bytesPerSecond: 3 });
    stream(bounded, 100, 1);
    expect(bounded.manager.inspect.counters.writtenBytes[1]).toBe(8);
    bounded.now += 2_000_000;
    stream(bounded, 100, 1000);
    expect(bounded.manager.inspect.counters.writtenBytes[1]).toBe(8 + 6);
  });

  it('saves up no more than the tier holds', () => {
    const bounded = world({ bytesPerByteRead: 0, bytesPerSecond: 1000 });
    bounded.now += 3_600_000_000;
    stream(bounded, 100, 1);
    expect(bounded.manager.inspect.counters.writtenBytes[1]).toBe(8);
  });

  it('holds for any traffic, and spares the disk where blocks are not used again', () => {
    for (const ratio of [0.5, 4]) {
      const random = new Random(7);
      const bounded = world({ bytesPerByteRead: ratio });
      const free = world();
      for (let request = 0; request < 400; request++) {
        const id = random.chance(0.5) ? 1 + random.below(10) : 1000 + request;
        bounded.cache(id);
        free.cache(id);
        const { writtenBytes, readBytes } = bounded.manager.inspect.counters;
        expect(writtenBytes[1]).toBeLessThanOrEqual(8 + ratio * readBytes[1]);
      }
      expect(bounded.manager.inspect.counters.readBytes[1]).toBeGreaterThan(20);
      expect(bounded.manager.inspect.counters.writtenBytes[1]).toBeLessThan(
        free.manager.inspect.counters.writtenBytes[1],
      );
    }
  });

  it('names the setting that is wrong', () => {
    const make = (writeBudget: WriteBudgetConfig): KVManager =>
      new KVManager({
        unitBytes: [1],
        hbm: { capacityBytes: 4 },
        nvme: { capacityBytes: 4, writeBudget },
      });
    expect(() => make({ bytesPerByteRead: -1 })).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG', field: 'nvme.writeBudget.bytesPerByteRead' }),
    );
    expect(() => make({ bytesPerByteRead: 1, bytesPerSecond: Number.NaN })).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG', field: 'nvme.writeBudget.bytesPerSecond' }),
    );
  });
});
