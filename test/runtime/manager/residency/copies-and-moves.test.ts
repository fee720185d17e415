import { describe, expect, it } from 'vitest';
import { Entry, JobPriority, Outcome, Tier } from '../../../../src/runtime/index.ts';
import { World } from '../world.ts';

const threeTiers = { hbm: { capacityBytes: 4 }, ddr: { capacityBytes: 4 }, nvme: { capacityBytes: 4 } };
const keyOf = (id: number): Uint32Array => Uint32Array.of(id, 1, 2, 3);

describe('a copy', () => {
  it('of a block that is still written is a private, open block of the other sequence', () => {
    const world = new World();
    const parent = world.manager.open(world.keys(1), 1, 0);
    world.manager.allocate(parent, 0, 1, 0);
    const child = world.manager.open(world.keys(1), 1, 0);
    expect(world.manager.copy(parent, 0, child, 0, 0)).toBe(true);
    const [copy] = world.issued();
    expect(copy).toMatchObject({ kind: 'copy', unsealed: true });
    expect(copy.source?.tier).toBe(Tier.HBM);
    world.manager.release(parent, 0);
    expect(world.manager.inspect.usage(0).slots.draining, 'the source stays until it was copied').toBe(1);
    world.end(copy);
    expect(child.state[0]).toBe(Entry.OPEN);
    expect(world.manager.openBlock(child, 0)?.slot).toBe(copy.target.slot);
    expect(world.manager.inspect.usage(0).slots).toMatchObject({ draining: 0, open: 1 });
  });

  it('replaces a sealed block by a private one in the same place, and leaves the sealed one to others', () => {
    const world = new World();
    const sequence = world.compute(1, 2);
    const before = world.manager.loadedBlock(sequence, 1)?.slot;
    expect(world.manager.copy(sequence, 1, sequence, 1, 0)).toBe(true);
    world.settle();
    expect(sequence.state[1]).toBe(Entry.OPEN);
    expect(world.manager.openBlock(sequence, 1)?.slot).not.toBe(before);
    expect(world.manager.matchLength(world.keys(1, 2), 2)).toBe(2);
  });

  it('that fails leaves its block to be computed', () => {
    const world = new World();
    const sequence = world.compute(1);
    world.manager.copy(sequence, 0, sequence, 1, 0);
    world.end(world.issued()[0], Outcome.REFUSED);
    expect(sequence.state[1]).toBe(Entry.FAILED);
    expect(world.manager.inspect.usage(0).slots.draining).toBe(0);
  });

  it('is refused without room or a source, or where its place is taken', () => {
    const world = new World({ hbm: { capacityBytes: 1 } });
    const sequence = world.compute(1);
    expect(world.manager.copy(sequence, 0, sequence, 1, 0)).toBe(false);
    expect(sequence.length).toBe(1);
    expect(() => world.manager.copy(sequence, 3, sequence, 1, 0)).toThrow(/block 3 is not in HBM/);
    expect(() => world.manager.copy(sequence, 0, sequence, 2, 0)).toThrow(/block 2 is not vacant/);
    world.manager.checkIntegrity();
  });
});

describe('a move', () => {
  it('takes a block between any two tiers, and gives its room above up', () => {
    const world = new World(threeTiers);
    world.cache(1);
    expect(world.manager.move(keyOf(1), 2, JobPriority.SCRUB, 0)).toBe('started');
    expect(world.manager.move(keyOf(1), 2, JobPriority.SCRUB, 0)).toBe('pending');
    world.settle();
    expect(world.manager.lookup(world.keys(1), 1).byTier).toEqual([0, 0, 1]);
    expect(world.manager.inspect.usage(0).residentBytes).toBe(0);
    expect(world.manager.move(keyOf(1), 1, JobPriority.PREFETCH, 0)).toBe('started');
    world.settle();
    expect(world.manager.lookup(world.keys(1), 1).byTier).toEqual([0, 1, 0]);
    expect(world.manager.inspect.counters.promotions[1]).toBe(1);
    expect(world.manager.move(keyOf(1), 0, JobPriority.PREFETCH, 0)).toBe('started');
    world.settle();
    expect(world.manager.lookup(world.keys(1), 1).byTier).toEqual([1, 0, 0]);
  });

  it('down of a block that a sequence holds is a copy', () => {
    const world = new World(threeTiers);
    const sequence = world.compute(1);
    expect(world.manager.move(keyOf(1), 1, JobPriority.SCRUB, 0)).toBe('started');
    world.settle();
    expect(sequence.readyPrefix()).toBe(1);
    world.manager.release(sequence, 0);
    world.manager.evict(0, 1, 0);
    expect(world.issued(), 'its copy lies below already').toEqual([]);
    expect(world.manager.lookup(world.keys(1), 1).byTier).toEqual([0, 1, 0]);
  });

  it('says what there is not: the block, or room', () => {
    const world = new World({ hbm: { capacityBytes: 2 }, ddr: { capacityBytes: 1 } });
    expect(world.manager.move(keyOf(9), 1, JobPriority.SCRUB, 0)).toBe('absent');
    world.cache(1);
    expect(world.manager.move(keyOf(1), 0, JobPriority.SCRUB, 0)).toBe('there');
    world.manager.move(keyOf(1), 1, JobPriority.SCRUB, 0);
    world.settle();
    const holder = world.compute(5, 6);
    expect(world.manager.move(keyOf(1), 0, JobPriority.SCRUB, 0)).toBe('full');
    world.manager.release(holder, 0);
    expect(() => world.manager.move(keyOf(1), 7, JobPriority.SCRUB, 0)).toThrow(/position is 7/);
  });
});

