import { expect, it } from 'vitest';
import { GhostKeys } from '../../../src/runtime/eviction/ghostKeys.ts';
import { Random } from '../../fuzz/random.ts';

const seed = 27_05;

it(`ghosts of two lists are those of two arrays, and never more than the limit (seed ${seed})`, () => {
  const random = new Random(seed);
  const limit = 300;
  const ghosts = new GhostKeys(limit, 2);
  const lists: number[][] = [[], []];
  let fills = 0;
  const key = (id: number): Uint32Array => Uint32Array.of(id, id * 7, 1, 2);
  for (let i = 0; i < 20_000; i++) {
    const id = random.below(1_500);
    const known = lists.findIndex((list) => list.includes(id));
    const ghost = ghosts.find(key(id), 0);
    expect(ghost === -1 ? -1 : ghosts.listOf(ghost), `seed ${seed}, step ${i}`).toBe(known);
    if (ghost !== -1) {
      ghosts.remove(ghost);
      lists[known].splice(lists[known].indexOf(id), 1);
    } else {
      if (ghosts.isFull) {
        fills++;
        const from = lists[0].length > 0 ? 0 : 1;
        ghosts.remove(ghosts.oldest(from));
        lists[from].shift();
      }
      const list = random.below(2);
      ghosts.add(list, key(id), 0);
      lists[list].push(id);
    }
    expect([ghosts.size(0), ghosts.size(1)]).toEqual(lists.map((list) => list.length));
    expect(ghosts.rows).toBeLessThanOrEqual(limit);
    if (i % 200 === 0) ghosts.checkIntegrity();
  }
  expect(fills, 'the test fills the table').toBeGreaterThan(100);
});
