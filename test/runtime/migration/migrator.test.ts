import { describe, expect, it } from 'vitest';
import {
  BlockMoves,
  CachedMigration,
  KVMigrator,
  type MigrationPort,
  type MigrationResult,
  type MoveEnd,
} from '../../../src/embed/kvMigrator.ts';
import type { MigratableBlock } from '../../../src/embed/migrationPlan.ts';
import { JobPriority, Tier } from '../../../src/runtime/index.ts';
import { BlockUse, useRates } from '../../../src/runtime/tables/contentTable.ts';
import { SeededRandom, testSeed } from '../../../src/testing/index.ts';

const S = 1_000_000;
const NOW = 100 * S;

class Block implements MigratableBlock {
  readonly blockId: number;
  readonly sizeBytes = 1;
  readonly use: BlockUse = new BlockUse(useRates());
  tier: Tier;

  constructor(blockId: number, tier: Tier, perSecond: number, untilS = 100) {
    this.blockId = blockId;
    this.tier = tier;
    for (let i = 0; i / perSecond <= untilS; i++) this.use.used(Math.round((i / perSecond) * S));
  }
}

interface Started {
  readonly block: Block;
  readonly to: Tier;
  readonly priority: JobPriority;
  readonly ended: (end: MoveEnd) => void;
}

/** Tiers of ten blocks; moves end when the test says so. */
class Port implements MigrationPort<Block> {
  readonly tiers = [Tier.HBM, Tier.DDR, Tier.NVME].map((tier) => ({ tier, capacityBytes: 10 }));
  readonly blocks: Block[] = [];
  readonly started: Started[] = [];

  pressure(position: number): number {
    return this.candidates(position).length / 10;
  }

  candidates(position: number): Block[] {
    return this.blocks.filter(({ tier }) => tier === position);
  }

  move(block: Block, to: Tier, priority: JobPriority, _nowUs: number, ended: (end: MoveEnd) => void): void {
    this.started.push({ block, to, priority, ended });
  }

  end(success = true, nowUs: number = NOW + 5000): void {
    const next = this.started.shift();
    if (next === undefined) throw new Error('nothing has started');
    if (success) next.block.tier = next.to;
    next.ended({ success, reason: success ? '' : 'refused', nowUs });
  }

  endAll(): void {
    while (this.started.length > 0) this.end();
  }
}

/** Ten blocks in HBM: 0 to 2 hot, 3 to 5 warm, the rest cold, the later the longer. */
function fullHbm(): Port {
  const port = new Port();
  for (let id = 0; id < 3; id++) port.blocks.push(new Block(id, Tier.HBM, 3));
  for (let id = 3; id < 6; id++) port.blocks.push(new Block(id, Tier.HBM, 0.4));
  for (let id = 6; id < 10; id++) port.blocks.push(new Block(id, Tier.HBM, 0.5, 52 - 2 * id));
  return port;
}

