/** What a scheduler may still use, and how well the cache does, against counts made by hand. */

import { expect, it } from 'vitest';
import { kvBudget, kvMetrics } from '../../../src/runtime/index.ts';
import { keysOf, World as SchedulerWorld } from '../batching/world.ts';
import { World } from '../manager/world.ts';

it('the budget is what an owner can really take: that much fits, and one block more does not', () => {
  const world = new World({
    hbm: { capacityBytes: 10, landingBytes: 2 },
    ddr: { capacityBytes: 20 },
    owners: 3,
  });
  const { manager } = world;
  world.cache(1, 2, 3, 4);
  const held = world.compute(50, 51);
  manager.setQuota(0, 0, 3, world.now);
  const [hbm, ddr] = kvBudget(manager, 1).tiers;
  expect(hbm).toEqual({
    tier: 'hbm',
    capacityBytes: 12,
    fixedBytes: 2,
    protectedBytes: 1,
    availableBytes: 9,
    availableBlocks: 9,
    ownedBytes: 0,
    quotaBytes: null,
  });
  expect(ddr).toMatchObject({ tier: 'ddr', capacityBytes: 20, availableBytes: 20 });
  expect(kvBudget(manager, 0).tiers[0]).toMatchObject({ availableBytes: 10, ownedBytes: 6, quotaBytes: 3 });
  const other = manager.open(new Uint32Array(), 0, world.now, 0, 1);
  expect(manager.allocate(other, 0, 10, world.now)).toBe(false);
  expect(manager.allocate(other, 0, 9, world.now)).toBe(true);
  world.settle();
  expect(kvBudget(manager, 1).tiers[0].availableBytes).toBe(0);
  expect(() => kvBudget(manager, 3)).toThrow(expect.objectContaining({ field: 'owner' }));
  manager.release(held, world.now);
  manager.release(other, world.now);
});

it('metrics are rates of what happened, by tier, and 0 of nothing', () => {
  const world = new World({ hbm: { capacityBytes: 4 }, ddr: { capacityBytes: 8 }, thrashingWindowUs: 5 });
  const { manager } = world;
  expect(kvMetrics(manager)).toMatchObject({
    lookups: 0,
    hitRate: 0,
    thrashingRate: 0,
    preemptionRate: null,
  });
  world.cache(1, 2, 3, 4);
  world.cache(1, 2, 3, 4);
  world.now = 100;
  manager.evict(0, 2, world.now);
  world.settle();
  world.now = 103;
  world.cache(1, 2, 3, 4);
  const metrics = kvMetrics(manager);
  expect([metrics.lookups, metrics.hitRate]).toEqual([12, 8 / 12]);
  expect(metrics.tiers.map(({ hitRate }) => hitRate)).toEqual([6 / 12, 2 / 12]);
  expect(metrics.tiers[0]).toMatchObject({ tier: 'hbm', demotedBlocks: 2, evictedBlocks: 2 });
  expect(metrics.tiers[1]).toMatchObject({
    tier: 'ddr',
    reloadedBlocks: 2,
    writtenBytes: 2,
    readBytes: 2,
  });
  expect([metrics.migratedBytes, metrics.offloads, metrics.thrashingRate]).toEqual([4, 2, 1]);
});

it('preemptions are counted, and rated by the requests that ended', () => {
  const world = new SchedulerWorld({ hbmBlocks: 6 });
  world.add('a', 8, 8, { keys: keysOf([1, 2, 3, 4]) });
  world.add('b', 8, 8, { keys: keysOf([11, 12, 13, 14]) });
  world.finish();
  expect(kvMetrics(world.manager, world.scheduler.counters)).toMatchObject({
    preemptions: 1,
    preemptionRate: 0.5,
  });
});
