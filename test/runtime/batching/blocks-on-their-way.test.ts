/** Requests whose cached blocks lie in a lower tier: they load first, and no other request waits for that. */

import { describe, expect, it } from 'vitest';
import { Outcome } from '../../../src/runtime/index.ts';
import { keysOf, World, type WorldConfig } from './world.ts';

/** Blocks 1 to 4 have been computed and then pushed down to host memory. */
function withBlocksBelow(config: WorldConfig = {}): World {
  const world = new World({ hbmBlocks: 8, ddrBlocks: 32, isInstant: false, ...config });
  world.add('old', 16, 1, { keys: keysOf([1, 2, 3, 4]) });
  world.finish();
  const hbm = world.manager.inspect.usage(0).capacityBytes;
  world.manager.evict(0, hbm, world.now);
  world.settle();
  expect(world.manager.inspect.usage(0).residentBytes).toBe(0);
  return world;
}

describe('a request with blocks on their way', () => {
  it('waits beside the queue, lets others pass, and computes only what was not cached', () => {
    const world = withBlocksBelow();
    world.add('hit', 20, 2, { keys: keysOf([1, 2, 3, 4, 5]) });
    world.add('other', 5, 3);
    expect(world.step()).toEqual({ other: [0, 5] });
    expect([world.scheduler.loadingCount, world.scheduler.waitingCount]).toEqual([1, 1]);
    expect(world.step()).toEqual({ other: [5, 6] });
    world.settle();
    expect(world.step()).toEqual({ hit: [16, 20], other: [6, 7] });
    world.finish();
    expect(world.scheduler.counters.deferrals).toBe(1);
    expect(world.outputs).toEqual({ old: 1, hit: 2, other: 3 });
  });

  it('comes back at its old place: before later requests', () => {
    const world = withBlocksBelow({ maxSequences: 2 });
    world.add('running', 4, 9);
    world.step();
    world.add('hit', 20, 2, { keys: keysOf([1, 2, 3, 4, 5]) });
    expect(world.step()).toEqual({ running: [4, 5] });
    world.add('late', 4, 2);
    expect(world.step()).toEqual({ running: [5, 6] });
    world.settle();
    expect(Object.keys(world.step())).toEqual(['running', 'hit']);
  });

  it('keeps the part that arrived when a load fails, and computes the rest again', () => {
    const world = withBlocksBelow();
    world.add('hit', 20, 2, { keys: keysOf([1, 2, 3, 4, 5]) });
    expect(world.step()).toEqual({});
    const loads = world.issued();
    expect(loads).toHaveLength(4);
    world.endJob(loads[3]);
    world.endJob(loads[0]);
    world.endJob(loads[2], Outcome.TIMED_OUT);
    world.endJob(loads[1]);
    expect(world.step()).toEqual({ hit: [8, 20] });
    world.finish();
    expect(world.outputs).toMatchObject({ hit: 2 });
  });

  it('computes everything again when all loads fail', () => {
    const world = withBlocksBelow();
    world.add('hit', 20, 2, { keys: keysOf([1, 2, 3, 4, 5]) });
    world.step();
    for (const load of world.issued()) world.endJob(load, Outcome.REFUSED);
    expect(world.step()).toEqual({ hit: [0, 20] });
  });

  it('gives its blocks up again when running requests need the room, and still comes to its turn', () => {
    const world = withBlocksBelow({ hbmBlocks: 8 });
    world.add('running', 8, 16);
    world.step();
    world.add('hit', 20, 2, { keys: keysOf([1, 2, 3, 4, 5]) });
    for (let i = 0; i < 8; i++) world.step();
    expect([world.scheduler.loadingCount, world.scheduler.counters.yields]).toEqual([1, 0]);
    expect(world.step()).toEqual({});
    expect([world.scheduler.loadingCount, world.scheduler.counters.yields]).toEqual([0, 1]);
    world.settle();
    expect(world.step()).toEqual({ running: [16, 17] });
    world.finish();
    expect(world.outputs).toEqual({ old: 1, running: 16, hit: 2 });
    expect(world.scheduler.counters.preemptions).toBe(0);
  });

  it('two that hold blocks and need more than is left do not wait for each other for ever', () => {
    const world = withBlocksBelow({ hbmBlocks: 8, maxBatchedTokens: 4 });
    world.add('other', 16, 1, { keys: keysOf([11, 12, 13, 14]) });
    world.finish();
    world.manager.evict(0, 8, world.now);
    world.settle();
    world.add('a', 24, 4, { keys: keysOf([1, 2, 3, 21, 22, 23]) });
    world.add('b', 24, 4, { keys: keysOf([11, 12, 13, 31, 32, 33]) });
    world.step();
    expect(world.scheduler.loadingCount).toBe(2);
    world.settle();
    world.finish();
    expect(world.outputs).toMatchObject({ a: 4, b: 4 });
    expect(world.scheduler.counters.yields).toBe(1);
  });

  it('with jobs that end at once it is not deferred: their cost is for the driver to bill', () => {
    const world = new World({ hbmBlocks: 8, ddrBlocks: 32 });
    world.add('old', 16, 1, { keys: keysOf([1, 2, 3, 4]) });
    world.finish();
    world.manager.evict(0, 8, world.now);
    world.settle();
    world.add('hit', 20, 2, { keys: keysOf([1, 2, 3, 4, 5]) });
    expect(world.step()).toEqual({ hit: [16, 20] });
    expect(world.scheduler.counters.deferrals).toBe(0);
  });
});

it('a running request whose new block waits for a slot sits a step out, and the others go on', () => {
  const world = new World({ hbmBlocks: 4, ddrBlocks: 8, isInstant: false });
  world.add('old', 8, 1, { keys: keysOf([1, 2]) });
  world.finish();
  world.add('a', 4, 9);
  world.add('b', 3, 9);
  expect(world.step()).toEqual({ a: [0, 4], b: [0, 3] });
  expect(world.step()).toEqual({ b: [3, 4] });
  world.settle();
  expect(world.step()).toMatchObject({ a: [4, 5] });
  world.finish();
  expect(world.outputs).toEqual({ old: 1, a: 9, b: 9 });
});

it('a running request that lost a computed block is computed again, and never runs on without it', () => {
  const world = new World({ hbmBlocks: 3, ddrBlocks: 8, isInstant: false });
  world.add('old', 4, 1, { keys: keysOf([1]) });
  world.finish();
  world.add('a', 8, 9, { keys: keysOf([11, 12, 13]) });
  expect(world.step()).toEqual({ a: [0, 8] });
  const seals = world.issued();
  expect(seals.map(({ kind }) => kind)).toEqual(['seal', 'seal']);
  expect(world.step()).toEqual({});
  const [drain] = world.issued();
  world.endJob(seals[0], Outcome.TIMED_OUT);
  world.endJob(seals[1]);
  world.endJob(drain);
  const plan = world.scheduler.step(world.now);
  expect(plan.preempted.map(({ id }) => id)).toEqual(['a']);
  expect(plan.tokens).toBe(0);
  world.settle();
  expect(world.step()).toEqual({ a: [0, 9] });
  world.finish();
  expect(world.outputs).toEqual({ old: 1, a: 5 });
});
