import { describe, expect, it } from 'vitest';
import { Granularity } from '../../../src/runtime/geometry/box.ts';
import type { KVBlockDescriptor } from '../../../src/views/kvBlockDescriptor.ts';
import { allLayers, PoolWorld } from './poolWorld.ts';

const prompt = Array.from({ length: 10 }, (_, i) => 100 + i);
const ask = { requestId: 'r', layerIds: allLayers, numTokens: 10, tokenIds: prompt };

function compute(world: PoolWorld, sequenceId: string, more: object = {}): KVBlockDescriptor[] {
  const blocks = world.pool.allocate({ ...ask, sequenceId, ...more });
  world.write(blocks, 1);
  world.pool.commit(sequenceId, prompt);
  world.settle();
  return blocks;
}

describe.each([
  ['block', Granularity.BLOCK, 2],
  ['token', Granularity.TOKEN, 10],
] as const)('%s units of equal tokens', (_, granularity, full) => {
  it('are shared: they are found, counted, and stay while one of their holders does', () => {
    const world = new PoolWorld();
    const { pool } = world;
    const first = compute(world, 'a', { granularity });
    const second = pool.allocate({ ...ask, sequenceId: 'b', granularity });
    expect(pool.getStats()).toMatchObject({
      cacheHits: full,
      cacheMisses: first.length + second.length - full,
    });
    expect(second.slice(0, full).map((b) => b.blockId)).toEqual(first.slice(0, full).map((b) => b.blockId));
    expect(first[0]).toMatchObject({ refCount: 2, isShared: true });
    expect(first[0].offset).toBe(second[0].offset);
    pool.deallocate(first);
    expect(second[0]).toMatchObject({ refCount: 1, isShared: false });
    expect(world.holds(second[0], 1)).toBe(true);
    pool.checkIntegrity();
  });

  it('are not shared with another tenant, nor where sharing is off', () => {
    for (const [config, tenant] of [
      [{}, 'other'],
      [{ enableSharing: false }, ''],
    ] as const) {
      const world = new PoolWorld(config);
      compute(world, 'a', { granularity });
      const second = world.pool.allocate({ ...ask, sequenceId: 'b', granularity, tenant });
      expect(second.every((block) => block.refCount === 1 && !block.isSealed)).toBe(true);
      expect(world.pool.queryByPrefix(prompt, 1, { granularity, tenant })).toEqual([]);
      expect(world.pool.getStats().cacheHits).toBe(0);
    }
  });
});

describe('a query by prefix', () => {
  it('finds the longest cached prefix, held or not, and changes nothing', () => {
    const world = new PoolWorld();
    const blocks = compute(world, 'a');
    const found = world.pool.queryByPrefix([...prompt.slice(0, 8), 1, 2, 3], 8);
    expect(found.map(({ tokenRange, refCount }) => [...tokenRange, refCount])).toEqual([
      [0, 4, 1],
      [4, 8, 1],
    ]);
    expect(found[0].tokenHash).toBe(blocks[0].tokenHash);
    expect(found[0].tokenHash).toMatch(/^[0-9a-f]{32}$/);
    expect(world.pool.queryByPrefix(prompt.slice(0, 8), 9), 'fewer than asked for').toEqual([]);
    expect(world.pool.queryByPrefix([1, ...prompt])).toEqual([]);
    expect(blocks[0].accessCount).toBe(1);
    world.pool.deallocate(blocks);
    expect(
      world.pool.queryByPrefix(prompt).map(({ refCount }) => refCount),
      'still cached',
    ).toEqual([0, 0]);
    expect(() => world.pool.queryByPrefix(prompt, -1)).toThrow(/minMatchLength is -1/);
  });

  it('finds heads of layers too, where all that are asked for have the tokens', () => {
    const world = new PoolWorld();
    const granularity = Granularity.HEAD;
    compute(world, 'a', { granularity, layerIds: [1, 2], headIds: [0] });
    const options = { granularity, layerIds: [2], headIds: [0] };
    expect(world.pool.queryByPrefix(prompt, 1, options)).toHaveLength(2);
    expect(world.pool.queryByPrefix(prompt, 1, { ...options, layerIds: [2, 3] })).toEqual([]);
  });
});

