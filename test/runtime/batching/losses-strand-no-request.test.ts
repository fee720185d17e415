/**
 * HBM is lost at random moments under a scheduler, with blocks on their way in both directions. No call may
 * be refused, and a step may only find nothing to do while a job is in flight that will end: otherwise the
 * scheduler would wait for what nothing brings.
 */

import { describe, expect, it } from 'vitest';
import { Outcome } from '../../../src/runtime/index.ts';
import { SeededRandom } from '../../../src/testing/patternItems.ts';
import { keysOf, World } from './world.ts';

const HBM_BLOCKS = 14;

/** @returns empty steps that came while nothing was in flight, and what was done */
function serve(seed: number, prefixLoads: 'awaited' | 'overlapped', losses: boolean) {
  const random = new SeededRandom(seed);
  const world = new World({
    hbmBlocks: HBM_BLOCKS,
    ddrBlocks: 40,
    landingBlocks: random.below(3),
    isInstant: false,
    prefixLoads,
    preemption: random.chance(0.5) ? 'offload' : 'recompute',
    maxBatchedTokens: 8 + random.below(40),
    maxSequences: 1 + random.below(6),
    manager: { eviction: { policy: 'lru' } },
  });
  let added = 0;
  let lost = 0;
  let stranded = 0;
  const jobEnds = (): void => {
    world.issued();
    const job = world.jobs[random.below(Math.max(1, world.jobs.length))];
    if (job === undefined) return;
    const failed = random.chance(0.1) ? Outcome.REFUSED : Outcome.LOADED;
    world.endJob(job, failed);
  };
  for (let round = 0; round < 400 || world.scheduler.size > 0; round++) {
    if (round > 20_000) throw new Error('requests are left after 20,000 rounds');
    world.now += 1 + random.below(3000);
    if (round < 400 && world.scheduler.size < 10 && random.chance(0.4)) {
      const topic = random.below(3) * 100;
      const blocks = 1 + random.below(9);
      const keys = Array.from({ length: blocks }, (_, i) => topic + i + (i > 5 ? random.below(2) * 1000 : 0));
      world.add(`r${added++}`, blocks * 4 + random.below(4), 1 + random.below(8), { keys: keysOf(keys) });
    }
    if (random.chance(0.5)) jobEnds();
    if (losses && round < 400 && random.chance(0.05)) {
      world.manager.loseTier(0, world.now);
      world.audit();
      lost++;
    }
    const planned = world.plan();
    if (Object.keys(planned).length === 0) {
      world.issued();
      if (world.jobs.length > 0) jobEnds();
      else if (world.scheduler.size > 0) stranded++;
      continue;
    }
    world.now += 500;
    const losesNow = losses && round < 400 && random.chance(0.05);
    if (losesNow) {
      world.manager.loseTier(0, world.now);
      lost++;
    }
    if (losesNow || world.scheduler.isDisturbed) world.scheduler.stepFailed(world.now);
    else world.end();
    world.audit();
  }
  world.settle();
  return { added, lost, stranded, recomputed: world.scheduler.counters.recomputedBlocks };
}

describe.each(['awaited', 'overlapped'] as const)('prefix loads %s', (prefixLoads) => {
  it.each([[true], [false]])('with losses: %s', (losses) => {
    let stranded = 0;
    let lost = 0;
    let recomputed = 0;
    for (let seed = 1; seed <= 6; seed++) {
      const served = serve(seed, prefixLoads, losses);
      stranded += served.stranded;
      lost += served.lost;
      recomputed += served.recomputed;
      expect(served.added).toBeGreaterThan(20);
    }
    expect(stranded, 'steps that nothing would have woken').toBe(0);
    if (prefixLoads === 'overlapped') expect(recomputed).toBeGreaterThan(10);
    if (losses) expect(lost).toBeGreaterThan(100);
  });
});
