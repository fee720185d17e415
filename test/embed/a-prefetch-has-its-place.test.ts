/**
 * A prefetch goes behind the loads that requests wait for, unless it is said to be more urgent. The queue of a
 * link takes jobs by their priority (test/backends/engine/linkQueue.test.ts); here is which one they get.
 */

import { expect, it, vi } from 'vitest';
import { Priority } from '../../src/runtime/index.ts';
import { blocks, cacheBelow, openRuntime, prompt, promptBlocks, tenant } from './liveRuntime.ts';

it.each([
  [undefined, Priority.PREFETCH],
  [0, Priority.PREFETCH],
  [-1, Priority.DEMAND_LOAD],
  [5, Priority.SCRUB],
])('priority %s', async (priority, expected) => {
  await using kv = await openRuntime({ ddrBytes: blocks(20) });
  await cacheBelow(kv, 1, 1);
  const submitted = vi.spyOn(kv.stores.engine, 'submit');
  expect(kv.prefetch(prompt(1), { tenant, priority })).toBe(promptBlocks);
  const transfers = submitted.mock.calls.flatMap(([given]) => given);
  expect(transfers.map((transfer) => transfer.priority)).toEqual(Array(promptBlocks).fill(expected));
  await kv.idle();
  expect(kv.lookup(prompt(1), { tenant }).byTier).toEqual([promptBlocks, 0]);
});

it.each([['soon'], [Number.NaN], [null]])(
  'priority %s is refused, and nothing is brought',
  async (priority) => {
    await using kv = await openRuntime({ ddrBytes: blocks(20) });
    await cacheBelow(kv, 1, 1);
    expect(() => kv.prefetch(prompt(1), { tenant, priority: priority as never })).toThrow(
      expect.objectContaining({ code: 'TKV_INPUT', field: 'priority' }),
    );
    expect(kv.manager.jobsInFlight).toBe(0);
  },
);
