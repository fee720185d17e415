/**
 * Overlapped loads: a request computes found blocks from the front while they come from the back. Times are
 * the test's own: a step takes 1000 us and 10 us a token, a load what the test lets it take.
 */

import { describe, expect, it } from 'vitest';
import { JobPriority, Outcome, type Transfer } from '../../../src/runtime/index.ts';
import { keysOf, World, type WorldConfig } from './world.ts';

const blocks = Array.from({ length: 16 }, (_, i) => i + 1);

function step(world: World): Record<string, [number, number]> {
  const planned = world.plan();
  const tokens = Object.values(planned).reduce((sum, [from, to]) => sum + to - from, 0);
  if (tokens === 0) return planned;
  world.now += 1000 + 10 * tokens;
  world.end();
  return planned;
}

/** Each load takes `loadUs`. 16 blocks of 4 tokens have been computed, and have gone to host memory. */
function withPrefixBelow(loadUs: number, config: WorldConfig = {}): World {
  const world = new World({
    hbmBlocks: 40,
    ddrBlocks: 64,
    isInstant: false,
    prefixLoads: 'overlapped',
    manager: { eviction: { policy: 'lru' } },
    ...config,
  });
  const compute = (id: string, tokens: number, keys: readonly number[]): void => {
    world.add(id, tokens, 1, { keys: keysOf(keys) });
    while (world.scheduler.size > 0) step(world);
    world.settle();
  };
  for (let i = 0; i < 8; i++) compute(`pace ${i}`, 5 + 4 * i, [100 + i]);
  compute('probe', 17, [90, 91, 92, 93]);
  compute('old', 65, blocks);
  world.manager.evict(0, 40, world.now);
  world.settle();
  world.add('measured', 17, 1, { keys: keysOf([90, 91, 92, 93]) });
  for (let round = 0; world.scheduler.size > 0 && round < 50; round++) {
    step(world);
    for (const load of world.issued()) {
      world.now += loadUs;
      world.endJob(load);
    }
  }
  expect(world.scheduler.size).toBe(0);
  return world;
}

/** Blocks that were found since the world was made; the probe's four came before. */
const hits = ({ scheduler }: World): number => scheduler.counters.hitBlocks - 4;

function loadsOf(transfers: readonly Transfer[]): readonly Transfer[] {
  return transfers.filter(({ kind, source }) => kind === 'move' && source?.tier === 1);
}

const last = blocks.length - 1;

describe('a request whose prefix lies below HBM', () => {
  it('waits for all of it where loads are faster than steps', () => {
    const world = withPrefixBelow(5);
    world.add('hit', 65, 2, { keys: keysOf(blocks) });
    expect(step(world)).toEqual({});
    expect(world.scheduler.loadingCount).toBe(1);
    world.settle();
    expect(step(world)).toEqual({ hit: [64, 65] });
    expect(world.scheduler.counters.recomputedBlocks).toBe(0);
    expect(hits(world)).toBe(16);
  });

  it('computes all of it where loads are much slower', () => {
    const world = withPrefixBelow(50_000);
    world.add('hit', 65, 2, { keys: keysOf(blocks) });
    expect(step(world), 'and what comes behind it, in one step').toEqual({ hit: [0, 65] });
    expect(loadsOf(world.issued())).toEqual([]);
    expect(hits(world)).toBe(0);
    expect(world.scheduler.counters.recomputedBlocks).toBe(16);
    expect(step(world)).toEqual({ hit: [65, 66] });
  });

  it('computes all of it where a few blocks less would not end much sooner', () => {
    const world = withPrefixBelow(150);
    world.add('hit', 65, 2, { keys: keysOf(blocks) });
    expect(step(world)).toEqual({ hit: [0, 65] });
    expect(loadsOf(world.issued())).toEqual([]);
  });

  it('goes on behind it in the same step only as far as the step has tokens', () => {
    const world = withPrefixBelow(50_000, { maxBatchedTokens: 68 });
    world.add('hit', 80, 2, { keys: keysOf(blocks) });
    expect(step(world)).toEqual({ hit: [0, 68] });
    expect(step(world)).toEqual({ hit: [68, 80] });
    world.finish();
    expect(world.outputs.hit).toBe(2);
  });

  it('computes from the front and loads from the back in between, and goes on where they meet', () => {
    const world = withPrefixBelow(110);
    world.add('hit', 65, 2, { keys: keysOf(blocks) });
    const { hit } = step(world);
    const loads = loadsOf(world.issued());
    const met = hit[1] / 4;
    expect(hit[0]).toBe(0);
    expect(met).toBeGreaterThan(2);
    expect(met).toBeLessThan(14);
    expect(loads).toHaveLength(16 - met);
    const keys = keysOf(blocks).words;
    expect([...loads[0].key]).toEqual([...keys.subarray(4 * last, 4 * last + 4)]);
    for (const load of loads) world.endJob(load);
    expect(step(world)).toEqual({ hit: [64, 65] });
    expect(world.scheduler.counters.recomputedBlocks).toBe(met);
    expect(hits(world)).toBe(16 - met);
    expect(world.manager.inspect.counters.recomputed).toBe(met);
    world.finish();
    expect(world.outputs.hit).toBe(2);
  });

  it('skips what lies in HBM in the middle of it', () => {
    const world = withPrefixBelow(50_000);
    const { words } = keysOf(blocks);
    for (const i of [3, 4]) {
      world.manager.move(words.subarray(4 * i, 4 * i + 4), 0, JobPriority.PREFETCH, world.now);
    }
    world.now += 250_000;
    world.settle();
    world.add('hit', 65, 2, { keys: keysOf(blocks) });
    expect(step(world)).toEqual({ hit: [0, 12] });
    expect(step(world)).toEqual({ hit: [20, 65] });
  });
});

