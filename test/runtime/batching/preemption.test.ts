import { describe, expect, it } from 'vitest';
import { Outcome } from '../../../src/runtime/index.ts';
import { keysOf, World } from './world.ts';

/** Two requests of 4 blocks in the end, where HBM has 6. */
function crowded(preemption: string, ddrBlocks?: number): World {
  const world = new World({ preemption, hbmBlocks: 6, ...(ddrBlocks === undefined ? {} : { ddrBlocks }) });
  world.add('a', 8, 8, { keys: keysOf([1, 2, 3, 4]) });
  world.add('b', 8, 8, { keys: keysOf([11, 12, 13, 14]) });
  return world;
}

describe('a request that gives way', () => {
  it('is the last of the batch, waits in front of the queue, and keeps the tokens it has generated', () => {
    const world = crowded('recompute');
    for (let i = 0; i < 5; i++) expect(Object.keys(world.step())).toEqual(['a', 'b']);
    world.add('late', 2, 1);
    expect(world.step()).toEqual({ a: [12, 13] });
    expect(world.scheduler.waitingRequests().map(({ id }) => id)).toEqual(['b', 'late']);
    expect(world.scheduler.progress('b')).toEqual({ knownTokens: 13, computedTokens: 0, preemptions: 1 });
    world.finish();
    expect(world.outputs).toEqual({ a: 8, b: 8, late: 1 });
    expect(world.scheduler.counters.preemptions).toBe(1);
  });

  it('finds what is still cached of it when it comes back', () => {
    const world = crowded('recompute');
    while (world.scheduler.counters.preemptions === 0) world.step();
    while (world.scheduler.progress('a') !== undefined) world.step();
    const resumed = world.plan();
    expect(resumed.b[0]).toBeGreaterThan(0);
    expect(resumed.b[1]).toBe(13);
  });

  it('restart: generates its tokens again from the first', () => {
    const world = crowded('restart');
    while (world.scheduler.counters.preemptions === 0) world.step();
    expect(world.scheduler.progress('b')).toMatchObject({ knownTokens: 8 });
    world.finish();
    expect(world.outputs).toEqual({ a: 8, b: 8 });
  });

  it('offload: its room is made at once by moving blocks down, and it finds its full blocks again', () => {
    const world = crowded('offload', 16);
    while (world.scheduler.counters.preemptions === 0) world.step();
    expect(world.manager.inspect.counters.offloads).toBeGreaterThanOrEqual(2);
    while (world.scheduler.progress('a') !== undefined) world.step();
    expect(world.plan()).toEqual({ b: [12, 13] });
  });

  it('returns the tokens of this step that it already had, and others get them', () => {
    const world = new World({ victimRule: 'priority', hbmBlocks: 4, maxBatchedTokens: 6 });
    world.add('urgent', 4, 9, { priority: 9 });
    world.add('patient', 4, 9, { priority: 0 });
    while (world.scheduler.runningCount < 2) world.step();
    while (world.scheduler.counters.preemptions === 0) world.step();
    expect(world.scheduler.progress('urgent')).toMatchObject({ preemptions: 1 });
    world.finish();
    expect(world.outputs).toEqual({ urgent: 9, patient: 9 });
  });

  it('admits no request in the step that preempted one', () => {
    const world = crowded('recompute');
    for (let i = 0; i < 5; i++) world.step();
    world.add('small', 1, 1);
    const plan = world.scheduler.step(world.now);
    expect(plan.preempted.map(({ id }) => id)).toEqual(['b']);
    expect(plan.admitted).toEqual([]);
  });

  it('and was the first of the batch: the others are computed in the same step, so no step is empty', () => {
    const world = new World({ victimRule: 'priority', hbmBlocks: 4 });
    world.add('first', 8, 9, { priority: 5 });
    world.add('second', 7, 9, { priority: 1 });
    world.step();
    expect(world.step()).toEqual({ second: [7, 8] });
    expect(world.scheduler.progress('first')).toMatchObject({ preemptions: 1 });
  });
});

it('a step that failed brings nothing: all that ran are computed again, in order, with the tokens they had', () => {
  const world = new World();
  for (const id of ['a', 'b', 'c']) world.add(id, 4, 5);
  world.step();
  world.step();
  world.plan();
  expect(world.scheduler.abort('b', world.now)).toBe('endsWithStep');
  const { finished } = world.scheduler.stepFailed(world.now);
  world.audit();
  expect(finished.map(({ id }) => id)).toEqual(['b']);
  expect(world.scheduler.waitingRequests().map(({ id }) => id)).toEqual(['a', 'c']);
  expect(() => world.scheduler.stepFailed(world.now)).toThrow(expect.objectContaining({ code: 'TKV_STATE' }));
  expect(world.step()).toEqual({ a: [0, 6], c: [0, 6] });
  world.finish();
  expect(world.outputs).toEqual({ a: 5, c: 5 });
});

