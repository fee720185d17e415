import { describe, expect, it } from 'vitest';
import { Entry, Outcome, Tier, TierKVError } from '../../../src/runtime/index.ts';
import { World } from './world.ts';

const threeTiers = { hbm: { capacityBytes: 4 }, ddr: { capacityBytes: 4 }, nvme: { capacityBytes: 4 } };

describe('lookup', () => {
  it('sees ready, pending or nothing, tier by tier, and changes nothing', () => {
    const world = new World(threeTiers);
    world.cache(1, 2, 3);
    world.manager.evict(0, 1, 0);
    expect(world.manager.lookup(world.keys(1, 2, 3, 4), 4)).toEqual({
      blocks: 3,
      byTier: [2, 1, 0],
      pending: 1,
    });
    world.settle();
    expect(world.manager.lookup(world.keys(1, 2, 3, 4), 4)).toEqual({
      blocks: 3,
      byTier: [2, 1, 0],
      pending: 0,
    });
    expect(world.manager.lookup(world.keys(9), 1)).toEqual({ blocks: 0, byTier: [0, 0, 0], pending: 0 });
    expect(world.manager.inspect.counters.hitBlocks).toBe(0);
  });

  it('does not see a block before its digest is taken', () => {
    const world = new World();
    const keys = world.keys(1);
    const sequence = world.manager.open(keys, 1, 0);
    world.manager.allocate(sequence, 0, 1, 0);
    expect(world.manager.matchLength(keys, 1)).toBe(0);
    world.manager.seal(sequence, 0, 1, keys, 0, 16, 0);
    expect(world.manager.lookup(keys, 1)).toEqual({ blocks: 1, byTier: [1], pending: 1 });
    world.settle();
    expect(world.manager.lookup(keys, 1)).toEqual({ blocks: 1, byTier: [1], pending: 0 });
  });

  it('a gap ends the match: a block whose ancestor has gone is not found, until the ancestor is back', () => {
    const world = new World();
    world.cache(1, 2, 3);
    const tail = world.manager.open(world.keys(1, 2, 3), 3, 0);
    world.manager.releaseRange(tail, 0, 2, 0);
    expect(world.manager.evict(0, 2, 0).evicted).toBe(2);
    expect(world.manager.matchLength(world.keys(1, 2, 3), 3)).toBe(0);
    expect(world.manager.lookup(world.keys(1, 2, 3), 3).blocks).toBe(0);
    world.manager.release(tail, 0);
    world.cache(1, 2);
    expect(world.manager.matchLength(world.keys(1, 2, 3), 3)).toBe(3);
  });

  it('ids that are not known to be chained are never jumped over', () => {
    const world = new World({ chainedKeys: false });
    world.cache(1, 2, 3);
    expect(world.manager.matchLength(world.keys(1, 9, 3), 3)).toBe(1);
  });
});

