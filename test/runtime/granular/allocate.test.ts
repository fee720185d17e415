import { describe, expect, it } from 'vitest';
import { Granularity } from '../../../src/runtime/geometry/box.ts';
import { Tier } from '../../../src/runtime/index.ts';
import type { KVBlockDescriptor } from '../../../src/views/kvBlockDescriptor.ts';
import { allLayers, blockBytes, PoolWorld } from './poolWorld.ts';

const ask = { sequenceId: 's', requestId: 'r', layerIds: allLayers };
const ranges = (blocks: readonly KVBlockDescriptor[]): unknown[] => blocks.map((block) => block.tokenRange);

describe('an allocation', () => {
  it('gives as many blocks as its granularity says, over the tokens asked for', () => {
    const { pool } = new PoolWorld();
    const blocks = pool.allocate({ ...ask, numTokens: 10 });
    expect(ranges(blocks)).toEqual([
      [0, 4],
      [4, 8],
      [8, 10],
    ]);
    expect(blocks.map((block) => block.sizeBytes)).toEqual([blockBytes, blockBytes, blockBytes / 2]);
    const tokens = pool.allocate({ ...ask, numTokens: 3, granularity: Granularity.TOKEN });
    expect(ranges(tokens), 'a token block has one token, not a block of them').toEqual([
      [0, 1],
      [1, 2],
      [2, 3],
    ]);
    const layer = pool.allocate({ ...ask, numTokens: 9, layerIds: [1, 3], granularity: Granularity.LAYER });
    expect(layer).toHaveLength(1);
    expect(layer[0]).toMatchObject({ layerIds: [1, 3], headIds: [0, 1], tokenRange: [0, 9] });
    expect(layer[0].units).toHaveLength(2 * 3);
    const heads = { numTokens: 4, layerIds: [2, 3], headIds: [1], granularity: Granularity.HEAD };
    const head = pool.allocate({ ...ask, ...heads });
    expect(head).toHaveLength(1);
    expect(head[0].sizeBytes).toBe(2 * 1 * 4 * 2 * 16);
    pool.checkIntegrity();
  });

  it('gives every unit a place of its own, and takes places again that were let go', () => {
    const { pool } = new PoolWorld();
    const all = [
      ...pool.allocate({ ...ask, numTokens: 40 }),
      ...pool.allocate({ ...ask, numTokens: 7, granularity: Granularity.TOKEN }),
      ...pool.allocate({ ...ask, numTokens: 40, granularity: Granularity.HEAD }),
    ];
    const spans = all.flatMap((block) =>
      block.places.map((place) => {
        if (place === undefined) throw new Error('a fresh block has a place');
        const bytes = pool.manager.config.unitBytes[place.sizeClass];
        return { from: place.offset, to: place.offset + bytes };
      }),
    );
    spans.sort((a, b) => a.from - b.from);
    for (let i = 1; i < spans.length; i++) expect(spans[i].from).toBeGreaterThanOrEqual(spans[i - 1].to);
    const used = pool.getTierUsage(Tier.HBM).usedBytes;
    pool.deallocate(all);
    expect(pool.getTierUsage(Tier.HBM).usedBytes).toBe(0);
    const again = pool.allocate({ ...ask, numTokens: 40 });
    expect(again[0].places[0]?.generation, 'the same slot, used once more').toBeGreaterThan(1);
    expect(used).toBeGreaterThan(0);
    pool.checkIntegrity();
  });

  it('goes on where the last one ended, in the rest of its last block first', () => {
    const { pool } = new PoolWorld();
    const [first] = pool.allocate({ ...ask, numTokens: 3 });
    const more = pool.allocate({ ...ask, numTokens: 6 });
    expect(ranges(more)).toEqual([
      [0, 4],
      [4, 8],
      [8, 9],
    ]);
    expect(more[0]).toBe(first);
    const [head] = pool.allocate({ ...ask, numTokens: 3, granularity: Granularity.HEAD });
    const [grown] = pool.allocate({ ...ask, numTokens: 6, granularity: Granularity.HEAD });
    expect(grown).toBe(head);
    expect(grown.tokenRange).toEqual([0, 9]);
    pool.checkIntegrity();
  });

  it('that finds no room leaves nothing behind, and one that finds it does not throw', () => {
    const { pool } = new PoolWorld({ hbmCapacityBytes: 4 * blockBytes });
    const held = pool.allocate({ ...ask, numTokens: 8 });
    const before = JSON.stringify(pool.getStats());
    expect(() => pool.allocate({ ...ask, sequenceId: 't', numTokens: 12 })).toThrow(
      expect.objectContaining({ code: 'TKV_FULL' }),
    );
    expect(() => pool.allocate({ ...ask, sequenceId: 't', numTokens: 17 })).toThrow(
      expect.objectContaining({ code: 'TKV_CAPACITY', field: 'numTokens' }),
    );
    expect(JSON.stringify(pool.getStats())).toBe(before);
    expect(() => pool.getBlocksBySequence('t')).toThrow(/sequenceId t is not known/);
    pool.deallocate(held);
    expect(pool.allocate({ ...ask, sequenceId: 't', numTokens: 12 })).toHaveLength(3);
    pool.checkIntegrity();
  });

  it('into pages that are cut for other sizes is refused as a whole', () => {
    const { pool } = new PoolWorld({ hbmCapacityBytes: 2 * blockBytes });
    const tokens = pool.allocate({ ...ask, numTokens: 8, granularity: Granularity.TOKEN });
    pool.deallocate([tokens[1], tokens[2], tokens[5], tokens[6]]);
    expect(pool.getTierUsage(Tier.HBM).usedBytes, 'half of HBM, a bit of each page').toBe(blockBytes);
    expect(() => pool.allocate({ ...ask, sequenceId: 't', numTokens: 4 })).toThrow(
      expect.objectContaining({ code: 'TKV_FULL' }),
    );
    pool.checkIntegrity();
    expect(pool.getStats().totalBlocks).toBe(4);
    pool.deallocate([tokens[0], tokens[3]]);
    expect(pool.allocate({ ...ask, sequenceId: 't', numTokens: 4 })).toHaveLength(1);
  });
});

