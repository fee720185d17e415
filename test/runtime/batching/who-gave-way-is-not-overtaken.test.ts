/**
 * A request that gave way keeps its place: while others run, no request that arrived later is admitted in
 * front of it, whether it waits for room or for its blocks.
 */

import { expect, it } from 'vitest';
import { SchedulerDecision, type SchedulerSink } from '../../../src/runtime/batching/schedulerSink.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { keysOf, World } from './world.ts';

/** Follows who runs and who gave way; requests have numbers in the order of their arrival. */
class Watch implements SchedulerSink {
  readonly running = new Set<number>();
  readonly gaveWay = new Set<number>();
  readonly overtaken: string[] = [];
  /** Requests that gave way and then waited for their blocks. */
  returns = 0;

  input(): void {}

  decision(op: SchedulerDecision, request: number): void {
    switch (op) {
      case SchedulerDecision.ADMIT:
        if (!this.gaveWay.delete(request) && this.running.size > 0) {
          const before = [...this.gaveWay].filter((other) => other < request);
          if (before.length > 0) this.overtaken.push(`${request} goes before ${before.join(', ')}`);
        }
        this.running.add(request);
        return;
      case SchedulerDecision.PREEMPT:
        this.running.delete(request);
        this.gaveWay.add(request);
        return;
      case SchedulerDecision.DEFER:
        if (this.gaveWay.has(request)) this.returns++;
        return;
      case SchedulerDecision.FINISH:
        this.running.delete(request);
        this.gaveWay.delete(request);
    }
  }
}

it.each(['offload', 'recompute'])('a request that gave way is not overtaken, with %s', (preemption) => {
  let returns = 0;
  let preemptions = 0;
  for (let seed = 1; seed <= 24; seed++) {
    const random = new SeededRandom(seed);
    const watch = new Watch();
    const world = new World({
      hbmBlocks: 12 + random.below(8),
      ddrBlocks: 64,
      landingBlocks: 4,
      isInstant: false,
      preemption,
      maxSequences: 8,
      sink: watch,
    });
    for (let step = 0; step < 120; step++) {
      if (step < 80 && random.chance(0.35)) {
        const [prompt, output] = [4 + random.below(20), 4 + random.below(16)];
        const blocks = Array.from(
          { length: Math.floor((prompt + output) / 4) },
          (_, i) => 100 * step + i + 1,
        );
        world.add(`r${step}`, prompt, output, { keys: keysOf(blocks) });
      }
      world.step();
      // transfers take a few steps
      world.issued();
      while (world.jobs.length > 0 && random.chance(0.6)) world.endJob(world.jobs[0]);
    }
    expect(watch.overtaken, `seed ${seed}`).toEqual([]);
    returns += watch.returns;
    preemptions += world.scheduler.counters.preemptions;
  }
  expect(preemptions).toBeGreaterThan(10);
  if (preemption === 'offload') expect(returns).toBeGreaterThan(3);
});

it('three later requests leave its room to a request whose blocks come up again', () => {
  const gaveWay: string[] = [];
  const world = new World({
    hbmBlocks: 16,
    ddrBlocks: 64,
    landingBlocks: 4,
    isInstant: false,
    preemption: 'offload',
    maxSequences: 8,
    sink: {
      input() {},
      decision(op, request) {
        if (op === SchedulerDecision.PREEMPT) gaveWay.push(String(request));
      },
    },
  });
  const add = (id: string, prompt: number, output: number, firstKey: number): void => {
    const blocks = Array.from({ length: Math.floor((prompt + output) / 4) }, (_, i) => firstKey + i);
    world.add(id, prompt, output, { keys: keysOf(blocks) });
  };
  add('first', 24, 24, 1000);
  add('second', 24, 24, 2000);
  // transfers take eight steps
  const since = new Map<number, number>();
  const endedAt: Record<string, number> = {};
  let steps = 0;
  while (world.scheduler.size > 0 && steps < 200) {
    if (steps >= 6 && steps < 9) add(`later ${steps}`, 8, 24, 100 * steps);
    world.step();
    steps++;
    world.now = Math.max(world.now, steps);
    world.issued();
    for (const job of [...world.jobs]) {
      const began = since.get(job.job) ?? steps;
      since.set(job.job, began);
      if (steps - began >= 8) world.endJob(job);
    }
    for (const id of Object.keys(world.finished)) endedAt[id] ??= steps;
  }
  expect(gaveWay).toContain('2');
  // where later requests took its room, it ended at step 95, and all at 113
  expect(endedAt.second).toBe(59);
  expect(steps).toBe(93);
});
