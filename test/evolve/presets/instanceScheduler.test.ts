/** Presets of the instance scheduler: the order in which requests run, and who gives way. */

import { describe, expect, test } from 'vitest';
import { victimRules } from '../../../src/policy/evolve/bundle/batchRules.ts';
import { schedulerOrders, slotContracts } from '../../../src/policy/evolve/bundle/slots.ts';
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

/** Behind number 0 wait 8, 30, 12 and 4 tokens with weights 1, 5, 4 and 1. */
const byClass: SmallRequest[] = [
  { atUs: 0, prompt: 64, output: 4 },
  { atUs: 100, prompt: 8, output: 1, sloClass: 'batch' },
  { atUs: 200, prompt: 30, output: 1, sloClass: 'critical' },
  { atUs: 300, prompt: 12, output: 1, sloClass: 'standard' },
  { atUs: 400, prompt: 4, output: 1, sloClass: 'background' },
];

/** Number 0 is done at 4670 µs. */
const byAge: SmallRequest[] = [
  { atUs: 0, prompt: 64, output: 4 },
  { atUs: 100, prompt: 40, output: 1 },
  { atUs: 4400, prompt: 20, output: 1 },
  { atUs: 4500, prompt: 4, output: 1 },
];

/** Of number 0 the prompts have 0, 8, 16 and 0 blocks. */
const byPrefix: SmallRequest[] = [
  { atUs: 0, prompt: 64, output: 4, stream: 7 },
  { atUs: 100, prompt: 66, output: 1 },
  { atUs: 200, prompt: 32, output: 1, stream: 7 },
  { atUs: 300, prompt: 80, output: 1, stream: 7 },
  { atUs: 400, prompt: 4, output: 1 },
];

/** Two seats, of which number 1 keeps one. Three wait for its 8 blocks, one of them for 4, one for number 0's. */
const byTree: SmallRequest[] = [
  { atUs: 0, prompt: 64, output: 4, stream: 7 },
  { atUs: 0, prompt: 32, output: 30, stream: 8 },
  { atUs: 2500, prompt: 40, output: 1, stream: 8 },
  { atUs: 2501, prompt: 16, output: 1, stream: 8 },
  { atUs: 2502, prompt: 80, output: 1, stream: 7 },
  { atUs: 2503, prompt: 4, output: 1 },
  { atUs: 2504, prompt: 36, output: 1, stream: 8 },
];

/** Classes, targets, ages and shared prefixes at once. */
const everything: SmallRequest[] = [
  ...byTree.slice(0, 2),
  { atUs: 100, prompt: 90, output: 1, sloClass: 'critical' },
  ...byTree.slice(2),
  { atUs: 2600, prompt: 12, output: 1, ttftTargetUs: 900 },
  { atUs: 2700, prompt: 8, output: 1, sloClass: 'batch', ttftTargetUs: 500 },
];

interface RankedRow {
  readonly template: string;
  readonly formula: string;
  /** `behindOne` where it is left out. */
  readonly asked?: readonly SmallRequest[];
  readonly seats?: number;
  readonly joined: readonly number[];
}

const rankedRows: readonly RankedRow[] = [
  // 8, 30 / 5, 12 / 4 and 4
  { template: 'wspt', formula: 'uncached tokens / (1 + class)', asked: byClass, joined: [0, 3, 4, 2, 1] },
  // 4570 / 40, 270 / 20 and 170 / 4; 1.4 ms later 84 and 393
  { template: 'hrrn', formula: '-wait / uncached tokens', asked: byAge, joined: [0, 1, 3, 2] },
  { template: 'lpm', formula: '-cached blocks', asked: byPrefix, joined: [0, 3, 2, 1, 4] },
  // of three the two at the end of the prefix, then the one on the way to it; of single ones the first that came
  { template: 'dfs-weight', formula: 'by the tree', asked: byTree, seats: 2, joined: [0, 1, 2, 6, 3, 4, 5] },
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
  test.each(rankedRows)('$template: $formula', async (row) => {
    const { template, asked = behindOne, seats = 1, joined } = row;
    expect((await orderOf(named(template), asked, { maxSequences: seats })).joined).toEqual(joined);
  });

  test('no policy is told how long an answer will be', async () => {
    expect(schedulerOrders.names).not.toContain('sjf-output');
    await expect(orderOf(named('sjf-output'), behindOne)).rejects.toThrow(/sjf-output/);
  });

  test('each order takes these in another order than all others', async () => {
    const orders = new Map<string, string>();
    for (const { template } of rankedRows) {
      const { joined } = await orderOf(named(template), everything, { maxSequences: 2 });
      expect(joined.length).toBe(everything.length);
      expect(orders.get(joined.join()), template).toBeUndefined();
      orders.set(joined.join(), template);
    }
  });

  test.each(victimRows)('$victimRule gives way: $formula', async ({ victimRule, first }) => {
    const { gaveWay } = await orderOf(named('fcfs', { victimRule }), tight, { topBlocks: 7 });
    expect(gaveWay[0]).toBe(first);
  });

  test('each victim rule has a row', () => {
    const rule = slotContracts.instanceScheduler.templates.describe('edf').parameters.victimRule;
    expect(rule.kind === 'choice' && rule.names).toEqual(victimRows.map(({ victimRule }) => victimRule));
    expect(victimRows.map(({ victimRule }) => victimRule)).toEqual(
      expect.arrayContaining(victimRules.map(({ name }) => name)),
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
