import { describe, expect, it } from 'vitest';
import { BlockMoves, CachedMigration, KVMigrator } from '../../../src/embed/kvMigrator.ts';
import { type ManagerConfig, Outcome, type Transfer } from '../../../src/runtime/index.ts';
import { LogWriter } from '../../../src/runtime/log/decisionLog.ts';
import { replayLog } from '../../../src/runtime/log/replayer.ts';
import { World } from '../manager/world.ts';

const S = 1_000_000;
const config: ManagerConfig = {
  unitBytes: [1],
  hbm: { capacityBytes: 10 },
  ddr: { capacityBytes: 10 },
  nvme: { capacityBytes: 10 },
  useHalfLifeUs: 20 * S,
};

function portOn({ manager }: World): CachedMigration {
  const moves = new BlockMoves(manager);
  manager.listen(moves.listener);
  return new CachedMigration(manager, moves);
}

/** A manager with a migrator on its cached blocks. */
function withMigrator(): { world: World; port: CachedMigration; migrator: KVMigrator<never> } {
  const world = new World(config);
  const port = portOn(world);
  return { world, port, migrator: new KVMigrator(port) as KVMigrator<never> };
}

/** The chain is asked for again: its blocks are used. */
function use(world: World, ...ids: number[]): void {
  world.manager.release(world.manager.open(world.keys(...ids), ids.length, world.now), world.now);
}

describe('cached blocks of a manager', () => {
  it('go down, the coldest first, when HBM is 90 % full; those in use and the hot ones stay', () => {
    const { world, migrator } = withMigrator();
    for (let id = 1; id <= 9; id++) {
      world.now = id * S;
      if (id < 9) world.cache(id);
    }
    const held = world.compute(9);
    for (let i = 0; i < 300; i++) {
      world.now += 0.2 * S;
      use(world, 1);
    }
    expect(migrator.tick(world.now)).toBe(1);
    world.settle();
    expect(world.manager.lookup(world.keys(1), 1).byTier, 'hot').toEqual([1, 0, 0]);
    expect(world.manager.lookup(world.keys(2), 1).byTier, 'the oldest of the others').toEqual([0, 1, 0]);
    expect(held.readyPrefix()).toBe(1);
    expect(world.manager.inspect.usage(0).residentBytes).toBe(8);
    expect(migrator.getStats()).toMatchObject({ hbmToDdr: 1, failed: 0 });
  });

  it('come up, the hottest first, when HBM is half empty', () => {
    const { world, migrator } = withMigrator();
    for (const id of [1, 2, 3]) world.cache(id);
    world.manager.evict(0, 3, 0);
    world.settle();
    for (let i = 0; i < 300; i++) {
      world.now += 0.2 * S;
      use(world, 2);
    }
    expect(world.manager.lookup(world.keys(2), 1).byTier).toEqual([0, 1, 0]);
    expect(migrator.tick(world.now)).toBe(1);
    world.settle();
    expect(world.manager.lookup(world.keys(2), 1).byTier).toEqual([1, 0, 0]);
    expect(world.manager.lookup(world.keys(1), 1).byTier).toEqual([0, 1, 0]);
    expect(migrator.getStats()).toMatchObject({ ddrToHbm: 1, total: 1 });
  });

  it('that cannot be moved are counted, with every kind of end', () => {
    const { world, migrator } = withMigrator();
    for (let id = 1; id <= 10; id++) world.cache(id);
    world.now = 90 * S;
    expect(migrator.tick(world.now)).toBe(2);
    const [first, second] = world.issued() as [Transfer, Transfer];
    world.end(first, Outcome.REFUSED);
    world.end(second);
    expect(migrator.getStats()).toMatchObject({ total: 1, failed: 1 });
    expect(migrator.underWay).toBe(0);
  });

  it('are looked at a part at a time, round the end, and never where a faster tier has them', () => {
    const { world } = withMigrator();
    for (let id = 1; id <= 6; id++) world.cache(id);
    world.manager.move(Uint32Array.of(1, 1, 2, 3), 1, 4, 0);
    world.settle();
    world.manager.move(Uint32Array.of(1, 1, 2, 3), 0, 4, 0);
    world.settle();
    expect(world.manager.inspect.cachedBlocks(1).blocks, 'HBM has it too').toEqual([]);
    const seen = new Set<number>();
    let cursor = 0;
    for (let i = 0; i < 4; i++) {
      const { blocks, nextSlot } = world.manager.inspect.cachedBlocks(0, cursor, 3);
      for (const { key } of blocks) seen.add(key[0]);
      cursor = nextSlot;
    }
    expect([...seen].sort()).toEqual([1, 2, 3, 4, 5, 6]);
    expect(cursor, 'round the end').toBe(2);
  });
});

it('a run with a migrator is repeated from its log without one, to the byte', () => {
  const log: string[] = [];
  const writer = new LogWriter(config, { log: (text) => log.push(text) });
  const world = new World(config, writer);
  const port = portOn(world);
  const migrator = new KVMigrator(port);
  for (let id = 1; id <= 60; id++) {
    world.now = id * S;
    world.cache(id % 23);
    migrator.tick(world.now);
    world.settle();
  }
  expect(migrator.getStats().total).toBeGreaterThan(5);
  writer.end();
  const text = log.join('');
  const again: string[] = [];
  const second = new LogWriter(config, { log: (piece) => again.push(piece) });
  replayLog(text.slice(0, -1).split('\n'), 'the log', second);
  second.end();
  expect(again.join('') === text).toBe(true);
});
