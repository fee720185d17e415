/** Presets of the instance scheduler: the order in which requests run, and who gives way. */

import { describe, expect, test } from 'vitest';
import { schedulerOrders } from '../../../src/evolve/bundle/index.ts';
import { World } from '../../runtime/batching/world.ts';
import { noPolicyWorld } from './noPolicyWorld.ts';
import { choiceOf, eachPresetHasARow } from './rows.ts';

/** Arrivals 0, 1, 2, 3; lower ranks are more urgent. */
const requests = [
  { id: 'a', prompt: 9, priority: 2 },
  { id: 'b', prompt: 6, priority: 1 },
  { id: 'c', prompt: 3, priority: 4 },
  { id: 'd', prompt: 12, priority: 3 },
];

const rows = [
  { template: 'fcfs', formula: 'by arrival', order: ['a', 'b', 'c', 'd'] },
  { template: 'priority-fcfs', formula: 'lowest rank first', order: ['b', 'a', 'd', 'c'] },
  { template: 'sjf', formula: 'shortest prompt first', order: ['c', 'b', 'a', 'd'] },
  { template: 'reverse-priority', formula: 'highest rank first', order: ['c', 'd', 'a', 'b'] },
];

describe('instanceScheduler', () => {
  test.each(rows)('$template: $formula', ({ template, order }) => {
    const config = schedulerOrders.make(choiceOf('instanceScheduler', template), noPolicyWorld);
    const world = new World({ ...config, maxSequences: 1 });
    for (const [arrivalUs, { id, prompt, priority }] of requests.entries()) {
      world.add(id, prompt, 1, { priority, arrivalUs });
    }
    world.finish();
    expect(Object.keys(world.finished)).toEqual(order);
  });

  test.each(rows)('$template: who joined last gives way', ({ template }) => {
    const config = schedulerOrders.make(choiceOf('instanceScheduler', template), noPolicyWorld);
    const world = new World({ ...config, hbmBlocks: 3 });
    for (const [arrivalUs, id] of ['a', 'b', 'c'].entries()) {
      world.add(id, 4, 4, { priority: 1, arrivalUs });
    }
    world.step();
    const joined = world.scheduler.runningRequests().map(({ id }) => id);
    expect(joined.length).toBe(3);
    expect(world.scheduler.step(world.now).preempted[0].id).toBe(joined[2]);
  });

  eachPresetHasARow('instanceScheduler', rows);
});
