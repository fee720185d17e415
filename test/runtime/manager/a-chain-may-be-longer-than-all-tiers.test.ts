import { expect, it } from 'vitest';
import { World } from './world.ts';

it('a sequence that lets its head go as it grows computes more blocks than there are slots and jobs', () => {
  const world = new World({ hbm: { capacityBytes: 2 }, maxJobs: 4 });
  const ids = Array.from({ length: 20 }, (_, i) => i + 1);
  const keys = world.keys(...ids);
  const sequence = world.manager.open(keys, ids.length, 0);
  for (let i = 0; i < ids.length; i++) {
    if (i >= 2) world.manager.releaseRange(sequence, i - 2, i - 1, 0);
    expect(world.manager.allocate(sequence, i, i + 1, 0)).toBe(true);
    world.manager.seal(sequence, i, i + 1, keys, i * 4, 16, 0);
    world.settle();
  }
  world.manager.release(sequence, 0);
  world.settle();
  expect(world.manager.matchLength(keys, ids.length)).toBe(0);
  expect(world.manager.inspect.usage(0).slots).toMatchObject({ ready: 2 });
  world.cache(1, 2);
  expect(world.manager.matchLength(world.keys(1, 2, 3), 3)).toBe(2);
});
