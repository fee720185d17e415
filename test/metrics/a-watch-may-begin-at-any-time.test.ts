/** A transfer under way when a watch begins ends as any other: how long it took is not known, and its link is free again. */

import { expect, it } from 'vitest';
import { CacheMeasures } from '../../src/observe/metrics/cacheMeasures.ts';
import { JobPriority, KVManager, Outcome } from '../../src/runtime/index.ts';

/** Four blocks are sent down while they are watched: from before the jobs are handed out, or from then on. */
function sentDown(watchedFrom: 'handedOut' | 'before'): CacheMeasures {
  const manager = new KVManager({
    unitBytes: [1],
    hbm: { capacityBytes: 8 },
    ddr: { capacityBytes: 8 },
  });
  const keys = Uint32Array.from({ length: 16 }, (_, i) => i + 1);
  const handOut = (): number[] => {
    const jobs: number[] = [];
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) jobs.push(job);
    return jobs;
  };
  const end = (jobs: readonly number[], nowUs: number): void => {
    for (const job of jobs)
      manager.complete(job as Parameters<KVManager['complete']>[0], Outcome.LOADED, nowUs);
  };
  const sequence = manager.open(keys, 0, 1000);
  manager.allocate(sequence, 0, 4, 1000);
  end(handOut(), 1000);
  manager.seal(sequence, 0, 4, keys, 0, 16, 2_000_000);
  end(handOut(), 2_000_000);
  manager.release(sequence, 3_000_000);
  end(handOut(), 3_000_000);
  const early = watchedFrom === 'before' ? new CacheMeasures(manager) : undefined;
  for (let i = 0; i < 4; i++) {
    expect(manager.move(keys.subarray(4 * i, 4 * i + 4), 1, JobPriority.WRITE_THROUGH, 4_000_000)).toBe(
      'started',
    );
  }
  const jobs = handOut();
  expect(jobs).toHaveLength(4);
  const measures = early ?? new CacheMeasures(manager);
  end(jobs, 5_000_000);
  return measures;
}

it.each([
  ['before', 4],
  ['handedOut', 0],
] as const)('watched from %s: %i times are known', (from, known) => {
  const { tiers, links, manager } = sentDown(from);
  expect(tiers[1]).toMatchObject({ storeBlocks: 4, storeSeconds: { count: known } });
  expect(tiers[1].storeSeconds.sum).toBeCloseTo(known, 3);
  expect(links.map(({ inFlight }) => inFlight)).toEqual([0]);
  expect(links[0].bytes).toBe(4);
  expect(links[0].busyUs(manager.inspect.nowUs)).toBe(known === 0 ? 0 : 1_000_000);
});
