/** An owner over its quota loses blocks first; one within it never pays for another, in any tier. */

import { describe, expect, it } from 'vitest';
import {
  KVManager,
  LogReader,
  LogWriter,
  type ManagerConfig,
  Outcome,
} from '../../../../src/runtime/index.ts';
import { replayLog } from '../../../../src/runtime/log/replayer.ts';
import { SeededRandom } from '../../../../src/testing/index.ts';
import { keysOf } from '../../batching/world.ts';

const A = 1;
const B = 2;
const C = 3;

class Cache {
  readonly manager: KVManager;
  log = '';
  #now = 0;
  readonly #writer: LogWriter;

  constructor(hbm: number, ddr = 0) {
    const config: ManagerConfig = {
      unitBytes: [1],
      hbm: { capacityBytes: hbm },
      ...(ddr === 0 ? {} : { ddr: { capacityBytes: ddr } }),
      owners: 4,
      maxJobs: 256,
    };
    this.#writer = new LogWriter(config, {
      log: (text) => {
        this.log += text;
      },
    });
    this.manager = new KVManager(config, this.#writer);
    this.manager.listen({ jobsIssued: () => {} });
  }

  quota(owner: number, bytes: number | null, position = 0): void {
    this.manager.setQuota(owner, position, bytes, this.#now);
  }

  /** Computes blocks and lets them go: one chain, its first block `from`. @returns whether there was room */
  cache(owner: number, from: number, count: number): boolean {
    const keys = keysOf(Array.from({ length: count }, (_, i) => from + i)).words;
    const { manager } = this;
    this.#now++;
    const sequence = manager.openIfFits(keys, count, this.#now, count, count, 0, owner);
    if (sequence === null) return false;
    const { matched } = sequence;
    const fits = manager.load(sequence, this.#now) && manager.allocate(sequence, matched, count, this.#now);
    this.settle();
    for (let i = matched; i < count && fits; i++) {
      if (sequence.state[i] === 4) manager.seal(sequence, i, i + 1, keys, i * 4, 1, this.#now);
    }
    manager.release(sequence, this.#now);
    this.settle();
    manager.checkIntegrity();
    return fits;
  }

  settle(): void {
    for (let job = this.manager.nextJob(); job !== 0; job = this.manager.nextJob()) {
      this.manager.complete(job, Outcome.LOADED, this.#now);
    }
  }

  owned(position = 0): number[] {
    return [A, B, C].map((owner) => this.manager.inspect.ownedBytes(owner, position));
  }

  close(): string {
    this.#writer.end();
    return this.log;
  }
}

describe('an owner within its quota', () => {
  it('keeps its blocks, however much others cache', () => {
    const cache = new Cache(10);
    cache.quota(A, 4);
    cache.cache(A, 1, 4);
    for (let i = 0; i < 20; i++) cache.cache(B, 100 + 10 * i, 5);
    expect(cache.owned()).toEqual([4, 6, 0]);
    expect(cache.manager.lookup(keysOf([1, 2, 3, 4]).words, 4).blocks).toBe(4);
  });

  it('without a quota it loses them', () => {
    const cache = new Cache(10);
    cache.cache(A, 1, 4);
    for (let i = 0; i < 20; i++) cache.cache(B, 100 + 10 * i, 5);
    expect(cache.owned()).toEqual([0, 10, 0]);
  });

  it('finds its room when it needs it, at the cost of owners without a quota', () => {
    const cache = new Cache(10);
    for (let i = 0; i < 4; i++) cache.cache(B, 100 + 10 * i, 5);
    cache.quota(A, 7);
    cache.cache(A, 1, 7);
    expect(cache.owned()).toEqual([7, 3, 0]);
  });

  it('is refused nothing that is its own, and others are refused what is', () => {
    const cache = new Cache(10);
    cache.quota(A, 8);
    cache.cache(A, 1, 8);
    expect(cache.cache(B, 100, 3)).toBe(false);
    expect(cache.cache(B, 100, 2)).toBe(true);
    expect(cache.owned()).toEqual([8, 2, 0]);
    expect(cache.cache(A, 50, 8)).toBe(true);
    expect(cache.owned()).toEqual([8, 2, 0]);
  });
});

it('an owner over its quota pays first, also when its blocks were used last', () => {
  const cache = new Cache(10);
  cache.quota(A, 3);
  cache.cache(B, 100, 4);
  cache.cache(A, 1, 6);
  expect(cache.owned()).toEqual([6, 4, 0]);
  cache.cache(C, 200, 2);
  expect(cache.owned()).toEqual([4, 4, 2]);
  cache.cache(C, 300, 2);
  expect(cache.owned(), 'down to its quota; then the oldest of those without one').toEqual([3, 3, 4]);
});

it('holds in a lower tier too', () => {
  const cache = new Cache(4, 10);
  cache.quota(A, 5, 1);
  cache.cache(A, 1, 4);
  cache.cache(A, 11, 4);
  for (let i = 0; i < 20; i++) cache.cache(B, 100 + 10 * i, 4);
  expect(cache.owned(1)[0]).toBe(5);
  const free = new Cache(4, 10);
  free.cache(A, 1, 4);
  free.cache(A, 11, 4);
  for (let i = 0; i < 20; i++) free.cache(B, 100 + 10 * i, 4);
  expect(free.owned(1)[0]).toBe(0);
});

const seed = Number(process.env.TIERKV_SEED ?? 1);

it(`an owner within its quota loses nothing to others, whatever they do (seed ${seed})`, () => {
  let evicted = 0;
  for (let run = seed; run < seed + 8; run++) {
    const random = new SeededRandom(run);
    const cache = new Cache(12, 16);
    const { manager } = cache;
    for (let i = 0; i < 200; i++) {
      const owner = 1 + random.below(3);
      if (random.chance(0.05)) {
        const bytes = random.chance(0.3) ? null : random.below(5);
        cache.quota(owner, bytes, random.below(2));
        manager.checkIntegrity();
        continue;
      }
      // Of both tiers together, since a block that comes up keeps its lower copy.
      const before = [0, 1].map((position) => cache.owned(position));
      cache.cache(owner, 1000 * owner + 10 * random.below(8), 1 + random.below(6));
      for (const position of [0, 1]) {
        cache.owned(position).forEach((bytes, o) => {
          const quota = manager.inspect.quotaBytes(o + 1, position);
          if (o + 1 === owner || quota === null) return;
          const kept = Math.min(before[position][o], quota);
          expect(bytes, `owner ${o + 1} in tier ${position}, run ${run}, step ${i}`).toBeGreaterThanOrEqual(
            kept,
          );
        });
      }
    }
    evicted += manager.inspect.counters.evictions[0] + manager.inspect.counters.evictions[1];
    const text = cache.close();
    const head = new LogReader('quotas');
    const lines = text.trimEnd().split('\n');
    head.read(lines[0]);
    let again = '';
    const writer = new LogWriter(head.config, {
      log: (piece) => {
        again += piece;
      },
    });
    replayLog(lines, 'quotas', writer);
    writer.end();
    expect(again === text, `run ${run} replays byte-identically`).toBe(true);
  }
  expect(evicted).toBeGreaterThan(500);
});

it('a quota over the capacity, a fraction, an owner or a tier that is not there: an error that says so', () => {
  const cache = new Cache(10);
  cache.quota(A, 6);
  const set = (owner: number, position: number, bytes: number) => (): void =>
    cache.manager.setQuota(owner, position, bytes, 0);
  expect(set(B, 0, 5)).toThrow('Name at most 4, or lower the quota of another owner');
  for (const [owner, position, bytes, field] of [
    [B, 0, 5, 'bytes'],
    [B, 0, 1.5, 'bytes'],
    [B, 0, -1, 'bytes'],
    [4, 0, 1, 'owner'],
    [B, 1, 1, 'position'],
  ] as const) {
    expect(set(owner, position, bytes)).toThrow(expect.objectContaining({ code: 'TKV_CONFIG', field }));
  }
  expect(cache.manager.inspect.quotaBytes(B, 0)).toBe(null);
  set(A, 0, 10)();
  cache.quota(A, null);
  expect(cache.manager.inspect.quotaBytes(A, 0)).toBe(null);
});