describe('a fork', () => {
  it('shares full units and has its own copy of the last one', () => {
    const world = new PoolWorld();
    const blocks = compute(world, 'a');
    const copies = world.pool.fork('a', 'b', 'r2', 9);
    world.settle();
    expect(copies.map((block) => block.tokenRange)).toEqual([
      [0, 4],
      [4, 8],
      [8, 9],
    ]);
    expect(copies.map((block) => block.refCount)).toEqual([2, 2, 1]);
    expect(copies[1].offset).toBe(blocks[1].offset);
    expect(copies[2].offset).not.toBe(blocks[2].offset);
    expect(world.holds(copies[2], 1)).toBe(true);
    world.pool.deallocate(blocks);
    expect(copies.every((block) => world.holds(block, 1))).toBe(true);
  });

  it('of what is not sealed, not there, or taken is refused', () => {
    const world = new PoolWorld();
    world.pool.allocate({ ...ask, sequenceId: 'raw' });
    expect(() => world.pool.fork('raw', 'b', 'r', 8)).toThrow(/not sealed.*Commit it first/);
    compute(world, 'a');
    expect(() => world.pool.fork('a', 'raw', 'r', 8)).toThrow(/forkId raw is taken/);
    expect(() => world.pool.fork('a', 'b', 'r', 11)).toThrow(/tokens is 11, and the sequence has 10/);
    world.pool.checkIntegrity();
  });
});

describe('a truncation', () => {
  it('lets the last blocks go, and what is written behind it is another content', () => {
    const world = new PoolWorld();
    compute(world, 'a');
    world.pool.truncate('a', 6);
    const kept = world.pool.getBlocksBySequence('a');
    expect(kept.map((block) => block.tokenRange)).toEqual([
      [0, 4],
      [4, 6],
    ]);
    const other = [...prompt.slice(0, 6), 7, 8];
    const [grown] = world.pool.allocate({
      ...ask,
      tokenIds: undefined,
      sequenceId: 'a',
      numTokens: 2,
    } as never);
    world.settle();
    expect(world.holds(grown, 1), 'the copy that is written on has what was there').toBe(true);
    world.write([grown], 2);
    world.pool.commit('a', other);
    world.settle();
    expect(world.holds(grown, 2)).toBe(true);
    expect(world.pool.queryByPrefix(other)).toHaveLength(2);
    const [, old] = world.pool.queryByPrefix(prompt.slice(0, 8));
    expect(old.tokenHash, 'the old block is still found by its own tokens').not.toBe(grown.tokenHash);
    expect(() => world.pool.commit('a', prompt)).toThrow(/tokenIds\[6\] is 106, but was 7 before/);
  });

  it('to nothing ends the sequence', () => {
    const world = new PoolWorld();
    compute(world, 'a');
    world.pool.truncate('a', 0);
    expect(world.pool.manager.inspect.openSequences).toBe(0);
    expect(() => world.pool.truncate('a', 0)).toThrow(/sequenceId a is not known/);
    world.pool.checkIntegrity();
  });
});

it('a block that was let go in the middle leaves the others, and letting the last ones go makes the sequence shorter', () => {
  const world = new PoolWorld();
  const blocks = compute(world, 'a');
  world.pool.deallocate([blocks[0]]);
  expect(world.holds(blocks[1], 1)).toBe(true);
  world.pool.deallocate([blocks[2]]);
  const [next] = world.pool.allocate({ requestId: 'r', layerIds: allLayers, sequenceId: 'a', numTokens: 1 });
  expect(next.tokenRange).toEqual([8, 9]);
  world.pool.deallocate([next, blocks[1]]);
  expect(world.pool.manager.inspect.openSequences).toBe(0);
  world.pool.checkIntegrity();
});

it('a tail is sealed when it is asked for, and written on in a copy', () => {
  const world = new PoolWorld();
  const blocks = compute(world, 'a');
  expect(blocks[2].isSealed).toBe(false);
  world.pool.commit('a', prompt, { tail: true });
  world.settle();
  expect(blocks[2].isSealed).toBe(true);
  const before = blocks[2].offset;
  world.pool.allocate({ requestId: 'r', layerIds: allLayers, sequenceId: 'a', numTokens: 2 });
  world.settle();
  expect(blocks[2]).toMatchObject({ isSealed: false, tokenRange: [8, 12] });
  expect(blocks[2].offset).not.toBe(before);
  expect(world.holds(blocks[2], 1)).toBe(true);
});