describe('bad input is refused with its field, and nothing changes', () => {
  const bad: readonly [string, Record<string, unknown>, RegExp][] = [
    ['no sequence', { sequenceId: '' }, /sequenceId must be text that is not empty, and it is empty/],
    ['no request', { requestId: 7 }, /requestId must be text that is not empty, and it is 7/],
    ['no tokens', { numTokens: 0 }, /numTokens is 0/],
    ['negative tokens', { numTokens: -4 }, /numTokens is -4/],
    ['half a token', { numTokens: 1.5 }, /numTokens is 1.5/],
    ['no layers', { layerIds: [] }, /layerIds must be a list/],
    ['a layer that is not there', { layerIds: [0, 4] }, /layerIds has 4.*from 0 to 3/],
    ['a layer twice', { layerIds: [1, 1], granularity: Granularity.LAYER }, /layerIds names an id twice/],
    ['some layers of a block', { layerIds: [0, 1] }, /layerIds are not all 4 layers/],
    ['some heads of a block', { headIds: [1] }, /headIds names 1 heads, but block has all/],
    ['a head that is not there', { headIds: [2], granularity: Granularity.HEAD }, /headIds has 2/],
    ['no granularity', { granularity: 9 }, /granularity is 9/],
    ['a tier that is not there', { preferredTier: Tier.REMOTE }, /preferredTier is REMOTE/],
    ['too few tokens told', { tokenIds: [1, 2] }, /tokenIds are 2, fewer than 4/],
    ['an invalid token', { tokenIds: [1, 2, 3, -4] }, /tokenIds\[3\] is -4/],
  ];
  it.each(bad)('%s', (_, change, message) => {
    const { pool } = new PoolWorld();
    expect(() => pool.allocate({ ...ask, numTokens: 4, ...change } as never)).toThrow(message);
    expect(pool.getStats()).toMatchObject({ totalAllocations: 0, totalBlocks: 0 });
    expect(pool.manager.inspect.openSequences).toBe(0);
  });

  it('unknown sequences and blocks', () => {
    const { pool } = new PoolWorld();
    const blocks = pool.allocate({ ...ask, sequenceId: 'alpha', numTokens: 8 });
    expect(() => pool.getBlocksBySequence('alpja')).toThrow(/Did you mean alpha/);
    pool.deallocate([blocks[1]]);
    expect(() => pool.deallocate(blocks)).toThrow(expect.objectContaining({ code: 'TKV_UNKNOWN_ID' }));
    expect(pool.getBlocksBySequence('alpha'), 'none of them was let go').toEqual([blocks[0]]);
    expect(() => pool.commit('beta')).toThrow(/sequenceId beta is not known/);
    expect(() => pool.truncate('alpha', -1)).toThrow(/tokens is -1/);
  });

  it('settings', () => {
    const make = (config: object) => () => new PoolWorld(config);
    expect(make({ hbmCapacityBytes: 10 })).toThrow(/hbmCapacityBytes is 10, less than one page/);
    expect(make({ blockSize: 0 })).toThrow(/blockSize is 0/);
    expect(make({ headUnit: { layers: 3, heads: 1 } })).toThrow(
      /headUnit.layers is 3, which does not divide/,
    );
    expect(make({ layerGroups: [{ first: 2, end: 9 }] })).toThrow(/layerGroups\[0\].end is 9/);
    expect(make({ granularities: [Granularity.BLOCK], defaultGranularity: Granularity.HEAD })).toThrow(
      /defaultGranularity is head, which the pool does not serve/,
    );
    expect(make({ layout: undefined })).toThrow(/layout is undefined/);
    const small = new PoolWorld({ granularities: [Granularity.BLOCK] });
    expect(() => small.pool.allocate({ ...ask, numTokens: 1, granularity: Granularity.TOKEN })).toThrow(
      /granularity is token, which this pool does not serve/,
    );
  });
});
