import { expect, it } from 'vitest';
import { World } from './world.ts';

it('more sequences than 16 bits count hold one block, and the last one still holds it', () => {
  const world = new World({ hbm: { capacityBytes: 2 } });
  const first = world.compute(1);
  const keys = world.keys(1);
  const others = Array.from({ length: 2 ** 16 }, () => world.manager.open(keys, 1, 0));
  world.manager.checkIntegrity();
  for (const sequence of others.slice(1)) world.manager.release(sequence, 0);
  world.manager.release(first, 0);
  world.manager.checkIntegrity();
  expect(world.manager.inspect.usage(0)).toMatchObject({ heldBytes: 1, cachedBytes: 0 });
  expect(world.manager.evict(0, 1, 0).evicted).toBe(0);
  world.manager.release(others[0], 0);
  expect(world.manager.inspect.usage(0).cachedBytes).toBe(1);
});
