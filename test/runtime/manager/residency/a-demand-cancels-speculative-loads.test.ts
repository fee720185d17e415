/**
 * Loads into HBM that no sequence asked for, a migrator's or a prefetch's, hold room only until a sequence
 * needs it.
 */

import { expect, it } from 'vitest';
import {
  Entry,
  JobPriority,
  type KVBudget,
  kvBudget,
  type ManagerConfig,
  Outcome,
  type Sequence,
} from '../../../../src/runtime/index.ts';
import { LogWriter } from '../../../../src/runtime/log/decisionLog.ts';
import { replayLog } from '../../../../src/runtime/log/replayer.ts';
import { World } from '../world.ts';

const config: ManagerConfig = { unitBytes: [1], hbm: { capacityBytes: 8 }, ddr: { capacityBytes: 20 } };
const ids = [1, 2, 3, 4, 5, 6];

/** A manager whose blocks 1 to 6 lie in DDR, and are on their way up speculatively; 11 and 12 stay there. */
function withLoads(priority: JobPriority, settings: Partial<ManagerConfig> = {}, log?: LogWriter): World {
  const world = new World({ ...config, ...settings }, log ?? null);
  for (const chain of [ids, [11], [12]]) {
    world.cache(...chain);
    world.manager.evict(0, chain.length, world.now);
    world.settle();
  }
  for (const id of ids) {
    expect(world.manager.move(Uint32Array.of(id, 1, 2, 3), 0, priority, world.now)).toBe('started');
  }
  expect(world.issued()).toHaveLength(ids.length);
  return world;
}

function begin(world: World, chain: readonly number[], owner = 0): Sequence | null {
  const { manager } = world;
  const units = chain.length;
  const sequence = manager.openIfFits(world.keys(...chain), units, world.now, units, units, 0, owner);
  if (sequence === null) return null;
  expect(manager.load(sequence, world.now)).toBe(true);
  expect(manager.allocate(sequence, sequence.matched, units, world.now)).toBe(true);
  manager.checkIntegrity();
  return sequence;
}

const states = (sequence: Sequence): number[] => Array.from(sequence.state.subarray(0, sequence.length));

it.each([['SCRUB'], ['PREFETCH']] as const)(
  'a request takes the room of loads of priority %s, the latest first, and only as many as it needs',
  (priority) => {
    const world = withLoads(JobPriority[priority]);
    const sequence = begin(world, [101, 102, 103, 104]) as Sequence;
    expect(states(sequence)).toContain(Entry.WAITING);
    world.settle();
    expect(states(sequence)).toEqual([Entry.OPEN, Entry.OPEN, Entry.OPEN, Entry.OPEN]);
    const { byTier } = world.manager.lookup(world.keys(...ids), 6);
    expect(byTier, 'the four that were begun first have arrived').toEqual([4, 2]);
    expect(world.manager.inspect.counters.loadsFailed[Outcome.CANCELLED]).toBe(2);
  },
);

it('the loads of blocks that it wants itself go on, with it', () => {
  const world = withLoads(JobPriority.SCRUB);
  const sequence = begin(world, [...ids, 101, 102]) as Sequence;
  expect(world.issued(), 'no load was made again').toEqual([]);
  world.settle();
  expect(states(sequence)).toEqual([...Array(6).fill(Entry.READY), Entry.OPEN, Entry.OPEN]);
  expect(world.manager.inspect.counters.loadsFailed[Outcome.CANCELLED]).toBe(0);
});

it('of blocks that it wants itself, none is called off for the others that it needs', () => {
  const world = withLoads(JobPriority.SCRUB);
  const sequence = begin(world, [1, 2, 101, 102, 103, 104]) as Sequence;
  world.settle();
  expect(states(sequence)).toEqual([...Array(2).fill(Entry.READY), ...Array(4).fill(Entry.OPEN)]);
  expect(world.manager.inspect.counters.loadsFailed[Outcome.CANCELLED]).toBe(2);
});

it('a load that a sequence waits for, and one that was asked for as urgent, keep their room', () => {
  const world = withLoads(JobPriority.SCRUB);
  const first = begin(world, ids) as Sequence;
  expect(begin(world, [101, 102, 103])).toBeNull();
  world.manager.release(first, world.now);
  expect(begin(world, [101, 102, 103]), 'it waits no more').not.toBeNull();
  const urgent = withLoads(JobPriority.DEMAND_LOAD);
  expect(begin(urgent, [101, 102, 103])).toBeNull();
});

it('a request that would not fit all the same calls nothing off', () => {
  const world = withLoads(JobPriority.SCRUB);
  expect(begin(world, [101, 102, 103, 104, 105, 106, 107, 108, 109])).toBeNull();
  world.settle();
  expect(world.manager.lookup(world.keys(...ids), 6).byTier).toEqual([6, 0]);
});

it('neither a prefetch nor a move takes room of another one', () => {
  const world = withLoads(JobPriority.SCRUB, { hbm: { capacityBytes: 6 } });
  expect(world.manager.prefetch(world.keys(11), 1, world.now)).toBe(0);
  expect(world.manager.move(Uint32Array.of(11, 1, 2, 3), 0, JobPriority.SCRUB, world.now)).toBe('full');
});

it('what an owner has within its quota is not called off for another one', () => {
  const world = withLoads(JobPriority.SCRUB, { owners: 2 });
  world.manager.setQuota(0, 0, 6, world.now);
  expect(begin(world, [101, 102, 103], 1)).toBeNull();
  expect(begin(world, [101, 102, 103], 0), 'its own request').not.toBeNull();
});

it('counts as room that can be had', () => {
  const world = withLoads(JobPriority.SCRUB);
  const [hbm] = (kvBudget(world.manager) as KVBudget).tiers;
  expect(hbm).toMatchObject({ availableBytes: hbm.capacityBytes });
  begin(world, ids);
  expect(kvBudget(world.manager).tiers[0].availableBytes).toBe(hbm.capacityBytes - 6);
});

it('decode, copies and computing again take that room as well', () => {
  const world = withLoads(JobPriority.SCRUB);
  const { manager } = world;
  const sequence = begin(world, [101, 102]) as Sequence;
  expect(manager.allocate(sequence, 2, 5, world.now), 'a decode').toBe(true);
  world.settle();
  expect(manager.copy(sequence, 4, sequence, 5, world.now), 'a copy').toBe(true);
  world.settle();
  expect(states(sequence)).toEqual(Array(6).fill(Entry.OPEN));

  const other = withLoads(JobPriority.SCRUB, { hbm: { capacityBytes: 6 } });
  const wanted = other.manager.open(other.keys(11, 12), 2, 0);
  expect(wanted.matched).toBe(2);
  expect(other.manager.recompute(wanted, 0, 2, 0)).toBe(true);
  other.settle();
  expect(states(wanted)).toEqual([Entry.OPEN, Entry.OPEN]);
});

it('a run in which it happens is repeated from its log, to the byte', () => {
  const log: string[] = [];
  const writer = new LogWriter(config, { log: (text) => log.push(text) });
  const world = withLoads(JobPriority.SCRUB, {}, writer);
  const sequence = begin(world, [1, 101, 102, 103, 104, 105]) as Sequence;
  world.settle();
  world.manager.release(sequence, world.now);
  world.settle();
  writer.end();
  const again: string[] = [];
  const second = new LogWriter(config, { log: (piece) => again.push(piece) });
  replayLog(log.join('').slice(0, -1).split('\n'), 'the log', second);
  second.end();
  expect(again.join('')).toBe(log.join(''));
});
