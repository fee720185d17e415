/**
 * A prefetch goes behind the loads that requests wait for, unless it is said to be more urgent. The queue of a
 * link takes jobs by their priority (test/backends/engine/linkQueue.test.ts); here is which one they get.
 */

import { expect, it, vi } from 'vitest';
import { JobPriority, type Transfer } from '../../src/runtime/index.ts';
import {
  ask,
  blocks,
  cacheBelow,
  contents,
  layout,
  openRuntime,
  prompt,
  promptBlocks,
  rightContents,
  tenant,
  write,
} from './liveRuntime.ts';

it.each([
  [undefined, JobPriority.PREFETCH],
  [0, JobPriority.PREFETCH],
  [-1, JobPriority.DEMAND_LOAD],
  [5, JobPriority.SCRUB],
])('priority %s', async (priority, expected) => {
  await using kv = await openRuntime({ ddrBytes: blocks(20) });
  await cacheBelow(kv, 1, 1);
  const submitted = vi.spyOn(kv.manager, 'transfer');
  expect(kv.prefetch(prompt(1), { tenant, priority })).toBe(promptBlocks);
  const transfers = submitted.mock.results.map(({ value }) => value as Transfer);
  expect(transfers.map(({ priority }) => priority)).toEqual(Array(promptBlocks).fill(expected));
  await kv.idle();
  expect(kv.lookup(prompt(1), { tenant }).byTier).toEqual([promptBlocks, 0]);
});

it('a request that does not wait for room takes the room of a prefetch under way', async () => {
  await using kv = await openRuntime({ hbmBytes: blocks(promptBlocks + 1), ddrBytes: blocks(20) });
  await cacheBelow(kv, 1, 1);
  expect(kv.prefetch(prompt(1), { tenant })).toBe(promptBlocks);
  expect(kv.room.blocks).toBe(promptBlocks + 1);
  const sequence = await kv.begin(prompt(2), { tenant });
  expect(write(kv, sequence, 2)).toHaveLength(promptBlocks + 1);
  await kv.seal(sequence);
  expect((await contents(kv, sequence)).slice(0, promptBlocks)).toEqual(rightContents(2));
  kv.release(sequence);
  await kv.idle();
  expect(await ask(kv, 1)).toEqual({ cachedTokens: promptBlocks * layout.blockTokens, right: true });
});

it.each([['soon'], [Number.NaN], [null]])(
  'priority %s is refused, and nothing is brought',
  async (priority) => {
    await using kv = await openRuntime({ ddrBytes: blocks(20) });
    await cacheBelow(kv, 1, 1);
    expect(() => kv.prefetch(prompt(1), { tenant, priority: priority as never })).toThrow(
      expect.objectContaining({ code: 'TKV_INPUT', field: 'priority' }),
    );
    expect(kv.manager.inspect.jobsInFlight).toBe(0);
  },
);