it('wrong bytes under a sequence that reads them fail its block, and no lookup finds them again', () => {
  const world = new World(threeTiers);
  const sequence = world.compute(1);
  world.manager.move(keyOf(1), 1, JobPriority.SCRUB, 0);
  world.end(world.issued()[0], Outcome.CORRUPT);
  expect(sequence.state[0]).toBe(Entry.FAILED);
  expect(sequence.disturbances).toBe(1);
  expect(world.manager.matchLength(world.keys(1), 1)).toBe(0);
});

it('an owner has the bytes of its blocks in each tier, wherever they go', () => {
  const world = new World({ ...threeTiers, owners: 2 });
  const keys = world.keys(1, 2);
  const sequence = world.manager.open(keys, 2, 0, 2, 1);
  world.manager.allocate(sequence, 0, 2, 0);
  world.manager.seal(sequence, 0, 2, keys, 0, 16, 0);
  world.settle();
  const owned = (owner: number): number[] =>
    [0, 1, 2].map((tier) => world.manager.inspect.ownedBytes(owner, tier));
  expect(owned(1)).toEqual([2, 0, 0]);
  world.manager.release(sequence, 0);
  world.manager.evict(0, 1, 0);
  world.settle();
  expect(owned(1)).toEqual([1, 1, 0]);
  expect(owned(0)).toEqual([0, 0, 0]);
  expect(() => world.manager.open(keys, 2, 0, 2, 2)).toThrow(/owner is 2/);
});

it('an evicted block goes to the next tier that takes it, also past one that does not', () => {
  const world = new World({
    hbm: { capacityBytes: 2 },
    ddr: { capacityBytes: 1 },
    nvme: { capacityBytes: 4 },
    whenLowerFull: 'refuse',
  });
  world.cache(1, 2);
  world.manager.evict(0, 2, 0);
  world.settle();
  expect(world.manager.lookup(world.keys(1, 2), 2).byTier).toEqual([0, 1, 1]);
});

it('a tier that the configuration does not have is refused by name', () => {
  const world = new World(threeTiers);
  expect(world.manager.inspect.tiers).toEqual([Tier.HBM, Tier.DDR, Tier.NVME]);
  const remote = new World({ ...threeTiers, remote: { capacityBytes: 8 } });
  expect(remote.manager.inspect.tiers).toEqual([Tier.HBM, Tier.DDR, Tier.NVME, Tier.REMOTE]);
  remote.cache(1);
  for (let tier = 0; tier < 3; tier++) {
    remote.manager.evict(tier, 1, 0);
    remote.settle();
  }
  expect(remote.manager.lookup(remote.keys(1), 1).byTier).toEqual([0, 0, 0, 1]);
  expect(() => new World({ eviction: { policy: 'lur' } })).toThrow(
    /eviction.policy is not known.*Did you mean lru/,
  );
  expect(() => new World({ eviction: { policy: 'lru', size: 3 } })).toThrow(/takes no parameters/);
});

it('room for a large unit is made by clearing one page of small ones, not by looking at every block', () => {
  const world = new World({ unitBytes: [64, 16], hbm: { capacityBytes: 256 } });
  const ids = Array.from({ length: 16 }, (_, i) => i + 1);
  const keys = world.keys(...ids);
  const small = world.manager.open(keys, 16, 0);
  world.manager.allocate(small, 0, 16, 0, 1);
  world.manager.seal(small, 0, 16, keys, 0, 4, 0);
  world.settle();
  const holder = world.manager.open(world.keys(1), 1, 0);
  world.manager.release(small, 0);
  const large = world.manager.open(world.keys(99), 1, 0);
  expect(world.manager.allocate(large, 0, 1, 0, 0)).toBe(true);
  expect(large.state[0]).toBe(Entry.OPEN);
  expect(world.manager.inspect.usage(0).residentBytes).toBeLessThanOrEqual(256);
  expect(holder.readyPrefix()).toBe(1);
});
