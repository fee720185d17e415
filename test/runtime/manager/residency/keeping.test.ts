import { describe, expect, it } from 'vitest';
import { Entry, JobPriority, Outcome } from '../../../../src/runtime/index.ts';
import { World } from '../world.ts';

const threeTiers = { hbm: { capacityBytes: 4 }, ddr: { capacityBytes: 4 }, nvme: { capacityBytes: 4 } };
const keyOf = (id: number): Uint32Array => Uint32Array.of(id, 1, 2, 3);

describe('a block of a running sequence is held in the tier that it is kept in', () => {
  it('below, its room above is free at once, and a load brings it back', () => {
    const world = new World(threeTiers);
    const sequence = world.compute(1, 2, 3);
    world.manager.move(keyOf(2), 1, JobPriority.SCRUB, 0);
    expect(world.manager.keepIn(sequence, 0, 3, 1, 0), 'nothing is there yet').toBe(0);
    world.settle();
    expect(world.manager.keepIn(sequence, 0, 3, 1, 0)).toBe(1);
    expect([...sequence.state.subarray(0, 3)]).toEqual([Entry.READY, Entry.MATCHED, Entry.READY]);
    expect(world.manager.inspect.usage(0).residentBytes).toBe(2);
    expect(world.manager.inspect.usage(1).heldBytes).toBe(1);
    world.manager.checkIntegrity();
    expect(world.manager.load(sequence, 0, 0, 3)).toBe(true);
    world.settle();
    expect(sequence.readyPrefix()).toBe(3);
    expect(world.manager.inspect.usage(1).heldBytes).toBe(0);
  });

  it('below, what it is held in cannot be evicted', () => {
    const world = new World(threeTiers);
    const sequence = world.compute(1);
    world.manager.move(keyOf(1), 1, JobPriority.SCRUB, 0);
    world.settle();
    world.manager.keepIn(sequence, 0, 1, 1, 0);
    expect(world.manager.evict(1, 1, 0)).toMatchObject({ evicted: 0, blockers: [sequence.id] });
    world.manager.release(sequence, 0);
    expect(world.manager.evict(1, 1, 0).evicted).toBe(1);
  });

  it('below, other holders above go on reading it there', () => {
    const world = new World(threeTiers);
    const first = world.compute(1);
    const second = world.compute(1);
    world.manager.move(keyOf(1), 1, JobPriority.SCRUB, 0);
    world.settle();
    expect(world.manager.keepIn(first, 0, 1, 1, 0)).toBe(1);
    expect(second.readyPrefix()).toBe(1);
    expect(world.manager.inspect.usage(0).residentBytes).toBe(1);
    expect(world.manager.keepIn(second, 0, 1, 1, 0)).toBe(1);
    expect(world.manager.inspect.usage(0).residentBytes).toBe(0);
    world.manager.checkIntegrity();
  });

  it('above, it can be read again without a transfer of its own', () => {
    const world = new World(threeTiers);
    const sequence = world.compute(1);
    for (const position of [2, 0]) {
      world.manager.move(keyOf(1), position, JobPriority.SCRUB, 0);
      world.settle();
      expect(world.manager.keepIn(sequence, 0, 1, position, 0)).toBe(1);
    }
    expect(world.manager.loadedBlock(sequence, 0)).toBeDefined();
    expect(world.issued()).toEqual([]);
  });

  it('stays as it is where it is still written, differs from the others of its key, or is not an entry', () => {
    const world = new World(threeTiers);
    const sequence = world.manager.open(world.keys(1), 1, 0);
    world.manager.allocate(sequence, 0, 1, 0);
    expect(world.manager.keepIn(sequence, 0, 9, 0, 0)).toBe(0);
    world.manager.seal(sequence, 0, 1, world.keys(1), 0, 16, 0);
    const [seal] = world.issued();
    world.end(seal, Outcome.LOADED, 5);
    const other = world.manager.open(world.keys(1), 1, 0, 0);
    world.manager.allocate(other, 0, 1, 0);
    world.manager.seal(other, 0, 1, world.keys(1), 0, 16, 0);
    world.end(world.issued()[0], Outcome.LOADED, 6);
    world.manager.move(keyOf(1), 1, JobPriority.SCRUB, 0);
    world.settle();
    expect(world.manager.keepIn(other, 0, 1, 1, 0), 'its bytes are its own').toBe(0);
    expect(world.manager.keepIn(sequence, 0, 1, 1, 0)).toBe(1);
    expect(() => world.manager.keepIn(sequence, 0, 1, 3, 0)).toThrow(/position is 3/);
    world.manager.checkIntegrity();
  });
});

it('the end of each transfer is told once, also when it was given up before', () => {
  const world = new World({ ...threeTiers, transferDeadlineUs: 10 });
  const told: unknown[] = [];
  world.manager.listen({ moved: (position, key, outcome) => told.push([position, key[0], outcome]) });
  world.cache(1);
  world.manager.move(keyOf(1), 1, JobPriority.SCRUB, 0);
  world.settle();
  world.manager.move(keyOf(1), 2, JobPriority.SCRUB, 0);
  const [late] = world.issued();
  world.now = 11;
  expect(world.manager.tick(11)).toBe(1);
  world.end(late);
  expect(told).toEqual([
    [1, 1, Outcome.LOADED],
    [2, 1, Outcome.TIMED_OUT],
  ]);
});

it('a move to a tier that has the block gives up the copies above that no sequence holds', () => {
  const world = new World(threeTiers);
  world.cache(1);
  world.manager.move(keyOf(1), 1, JobPriority.SCRUB, 0);
  world.settle();
  world.manager.move(keyOf(1), 0, JobPriority.SCRUB, 0);
  world.settle();
  expect(world.manager.inspect.usage(0).residentBytes).toBe(1);
  expect(world.manager.move(keyOf(1), 1, JobPriority.SCRUB, 0)).toBe('there');
  expect(world.manager.inspect.usage(0).residentBytes).toBe(0);
  expect(world.manager.inspect.usage(1).residentBytes).toBe(1);
});
