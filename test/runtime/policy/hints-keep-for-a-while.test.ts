/** Retention hints under every policy: they are heeded, they end, and they never keep everything. */

import { describe, expect, it } from 'vitest';
import { evictionPolicyNames, Outcome, type Sequence } from '../../../src/runtime/index.ts';
import { World } from '../manager/world.ts';

const SECOND = 1e6;

/** A tier of 10 blocks that a stream of single blocks, half a second apart, runs through. */
class Stream {
  readonly world: World;
  #next = 1_000;

  constructor(policy: string) {
    this.world = new World({ hbm: { capacityBytes: 10 }, eviction: { policy } });
  }

  run(blocks: number): void {
    for (let i = 0; i < blocks; i++) {
      this.world.now += SECOND / 2;
      this.keep([this.#next++], {});
    }
  }

  /** Caches a chain, with a wish if it has one. One tier: no job stays open, and all audits come at the end. */
  keep(ids: readonly number[], hint: { priority?: number; keepS?: number }): void {
    const { manager, now } = this.world;
    const keys = this.world.keys(...ids);
    const sequence = manager.open(keys, ids.length, now);
    const { matched } = sequence;
    manager.allocate(sequence, matched, ids.length, now);
    this.#endJobs();
    manager.seal(sequence, matched, ids.length, keys, matched * 4, 16, now);
    this.#endJobs();
    if (Object.keys(hint).length > 0) this.wish(sequence, hint);
    manager.release(sequence, now);
  }

  #endJobs(): void {
    const { manager, now } = this.world;
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      manager.complete(job, Outcome.LOADED, now);
    }
  }

  wish(sequence: Sequence, { priority = 0, keepS = 0 }: { priority?: number; keepS?: number }): void {
    const { manager, now } = this.world;
    const keepUntilUs = keepS === 0 ? 0 : now + keepS * SECOND;
    manager.retain(sequence, { priority, keepUntilUs }, now);
  }

  found(ids: readonly number[]): number {
    return this.world.manager.lookup(this.world.keys(...ids), ids.length).blocks;
  }
}

const chain = [1, 2, 3];

describe.each(evictionPolicyNames)('under %s', (policy) => {
  it('a chain stays whole until its time, though many newer blocks came, and goes after it', () => {
    const stream = new Stream(policy);
    stream.run(30);
    stream.keep(chain, { keepS: 20 });
    stream.run(38);
    expect(stream.found(chain)).toBe(3);
    stream.run(80);
    expect(stream.found(chain)).toBe(0);
    stream.world.manager.checkIntegrity();
  });

  it('without a wish it is gone by then', () => {
    const stream = new Stream(policy);
    stream.run(30);
    stream.keep(chain, {});
    stream.run(80);
    expect(stream.found(chain)).toBe(0);
  });

  it('wishes hold at most half of the tier, however many wish for ever; the front of a chain stays', () => {
    const stream = new Stream(policy);
    stream.run(20);
    stream.keep([1, 2, 3, 4, 5, 6, 7, 8, 9], { keepS: 1e6 });
    stream.run(60);
    expect(stream.found([1, 2, 3, 4, 5, 6, 7, 8, 9])).toBe(5);
    for (let id = 100; id < 130; id++) stream.keep([id], { keepS: 1e6, priority: 100 });
    expect(stream.world.manager.inspect.usage(0).residentBytes).toBe(10);
    stream.world.manager.checkIntegrity();
    const { evicted } = stream.world.manager.evict(0, 10, stream.world.now);
    expect(evicted).toBe(10);
    stream.world.manager.checkIntegrity();
  });

  it('the highest priority outlasts what is otherwise alike, and the lowest goes first', () => {
    const stream = new Stream(policy);
    // The first wish starts the measure of how long blocks stay.
    stream.keep([500], { priority: 1 });
    stream.run(40);
    stream.keep([1], { priority: 100 });
    stream.keep([2], { priority: -100 });
    stream.run(1);
    expect([stream.found([1]), stream.found([2])]).toEqual([1, 0]);
    stream.run(12);
    expect(stream.found([1])).toBe(1);
    stream.run(60);
    expect(stream.found([1])).toBe(0);
  });

  it('a low priority does not drop what others use too', () => {
    const stream = new Stream(policy);
    stream.keep([500], { priority: 1 });
    stream.run(40);
    stream.keep([1], {});
    stream.keep([1, 2], { priority: -100 });
    stream.run(2);
    expect(stream.found([1, 2])).toBe(1);
  });
});

describe('a hint', () => {
  it.each([
    [{ priority: 101, keepUntilUs: 0 }, 'retention.priority'],
    [{ priority: 0.5, keepUntilUs: 0 }, 'retention.priority'],
    [{ priority: 0, keepUntilUs: 999 }, 'retention.keepUntilUs'],
    [{ priority: 0, keepUntilUs: -1 }, 'retention.keepUntilUs'],
    [{ priority: 0, keepUntilUs: 1_000.5 }, 'retention.keepUntilUs'],
  ])('of %o is refused, and nothing is kept of it', (retention, field) => {
    const world = new World();
    world.now = 1_000;
    const sequence = world.compute(1);
    const wish = () => world.manager.retain(sequence, retention, world.now);
    expect(wish).toThrow(expect.objectContaining({ field }));
    expect(sequence.retention).toBeNull();
    world.manager.retain(sequence, { priority: 100, keepUntilUs: 1_000 }, world.now);
    expect(sequence.retention).toEqual({ priority: 100, keepUntilUs: 1_000 });
  });

  it('holds for blocks that are sealed after it, and the longest wish holds', () => {
    const stream = new Stream('lru');
    const { world } = stream;
    stream.run(20);
    const keys = world.keys(1, 2);
    const sequence = world.compute(1);
    stream.wish(sequence, { keepS: 30 });
    stream.wish(sequence, { keepS: 1 });
    world.manager.allocate(sequence, 1, 2, world.now);
    world.settle();
    world.manager.seal(sequence, 1, 2, keys, 4, 16, world.now);
    world.settle();
    world.manager.release(sequence, world.now);
    stream.run(50);
    // The second block has the wish that the sequence had last, the first the longest one.
    expect([stream.found([1]), stream.found([1, 2])]).toEqual([1, 1]);
    stream.run(40);
    expect(stream.found([1])).toBe(0);
  });
});
