import { describe, expect, it } from 'vitest';
import { BlockMoves, CachedMigration } from '../../../src/embed/kvMigrator.ts';
import { Granularity } from '../../../src/runtime/geometry/box.ts';
import { Tier, TierKVError } from '../../../src/runtime/index.ts';
import type { KVBlockDescriptor } from '../../../src/views/kvBlockDescriptor.ts';
import { Random } from '../../fuzz/random.ts';
import { allLayers, blockBytes, PoolWorld } from './poolWorld.ts';

/** Blocks of HBM: enough that a page left half empty by each size is below the share that is tested. */
const HBM_BLOCKS = 200;

interface Ask {
  readonly granularity: Granularity;
  readonly layerIds: readonly number[];
  readonly headIds?: readonly number[];
}

const asks: readonly Ask[] = [
  { granularity: Granularity.BLOCK, layerIds: allLayers },
  { granularity: Granularity.TOKEN, layerIds: allLayers },
  { granularity: Granularity.LAYER, layerIds: [2] },
  { granularity: Granularity.HEAD, layerIds: [1], headIds: [1] },
];

/** Asks for random sizes until the first one that is refused, or evicts. @returns share of HBM in use */
function fill(world: PoolWorld, random: Random, kinds: readonly Ask[], keep: number): number {
  const { pool } = world;
  const held: KVBlockDescriptor[][] = [];
  for (let n = 0; ; n++) {
    if (held.length > 0 && !random.chance(keep)) {
      const [gone] = held.splice(random.below(held.length), 1);
      if (gone !== undefined) pool.deallocate(gone);
    }
    const numTokens = random.between(1, 12) * 4;
    try {
      held.push(pool.allocate({ ...random.pick(kinds), sequenceId: `s${n}`, requestId: 'r', numTokens }));
    } catch (error) {
      if (!(error instanceof TierKVError) || error.code !== 'TKV_FULL') throw error;
      break;
    }
    expect(pool.manager.inspect.counters.evictions[0]).toBe(0);
  }
  pool.checkIntegrity();
  return pool.getTierUsage(Tier.HBM).utilization;
}

describe.each([
  ['two sizes', [asks[0], asks[3]]],
  ['all four granularities', asks],
] as const)('%s in one pool', (_, kinds) => {
  it.each([1, 2, 3])(
    'fill more than 95 percent of HBM before anything is refused or evicted (seed %i)',
    (seed) => {
      const world = new PoolWorld({ hbmCapacityBytes: HBM_BLOCKS * blockBytes });
      const share = fill(world, new Random(seed), kinds, 1);
      console.log(`HBM in use before the first refusal: ${(100 * share).toFixed(1)} %`);
      expect(share).toBeGreaterThan(0.95);
    },
  );

  it('the capacity is never passed', () => {
    const world = new PoolWorld({ hbmCapacityBytes: 20 * blockBytes });
    expect(fill(world, new Random(9), kinds, 0.7)).toBeLessThanOrEqual(1);
  });
});

it.each([1, 2, 3])(
  'with room for blocks on their way no tier is ever said to be more than full (seed %i)',
  (seed) => {
    const hbmCapacityBytes = 64 * blockBytes;
    const world = new PoolWorld({ hbmCapacityBytes, landingShare: 0.25 });
    const { pool } = world;
    const { manager } = pool;
    const port = new CachedMigration(manager, new BlockMoves(manager));
    const random = new Random(seed);
    let most = 0;
    for (let n = 0; n < 120; n++) {
      try {
        const request = { ...random.pick(asks), sequenceId: `s${n}`, requestId: 'r' };
        const blocks = pool.allocate({ ...request, numTokens: random.between(1, 6) * 4 });
        if (random.between(0, 2) > 0) {
          world.write(blocks, n);
          pool.commit(request.sequenceId);
          pool.deallocate(blocks);
          world.settle();
        }
      } catch (error) {
        if (!(error instanceof TierKVError) || error.code !== 'TKV_FULL') throw error;
      }
      for (const [position, { tier }] of pool.tiers.entries()) {
        const { usedBytes, capacityBytes, utilization } = pool.getTierUsage(tier);
        expect(utilization).toBe(usedBytes / capacityBytes);
        expect(Math.max(utilization, pool.pressure(position), port.pressure(position))).toBeLessThanOrEqual(
          1,
        );
      }
      most = Math.max(most, manager.inspect.usage(0).residentBytes / manager.inspect.usage(0).capacityBytes);
    }
    expect(most, 'the control: sequences use that room').toBeGreaterThan(1);
    expect(pool.getTierUsage(Tier.HBM).capacityBytes).toBe(hbmCapacityBytes);
  },
);

it('sizes that divide no page of any other leave less than 5 % too', () => {
  const groups = [
    { first: 0, end: 3 },
    { first: 3, end: 4 },
  ];
  const world = new PoolWorld({
    hbmCapacityBytes: HBM_BLOCKS * blockBytes,
    layerGroups: groups,
    granularities: [Granularity.BLOCK, Granularity.TOKEN],
  });
  const kinds: Ask[] = [
    { granularity: Granularity.BLOCK, layerIds: [0, 1, 2] },
    { granularity: Granularity.BLOCK, layerIds: [3] },
    { granularity: Granularity.TOKEN, layerIds: allLayers },
  ];
  expect(fill(world, new Random(4), kinds, 1)).toBeGreaterThan(0.95);
});
