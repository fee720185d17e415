import { describe, expect, it } from 'vitest';
import { Outcome } from '../../../src/runtime/index.ts';
import { keysOf, World } from './world.ts';

describe('a request ends', () => {
  it('with its last token; 0 and 1 output tokens end with the prefill', () => {
    const world = new World();
    world.add('none', 4, 0);
    world.add('one', 5, 1);
    world.add('three', 6, 3);
    world.step();
    expect(world.finished).toEqual({ none: 'length', one: 'length' });
    world.step();
    expect(world.finished).not.toHaveProperty('three');
    world.step();
    expect(world.finished).toHaveProperty('three', 'length');
    expect(world.outputs).toEqual({ none: 1, one: 1, three: 3 });
    expect(world.manager.inspect.usage(0).heldBytes).toBe(0);
  });

  it('when the engine saw a stop condition', () => {
    const world = new World();
    world.add('a', 4, 100);
    world.add('b', 4, 100);
    world.step();
    world.plan();
    expect(world.end('b')).toEqual(['b']);
    expect(world.finished).toEqual({ b: 'stop' });
    expect(world.outputs).toEqual({ b: 2 });
    expect(world.step()).toEqual({ a: [5, 6] });
  });

  it("at the model's length limit", () => {
    const world = new World({ maxModelTokens: 8 });
    world.add('a', 5, 100);
    world.finish();
    expect(world.finished).toEqual({ a: 'capacity' });
    expect(world.outputs).toEqual({ a: 3 });
  });

  it('when HBM holds no more of its tokens, rather than giving way to itself for ever', () => {
    const world = new World({ hbmBlocks: 2 });
    world.add('a', 5, 100);
    world.finish();
    expect(world.finished).toEqual({ a: 'capacity' });
    expect(world.outputs).toEqual({ a: 4 });
  });
});

describe('abort', () => {
  it('a waiting or running request ends at once, and its blocks are free', () => {
    const world = new World({ maxSequences: 1 });
    world.add('a', 5, 9);
    world.add('b', 5, 9);
    world.step();
    expect(world.scheduler.abort('b', world.now)).toBe('ended');
    expect(world.scheduler.abort('a', world.now)).toBe('ended');
    expect(world.scheduler.abort('a', world.now)).toBe('unknown');
    world.audit();
    expect(world.scheduler.size).toBe(0);
    expect(world.manager.inspect.openSequences).toBe(0);
  });

  it('a request that a step computes keeps its blocks until the step has ended', () => {
    const world = new World();
    world.add('a', 5, 9);
    world.plan();
    expect(world.scheduler.abort('a', world.now)).toBe('endsWithStep');
    expect(world.scheduler.abort('a', world.now)).toBe('endsWithStep');
    expect(world.manager.inspect.usage(0).heldBytes).toBe(2);
    expect(world.end()).toEqual(['a']);
    expect(world.finished).toEqual({ a: 'aborted' });
    expect(world.manager.inspect.usage(0).heldBytes).toBe(0);
  });

  it('calls off the loads that only it waits for', () => {
    const world = new World({ hbmBlocks: 4, ddrBlocks: 8, isInstant: false });
    world.add('a', 16, 1, { keys: keysOf([1, 2, 3, 4]) });
    world.finish();
    world.add('b', 16, 1);
    world.finish();
    world.add('c', 17 - 1, 1, { keys: keysOf([1, 2, 3, 4]) });
    expect(world.step()).toEqual({});
    expect(world.scheduler.loadingCount).toBe(1);
    expect(world.scheduler.abort('c', world.now)).toBe('ended');
    world.settle(Outcome.CANCELLED);
    expect(world.scheduler.size).toBe(0);
    expect(world.manager.inspect.openSequences).toBe(0);
  });
});

describe('calls that are refused change nothing', () => {
  it('an id in use, bad counts, prompts that can never run, a clock that goes back', () => {
    const world = new World({ hbmBlocks: 4, maxModelTokens: 30 });
    world.now = 5;
    world.add('a', 5, 9);
    expect(() => world.add('a', 5, 9)).toThrow(expect.objectContaining({ code: 'TKV_INPUT', field: 'id' }));
    expect(() => world.add('b', 0, 9)).toThrow(/promptTokens/);
    expect(() => world.add('b', 1.5, 9)).toThrow(/promptTokens/);
    expect(() => world.add('b', 5, -1)).toThrow(/maxOutputTokens/);
    expect(() => world.add('b', 17, 1)).toThrow(/at most 16 can run.*HBM/);
    expect(() => world.scheduler.step(4)).toThrow(/went back from 5 to 4/);
    expect(world.scheduler.size).toBe(1);
    world.finish();
    const narrow = new World({ maxModelTokens: 10 });
    expect(() => narrow.add('b', 10, 1)).toThrow(/at most 9 can run.*maxModelTokens/);
  });

  it('steps out of order, and stops of requests that sampled nothing', () => {
    const world = new World({ maxBatchedTokens: 4 });
    world.add('a', 6, 9);
    expect(() => world.scheduler.stepEnded({}, 0)).toThrow(expect.objectContaining({ code: 'TKV_STATE' }));
    world.plan();
    expect(() => world.scheduler.step(0)).toThrow(expect.objectContaining({ code: 'TKV_STATE' }));
    expect(() => world.end('a')).toThrow(/sampled no token/);
    expect(() => world.end('b')).toThrow(expect.objectContaining({ code: 'TKV_UNKNOWN_ID' }));
    expect(() => world.scheduler.requeue('a', 9)).toThrow(expect.objectContaining({ code: 'TKV_STATE' }));
    world.end();
    expect(world.step()).toEqual({ a: [4, 6] });
  });
});
