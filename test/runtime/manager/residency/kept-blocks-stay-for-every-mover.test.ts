/**
 * What a quota protects and what a hint keeps is moved by nothing that others need or that was not asked for: not by the migrator, not by
 * offloading, not by a preemption, whatever the order of calls. Each mover has a control in which the rule is taken out.
 */

import { afterEach, describe, expect, it } from 'vitest';
import { BlockMoves, CachedMigration, KVMigrator } from '../../../../src/embed/kvMigrator.ts';
import { RetentionPolicy } from '../../../../src/runtime/eviction/retention.ts';
import {
  JobPriority,
  KVManager,
  type ManagerConfig,
  Outcome,
  type Sequence,
} from '../../../../src/runtime/index.ts';
import { OwnerQuotas } from '../../../../src/runtime/manager/ownerQuotas.ts';
import { SeededRandom, testSeed } from '../../../../src/testing/index.ts';
import { keysOf } from '../../batching/world.ts';

const OTHER = 1;
const OWNER = 2;
const HOUR_US = 3_600_000_000;
const seed = testSeed(11);

/** Owner 2 has blocks 1 to 4 in HBM, within a quota or kept by a hint. */
class Kept {
  readonly manager: KVManager;
  readonly migrator: KVMigrator<never>;
  now = 1;
  #next = 1000;

  constructor(by: 'quota' | 'hint', config: Partial<ManagerConfig> = {}) {
    this.manager = new KVManager({
      unitBytes: [1],
      hbm: { capacityBytes: 20 },
      ddr: { capacityBytes: 20 },
      owners: 4,
      maxJobs: 256,
      eviction: { policy: 'lru' },
      useHalfLifeUs: 1_000_000,
      ...config,
    });
    const moves = new BlockMoves(this.manager);
    this.manager.listen(moves.listener);
    this.migrator = new KVMigrator(new CachedMigration(this.manager, moves), {}) as KVMigrator<never>;
    if (by === 'quota') this.manager.setQuota(OWNER, 0, 6, this.now);
    const sequence = this.compute(OWNER, 1, 4);
    const retention = { priority: 0, keepUntilUs: this.now + HOUR_US };
    if (by === 'hint') this.manager.retain(sequence, retention, this.now);
    this.manager.release(sequence, this.now);
    this.settle();
  }

  compute(owner: number, from: number, count: number): Sequence {
    const keys = keysOf(Array.from({ length: count }, (_, i) => from + i)).words;
    const sequence = this.manager.open(keys, count, ++this.now, count, owner);
    this.manager.load(sequence, this.now);
    if (this.manager.allocate(sequence, sequence.matched, count, this.now)) {
      this.settle();
      for (let i = sequence.matched; i < count; i++) {
        if (sequence.state[i] === 4) this.manager.seal(sequence, i, i + 1, keys, i * 4, 1, this.now);
      }
    }
    this.settle();
    return sequence;
  }

  settle(): void {
    for (let job = this.manager.nextJob(); job !== 0; job = this.manager.nextJob()) {
      this.manager.complete(job, Outcome.LOADED, this.now);
    }
    this.manager.checkIntegrity();
  }

  pressure(blocks: number): void {
    for (let i = 0; i < blocks; i++) {
      this.manager.release(this.compute(OTHER, this.#next, 1), this.now);
      this.#next += 10;
    }
    this.settle();
  }

  migrate(): void {
    this.now += 10_000_000;
    this.migrator.tick(this.now);
    this.settle();
  }

  /** Of the owner's blocks, how many lie in HBM. */
  get inHbm(): number {
    return this.manager.lookup(keysOf([1, 2, 3, 4]).words, 4).byTier[0];
  }
}

const { mayTakeFrom } = OwnerQuotas.prototype;
const { keeps } = RetentionPolicy.prototype;
afterEach(() => {
  Object.assign(OwnerQuotas.prototype, { mayTakeFrom });
  Object.assign(RetentionPolicy.prototype, { keeps });
});

function takeOutTheRule(): void {
  Object.assign(OwnerQuotas.prototype, { mayTakeFrom: () => true });
  Object.assign(RetentionPolicy.prototype, { keeps: () => false });
}

const movers: Readonly<Record<string, (by: 'quota' | 'hint') => Kept>> = {
  'the migrator': (by) => {
    const kept = new Kept(by);
    for (let i = 0; i < 10; i++) {
      kept.pressure(4);
      kept.migrate();
    }
    return kept;
  },
  'a move that no caller asked for': (by) => {
    const kept = new Kept(by);
    for (const priority of [JobPriority.SCRUB, JobPriority.PREFETCH]) {
      for (const id of [4, 3, 2, 1]) kept.manager.move(keysOf([id]).words, 1, priority, kept.now);
      kept.settle();
    }
    return kept;
  },
  'a preemption that offloads': (by) => {
    const kept = new Kept(by);
    kept.manager.demote(kept.compute(OWNER, 1, 4), kept.now);
    kept.settle();
    return kept;
  },
};

describe.each(['quota', 'hint'] as const)('a block that a %s keeps', (by) => {
  it.each(Object.keys(movers))('stays, for %s', (name) => {
    expect(movers[name](by).inHbm).toBe(4);
  });

  it.each(Object.keys(movers))('control: without the rule it goes, by %s', (name) => {
    takeOutTheRule();
    expect(movers[name](by).inHbm).toBeLessThan(4);
  });

  it('goes down when its owner asks', () => {
    const kept = new Kept(by);
    for (const id of [1, 2, 3, 4])
      kept.manager.move(keysOf([id]).words, 1, JobPriority.WRITE_THROUGH, kept.now);
    kept.settle();
    expect(kept.inHbm).toBe(0);
  });

  it(`stays whatever others do, in any order (seed ${seed})`, () => {
    const random = new SeededRandom(seed);
    for (let run = 0; run < 30; run++) {
      const offloadThreshold = random.chance(0.5) ? 1 : 0.5;
      const policy = ['lru', 'lfu', 'fifo', 'arc', 's3fifo', 'hazard'][random.below(6)];
      const kept = new Kept(by, { offloadThreshold, eviction: { policy } });
      for (let i = 0; i < 60; i++) {
        const doing = random.below(5);
        if (doing < 2) kept.pressure(1 + random.below(5));
        else if (doing === 2) kept.migrate();
        else if (doing === 3) kept.manager.demote(kept.compute(OTHER, 5000 + random.below(40), 3), kept.now);
        else kept.manager.prefetch(keysOf([1000 + 10 * random.below(200)]).words, 1, kept.now);
        kept.settle();
        expect(kept.inHbm, `run ${run}, ${policy}, step ${i}, seed ${seed}`).toBe(4);
      }
    }
  });
});

it('a hint holds beside quotas: of an owner without one, what no hint keeps goes first', () => {
  const kept = new Kept('hint');
  kept.manager.setQuota(OTHER, 0, 8, kept.now);
  kept.pressure(8); // within its quota, and used last
  for (let i = 0; i < 12; i++) kept.manager.release(kept.compute(3, 9000 + 10 * i, 1), kept.now);
  kept.settle();
  expect(kept.inHbm).toBe(4);
});
