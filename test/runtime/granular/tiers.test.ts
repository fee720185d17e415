import { describe, expect, it } from 'vitest';
import type { MoveEnd } from '../../../src/embed/kvMigrator.ts';
import { KVMigrator } from '../../../src/embed/kvMigrator.ts';
import { Granularity } from '../../../src/runtime/geometry/box.ts';
import { JobPriority, Outcome, Tier } from '../../../src/runtime/index.ts';
import type { KVBlockDescriptor } from '../../../src/views/kvBlockDescriptor.ts';
import { allLayers, blockBytes, PoolWorld } from './poolWorld.ts';

const tokens = Array.from({ length: 64 }, (_, i) => i);
const head = { granularity: Granularity.HEAD };

function compute(world: PoolWorld, sequenceId: string, more: object = {}, value = 1): KVBlockDescriptor[] {
  const request = { sequenceId, requestId: 'r', layerIds: allLayers, numTokens: 8, ...more };
  const blocks = world.pool.allocate(request);
  world.write(blocks, value);
  world.pool.commit(sequenceId);
  world.settle();
  return blocks;
}

function move(
  world: PoolWorld,
  block: KVBlockDescriptor,
  to: Tier,
  priority: JobPriority = JobPriority.SCRUB,
): MoveEnd {
  const ends: MoveEnd[] = [];
  world.pool.move(block, to, priority, world.pool.nowUs, (end) => ends.push(end));
  world.settle();
  expect(ends, 'told once').toHaveLength(1);
  return ends[0];
}

describe('a block of a running sequence', () => {
  it('goes to any tier and back with its bytes, and its room above is free', () => {
    const world = new PoolWorld();
    const [block, other] = compute(world, 'a');
    for (const to of [Tier.DDR, Tier.NVME, Tier.DDR, Tier.HBM, Tier.NVME, Tier.HBM]) {
      expect(move(world, block, to).success).toBe(true);
      expect(block.tier).toBe(to);
      expect(world.holds(block, 1)).toBe(true);
      const expected = to === Tier.HBM ? 2 : 1;
      expect(world.pool.manager.inspect.usage(0).heldBytes, 'its source was given back').toBe(
        expected * blockBytes,
      );
    }
    expect(other.tier).toBe(Tier.HBM);
    expect(world.pool.getStats().totalMigrations).toBe(6);
  });

  it('may have some heads of some layers above and the rest below', () => {
    const world = new PoolWorld();
    const near = compute(world, 'a', { ...head, layerIds: [1, 2], headIds: [0] });
    const far = compute(world, 'a', { ...head, layerIds: [1, 2], headIds: [1] });
    const rest = compute(world, 'a', { ...head, layerIds: [0, 3] });
    expect(move(world, far[0], Tier.DDR).success).toBe(true);
    expect(move(world, rest[0], Tier.NVME).success).toBe(true);
    expect([near[0].tier, far[0].tier, rest[0].tier]).toEqual([Tier.HBM, Tier.DDR, Tier.NVME]);
    for (const [block] of [near, far, rest]) expect(world.holds(block, 1)).toBe(true);
    expect(move(world, rest[0], Tier.HBM, JobPriority.DEMAND_LOAD).success).toBe(true);
    expect(world.holds(rest[0], 1)).toBe(true);
  });

  it('of a sliding window beside full attention is a box of its own size and tier', () => {
    const world = new PoolWorld({
      layerGroups: [
        { first: 0, end: 3 },
        { first: 3, end: 4 },
      ],
    });
    const window = compute(world, 'a', { layerIds: [0, 1, 2] });
    const full = compute(world, 'a', { layerIds: [3] });
    expect(window[0].sizeBytes).toBe(3 * full[0].sizeBytes);
    expect(move(world, window[0], Tier.DDR).success).toBe(true);
    expect([window[0].tier, window[1].tier, full[0].tier]).toEqual([Tier.DDR, Tier.HBM, Tier.HBM]);
    world.pool.deallocate([window[0]]);
    expect(full.every((block) => world.holds(block, 1))).toBe(true);
  });

  it('that is shared goes for all who share it', () => {
    const world = new PoolWorld();
    compute(world, 'a');
    const [first] = world.pool.getBlocksBySequence('a');
    const [second] = world.pool.fork('a', 'b', 'r', 8);
    expect(move(world, first, Tier.DDR).success).toBe(true);
    expect(second.tier).toBe(Tier.DDR);
    expect(world.pool.manager.inspect.usage(0).residentBytes).toBe(blockBytes);
    expect(move(world, second, Tier.HBM, JobPriority.DEMAND_LOAD).success).toBe(true);
    expect(world.holds(first, 1) && world.holds(second, 1)).toBe(true);
  });

  it('stays where it was when its move fails, and says why', () => {
    const world = new PoolWorld();
    const [block] = compute(world, 'a');
    world.outcome = Outcome.REFUSED;
    expect(move(world, block, Tier.DDR)).toMatchObject({ success: false, reason: 'refused' });
    expect(block.tier).toBe(Tier.HBM);
    expect(world.holds(block, 1)).toBe(true);
    world.outcome = Outcome.LOADED;
    expect(move(world, block, Tier.DDR).success).toBe(true);
  });

  it('is not moved before it is sealed, into a full tier, or to a tier that is missing', () => {
    const world = new PoolWorld({ ddrCapacityBytes: blockBytes, nvmeCapacityBytes: 0 });
    const [open] = world.pool.allocate({
      sequenceId: 'o',
      requestId: 'r',
      layerIds: allLayers,
      numTokens: 4,
    });
    expect(move(world, open, Tier.DDR)).toMatchObject({ success: false, reason: 'not sealed yet' });
    const [first, second] = compute(world, 'a');
    expect(move(world, first, Tier.DDR).success).toBe(true);
    expect(move(world, second, Tier.DDR)).toMatchObject({ success: false, reason: 'full' });
    expect(() => move(world, second, Tier.NVME)).toThrow(/toTier is NVME, which this pool does not have/);
    const flat = new PoolWorld({ enableTiering: false });
    expect(flat.pool.tiers.map(({ tier }) => tier)).toEqual([Tier.HBM]);
    const [block] = compute(flat, 'a');
    expect(() => move(flat, block, Tier.DDR)).toThrow(/Switch enableTiering on/);
    flat.pool.deallocate([block]);
    expect(() => flat.pool.move(block, Tier.HBM, JobPriority.SCRUB, 0, () => {})).toThrow(
      /blockId \d+ is not known/,
    );
  });
});

