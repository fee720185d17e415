import { expect, it } from 'vitest';
import { measureRounds, shuffled } from '../../../src/studies/measure/contestants.ts';
import { median } from '../../../src/studies/measure/manager.ts';

const never = new AbortController().signal;

it('each contestant runs once in every round and once before them, in changing orders', async () => {
  const log: string[] = [];
  const contestants = [...'abcdefgh'].map((name) => ({
    name,
    bytes: 1,
    prepare: () => () => void log.push(name),
  }));
  const medians = await measureRounds(contestants, { rounds: 4, sampleMs: 0 }, async () => {}, never);
  const rounds = log.join('').match(/.{8}/g)!;
  expect(rounds).toHaveLength(5);
  for (const round of rounds) expect([...round].toSorted().join('')).toBe('abcdefgh');
  expect(new Set(rounds).size).toBeGreaterThan(1);
  expect([...medians.keys()]).toEqual([...'abcdefgh']);
});

it('what the contestant before has left behind ends before the next one is set up', async () => {
  const log: string[] = [];
  const prepare = () => {
    log.push('prepare');
    return () => void log.push('run');
  };
  const settle = async (): Promise<void> => void log.push('settle');
  await measureRounds([{ name: 'one', bytes: 1, prepare }], { rounds: 1, sampleMs: 0 }, settle, never);
  expect(log.join(' ')).toBe('settle prepare run settle prepare run');
});

it('a stop ends the rounds before the next contestant', async () => {
  const stop = new AbortController();
  let runs = 0;
  const prepare = () => () => {
    runs++;
    stop.abort(new Error('stopped'));
  };
  const contestants = ['a', 'b'].map((name) => ({ name, bytes: 1, prepare }));
  const ended = measureRounds(contestants, { rounds: 3, sampleMs: 0 }, async () => {}, stop.signal);
  await expect(ended).rejects.toThrow('stopped');
  expect(runs).toBe(1);
});

it('a median is one of the values, the lower one of two in the middle', () => {
  expect(median([5, 1, 9])).toBe(5);
  expect(median([4, 2])).toBe(2);
  expect(median([7])).toBe(7);
});

it('an order is the same for the same seed, and another one for another', () => {
  const items = Array.from({ length: 100 }, (_, i) => i);
  expect(shuffled(items, 3)).toEqual(shuffled(items, 3));
  expect(shuffled(items, 3)).not.toEqual(shuffled(items, 4));
  expect(shuffled(items, 3).toSorted((a, b) => a - b)).toEqual(items);
});
