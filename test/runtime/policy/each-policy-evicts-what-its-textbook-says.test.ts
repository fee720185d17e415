import { expect, it } from 'vitest';
import type { EvictionChoice } from '../../../src/runtime/eviction/evictionPolicy.ts';
import { Random } from '../../fuzz/random.ts';
import { OnePool } from './onePool.ts';
import {
  ArcTextbook,
  fifoTextbook,
  lfuTextbook,
  lruTextbook,
  priorityTextbook,
  S3FifoTextbook,
  type Textbook,
} from './textbooks.ts';

const seed = Number(process.env.TIERKV_POLICY_SEED ?? 27_04);
const ownerOf = (id: number): number => id % 3;
const levels = [2, 0, 1];

const cases: ReadonlyArray<readonly [EvictionChoice, (capacity: number) => Textbook]> = [
  [{ policy: 'lru' }, lruTextbook],
  [{ policy: 'fifo' }, fifoTextbook],
  [{ policy: 'lfu' }, lfuTextbook],
  [
    { policy: 'priority', levels: levels.join() },
    (capacity) => priorityTextbook(capacity, (id) => levels[ownerOf(id)]),
  ],
  [{ policy: 'arc' }, (capacity) => new ArcTextbook(capacity)],
  [{ policy: 's3fifo' }, (capacity) => new S3FifoTextbook(capacity)],
];

it.each(cases)(`$policy evicts what its definition says, block by block (seed ${seed})`, (choice, make) => {
  for (let round = 0; round < 20; round++) {
    const random = new Random(seed + round);
    const capacity = random.between(1, 40);
    const pool = new OnePool(choice, capacity, ownerOf);
    const textbook = make(capacity);
    const ids = capacity * random.between(1, 4) + 1;
    for (let i = 0; i < 1_500; i++) {
      // Some ids come often, some come once, and now and then many come in a row.
      const scan = i % 400 > 320;
      const id = scan ? 1_000 + i : random.below(random.chance(0.5) ? ids : Math.ceil(ids / 4));
      const expected = textbook.access(id);
      const { evicted } = pool.request([id]);
      const where = `seed ${seed}, round ${round}, access ${i} of ${id}, capacity ${capacity}`;
      expect(evicted, where).toEqual(expected === undefined ? [] : [expected]);
      if (i % 50 === 0) pool.policy.checkIntegrity();
    }
  }
});
