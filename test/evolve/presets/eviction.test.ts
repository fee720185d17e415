/** Presets of eviction: who leaves a pool of three blocks, worked out by hand. */

import { describe, expect, test } from 'vitest';
import { evictionPolicies } from '../../../src/policy/evolve/bundle/slots.ts';
import { OnePool } from '../../runtime/policy/onePool.ts';
import { noPolicyWorld } from './noPolicyWorld.ts';
import { choiceOf, eachPresetHasARow } from './rows.ts';

const rows = [
  {
    template: 'lru',
    formula: 'used longest ago',
    asked: [1, 2, 3, 1, 4, 5],
    evicted: [2, 3],
  },
  {
    template: 'fifo',
    formula: 'came first',
    asked: [1, 2, 3, 1, 4, 5],
    evicted: [1, 2],
  },
  {
    template: 'lfu',
    formula: 'fewest uses, then used longest ago',
    // 1 has two uses and is the oldest; then 3, 4 and 1 have 1, 1 and 2
    asked: [1, 1, 2, 3, 4, 5],
    evicted: [2, 3],
  },
  {
    template: 'priority',
    formula: 'lowest level of the owner, then used longest ago; without levels all are alike',
    asked: [1, 2, 3, 1, 4, 5],
    evicted: [2, 3],
  },
  {
    template: 'arc',
    formula: 'from T1 while |T1| > p, and a return from B1 raises p',
    // T2 = 1, T1 = 2 3: 2 leaves for 4; T1 = 3 4: 3 leaves for 2, which B1 knows: p = 1, T2 = 1 2, T1 = 4;
    // |T1| is no more than 1, so 1 leaves T2 for 5
    asked: [1, 1, 2, 3, 4, 2, 5],
    evicted: [2, 3, 1],
  },
  {
    template: 's3fifo',
    formula: 'from the small queue first; more than one use there saves into the main one',
    // 1 has two more uses: it goes to the main queue, and 2 leaves
    asked: [1, 1, 1, 2, 3, 4, 5],
    evicted: [2, 3],
  },
  {
    template: 'hazard',
    formula: 'least returns in time; as LRU while it has seen no returns',
    asked: [1, 2, 3, 1, 4, 5],
    evicted: [2, 3],
  },
];

describe('eviction', () => {
  test.each(rows)('$template: $formula', ({ template, asked, evicted }) => {
    const choice = evictionPolicies.make(choiceOf('eviction', template), noPolicyWorld);
    const pool = new OnePool(choice, 3);
    expect(asked.flatMap((id) => pool.request([id]).evicted)).toEqual(evicted);
  });

  test('priority: the owner of the lowest level first, whatever was used last', () => {
    const pool = new OnePool({ policy: 'priority', levels: '2,0,1' }, 3, (id) => id % 3);
    // owners 1, 2, 0 have levels 0, 1, 2
    expect([1, 2, 3, 1, 6, 9].flatMap((id) => pool.request([id]).evicted)).toEqual([1, 2]);
  });

  eachPresetHasARow('eviction', rows);
});
