import { describe, expect, it } from 'vitest';
import {
  plainOrderNames,
  preemptionNames,
  publishNames,
  type SchedulerConfig,
  victimRuleNames,
} from '../../../src/runtime/batching/config.ts';
import { World } from './world.ts';

describe('queue orders', () => {
  const requests = [
    { id: 'a', prompt: 9, priority: 2, arrivalUs: 0 },
    { id: 'b', prompt: 3, priority: 1, arrivalUs: 1 },
    { id: 'd', prompt: 6, priority: 1, arrivalUs: 2 },
    { id: 'c', prompt: 3, priority: 3, arrivalUs: 1 },
  ];

  it.each([
    ['fcfs', ['a', 'b', 'd', 'c']],
    ['priority-fcfs', ['b', 'd', 'a', 'c']],
    ['sjf', ['b', 'c', 'd', 'a']],
    ['reverse-priority', ['c', 'a', 'b', 'd']],
  ])('%s', (queueOrder, order) => {
    const world = new World({ queueOrder, maxSequences: 1 });
    for (const { id, prompt, priority, arrivalUs } of requests) {
      world.add(id, prompt, 1, { priority, arrivalUs });
    }
    expect(world.scheduler.waitingRequests().map(({ id }) => id)).toEqual(order);
    world.finish();
    expect(Object.keys(world.finished)).toEqual(order);
  });

  it('sjf-output: whatever the prompts, the fewest output tokens first', () => {
    const world = new World({ queueOrder: 'sjf-output', maxSequences: 1 });
    for (const [id, prompt, output] of [
      ['a', 3, 9],
      ['b', 9, 2],
      ['c', 6, 5],
    ] as const) {
      world.add(id, prompt, output);
    }
    world.finish();
    expect(Object.keys(world.finished)).toEqual(['b', 'c', 'a']);
  });

  it('equal requests go by arrival and then by id, as strings', () => {
    const world = new World({ queueOrder: 'sjf' });
    for (const id of ['r2', 'r10', 'r1']) world.add(id, 3, 1, { arrivalUs: 0 });
    expect(world.scheduler.waitingRequests().map(({ id }) => id)).toEqual(['r1', 'r10', 'r2']);
  });
});

describe('victim rules', () => {
  it.each([
    ['fcfs', 'c'],
    ['priority', 'b'],
  ])('%s: the one that gives way', (victimRule, victim) => {
    const world = new World({ victimRule, hbmBlocks: 3 });
    world.add('a', 4, 4, { priority: 1 });
    world.add('b', 4, 4, { priority: 5 });
    world.add('c', 4, 4, { priority: 2 });
    world.step();
    const plan = world.scheduler.step(world.now);
    expect(plan.preempted[0].id).toBe(victim);
  });

  it('priority: of equals the latest arrival gives way, and then the one that joined last', () => {
    const world = new World({ victimRule: 'priority', hbmBlocks: 4 });
    for (const [id, arrivalUs] of [
      ['a', 5],
      ['b', 7],
      ['c', 7],
      ['d', 1],
    ] as const) {
      world.add(id, 4, 4, { arrivalUs });
    }
    world.step();
    const plan = world.scheduler.step(world.now);
    expect(plan.preempted.map(({ id }) => id)).toEqual(['c', 'b']);
  });
});

describe('unknown names', () => {
  it.each([
    [{ queueOrder: 'prority-fcfs' }, 'queueOrder', "'priority-fcfs'"],
    [{ victimRule: 'piority' }, 'victimRule', "'priority'"],
    [{ preemption: 'recompte' }, 'preemption', "'recompute'"],
    [{ publish: 'whenPlaned' }, 'publish', "'whenPlanned'"],
    [{ queueOrder: 'x' }, 'queueOrder', 'fcfs, tenant-turns, priority-fcfs, sjf, reverse-priority'],
  ] satisfies [SchedulerConfig, string, string][])(
    '%o names the field and the nearest',
    (config, field, near) => {
      expect(() => new World(config)).toThrow(near);
      expect(() => new World(config)).toThrow(expect.objectContaining({ code: 'TKV_CONFIG', field }));
    },
  );

  it('every name that is offered is taken', () => {
    for (const queueOrder of [...plainOrderNames, 'tenant-turns', 'ranked'])
      expect(new World({ queueOrder }).scheduler.config.queueOrder).toBe(queueOrder);
    for (const victimRule of victimRuleNames)
      expect(new World({ victimRule }).scheduler.config.victimRule).toBe(victimRule);
    for (const publish of publishNames) expect(new World({ publish }).scheduler.config.publish).toBe(publish);
    for (const preemption of preemptionNames) {
      expect(new World({ preemption, ddrBlocks: 8 }).scheduler.config.preemption).toBe(preemption);
    }
  });
});

describe('numbers', () => {
  it.each([
    { maxBatchedTokens: 0 },
    { maxBatchedTokens: 1.5 },
    { maxSequences: -1 },
    { longPrefillTokens: -1 },
    { maxModelTokens: Number.NaN },
  ])('%o is refused by its field', (config) => {
    const [field] = Object.keys(config);
    expect(() => new World(config)).toThrow(expect.objectContaining({ code: 'TKV_CONFIG', field }));
  });

  it('offload needs a tier to go to', () => {
    expect(() => new World({ preemption: 'offload' })).toThrow(/needs a tier below HBM.*'recompute'/);
  });
});
