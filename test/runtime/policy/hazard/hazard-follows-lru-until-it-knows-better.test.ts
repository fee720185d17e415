import { expect, it } from 'vitest';
import type { EvictionChoice } from '../../../../src/runtime/eviction/evictionPolicy.ts';
import { Random } from '../../../fuzz/random.ts';
import { type ChainRequest, chatsAmongOneOffs } from '../chainedLoads.ts';
import { OnePool } from '../onePool.ts';

const seed = Number(process.env.TIERKV_POLICY_SEED ?? 27_07);

interface Served {
  readonly hits: number;
  readonly evicted: number[][];
}

function serve(choice: EvictionChoice, capacity: number, load: readonly ChainRequest[]): Served {
  const pool = new OnePool(choice, capacity);
  const evicted: number[][] = [];
  let hits = 0;
  for (const [i, { nowUs, ids }] of load.entries()) {
    pool.nowUs = nowUs;
    const served = pool.request(ids);
    hits += served.hits;
    evicted.push(served.evicted);
    if (i % 1_000 === 999) pool.policy.checkIntegrity();
  }
  return { hits, evicted };
}

function lookupsOf(load: readonly ChainRequest[]): number {
  return load.reduce((sum, { ids }) => sum + ids.length, 0);
}

it(`without trust in its estimates it evicts exactly as LRU does (seed ${seed})`, () => {
  for (const capacity of [20, 40, 300]) {
    const load = chatsAmongOneOffs(new Random(seed), 3_000, {
      chats: 40,
      gapS: 90,
      oneOffs: 0.4,
      blocks: 12,
    });
    const untrusted = serve({ policy: 'hazard', behindLru: -1 }, capacity, load);
    expect(untrusted, `capacity ${capacity}`).toEqual(serve({ policy: 'lru' }, capacity, load));
  }
});

it(`among requests that never repeat it keeps the chats, which LRU does not (seed ${seed})`, () => {
  const load = chatsAmongOneOffs(new Random(seed), 6_000, { chats: 30, gapS: 60, oneOffs: 0.7, blocks: 16 });
  const lru = serve({ policy: 'lru' }, 150, load);
  const hazard = serve({ policy: 'hazard' }, 150, load);
  expect(hazard.hits).toBeGreaterThan(1.3 * lru.hits);
  expect(hazard.evicted).not.toEqual(lru.evicted);
});

it(`a clock that stands still costs it little (seed ${seed})`, () => {
  const options = { chats: 30, gapS: 60, oneOffs: 0.7, blocks: 16 };
  const load = chatsAmongOneOffs(new Random(seed), 6_000, options).map(({ ids }) => ({ nowUs: 0, ids }));
  const lru = serve({ policy: 'lru' }, 150, load);
  expect(serve({ policy: 'hazard' }, 150, load).hits).toBeGreaterThan(1.2 * lru.hits);
  expect(serve({ policy: 'hazard', behindLru: -1 }, 150, load)).toEqual(lru);
});

it(`when what it learned turns wrong, it loses no more than it had won and its share (seed ${seed})`, () => {
  const capacity = 120;
  let tested = 0;
  for (let round = 0; round < 4; round++) {
    const random = new Random(seed + round);
    const load: ChainRequest[] = [];
    // Phases in which chats return and one-offs do not, and phases in which only what is newest returns.
    for (let phase = 0; phase < 6; phase++) {
      const options = { chats: phase % 2 === 0 ? 40 : 3, gapS: 60, oneOffs: 0.6, blocks: 16 };
      const startUs = load.length === 0 ? 0 : load[load.length - 1].nowUs;
      const base = phase * 1_000_000;
      for (const { nowUs, ids } of chatsAmongOneOffs(random, 800, options)) {
        load.push({ nowUs: startUs + nowUs, ids: ids.map((id) => id + base) });
        if (phase % 2 === 1 && random.chance(0.5))
          load.push(load[Math.max(0, load.length - 1 - random.below(3))]);
      }
    }
    load.sort((a, b) => a.nowUs - b.nowUs);
    const lru = serve({ policy: 'lru' }, capacity, load).hits;
    const hazard = serve({ policy: 'hazard' }, capacity, load).hits;
    const bound = lru - 0.0025 * lookupsOf(load) - capacity;
    expect(hazard, `seed ${seed + round}: LRU found ${lru}`).toBeGreaterThan(bound);
    tested++;
  }
  expect(tested).toBe(4);
});

it(`a block that a cached block follows is never evicted (seed ${seed})`, () => {
  const load = chatsAmongOneOffs(new Random(seed), 3_000, { chats: 30, gapS: 60, oneOffs: 0.5, blocks: 16 });
  const parent = new Map<number, number>();
  const pool = new OnePool({ policy: 'hazard' }, 60);
  const present = new Set<number>();
  let evictions = 0;
  for (const { nowUs, ids } of load) {
    for (const [i, id] of ids.entries()) parent.set(id, i === 0 ? -1 : ids[i - 1]);
    pool.nowUs = nowUs;
    const { evicted } = pool.request(ids);
    for (const id of ids) present.add(id);
    for (const id of evicted) present.delete(id);
    evictions += evicted.length;
    for (const id of present) {
      const before = parent.get(id) as number;
      if (before !== -1 && !present.has(before)) throw new Error(`block ${id} lost the block before it`);
    }
  }
  expect(evictions).toBeGreaterThan(1_000);
});
