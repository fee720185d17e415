/**
 * Without blocks on their way, `fcfs` admits strictly in the order of adding; who gave way comes back before
 * all others.
 */

import { expect, it } from 'vitest';
import { SeededRandom } from '../../../src/testing/index.ts';
import { World } from './world.ts';

const firstSeed = Number(process.env.TIERKV_SEED ?? 1);

it(`requests join the batch in the order in which they were added (seeds from ${firstSeed})`, () => {
  let returns = 0;
  for (let seed = firstSeed; seed < firstSeed + 30; seed++) {
    const random = new SeededRandom(seed);
    const world = new World({ hbmBlocks: 12, maxBatchedTokens: 20, maxSequences: 4 });
    let added = 0;
    let joined = 0;
    const gone: number[] = [];
    for (let i = 0; i < 200 || world.scheduler.size > 0; i++) {
      if (i < 200 && random.chance(0.4)) world.add(`${added++}`, 1 + random.below(24), 1 + random.below(16));
      const plan = world.scheduler.step(world.now);
      world.audit();
      for (const { id } of plan.admitted) {
        const back = gone.pop();
        expect(Number(id), `seed ${seed}`).toBe(back ?? joined++);
        if (back !== undefined) returns++;
      }
      for (const { id } of plan.preempted) gone.push(Number(id));
      if (plan.tokens > 0) world.end();
    }
    expect(joined).toBe(added);
  }
  expect(returns).toBeGreaterThan(20);
});