describe('what does not come', () => {
  it('a load that fails is computed, and the step that was under way counts', () => {
    const world = withPrefixBelow(110);
    world.add('hit', 65, 2, { keys: keysOf(blocks) });
    const met = Object.values(world.plan())[0][1] / 4;
    const loads = loadsOf(world.issued());
    loads.forEach((load, i) => {
      world.endJob(load, i === 3 ? Outcome.TIMED_OUT : Outcome.LOADED);
    });
    expect(world.scheduler.isDisturbed).toBe(false);
    world.now += 1500;
    world.end();
    const failed = 15 - 3;
    expect(met).toBeLessThan(failed);
    expect(step(world)).toEqual({ hit: [4 * failed, 4 * failed + 4] });
    expect(step(world)).toEqual({ hit: [64, 65] });
    expect(world.scheduler.counters.preemptions).toBe(0);
  });

  it('loads that are late are computed from the front, the more the later they are', () => {
    const world = withPrefixBelow(5);
    world.add('hit', 65, 2, { keys: keysOf(blocks) });
    expect(step(world)).toEqual({});
    const loads = loadsOf(world.issued());
    expect(loads).toHaveLength(16);
    expect(world.scheduler.lookAgainUs).toBeGreaterThan(world.now);
    expect(world.scheduler.lookAgainUs).toBeLessThan(world.now + 10_000);
    world.now += 2500;
    expect(step(world)).toEqual({ hit: [0, 65] });
    // They come after all; what was called off is not waited for.
    for (const load of loads) world.endJob(load);
    expect(step(world)).toEqual({ hit: [65, 66] });
    world.finish();
    expect(world.outputs.hit).toBe(2);
  });

  it('a request that can only wait is looked at again, and one that only computes is not', () => {
    const world = withPrefixBelow(50_000);
    world.add('hit', 65, 2, { keys: keysOf(blocks) });
    step(world);
    expect(world.scheduler.lookAgainUs).toBe(Number.POSITIVE_INFINITY);
  });

  it('when HBM is lost meanwhile, what lower tiers have is brought again', () => {
    const world = withPrefixBelow(110);
    world.add('hit', 65, 2, { keys: keysOf(blocks) });
    step(world);
    const loads = loadsOf(world.issued());
    world.endJob(loads[0]);
    world.manager.loseTier(0, world.now);
    for (const job of [...world.jobs]) world.endJob(job, Outcome.MISSING);
    world.finish();
    expect(world.outputs.hit).toBe(2);
  });
});
