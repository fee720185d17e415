/** Which blocks other requests find, and when: never one whose KV no step has computed or is computing. */

import { describe, expect, it } from 'vitest';
import { keysOf, World } from './world.ts';

describe('whenComputed', () => {
  it('of requests with one prompt in one step the first computes it, and the others find it', () => {
    const world = new World({ publish: 'whenComputed' });
    for (const id of 'abcdefgh') world.add(id, 9, 2, { keys: keysOf([1, 2]) });
    world.add('other', 5, 1, { keys: keysOf([7]) });
    expect(world.step(), 'who waits lets others pass').toEqual({ a: [0, 9], other: [0, 5] });
    world.add('later', 9, 2, { keys: keysOf([1, 2]) });
    const planned = world.step();
    for (const id of [...'bcdefgh', 'later']) expect(planned[id]).toEqual([8, 9]);
    expect(world.scheduler.counters.hitBlocks).toBe(8 * 2);
    expect(world.scheduler.counters.openedBlocks, 'a, other, and a last block each').toBe(3 + 2 + 8);
  });

  it('a part in common is computed once, also over several steps, and the rest beside each other', () => {
    const world = new World({ publish: 'whenComputed', maxBatchedTokens: 8 });
    world.add('a', 17, 1, { keys: keysOf([1, 2, 3, 4]) });
    world.add('b', 17, 1, { keys: keysOf([1, 2, 3, 9]) });
    expect(world.step()).toEqual({ a: [0, 8] });
    expect(world.step()).toEqual({ a: [8, 16] });
    expect(world.step()).toEqual({ a: [16, 17], b: [12, 17] });
  });

  it('who waits goes on when the one that computes is called off, or gives way', () => {
    const world = new World({ publish: 'whenComputed', maxBatchedTokens: 8 });
    world.add('a', 17, 1, { keys: keysOf([1, 2, 3, 4]) });
    world.add('b', 17, 1, { keys: keysOf([1, 2, 3, 4]) });
    expect(world.step()).toEqual({ a: [0, 8] });
    world.scheduler.abort('a', world.now);
    expect(world.step()).toEqual({ b: [8, 16] });
    world.finish();
  });

  it('computes for each request where the configuration says so', () => {
    const world = new World({ publish: 'whenComputed', sharedPrefixes: 'computed' });
    world.add('a', 9, 2, { keys: keysOf([1, 2]) });
    world.add('b', 9, 2, { keys: keysOf([1, 2]) });
    expect(world.step()).toEqual({ a: [0, 9], b: [0, 9] });
  });

  it('a block whose seal has not ended is on its way: another request waits for it', () => {
    const world = new World({ publish: 'whenComputed', isInstant: false });
    world.add('a', 9, 9, { keys: keysOf([1, 2]) });
    world.step();
    world.add('b', 9, 2, { keys: keysOf([1, 2]) });
    expect(world.step()).toEqual({ a: [9, 10] });
    world.settle();
    expect(world.step()).toEqual({ a: [10, 11], b: [8, 9] });
  });
});

describe('whenPlanned', () => {
  it('a request finds what one before it computes in the same step', () => {
    const world = new World({ publish: 'whenPlanned' });
    world.add('a', 9, 2, { keys: keysOf([1, 2]) });
    world.add('b', 9, 2, { keys: keysOf([1, 2]) });
    expect(world.step()).toEqual({ a: [0, 9], b: [8, 9] });
  });

  it('a request that gives way after it was planned leaves nothing that no step computed', () => {
    const world = new World({
      publish: 'whenPlanned',
      victimRule: 'priority',
      hbmBlocks: 6,
      maxBatchedTokens: 12,
    });
    world.add('urgent', 3, 9, { priority: 0 });
    world.add('patient', 16, 9, { priority: 9, keys: keysOf([1, 2, 3, 4]) });
    world.add('third', 4, 9, { priority: 1 });
    const computed = new Set<number>();
    for (let i = 0; i < 100 && world.scheduler.size > 0; i++) {
      const planned = world.plan();
      const cached = world.manager.matchLength(keysOf([1, 2, 3, 4]).words, 4);
      const [, to] = planned.patient ?? [0, 0];
      for (let block = 0; block < Math.floor(to / 4); block++) computed.add(block);
      expect(cached).toBeLessThanOrEqual(computed.size);
      if (Object.keys(planned).length > 0) world.end();
    }
    expect(world.scheduler.size).toBe(0);
  });
});

describe('corrections of upstream', () => {
  it('D1: a fully cached prompt claims its blocks, and computes only what samples its first token', () => {
    const world = new World();
    world.add('a', 16, 1, { keys: keysOf([1, 2, 3, 4]) });
    world.step();
    world.add('b', 16, 2, { keys: keysOf([1, 2, 3, 4]) });
    expect(world.step()).toEqual({ b: [12, 16] });
    expect(world.scheduler.counters.hitBlocks).toBe(3);
    expect(world.manager.inspect.usage(0).heldBytes).toBe(4);
  });

  it('D2: of two copies of a block, the loss of one leaves the other findable', () => {
    const eviction = { policy: 'lru' };
    const world = new World({ hbmBlocks: 6, sharedPrefixes: 'computed', manager: { eviction } });
    world.add('a', 8, 1, { keys: keysOf([1, 2]) });
    world.add('b', 8, 1, { keys: keysOf([1, 2]) });
    expect(world.step()).toEqual({ a: [0, 8], b: [0, 8] });
    world.add('c', 16, 1);
    world.step();
    expect(world.manager.matchLength(keysOf([1, 2]).words, 2)).toBe(2);
  });

  it('U1: the last token takes no block, and its block is not found: its KV was never computed', () => {
    const world = new World({ hbmBlocks: 2 });
    world.add('a', 7, 2, { keys: keysOf([1, 2]) });
    world.finish();
    expect(world.outputs).toEqual({ a: 2 });
    expect(world.manager.matchLength(keysOf([1, 2]).words, 2)).toBe(2);
    world.add('b', 6, 2, { keys: keysOf([11, 12]) });
    world.finish();
    expect(world.manager.matchLength(keysOf([11, 12]).words, 2)).toBe(1);
  });

  it('U3: blocks that hold nothing findable are taken before cached ones', () => {
    const world = new World({ hbmBlocks: 4 });
    world.add('cached', 8, 1, { keys: keysOf([1, 2]) });
    world.finish();
    world.add('private', 8, 1);
    world.finish();
    world.add('again', 8, 1);
    world.finish();
    expect(world.manager.matchLength(keysOf([1, 2]).words, 2)).toBe(2);
  });

  it('D4, D12: a hit in a lower tier shortens the prefill, over all chunks', () => {
    const world = new World({ hbmBlocks: 8, ddrBlocks: 16, maxBatchedTokens: 6 });
    world.add('a', 16, 1, { keys: keysOf([1, 2, 3, 4]) });
    world.finish();
    world.manager.evict(0, 8, world.now);
    world.settle();
    world.add('b', 22, 1, { keys: keysOf([1, 2, 3, 4, 5]) });
    expect(world.step()).toEqual({ b: [16, 22] });
  });
});