describe('slots and jobs', () => {
  it('hazard 8: a cancelled load keeps its slots until the driver reports that it retired', () => {
    const world = new World({ hbm: { capacityBytes: 2 }, ddr: { capacityBytes: 4 } });
    world.cache(1, 2);
    world.manager.evict(0, 2, 0);
    world.settle();
    const sequence = world.manager.open(world.keys(1, 2), 2, 0);
    world.manager.load(sequence, 0);
    const [first, second] = world.issued();
    world.manager.cancel(sequence, 0);
    world.manager.checkIntegrity();
    expect(world.manager.inspect.usage(0).slots).toMatchObject({ free: 0, draining: 2 });
    const other = world.manager.open(world.keys(7, 8), 2, 0);
    expect(world.manager.allocate(other, 0, 2, 0)).toBe(true);
    expect([...other.state.subarray(0, 2)]).toEqual([Entry.WAITING, Entry.WAITING]);
    world.end(first);
    world.end(second, Outcome.CANCELLED);
    expect([...other.state.subarray(0, 2)]).toEqual([Entry.OPEN, Entry.OPEN]);
    expect(world.manager.lookup(world.keys(1, 2), 2).byTier).toEqual([0, 2]);
  });

  it('hazard 5: a slot that is taken again has a new generation, and jobs name it', () => {
    const world = new World({ hbm: { capacityBytes: 1 }, ddr: { capacityBytes: 1 } });
    const places = [];
    for (let i = 0; i < 3; i++) {
      const sequence = world.compute(100 + i);
      places.push(world.manager.loadedBlock(sequence, 0));
      world.manager.release(sequence, 0);
    }
    expect(places.map((block) => [block?.slot, block?.generation])).toEqual([
      [0, 1],
      [0, 2],
      [0, 3],
    ]);
  });

  it('hazard 6: the source of a load is not given away before the load has ended', () => {
    const world = new World({ hbm: { capacityBytes: 4 }, ddr: { capacityBytes: 2 } });
    world.cache(1, 2);
    world.manager.evict(0, 2, 0);
    world.settle();
    expect(world.manager.prefetch(world.keys(1), 1, 0)).toBe(1);
    const [load] = world.issued();
    world.manager.evict(1, 2, 0);
    world.manager.checkIntegrity();
    expect(world.manager.inspect.usage(1).slots).toMatchObject({ free: 1, draining: 1 });
    world.end(load);
    expect(world.manager.inspect.usage(1).slots).toMatchObject({ free: 2, draining: 0 });
    expect(world.manager.matchLength(world.keys(1), 1)).toBe(1);
  });

  it('a job ends once: a second or foreign end is refused and harms nothing', () => {
    const world = new World();
    const sequence = world.manager.open(world.keys(1), 1, 0);
    world.manager.allocate(sequence, 0, 1, 0);
    world.manager.seal(sequence, 0, 1, world.keys(1), 0, 16, 0);
    const [seal] = world.issued();
    world.end(seal);
    expect(() => world.manager.complete(seal.job, Outcome.LOADED, 0)).toThrow(TierKVError);
    expect(() => world.manager.complete(12_345 as never, Outcome.LOADED, 0)).toThrow(/not in flight/);
    world.manager.checkIntegrity();
  });

  it('a deadline frees the waiter at once and the slot only when the job retires', () => {
    const world = new World({ hbm: { capacityBytes: 2 }, ddr: { capacityBytes: 2 } });
    world.cache(1);
    world.manager.evict(0, 1, 0);
    world.settle();
    const sequence = world.manager.open(world.keys(1), 1, 0);
    world.manager.load(sequence, 0);
    const [load] = world.issued();
    world.manager.setDeadline(load.job, 50);
    expect(world.manager.tick(49)).toBe(0);
    expect(world.manager.tick(50)).toBe(1);
    expect(sequence.pending).toBe(0);
    expect(sequence.state[0]).toBe(Entry.FAILED);
    expect(sequence.outcome[0]).toBe(Outcome.TIMED_OUT);
    expect(world.manager.inspect.usage(0).slots.draining).toBe(1);
    world.now = 60;
    world.end(load, Outcome.LOADED);
    expect(world.manager.inspect.usage(0).slots).toMatchObject({ draining: 0, free: 2 });
  });
});

describe('loads that fail', () => {
  const offloaded = (...ids: number[]): World => {
    const world = new World({ hbm: { capacityBytes: 8 }, ddr: { capacityBytes: 8 } });
    world.cache(...ids);
    world.manager.evict(0, ids.length, 0);
    world.settle();
    return world;
  };

  it('hazard 15: keep the part of the prefix that arrived, and the rest is computed again', () => {
    const world = offloaded(1, 2, 3);
    const sequence = world.manager.open(world.keys(1, 2, 3), 3, 0);
    world.manager.load(sequence, 0);
    const [first, second, third] = world.issued();
    world.end(third);
    world.end(second, Outcome.CORRUPT);
    world.end(first);
    expect(sequence.pending).toBe(0);
    expect(sequence.readyPrefix()).toBe(1);
    expect(sequence.firstFailed()).toBe(1);
    expect(world.manager.allocate(sequence, 1, 2, 0)).toBe(true);
    world.manager.seal(sequence, 1, 2, world.keys(2), 0, 16, 0);
    world.settle();
    expect(sequence.readyPrefix()).toBe(3);
  });

  it('hazard 12: wrong bytes are never found again', () => {
    const world = offloaded(1);
    const sequence = world.manager.open(world.keys(1), 1, 0);
    world.manager.load(sequence, 0);
    world.end(world.issued()[0], Outcome.CORRUPT);
    world.manager.release(sequence, 0);
    expect(world.manager.matchLength(world.keys(1), 1)).toBe(0);
    expect(world.manager.inspect.usage(1).residentBytes).toBe(0);
    expect(world.manager.inspect.counters.loadsFailed[Outcome.CORRUPT]).toBe(1);
  });

  it('a refused load leaves its source, which may be read another time', () => {
    const world = offloaded(1);
    const sequence = world.manager.open(world.keys(1), 1, 0);
    world.manager.load(sequence, 0);
    world.end(world.issued()[0], Outcome.REFUSED);
    world.manager.release(sequence, 0);
    expect(world.manager.lookup(world.keys(1), 1).byTier).toEqual([0, 1]);
  });

  it('a copy in a lower tier is tried before the block is computed again', () => {
    const world = new World(threeTiers);
    world.cache(1);
    world.manager.evict(0, 1, 0);
    world.settle();
    world.manager.evict(1, 1, 0);
    world.settle();
    expect(world.manager.prefetch(world.keys(1), 1, 0)).toBe(1);
    world.settle();
    world.manager.evict(0, 1, 0);
    world.settle();
    expect(world.manager.lookup(world.keys(1), 1).byTier, 'what was just used is near').toEqual([0, 1, 0]);
    world.manager.evict(1, 1, 0);
    expect(world.issued(), 'its copy lies below already').toEqual([]);
    expect(world.manager.lookup(world.keys(1), 1).byTier).toEqual([0, 0, 1]);
    const sequence = world.manager.open(world.keys(1), 1, 0);
    world.manager.load(sequence, 0);
    const [load] = world.issued();
    expect(load.source!.tier).toBe(Tier.NVME);
    world.end(load);
    expect(sequence.readyPrefix()).toBe(1);
  });

  it('hazard 13: every waiter of a failed job is told', () => {
    const world = offloaded(1);
    const a = world.manager.open(world.keys(1), 1, 0);
    const b = world.manager.open(world.keys(1), 1, 0);
    world.manager.load(a, 0);
    world.manager.load(b, 0);
    const issued = world.issued();
    expect(issued).toHaveLength(1);
    world.end(issued[0], Outcome.MISSING);
    expect([a.state[0], b.state[0]]).toEqual([Entry.FAILED, Entry.FAILED]);
  });

  it('a demotion that fails loses nothing while no other block needs the room', () => {
    const world = new World({ hbm: { capacityBytes: 2 }, ddr: { capacityBytes: 2 } });
    world.cache(1, 2);
    world.manager.evict(0, 1, 0);
    const [demotion] = world.issued();
    world.end(demotion, Outcome.REFUSED);
    expect(world.manager.matchLength(world.keys(1, 2), 2)).toBe(2);
    expect(world.manager.inspect.counters).toMatchObject({ demotionsFailed: 1, takenBack: 1 });
  });

  it('a load that waits for a demotion under way is fed by it, or fails with it', () => {
    for (const outcome of [Outcome.LOADED, Outcome.REFUSED]) {
      const world = new World({ hbm: { capacityBytes: 2, landingBytes: 2 }, ddr: { capacityBytes: 2 } });
      world.cache(1);
      world.manager.evict(0, 1, 0);
      const [demotion] = world.issued();
      const sequence = world.manager.open(world.keys(1), 1, 0);
      expect(sequence.matched).toBe(1);
      world.manager.load(sequence, 0);
      expect(world.issued()).toHaveLength(0);
      world.end(demotion, outcome);
      world.settle();
      expect(sequence.state[0]).toBe(outcome === Outcome.LOADED ? Entry.READY : Entry.FAILED);
    }
  });
});