it('a request that lost its blocks is computed again from its tokens', () => {
  const world = new World();
  world.add('a', 8, 8);
  world.add('b', 8, 8);
  for (let i = 0; i < 3; i++) world.step();
  world.scheduler.requeue('a', world.now);
  world.audit();
  expect(world.step()).toEqual({ a: [0, 11], b: [10, 11] });
  expect(() => world.scheduler.requeue('x', world.now)).toThrow(
    expect.objectContaining({ code: 'TKV_UNKNOWN_ID' }),
  );
  world.finish();
  expect(world.outputs).toEqual({ a: 8, b: 8 });
});

describe('blocks that lost their bytes between steps', () => {
  /** One request of three computed blocks whose last seal is still under way. */
  function sealing(): World {
    const world = new World({ isInstant: false, publish: 'whenComputed' });
    world.add('a', 12, 8, { keys: keysOf([1, 2, 3, 4, 5]) });
    world.add('b', 4, 8);
    world.step();
    return world;
  }

  it('cause only their own request to be computed again', () => {
    const world = sealing();
    world.settle(Outcome.REFUSED);
    expect(world.scheduler.isDisturbed).toBe(true);
    expect(world.step()).toEqual({ b: [4, 5] });
    expect(world.scheduler.waitingRequests().map(({ id }) => id)).toEqual(['a']);
    expect(world.step()).toEqual({ b: [5, 6], a: [0, 13] });
    world.settle();
    world.finish();
    expect(world.outputs).toEqual({ a: 8, b: 8 });
  });

  it('while a sealed block that keeps them costs nothing', () => {
    const world = sealing();
    world.settle();
    expect(world.scheduler.isDisturbed).toBe(false);
    expect(world.step()).toEqual({ a: [12, 13], b: [4, 5] });
  });

  it('also those of a request that waits with loaded blocks', () => {
    const world = new World({ isInstant: false, hbmBlocks: 6, ddrBlocks: 8 });
    const keys = keysOf([1, 2]);
    world.add('first', 8, 1, { keys });
    world.step();
    world.settle();
    world.manager.evict(0, 2, world.now);
    world.settle();
    world.add('big', 12, 9);
    world.step();
    world.settle();
    world.add('second', 15, 2, { keys });
    expect(world.step(), 'its blocks are on their way').toEqual({ big: [12, 13] });
    world.settle();
    expect(world.step(), 'they are there, and the rest does not fit').toEqual({ big: [13, 14] });
    world.manager.loseTier(0, world.now);
    world.audit();
    for (let i = 0; i < 20 && world.scheduler.size > 0; i++) {
      world.step();
      world.settle();
    }
    expect(world.outputs).toEqual({ first: 1, big: 9, second: 2 });
  });
});

it('demote: blocks that only the request holds go down at once, shared ones stay', () => {
  const world = crowded('recompute', 16);
  const { manager } = world;
  const keys = keysOf([1, 2, 3]).words;
  const sequence = manager.open(keys, 3, 0);
  manager.allocate(sequence, 0, 3, 0);
  manager.seal(sequence, 0, 3, keys, 0, 4, 0);
  world.settle();
  const sharer = manager.open(keys, 1, 0);
  manager.demote(sequence, 0);
  world.settle();
  world.audit();
  expect(manager.lookup(keys, 3).byTier).toEqual([1, 2]);
  expect(manager.inspect.counters.preemptions).toBe(1);
  expect(() => manager.demote(sequence, 0)).toThrow(expect.objectContaining({ code: 'TKV_UNKNOWN_ID' }));
  manager.release(sharer, 0);
});

it('demote: without a lower tier the blocks stay cached', () => {
  const world = crowded('recompute');
  const { manager } = world;
  const keys = keysOf([1, 2, 3]).words;
  const sequence = manager.open(keys, 3, 0);
  manager.allocate(sequence, 0, 3, 0);
  manager.seal(sequence, 0, 2, keys, 0, 4, 0);
  world.settle();
  manager.demote(sequence, 0);
  expect(manager.lookup(keys, 3).byTier).toEqual([2]);
  world.audit();
});

describe('quotas', () => {
  /** `mine`, owner 1, joins the batch last, so it is the one to give way; `theirs`, owner 0, needs the room. */
  function whoGaveWay(quota: number | null): string[] {
    const world = new World({ hbmBlocks: 6, manager: { owners: 2 } });
    world.manager.setQuota(1, 0, quota, 0);
    world.add('theirs', 7, 12);
    world.step();
    world.add('mine', 5, 7, { owner: 1 });
    const gone: string[] = [];
    for (let i = 0; i < 60 && world.scheduler.size > 0; i++) {
      const plan = world.scheduler.step(world.now);
      gone.push(...plan.preempted.map(({ id }) => id));
      if (plan.tokens > 0) world.end();
    }
    expect(world.outputs).toEqual({ theirs: 12, mine: 7 });
    return gone;
  }

  it('a request within the quota of its owner is not preempted for other owners; without one it is', () => {
    expect(whoGaveWay(4)).toEqual(['theirs']);
    expect(whoGaveWay(null)).toEqual(['mine']);
  });
});
