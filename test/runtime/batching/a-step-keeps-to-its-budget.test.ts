import { expect, it } from 'vitest';
import { World } from './world.ts';

it('decodes come first, a prompt takes what is left of the budget, and goes on in later steps', () => {
  const world = new World({ maxBatchedTokens: 8, hbmBlocks: 32 });
  world.add('a', 6, 4);
  world.add('b', 20, 2);
  expect(world.step()).toEqual({ a: [0, 6], b: [0, 2] });
  expect(world.step()).toEqual({ a: [6, 7], b: [2, 9] });
  expect(world.step()).toEqual({ a: [7, 8], b: [9, 16] });
  expect(world.step()).toEqual({ a: [8, 9], b: [16, 20] });
  expect(world.finished).toEqual({ a: 'length' });
  expect(world.step()).toEqual({ b: [20, 21] });
  expect(world.finished).toEqual({ a: 'length', b: 'length' });
});

it('a long prefill takes no more than its limit a step, so that others get a part', () => {
  const world = new World({ maxBatchedTokens: 16, longPrefillTokens: 6, hbmBlocks: 32 });
  world.add('a', 20, 1);
  world.add('b', 20, 1);
  expect(world.step()).toEqual({ a: [0, 6], b: [0, 6] });
  expect(world.step()).toEqual({ a: [6, 12], b: [6, 12] });
});

it('more decodes than the budget: the first of the batch go, the others wait a step and lose nothing', () => {
  const world = new World({ maxBatchedTokens: 2, hbmBlocks: 32 });
  for (const id of ['a', 'b', 'c']) world.add(id, 1, 4);
  expect(world.step()).toEqual({ a: [0, 1], b: [0, 1] });
  expect(world.step()).toEqual({ a: [1, 2], b: [1, 2] });
  expect(world.step()).toEqual({ a: [2, 3], b: [2, 3] });
  expect(world.step()).toEqual({ a: [3, 4], b: [3, 4] });
  expect(world.step()).toEqual({ c: [0, 1] });
  world.finish();
  expect(world.outputs).toEqual({ a: 4, b: 4, c: 4 });
});

it('decodes that a prefill before them left out go on where they were', () => {
  const world = new World({ maxBatchedTokens: 6, maxSequences: 3, hbmBlocks: 32 });
  world.add('a', 10, 2);
  world.add('b', 2, 9);
  expect(world.step()).toEqual({ a: [0, 6] });
  expect(world.step()).toEqual({ a: [6, 10], b: [0, 2] });
  expect(world.step()).toEqual({ a: [10, 11], b: [2, 3] });
  world.add('c', 20, 3);
  expect(world.step()).toEqual({ b: [3, 4], c: [0, 5] });
  world.finish();
  expect(world.outputs).toEqual({ a: 2, b: 9, c: 3 });
});

it('no more requests run than there are seats', () => {
  const world = new World({ maxSequences: 2, hbmBlocks: 32 });
  for (const id of ['a', 'b', 'c']) world.add(id, 3, id === 'a' ? 2 : 5);
  expect(Object.keys(world.step())).toEqual(['a', 'b']);
  expect(Object.keys(world.step())).toEqual(['a', 'b']);
  expect(Object.keys(world.step())).toEqual(['b', 'c']);
});

it('a head of the queue that does not fit holds up those behind it, though they would fit', () => {
  const world = new World({ hbmBlocks: 6 });
  world.add('running', 16, 3);
  world.step();
  world.add('large', 20, 1);
  world.add('small', 2, 1);
  expect(Object.keys(world.step())).toEqual(['running']);
  expect(world.scheduler.waitingCount).toBe(2);
  world.finish();
  expect(Object.keys(world.finished)).toEqual(['running', 'large', 'small']);
});

it('the sums of a plan are those of its requests', () => {
  const world = new World({ maxBatchedTokens: 12, hbmBlocks: 32 });
  world.add('a', 5, 9);
  world.add('b', 4, 9);
  world.step();
  world.add('c', 30, 1);
  const plan = world.scheduler.step(world.now);
  expect([plan.requests, plan.tokens, plan.decodes, plan.prefills]).toEqual([3, 12, 2, 1]);
  expect(plan.decodeContextTokens).toBe(5 + 4);
  expect(plan.request(plan.firstPrefill()).id).toBe('c');
  expect(plan.samples(plan.firstPrefill())).toBe(false);
  expect(plan.nextPrefill(plan.firstPrefill())).toBe(-1);
  expect(plan.admitted.map(({ id }) => id)).toEqual(['c']);
});