describe('copies of one content', () => {
  it('joins a job in flight instead of starting another', () => {
    const world = new World({ hbm: { capacityBytes: 4 }, ddr: { capacityBytes: 4 } });
    world.cache(1, 2);
    world.manager.evict(0, 2, 0);
    world.settle();
    const a = world.manager.open(world.keys(1, 2), 2, 0);
    world.manager.load(a, 0);
    const b = world.manager.open(world.keys(1, 2), 2, 0);
    expect(world.issued()).toHaveLength(2);
    expect(b.pending).toBe(2);
    world.settle();
    expect([a.readyPrefix(), b.readyPrefix()]).toEqual([2, 2]);
    expect(world.manager.loadedBlock(a, 0)).toEqual(world.manager.loadedBlock(b, 0));
    expect(world.manager.inspect.counters.joined).toBe(2);
  });

  it('two copies computed side by side are one content; one of them may go', () => {
    const world = new World();
    const keys = world.keys(1);
    const [a, b] = [world.manager.open(keys, 1, 0), world.manager.open(keys, 1, 0)];
    for (const s of [a, b]) world.manager.allocate(s, 0, 1, 0);
    for (const s of [a, b]) world.manager.seal(s, 0, 1, keys, 0, 16, 0);
    world.settle();
    expect(world.manager.inspect.counters.aliases).toBe(1);
    world.manager.release(a, 0);
    expect(world.manager.evict(0, 1, 0).evicted).toBe(1);
    world.manager.checkIntegrity();
    expect(world.manager.matchLength(keys, 1)).toBe(1);
    expect(b.readyPrefix()).toBe(1);
  });

  it('a second copy with other bytes serves its own sequence and no other', () => {
    const world = new World();
    const keys = world.keys(1);
    const [a, b] = [world.manager.open(keys, 1, 0), world.manager.open(keys, 1, 0)];
    for (const s of [a, b]) world.manager.allocate(s, 0, 1, 0);
    for (const s of [a, b]) world.manager.seal(s, 0, 1, keys, 0, 16, 0);
    const [first, second] = world.issued();
    world.end(first, Outcome.LOADED, 111);
    world.end(second, Outcome.LOADED, 222);
    expect(world.manager.inspect.counters.diverged).toBe(1);
    expect([a.readyPrefix(), b.readyPrefix()]).toEqual([1, 1]);
    world.manager.release(b, 0);
    world.manager.checkIntegrity();
    expect(world.manager.inspect.usage(0).residentBytes).toBe(1);
    const c = world.manager.open(keys, 1, 0);
    expect(world.manager.loadedBlock(c, 0)).toEqual(world.manager.loadedBlock(a, 0));
  });
});

