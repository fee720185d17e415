/** What the manager does of a save, of a move down that fails, and of a copy that its tier could not take. */

import { describe, expect, it } from 'vitest';
import { JobPriority, Outcome } from '../../../../src/runtime/index.ts';
import { World } from '../world.ts';

const threeTiers = { hbm: { capacityBytes: 4 }, ddr: { capacityBytes: 4 }, nvme: { capacityBytes: 4 } };
const keyOf = (id: number): Uint32Array => Uint32Array.of(id, 1, 2, 3);
const byTier = (world: World, id: number): readonly number[] =>
  world.manager.lookup(world.keys(id), 1).byTier;

describe('a save', () => {
  it('copies straight from where the block lies, which stays there, held or not', () => {
    const world = new World(threeTiers);
    world.cache(1);
    const held = world.compute(2);
    expect(world.manager.inspect.unsaved(2)).toEqual(Uint32Array.of(...keyOf(2), ...keyOf(1)));
    for (const id of [1, 2]) expect(world.manager.save(keyOf(id), 2, false, 0)).toBe('started');
    expect(world.manager.save(keyOf(1), 2, false, 0)).toBe('pending');
    for (const job of world.issued()) {
      expect(job).toMatchObject({ priority: JobPriority.SAVE, source: { tier: 0 }, target: { tier: 2 } });
      world.end(job);
    }
    for (const id of [1, 2]) {
      expect(byTier(world, id)).toEqual([1, 0, 0]);
      expect(world.manager.save(keyOf(id), 2, false, 0)).toBe('there');
    }
    expect(world.manager.inspect.unsaved(2)).toHaveLength(0);
    expect(held.readyPrefix()).toBe(1);
    expect(world.manager.inspect.usage(2).slots.ready).toBe(2);
    world.manager.checkIntegrity();
  });

  it('that fails changes nothing, and can be tried again', () => {
    const world = new World(threeTiers);
    world.cache(1);
    world.manager.save(keyOf(1), 2, false, 0);
    world.end(world.issued()[0], Outcome.REFUSED);
    expect(byTier(world, 1)).toEqual([1, 0, 0]);
    expect(world.manager.save(keyOf(1), 2, false, 0)).toBe('started');
  });

  it('takes nothing from a full tier, unless it may: then one goes once the other has arrived', () => {
    const world = new World({
      hbm: { capacityBytes: 4 },
      ddr: { capacityBytes: 2, landingBytes: 1 },
    });
    for (const id of [1, 2]) {
      world.cache(id);
      world.manager.move(keyOf(id), 1, JobPriority.SCRUB, 0);
      world.settle();
    }
    for (const id of [3, 4]) world.cache(id);
    expect(world.manager.save(keyOf(3), 1, false, 0)).toBe('full');
    expect(world.manager.save(keyOf(3), 1, true, 0)).toBe('started');
    expect(world.manager.save(keyOf(4), 1, true, 0), 'one slot is free to land in').toBe('busy');
    const [job] = world.issued();
    expect([byTier(world, 1), byTier(world, 2)]).toEqual([
      [0, 1],
      [0, 1],
    ]);
    world.end(job, Outcome.REFUSED);
    expect([byTier(world, 1), byTier(world, 2)], 'a write that failed costs no block').toEqual([
      [0, 1],
      [0, 1],
    ]);
    world.manager.save(keyOf(3), 1, true, 0);
    world.end(world.issued()[0]);
    expect([byTier(world, 1), byTier(world, 2), byTier(world, 3)]).toEqual([
      [0, 0],
      [0, 1],
      [1, 0],
    ]);
    expect(world.manager.inspect.usage(1).slots.ready).toBe(2);
    world.manager.checkIntegrity();
  });
});

it('a move down that fails leaves its block where it was', () => {
  const world = new World(threeTiers);
  world.cache(1);
  expect(world.manager.move(keyOf(1), 2, JobPriority.SCRUB, 0)).toBe('started');
  expect(byTier(world, 1)).toEqual([1, 0, 0]);
  world.end(world.issued()[0], Outcome.REFUSED);
  expect(byTier(world, 1)).toEqual([1, 0, 0]);
  world.manager.move(keyOf(1), 2, JobPriority.SCRUB, 0);
  world.settle();
  expect(byTier(world, 1)).toEqual([0, 0, 1]);
  world.manager.checkIntegrity();
});

it('an eager copy that failed is made when its tier takes blocks again', () => {
  const world = new World({
    hbm: { capacityBytes: 8, offload: { policy: 'eager' } },
    ddr: { capacityBytes: 8 },
  });
  for (const id of [1, 2]) {
    world.manager.release(world.compute(id), 0);
    for (const job of world.issued()) world.end(job, Outcome.REFUSED);
  }
  expect(world.manager.inspect.usage(1).slots.ready).toBe(0);
  world.manager.release(world.compute(3), 0);
  world.settle();
  expect(world.manager.inspect.usage(1).slots.ready).toBe(3);
  world.manager.checkIntegrity();
});
