/**
 * What leaves a tier only because something else could take it: it is gone from there when the tier below has it, and not
 * before. A tier that refuses is not a place for demotion, and what it holds stays.
 */

import { describe, expect, it } from 'vitest';
import { JobPriority, Outcome } from '../../../../src/runtime/index.ts';
import { World } from '../world.ts';

const keyOf = (id: number): Uint32Array => Uint32Array.of(id, 1, 2, 3);
const byTier = (world: World, ...ids: number[]): (readonly number[])[] =>
  ids.map((id) => world.manager.lookup(world.keys(id), 1).byTier);

/** Blocks 1 and 2 in HBM, or in the tier at `position`. */
function twoBlocks(position: number): World {
  const world = new World({
    hbm: { capacityBytes: 2, landingBytes: 2 },
    ddr: { capacityBytes: 2, landingBytes: 2 },
    nvme: { capacityBytes: 2, landingBytes: 2 },
  });
  for (const id of [1, 2]) world.cache(id);
  for (const id of [1, 2]) if (position > 0) world.manager.move(keyOf(id), position, JobPriority.SCRUB, 0);
  world.settle();
  return world;
}

describe('an evicted block that no tier below takes', () => {
  it.each([Outcome.REFUSED, Outcome.TIMED_OUT])('is found again where it lies (outcome %i)', (outcome) => {
    const world = twoBlocks(0);
    world.manager.evict(0, 1, 0);
    const [demotion] = world.issued();
    expect(byTier(world, 1), 'on its way').toEqual([[0, 1, 0]]);
    world.end(demotion, outcome);
    expect(byTier(world, 1, 2)).toEqual([
      [1, 0, 0],
      [1, 0, 0],
    ]);
    expect(world.manager.inspect.counters).toMatchObject({ demotionsFailed: 1, takenBack: 1 });
    world.manager.evict(0, 1, 0);
    world.settle();
    expect(byTier(world, 1, 2), 'it can be evicted as before').toEqual([
      [0, 1, 0],
      [1, 0, 0],
    ]);
  });

  it('serves the requests that waited for it', () => {
    const world = twoBlocks(1);
    world.manager.evict(1, 1, 0);
    const [demotion] = world.issued();
    const sequence = world.manager.open(world.keys(1), 1, 0);
    world.manager.load(sequence, 0);
    world.end(demotion, Outcome.REFUSED);
    world.settle();
    expect(sequence.readyPrefix()).toBe(1);
  });

  it('is gone where another block has its room by now', () => {
    const world = twoBlocks(0);
    const sequence = world.manager.open(world.keys(3), 1, 0);
    world.manager.allocate(sequence, 0, 1, 0);
    const [demotion] = world.issued();
    world.end(demotion, Outcome.REFUSED);
    expect(byTier(world, 1, 2)).toEqual([
      [0, 0, 0],
      [1, 0, 0],
    ]);
    expect(world.manager.inspect.counters.takenBack).toBe(0);
  });

  it.each([Outcome.CORRUPT, Outcome.MISSING])('is gone where its bytes are (outcome %i)', (outcome) => {
    const world = twoBlocks(0);
    world.manager.evict(0, 1, 0);
    world.end(world.issued()[0], outcome);
    expect(byTier(world, 1)).toEqual([[0, 0, 0]]);
  });

  it('is gone where its tier was lost meanwhile', () => {
    const world = twoBlocks(0);
    world.manager.evict(0, 1, 0);
    const [demotion] = world.issued();
    world.manager.loseTier(0, 0);
    world.end(demotion, Outcome.REFUSED);
    expect(byTier(world, 1, 2)).toEqual([
      [0, 0, 0],
      [0, 0, 0],
    ]);
    expect(world.manager.inspect.usage(0).slots).toMatchObject({ draining: 0 });
  });
});