describe('room', () => {
  it('evict frees what it is asked for, or names who holds the rest', () => {
    const world = new World();
    world.cache(1, 2);
    const held = world.compute(5, 6, 7);
    expect(world.manager.evict(0, 2, 0)).toEqual({ evicted: 2, blockers: [] });
    expect(world.manager.evict(0, 1, 0)).toEqual({ evicted: 0, blockers: [held.id] });
  });

  it('the least recently used block goes first, and the tail of a prefix before its head', () => {
    const world = new World();
    world.cache(1, 2, 3);
    world.cache(7, 8);
    world.manager.evict(0, 1, 0);
    expect(world.manager.matchLength(world.keys(1, 2, 3), 3)).toBe(2);
    world.cache(1);
    world.manager.evict(0, 1, 0);
    expect(world.manager.matchLength(world.keys(1, 2, 3), 3)).toBe(1);
    expect(world.manager.matchLength(world.keys(7, 8), 2)).toBe(2);
  });

  it('hazard 31: free slots go before evictable ones', () => {
    const world = new World();
    world.cache(1, 2, 3, 4);
    const sequence = world.manager.open(world.keys(9), 1, 0);
    world.manager.allocate(sequence, 0, 1, 0);
    expect(world.manager.inspect.counters.evictions[0]).toBe(0);
    expect(world.manager.matchLength(world.keys(1, 2, 3, 4), 4)).toBe(4);
  });

  it('what can never fit is refused at once, with nothing changed', () => {
    const world = new World();
    world.cache(1, 2);
    const sequence = world.manager.open(world.keys(9), 1, 0);
    const before = JSON.stringify(world.manager.inspect.usage(0));
    expect(world.manager.allocate(sequence, 0, 9, 0)).toBe(false);
    expect(JSON.stringify(world.manager.inspect.usage(0))).toBe(before);
    expect(sequence.length).toBe(0);
    expect(world.manager.inspect.counters.refusedAllocations).toBe(1);
  });

  it('hazard 28: full tiers still take a load', () => {
    const world = new World({ hbm: { capacityBytes: 2 }, ddr: { capacityBytes: 2 }, lowerCopy: 'move' });
    world.cache(1, 2);
    world.cache(3, 4);
    expect([0, 1].map((tier) => world.manager.inspect.usage(tier).residentBytes)).toEqual([2, 2]);
    const sequence = world.manager.open(world.keys(1, 2), 2, 0);
    expect(world.manager.load(sequence, 0)).toBe(true);
    world.settle();
    expect(sequence.pending).toBe(0);
    expect(world.manager.inspect.jobsInFlight).toBe(0);
    const failed = sequence.firstFailed();
    if (failed !== -1) {
      expect(world.manager.allocate(sequence, 0, 2, 0)).toBe(true);
      world.settle();
    }
    world.manager.release(sequence, 0);
    world.settle();
  });

  it('moving up leaves no copy below, copying up leaves one', () => {
    for (const lowerCopy of ['move', 'keep'] as const) {
      const world = new World({ hbm: { capacityBytes: 4 }, ddr: { capacityBytes: 4 }, lowerCopy });
      world.cache(1, 2);
      world.manager.evict(0, 2, 0);
      world.settle();
      const sequence = world.compute(1, 2);
      world.manager.release(sequence, 0);
      world.settle();
      expect(world.manager.inspect.usage(1).residentBytes).toBe(lowerCopy === 'move' ? 0 : 2);
      const demotions = world.manager.inspect.counters.demotions[0];
      world.manager.evict(0, 2, 0);
      world.settle();
      expect(world.manager.inspect.counters.demotions[0] - demotions).toBe(lowerCopy === 'move' ? 2 : 0);
      expect(world.manager.lookup(world.keys(1, 2), 2).byTier).toEqual([0, 2]);
    }
  });
});

describe('misuse', () => {
  it('an ended sequence, a block that is not open and a clock that goes back are errors', () => {
    const world = new World();
    const sequence = world.compute(1);
    expect(() => world.manager.seal(sequence, 0, 1, world.keys(1), 0, 16, 0)).toThrow(/not open/);
    world.manager.release(sequence, 5);
    expect(() => world.manager.release(sequence, 5)).toThrow(/has ended/);
    expect(() => world.manager.open(world.keys(1), 1, 4)).toThrow(/went back from 5 to 4/);
    expect(world.manager.loadedBlock(world.manager.open(world.keys(9), 1, 5), 0)).toBeUndefined();
  });
});