describe('a plan', () => {
  it('for a tier at 90 % sends the coldest down until it is at 80 %, and no hot block', () => {
    const port = fullHbm();
    const plans = new KVMigrator(port).planMigration(port.blocks, { hbm: 1 }, NOW);
    expect(plans.map(({ blockId, fromTier, toTier }) => [blockId, fromTier, toTier])).toEqual([
      [9, Tier.HBM, Tier.DDR],
      [8, Tier.HBM, Tier.DDR],
    ]);
    expect(plans[0].priority).toBeGreaterThan(plans[1].priority);
    const all = new KVMigrator(port, { downTo: 0, upBelow: 0 }).planMigration(port.blocks, { hbm: 1 }, NOW);
    expect(
      all.map(({ blockId }) => blockId).sort((a, b) => a - b),
      'hot ones stay',
    ).toEqual([3, 4, 5, 6, 7, 8, 9]);
  });

  it('for a tier between 50 % and 90 % is empty', () => {
    const port = fullHbm();
    const migrator = new KVMigrator(port);
    for (const hbm of [0.5, 0.7, 0.89]) {
      expect(migrator.planMigration(port.blocks, { hbm, ddr: 0.6 }, NOW)).toEqual([]);
    }
  });

  it('for a tier under 50 % brings the hottest up, never a hot block down and never a cold one up', () => {
    const port = new Port();
    port.blocks.push(
      new Block(1, Tier.DDR, 2),
      new Block(2, Tier.DDR, 9),
      new Block(3, Tier.NVME, 4),
      new Block(4, Tier.DDR, 0.3),
      new Block(5, Tier.NVME, 0.3, 20),
      new Block(6, Tier.HBM, 5),
    );
    const plans = new KVMigrator(port).planMigration(port.blocks, { hbm: 0.2, ddr: 0.6 }, NOW);
    expect(plans.map(({ blockId, toTier }) => [blockId, toTier])).toEqual([
      [2, Tier.HBM],
      [3, Tier.HBM],
      [1, Tier.HBM],
    ]);
    expect(plans.every(({ fromTier, toTier }) => toTier < fromTier)).toBe(true);
    const tight = new KVMigrator(port).planMigration(port.blocks, { hbm: 0.4, ddr: 0.6 }, NOW);
    expect(
      tight.map(({ blockId }) => blockId),
      'up to 50 % and no further',
    ).toEqual([2]);
  });

  it('empties a full lower tier too, and passes one by that has no room', () => {
    const port = fullHbm();
    for (let id = 20; id < 30; id++) port.blocks.push(new Block(id, Tier.DDR, 0.5, 10));
    const plans = new KVMigrator(port).planMigration(port.blocks, {}, NOW);
    const to = (from: Tier): number[] => plans.filter((p) => p.fromTier === from).map((p) => p.toTier);
    expect(to(Tier.DDR)).toEqual([Tier.NVME, Tier.NVME]);
    expect(to(Tier.HBM), 'into the room that those left').toEqual([Tier.DDR, Tier.DDR]);
    const held = { hbm: 1, ddr: 1, nvme: 0.5 };
    const past = new KVMigrator(port).planMigration(port.candidates(0), held, NOW);
    expect(
      past.map(({ toTier }) => toTier),
      'nothing of DDR may move',
    ).toEqual([Tier.NVME, Tier.NVME]);
  });

  it('names what is wrong with a pressure', () => {
    const migrator = new KVMigrator(new Port());
    expect(() => migrator.planMigration([], { hmb: 0.9 } as never, NOW)).toThrow(
      /pressure.hmb must name a tier/,
    );
    expect(() => migrator.planMigration([], { hbm: -1 }, NOW)).toThrow(/pressure.hbm is -1/);
    expect(() => new KVMigrator(new Port(), { downTo: 0.95 })).toThrow(/downTo is 0.95/);
    expect(() => new KVMigrator(new Port(), { downFrom: 2 })).toThrow(/downFrom is 2/);
    const given = (field: string) => expect.objectContaining({ code: 'TKV_INPUT', field });
    expect(() => new KVMigrator(new Port(), null as never)).toThrow(given('options'));
    expect(() => new BlockMoves(null as never)).toThrow(given('manager'));
    const manager = { config: { tiers: [] }, inspect: { cachedBlocks: () => {} } };
    expect(() => new CachedMigration(manager as never, null as never)).toThrow(given('moves'));
  });
});

