/** Presets of the instance scheduler: the order in which requests run, and who gives way. */

import { describe, expect, test } from 'vitest';
import { schedulerOrders, slotContracts, victimRuleNames } from '../../../src/evolve/bundle/index.ts';
import { World } from '../../runtime/batching/world.ts';
import type { SmallRequest } from '../../sim/cluster/smallCluster.ts';
import { named, orderOf } from '../binding/scheduledRun.ts';
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

/**
 * One seat, blocks of 4 tokens. Number 0 is computed while the others come at 100, 200, 300 and 400 µs. They
 * ask for 900, no, 500 and 600 µs; number 4 begins with the 64 tokens of number 0, 16 blocks that are cached
 * then.
 */
const behindOne: SmallRequest[] = [
  { atUs: 0, prompt: 64, output: 4, stream: 7 },
  { atUs: 100, prompt: 8, output: 1, ttftTargetUs: 900 },
  { atUs: 200, prompt: 4, output: 1 },
  { atUs: 300, prompt: 12, output: 1, ttftTargetUs: 500 },
  { atUs: 400, prompt: 66, output: 1, ttftTargetUs: 600, stream: 7 },
];

const rankedRows = [
  // due at 1000 µs, never, 800 and 1000; of two that are due at once the first that came
  { template: 'edf', formula: 'arrival + target', joined: [0, 3, 1, 4, 2] },
  // 8, 4, 12 and 66 - 64 = 2 tokens to compute
  { template: 'least-uncached', formula: 'known - cached tokens', joined: [0, 4, 2, 1, 3] },
];

/**
 * 7 blocks of 4 tokens; the prompts fill 3, 1 and 2. In the second step each of the three needs one more, and
 * one is free.
 */
const tight: SmallRequest[] = [
  { atUs: 0, prompt: 12, output: 3 },
  { atUs: 0, prompt: 4, output: 3 },
  { atUs: 0, prompt: 8, output: 3 },
];

const victimRows = [
  { victimRule: 'fcfs', formula: 'the last of the batch', first: 2 },
  { victimRule: 'priority', formula: 'the least urgent, then the last that came', first: 2 },
  // 12, 4 and 8 tokens would be lost
  { victimRule: 'least-progress', formula: 'the fewest computed tokens', first: 1 },
];

describe('instanceScheduler', () => {
  test.each(rankedRows)('$template: $formula', async ({ template, joined }) => {
    expect((await orderOf(named(template), behindOne, { maxSequences: 1 })).joined).toEqual(joined);
  });

  test.each(victimRows)('$victimRule gives way: $formula', async ({ victimRule, first }) => {
    const { gaveWay } = await orderOf(named('fcfs', { victimRule }), tight, { hbmBlocks: 7 });
    expect(gaveWay[0]).toBe(first);
  });

  test('each victim rule has a row', () => {
    const rule = slotContracts.instanceScheduler.templates.describe('edf').parameters.victimRule;
    expect(rule.kind === 'choice' && rule.names).toEqual(victimRows.map(({ victimRule }) => victimRule));
    expect(victimRows.map(({ victimRule }) => victimRule)).toEqual(
      expect.arrayContaining([...victimRuleNames]),
    );
  });

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

  eachPresetHasARow('instanceScheduler', [...rows, ...rankedRows]);
});