it('a preferred tier is where blocks lie once they are sealed', () => {
  const world = new PoolWorld();
  const [below] = compute(world, 'a', { preferredTier: Tier.DDR });
  const [above] = compute(world, 'b');
  expect([below.tier, above.tier]).toEqual([Tier.DDR, Tier.HBM]);
  expect(world.holds(below, 1)).toBe(true);
});

it('a migrator moves the cold blocks of a full pool down and leaves the hot ones', () => {
  const world = new PoolWorld({ hbmCapacityBytes: 20 * blockBytes });
  const blocks = compute(world, 'a', { numTokens: 19 * 4 });
  const hot = blocks.slice(0, 4);
  for (let second = 1; second <= 40; second++) {
    world.pool.setClock(second * 1_000_000);
    for (const block of hot) for (let i = 0; i < 3; i++) block.updateAccess();
  }
  const migrator = new KVMigrator(world.pool);
  expect(migrator.tick(world.pool.nowUs)).toBe(3);
  world.settle();
  expect(hot.map(({ tier }) => tier)).toEqual([Tier.HBM, Tier.HBM, Tier.HBM, Tier.HBM]);
  expect(migrator.getStats()).toMatchObject({ total: 3, failed: 0, hbmToDdr: 3, bytes: 3 * blockBytes });
  expect(world.pool.getTierUsage(Tier.HBM).utilization).toBe(0.8);
  expect(blocks.every((block) => world.holds(block, 1))).toBe(true);
  world.pool.setClock(world.pool.nowUs + 1_000_000);
  expect(migrator.tick(world.pool.nowUs), 'it is not too full any more').toBe(0);
});

it('tokens told later name what was written before', () => {
  const world = new PoolWorld();
  const [block] = world.pool.allocate({ sequenceId: 'a', requestId: 'r', layerIds: allLayers, numTokens: 4 });
  world.write([block], 3);
  world.pool.commit('a', tokens.slice(0, 4));
  world.settle();
  expect(world.pool.queryByPrefix(tokens)).toHaveLength(1);
});