describe('a move without a caller', () => {
  it('takes free room alone, down and up, and asks for its copy to be read back', () => {
    const world = twoBlocks(1);
    for (const id of [3, 4]) world.cache(id);
    const before = byTier(world, 1, 2, 3, 4);
    for (const priority of [JobPriority.SCRUB, JobPriority.PREFETCH]) {
      expect(world.manager.move(keyOf(3), 1, priority, 0), 'DDR is full').toBe('full');
      expect(world.manager.move(keyOf(1), 0, priority, 0), 'HBM is full').toBe('full');
    }
    expect(world.issued()).toEqual([]);
    expect(byTier(world, 1, 2, 3, 4)).toEqual(before);
    expect(world.manager.move(keyOf(1), 2, JobPriority.SCRUB, 0)).toBe('started');
    const [job] = world.issued();
    expect(job.readBack).toBe(true);
    expect(byTier(world, 1), 'until it has arrived').toEqual([[0, 1, 0]]);
    world.end(job);
    expect(byTier(world, 1)).toEqual([[0, 0, 1]]);
  });

  it('of a caller makes room', () => {
    const world = twoBlocks(1);
    world.cache(3);
    expect(world.manager.move(keyOf(3), 1, JobPriority.WRITE_THROUGH, 0)).toBe('started');
    world.settle();
    expect(byTier(world, 3)).toEqual([[0, 1, 0]]);
    expect(world.manager.inspect.usage(2).slots.ready, 'another one went down for it').toBe(1);
  });
});

it('what a threshold sends down is read back, and stays where the tier below refuses', () => {
  const world = new World({
    hbm: { capacityBytes: 4, offload: { policy: 'threshold', share: 0.5 } },
    ddr: { capacityBytes: 8 },
  });
  const held = [1, 2, 3, 4].map((id) => world.compute(id));
  for (const sequence of held) {
    world.manager.release(sequence, 0);
    for (let jobs = world.issued(); jobs.length > 0; jobs = world.issued()) {
      for (const job of jobs) {
        expect(job.readBack).toBe(true);
        world.end(job, Outcome.REFUSED);
      }
    }
  }
  expect(byTier(world, 1, 2, 3, 4)).toEqual(Array.from({ length: 4 }, () => [1, 0]));
});

describe('a tier that has refused several blocks', () => {
  /** NVMe is full of blocks 1 and 2, and refuses since; DDR is full of the last two. */
  function refusing(more: object = {}): { world: World; next: () => number; last: () => Uint32Array } {
    const world = new World({
      hbm: { capacityBytes: 2 },
      ddr: { capacityBytes: 2, landingBytes: 8 },
      nvme: { capacityBytes: 2, landingBytes: 8 },
      ...more,
    });
    for (const id of [1, 2]) {
      world.cache(id);
      world.manager.move(keyOf(id), 2, JobPriority.SCRUB, 0);
      world.settle();
    }
    let id = 10;
    const next = (): number => {
      const sequence = world.manager.open(world.keys(++id), 1, world.now);
      world.manager.allocate(sequence, 0, 1, world.now);
      let sent = 0;
      for (let jobs = world.issued(); jobs.length > 0; jobs = world.issued()) {
        for (const job of jobs) {
          const isNvme = job.target.tier === 2;
          if (isNvme) sent++;
          world.end(job, isNvme ? Outcome.REFUSED : Outcome.LOADED);
        }
      }
      world.manager.seal(sequence, 0, 1, world.keys(id), 0, 16, world.now);
      for (const job of world.issued()) world.end(job);
      world.manager.release(sequence, world.now);
      return sent;
    };
    return { world, next, last: () => keyOf(id) };
  }

  it('is sent no more, but one at times, and keeps what it holds', () => {
    const { world, next, last } = refusing();
    const sent = Array.from({ length: 30 }, next);
    expect(sent.reduce((a, b) => a + b, 0)).toBe(4);
    const kept = world.manager.inspect.usage(2).slots.ready;
    for (const waitUs of [250_000, 500_000, 1_000_000]) {
      world.now += waitUs - 1;
      expect(next(), 'not yet').toBe(0);
      world.now += 1;
      expect(next(), `after ${waitUs} us`).toBe(1);
      expect(next()).toBe(0);
    }
    expect(world.manager.inspect.usage(2).slots.ready).toBeGreaterThanOrEqual(kept - 3);
    expect(world.manager.move(last(), 2, JobPriority.SCRUB, world.now)).toBe('full');
    // a save is asked for: it is tried, and tells that the tier takes blocks again
    expect(world.manager.save(last(), 2, true, world.now)).toBe('started');
    world.settle();
    expect(next(), 'from then on').toBe(1);
  });

  it('is passed by for the next one below', () => {
    const { world, next } = refusing({ remote: { capacityBytes: 100 } });
    for (let i = 0; i < 30; i++) next();
    expect(world.manager.inspect.usage(3).slots.ready).toBeGreaterThan(15);
  });
});
