import { expect, it } from 'vitest';
import { World } from './world.ts';

it('a prefetch whose first block pushes its second one out of the cache ends there', () => {
  const world = new World({ hbm: { capacityBytes: 2 }, ddr: { capacityBytes: 2 } });
  world.cache(1, 2);
  world.manager.evict(0, 2, 0);
  world.settle();
  world.cache(7, 8);
  const keys = world.keys(1, 2);
  expect(world.manager.lookup(keys, 2).byTier).toEqual([0, 2]);
  expect(world.manager.prefetch(keys, 2, 0)).toBe(1);
  world.settle();
  expect(world.manager.lookup(keys, 2).byTier[0]).toBe(1);
});
