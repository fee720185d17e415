/** Blocks that a lower tier holds since an earlier run. */

import { describe, expect, it } from 'vitest';
import { BlockKeys, KeyChain, KVManager, kvLayout } from '../../../../src/runtime/index.ts';
import type { AdoptedBlock } from '../../../../src/runtime/manager/loss.ts';
import { World } from '../world.ts';

const tiers = { hbm: { capacityBytes: 8 }, nvme: { capacityBytes: 8, landingBytes: 2 } };
const none = Uint32Array.of(0, 0, 0, 0);

/** The chain 1, 2, 3 ... as a store would give it back: block i in slot i. */
function chain(world: World, ids: readonly number[], from = 0): AdoptedBlock[] {
  return ids.map((id, i) => ({
    slot: from + i,
    generation: 5,
    sizeClass: 0,
    key: world.keys(id),
    parent: i === 0 ? none : world.keys(ids[i - 1]),
    digest: { lo: id, hi: 0 },
    tokens: 16,
  }));
}

function adopt(world: World, blocks: readonly AdoptedBlock[]): boolean[] {
  const taken = blocks.map((block) => world.manager.adopt(1, block, world.now));
  world.manager.checkIntegrity();
  return taken;
}

describe('adopted blocks', () => {
  it('are found, loaded with their digest, and read from their own place', () => {
    const world = new World(tiers);
    expect(adopt(world, chain(world, [1, 2, 3]))).toEqual([true, true, true]);
    const keys = world.keys(1, 2, 3);
    expect(world.manager.lookup(keys, 3)).toEqual({ blocks: 3, byTier: [0, 3], pending: 0 });
    const sequence = world.manager.open(keys, 3, world.now);
    world.manager.load(sequence, world.now);
    const loads = world.issued();
    expect(loads.map(({ source, digest }) => [source!.slot, source!.generation, digest.lo])).toEqual([
      [0, 5, 1],
      [1, 5, 2],
      [2, 5, 3],
    ]);
    for (const load of loads) world.end(load);
    expect(sequence.readyPrefix()).toBe(3);
    expect(world.manager.inspect.counters.adopted).toBe(3);
  });

  it('leave no holes in the index, in whatever order a chain comes', () => {
    for (const order of [
      [0, 1, 2, 3],
      [3, 2, 1, 0],
      [2, 0, 3, 1],
    ]) {
      const world = new World(tiers);
      const blocks = chain(world, [1, 2, 3, 4]);
      adopt(
        world,
        order.map((i) => blocks[i]),
      );
      expect(world.manager.matchLength(world.keys(1, 2, 3, 4, 5), 5)).toBe(4);
      expect(world.manager.inspect.prefixesAreWhole).toBe(true);
    }
  });

  it('of which the parent never comes are not found before it is computed', () => {
    const world = new World(tiers);
    adopt(world, chain(world, [1, 2, 3]).slice(1));
    expect(world.manager.inspect.prefixesAreWhole).toBe(false);
    expect(world.manager.matchLength(world.keys(1, 2, 3), 3)).toBe(0);
    world.cache(1);
    expect(world.manager.matchLength(world.keys(1, 2, 3), 3)).toBe(3);
    expect(world.manager.inspect.prefixesAreWhole).toBe(true);
  });

  it('are evicted in the order in which they were adopted', () => {
    const world = new World(tiers);
    adopt(world, [...chain(world, [1]), ...chain(world, [2], 4), ...chain(world, [3], 2)]);
    world.manager.evict(1, 2, world.now);
    expect([1, 2, 3].map((id) => world.manager.matchLength(world.keys(id), 1))).toEqual([0, 0, 1]);
    world.manager.checkIntegrity();
  });

  it('stay out when the tier is full, the slot is taken, the content is there, or the place does not exist', () => {
    const world = new World(tiers);
    expect(adopt(world, chain(world, [1, 2, 3, 4, 5, 6, 7, 8])).every((taken) => taken)).toBe(true);
    expect(adopt(world, chain(world, [9], 8))).toEqual([false]);

    const other = new World(tiers);
    adopt(other, chain(other, [1]));
    expect(adopt(other, chain(other, [2]))).toEqual([false]);
    expect(adopt(other, chain(other, [1], 3))).toEqual([false]);
    expect(adopt(other, chain(other, [4], 10))).toEqual([false]);
    expect(other.manager.matchLength(other.keys(1), 1)).toBe(1);
  });

  it('that stay out leave their slot a generation that a later write exceeds', () => {
    const world = new World({ hbm: { capacityBytes: 2 }, nvme: { capacityBytes: 2 } });
    expect(adopt(world, [...chain(world, [1]), ...chain(world, [1], 1)])).toEqual([true, false]);
    world.cache(2, 3);
    world.manager.evict(0, 1, world.now);
    const [write] = world.issued();
    expect(write.target).toMatchObject({ tier: 2, slot: 1, generation: 6 });
    world.end(write);
  });

  it('of several sizes cut their pages, and a page of another size keeps them out', () => {
    const manager = new KVManager({
      unitBytes: [16, 4],
      hbm: { capacityBytes: 64 },
      nvme: { capacityBytes: 64 },
    });
    const block = (slot: number, sizeClass: number, id: number): AdoptedBlock => ({
      slot,
      sizeClass,
      generation: 1,
      key: Uint32Array.of(id, 0, 0, 1),
      parent: undefined,
      digest: { lo: id, hi: id },
      tokens: 4,
    });
    const ends = [block(2, 1, 1), block(0, 1, 2), block(0, 0, 3), block(4, 0, 4), block(5, 0, 5)];
    expect(ends.map((one) => manager.adopt(1, one, 0))).toEqual([true, true, false, true, false]);
    manager.checkIntegrity();
    expect(manager.inspect.usage(1).residentBytes).toBe(4 + 4 + 16);
    manager.evict(1, 3, 1);
    manager.checkIntegrity();
    expect(manager.inspect.usage(1).slots).toMatchObject({ free: 4, ready: 0 });
  });

  it('of real chains are found under the keys of their tokens', () => {
    const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 16, dtype: 'f16', blockTokens: 16 });
    const namespace = {
      secretKey: new Uint8Array(16),
      tenant: 'a',
      epoch: 0,
      model: 'm',
      layout,
    };
    const keys = new BlockKeys();
    new KeyChain(namespace).hashBlocks(
      Uint32Array.from({ length: 64 }, (_, i) => i),
      0,
      keys,
    );
    const world = new World(tiers);
    const key = (i: number): Uint32Array => keys.words.slice(i * 4, i * 4 + 4);
    const blocks = [0, 1, 2, 3].map((i) => ({
      ...chain(world, [i + 1], i)[0],
      key: key(i),
      parent: i === 0 ? none : key(i - 1),
    }));
    adopt(world, blocks.reverse());
    expect(world.manager.matchLength(keys.words, 4)).toBe(4);
    expect(world.manager.inspect.prefixesAreWhole).toBe(true);
  });
});