describe('an execution', () => {
  it('gives a result for each plan, in order, and swallows no failure', () => {
    const port = fullHbm();
    const migrator = new KVMigrator(port);
    const plans = migrator.planMigration(port.blocks, {}, NOW);
    let results: readonly MigrationResult[] = [];
    migrator.executeMigration(plans, port.blocks, NOW, (ended) => {
      results = ended;
    });
    expect(port.started).toHaveLength(2);
    port.end(false);
    expect(results).toEqual([]);
    port.end();
    expect(results).toEqual([
      { success: false, blockId: 9, fromTier: 0, toTier: 1, durationMs: 5, sizeBytes: 1, reason: 'refused' },
      { success: true, blockId: 8, fromTier: 0, toTier: 1, durationMs: 5, sizeBytes: 1, reason: '' },
    ]);
    expect(migrator.getStats()).toMatchObject({ total: 1, failed: 1, hbmToDdr: 1, ddrToHbm: 0, bytes: 1 });
  });

  it('of plans about other blocks or tiers moves nothing', () => {
    const port = fullHbm();
    const migrator = new KVMigrator(port);
    const [good] = migrator.planMigration(port.blocks, {}, NOW);
    const bad = { ...good, blockId: 77 };
    expect(() => migrator.executeMigration([good, bad], port.blocks, NOW)).toThrow(
      expect.objectContaining({ code: 'TKV_UNKNOWN_ID', field: 'plans[1].blockId' }),
    );
    const far = { ...good, toTier: Tier.REMOTE };
    expect(() => migrator.executeMigrationAsync([good, far], port.blocks, NOW)).toThrow(/plans\[1\].toTier/);
    expect(port.started).toEqual([]);
    expect(migrator.underWay).toBe(0);
  });

  it('beside compute goes in batches at the lowest priority, several at a time', () => {
    const port = fullHbm();
    const migrator = new KVMigrator(port, { downTo: 0.3, upBelow: 0.3, batchBytes: 3 });
    const plans = migrator.planMigration(port.blocks, {}, NOW);
    expect(plans).toHaveLength(7);
    migrator.executeMigrationAsync(plans, port.blocks, NOW);
    expect(port.started.map(({ priority }) => priority)).toEqual([
      JobPriority.SCRUB,
      JobPriority.SCRUB,
      JobPriority.SCRUB,
    ]);
    expect(migrator.underWay).toBe(7);
    port.end();
    expect(port.started, 'the next one takes its place').toHaveLength(3);
    port.endAll();
    expect(migrator.getStats().hbmToDdr).toBe(7);
    migrator.executeMigrationAsync([], [], NOW);
    expect(migrator.underWay).toBe(0);
  });

  it('drops a plan that is late, or whose block has gone elsewhere', () => {
    const port = fullHbm();
    const migrator = new KVMigrator(port, { downTo: 0.3, upBelow: 0.3, batchBytes: 1 });
    const plans = migrator.planMigration(port.blocks, {}, NOW).slice(0, 3);
    const results: MigrationResult[] = [];
    migrator.executeMigrationAsync(plans, port.blocks, NOW, true, (ended) => results.push(...ended));
    port.blocks[plans[1].blockId].tier = Tier.NVME;
    port.end(true, NOW + 11 * S);
    expect(results.map(({ reason }) => reason)).toEqual(['', 'its deadline passed', 'its deadline passed']);
    const again = migrator.planMigration(port.blocks, { hbm: 1 }, NOW);
    const moved: MigrationResult[] = [];
    port.blocks[again[0].blockId].tier = Tier.DDR;
    migrator.executeMigration([again[0]], port.blocks, NOW, (ended) => moved.push(...ended));
    expect(moved[0].reason).toBe('the block has left hbm');
  });
});

describe('a tick', () => {
  it('plans when a tier is too full, once in an interval, and not before the last plan is done', () => {
    const port = fullHbm();
    const migrator = new KVMigrator(port, { intervalUs: 1000 });
    expect(migrator.tick(NOW)).toBe(2);
    expect(migrator.nextTickUs).toBe(Number.POSITIVE_INFINITY);
    expect(migrator.tick(NOW + 5000), 'two are under way').toBe(0);
    port.endAll();
    expect(port.pressure(0)).toBe(0.8);
    expect(migrator.tick(NOW + 9000), 'full enough').toBe(0);
    port.blocks.push(new Block(30, Tier.HBM, 0.4), new Block(31, Tier.HBM, 0.4));
    expect(migrator.nextTickUs).toBe(NOW + 10_000);
    expect(migrator.tick(NOW + 9500), 'not yet').toBe(0);
    expect(migrator.tick(NOW + 10_000)).toBe(2);
  });

  it('brings hot blocks up into an empty tier', () => {
    const port = new Port();
    port.blocks.push(new Block(1, Tier.DDR, 4), new Block(2, Tier.DDR, 0.3));
    const migrator = new KVMigrator(port);
    expect(migrator.tick(NOW)).toBe(1);
    port.endAll();
    expect(port.blocks.map(({ tier }) => tier)).toEqual([Tier.HBM, Tier.DDR]);
    expect(migrator.getStats()).toMatchObject({ ddrToHbm: 1, hbmToDdr: 0 });
  });
});

