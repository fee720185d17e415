/**
 * Lookups of a whole queue give what lookups one by one give, with whole prefixes, with holes, and without
 * chained keys.
 */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { ManagerConfig } from '../../../src/runtime/index.ts';
import { World } from './world.ts';

/** Chains through a tree: the block at a depth is named by the whole path to it. */
function pathIds(choices: readonly number[]): number[] {
  let id = 1;
  return choices.map((choice) => {
    id = id * 3 + choice + 1;
    return id;
  });
}

const path = fc.array(fc.integer({ min: 0, max: 1 }), { maxLength: 7 });

function answersOfQueue(world: World, queue: readonly (readonly number[])[]): number[] {
  const ids = queue.map(pathIds);
  const keys = world.keys(0, ...ids.flat());
  const counts = Uint32Array.from(ids, (chain) => chain.length);
  const firsts = new Uint32Array(ids.length);
  for (let r = 0, next = 1; r < ids.length; next += counts[r++]) firsts[r] = next;
  const out = new Uint32Array(ids.length).fill(77);
  world.manager.matchLengths(keys, firsts, counts, out);
  return [...out];
}

function expectSameAnswers(world: World, queue: readonly (readonly number[])[]): void {
  const counters = JSON.stringify(world.manager.inspect.counters);
  const answers = answersOfQueue(world, queue);
  const oneByOne = queue.map((chain) => {
    const keys = world.keys(...pathIds(chain));
    const length = world.manager.matchLength(keys, chain.length);
    expect(world.manager.lookup(keys, chain.length).blocks).toBe(length);
    return length;
  });
  expect(answers).toEqual(oneByOne);
  expect(JSON.stringify(world.manager.inspect.counters)).toBe(counters);
}

const configs: readonly [string, Partial<ManagerConfig>][] = [
  ['one tier', { hbm: { capacityBytes: 12 } }],
  ['two tiers', { hbm: { capacityBytes: 8 }, ddr: { capacityBytes: 12 } }],
  ['keys that are not chained', { hbm: { capacityBytes: 12 }, chainedKeys: false }],
];

describe.each(configs)('%s', (_, config) => {
  it('the queue gets the answers of its requests', () => {
    const cached = fc.array(path, { maxLength: 8 });
    fc.assert(
      fc.property(cached, fc.array(path, { maxLength: 20 }), fc.nat(3), (chains, queue, evicted) => {
        const world = new World(config);
        for (const chain of chains) world.cache(...pathIds(chain));
        world.manager.evict(0, evicted, world.now);
        world.settle();
        expectSameAnswers(world, [...queue, ...chains]);
      }),
      { numRuns: 30 },
    );
  });
});

it('walks where a block is cached without its ancestors', () => {
  const world = new World({ hbm: { capacityBytes: 2 }, maxJobs: 4 });
  const chain = [0, 0, 0, 0, 0];
  const ids = pathIds(chain);
  const keys = world.keys(...ids);
  const sequence = world.manager.open(keys, ids.length, 0);
  for (let i = 0; i < ids.length; i++) {
    if (i >= 2) world.manager.releaseRange(sequence, i - 2, i - 1, 0);
    world.manager.allocate(sequence, i, i + 1, 0);
    world.manager.seal(sequence, i, i + 1, keys, i * 4, 16, 0);
    world.settle();
  }
  world.manager.release(sequence, 0);
  world.settle();
  expect(world.manager.inspect.prefixesAreWhole).toBe(false);
  expectSameAnswers(world, [chain, chain.slice(0, 2), []]);
  expect(answersOfQueue(world, [chain])).toEqual([0]);
  world.cache(ids[0]);
  expectSameAnswers(world, [chain, [0], [1], chain.slice(0, 4)]);
  expect(answersOfQueue(world, [chain, [1]])).toEqual([1, 0]);
});

it('finds blocks that are on their way', () => {
  const world = new World();
  const keys = world.keys(...pathIds([0, 1]));
  const sequence = world.manager.open(keys, 2, 0);
  world.manager.allocate(sequence, 0, 2, 0);
  world.settle();
  expect(answersOfQueue(world, [[0, 1]])).toEqual([0]);
  world.manager.seal(sequence, 0, 1, keys, 0, 16, 0);
  expect(answersOfQueue(world, [[0, 1], [0], [1]])).toEqual([1, 1, 0]);
  expectSameAnswers(world, [[0, 1], [0], [1], []]);
});

it('refuses keys that are not there', () => {
  const world = new World();
  const one = new Uint32Array(1);
  expect(() => world.manager.matchLengths(new Uint32Array(4), one, new Uint32Array([2]), one)).toThrow(
    'keys must be a Uint32Array with four words a block, of 2 blocks, and it has 4.',
  );
  expect(() => world.manager.matchLengths(new Uint32Array(4), one, one, new Uint32Array(0))).toThrow(
    'out must be a Uint32Array with a word for each request, and it has 0.',
  );
  expect(() => world.manager.matchLengths(new Uint32Array(4), one, null as never, one)).toThrow(
    'counts must be a Uint32Array with a word for each request, and it is null.',
  );
});

const others = [
  new Float32Array(8),
  new Int32Array(8),
  new Uint8Array(32),
  new BigUint64Array(8),
  Array(8).fill(1),
];
it.each([null, undefined, 'keys', 7, [1], new Uint32Array(7), ...others])(
  '%o in place of keys is named',
  (wrong) => {
    const { manager } = new World();
    const keys = wrong as never;
    const calls = [
      () => manager.lookup(keys, 2),
      () => manager.matchLength(keys, 2),
      () => manager.blockIds(keys, 2),
      () => manager.canOpen(keys, 2, 1),
      () => manager.bytesToOpen(keys, 2, 1),
      () => manager.open(keys, 2, 0),
      () => manager.openIfFits(keys, 2, 0, 2, 1),
      () => manager.prefetch(keys, 2, 0),
    ];
    for (const call of calls) {
      expect(call).toThrow(expect.objectContaining({ code: 'TKV_INPUT', field: 'keys' }));
    }
  },
);

it.each([Number.NaN, -1, 1.5, Number.POSITIVE_INFINITY, '1', null, 1n])(
  '%o in place of a number is named',
  (wrong) => {
    const { manager } = new World();
    const keys = new Uint32Array(8);
    const sequence = manager.open(keys, 2, 0);
    manager.allocate(sequence, 0, 2, 0);
    const n = wrong as never;
    const calls: readonly (readonly [field: string, call: () => unknown])[] = [
      ['count', () => manager.lookup(keys, n)],
      ['count', () => manager.open(keys, n, 0)],
      ['units', () => manager.openIfFits(keys, 2, 0, 2, n)],
      ['from', () => manager.allocate(sequence, n, 2, 0)],
      ['to', () => manager.allocate(sequence, 0, n, 0)],
      ['to', () => manager.load(sequence, 0, 0, n)],
      ['from', () => manager.seal(sequence, n, 1, keys, 0, 16, 0)],
      ['at', () => manager.seal(sequence, 0, 1, keys, n, 16, 0)],
      ['tokens', () => manager.seal(sequence, 0, 1, keys, 0, n, 0)],
    ];
    const before = JSON.stringify(manager.inspect.dump());
    for (const [field, call] of calls) expect(call).toThrow(expect.objectContaining({ field }));
    const others = [...keys] as never;
    expect(() => manager.seal(sequence, 0, 1, others, 0, 16, 0)).toThrow(
      expect.objectContaining({ field: 'keys' }),
    );
    expect(JSON.stringify(manager.inspect.dump())).toBe(before);
  },
);