describe('moves come to an end', () => {
  const seed = testSeed(74);

  it(`without uses and evictions a block goes up, then down, and stays (seed ${seed})`, () => {
    const random = new SeededRandom(seed);
    const arrived = { up: 0, down: 0 };
    for (let life = 0; life < 150; life++) {
      const port = new Port();
      const upBelow = 0.1 + 0.1 * random.below(7);
      const downTo = Math.min(0.95, upBelow + 0.1 * random.below(3));
      const migrator = new KVMigrator(port, {
        upBelow,
        downTo,
        downFrom: Math.min(1, downTo + 0.01 + 0.01 * random.below(20)),
        hotFrequencyThreshold: [0.01, 0.1, 1][random.below(3)],
        warmFrequencyThreshold: 0.005,
        coldTimeoutS: 1 + random.below(200),
        batchBytes: 1 + random.below(8),
        intervalUs: 1,
      });
      const count = 1 + random.below(28);
      for (let id = 0; id < count; id++) {
        const tier = [Tier.HBM, Tier.DDR, Tier.NVME][random.below(3)];
        if (port.candidates(tier).length < 10) port.blocks.push(new Block(id, tier, 0.01 + random.below(3)));
      }
      /** By block: phases, each of which an outer event begins. A phase is ups, then downs. */
      const phases = new Map<Block, { ups: number; downs: number; events: number }>(
        port.blocks.map((block) => [block, { ups: 0, downs: 0, events: 0 }]),
      );
      let nowUs = NOW;
      let quietTicks = 0;
      for (let turn = 0; turn < 400 && quietTicks < 40; turn++) {
        nowUs += 1 + random.below(2 * S);
        const isActive = turn < 60;
        if (isActive && random.chance(0.3)) {
          const block = port.blocks[random.below(port.blocks.length)];
          const isMoving = port.started.some((move) => move.block === block);
          if (random.chance(0.6)) block?.use.used(nowUs);
          else if (block !== undefined && !isMoving && block.tier !== Tier.NVME) block.tier++; // an eviction
          const phase = block === undefined ? undefined : phases.get(block);
          if (phase !== undefined) Object.assign(phase, { ups: 0, downs: 0, events: phase.events + 1 });
        }
        const planned = migrator.tick(nowUs);
        quietTicks = planned === 0 && port.started.length === 0 ? quietTicks + 1 : 0;
        while (port.started.length > 0 && (!isActive || random.chance(0.8))) {
          const [{ block, to }] = port.started;
          const from = block.tier;
          const isDone = random.chance(0.9);
          port.end(isDone, nowUs);
          if (!isDone) continue;
          const phase = phases.get(block)!;
          const what = `life ${life}, block ${block.blockId}, turn ${turn}, ${from} to ${to}`;
          if (to < from) {
            arrived.up++;
            phase.ups++;
            expect(phase.downs, `${what}: what went down comes up without a use`).toBe(0);
          } else {
            arrived.down++;
            phase.downs++;
          }
          expect(phase.ups, what).toBeLessThanOrEqual(2);
          expect(phase.downs, what).toBeLessThanOrEqual(2);
        }
      }
      expect(quietTicks, `life ${life} comes to rest`).toBe(40);
    }
    // and both directions were met
    expect(arrived.up).toBeGreaterThan(100);
    expect(arrived.down).toBeGreaterThan(100);
  });
});
