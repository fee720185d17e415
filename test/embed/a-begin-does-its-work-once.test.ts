/** One `begin` asks the manager for its room once, and hashes no tail of a length that was never sealed. */

import { expect, it, vi } from 'vitest';
import { KeyChain } from '../../src/runtime/index.ts';
import { Core } from '../../src/runtime/manager/core.ts';
import { ask, blocks, cacheBelow, openRuntime, prompt, promptBlocks, tenant, write } from './liveRuntime.ts';

it('takes room for its loads and its open blocks in one input of the manager', async () => {
  await using kv = await openRuntime({ ddrBytes: blocks(20) });
  await cacheBelow(kv, 1, 1);
  const inputs = (['admit', 'openIfFits', 'load', 'allocate'] as const).map((name) =>
    vi.spyOn(kv.manager, name),
  );
  const sequence = await kv.begin(prompt(1), { tenant });
  expect(sequence.cachedTokens).toBe(64);
  expect(write(kv, sequence, 1)).toEqual([4]);
  expect(inputs.map(({ mock }) => mock.calls.length)).toEqual([1, 0, 0, 0]);
  kv.release(sequence);
});

it('gives loaded blocks to their waiter without offering them for eviction before', async () => {
  await using kv = await openRuntime({ ddrBytes: blocks(20) });
  await cacheBelow(kv, 1, 1);
  const offers = vi.spyOn(Core.prototype, 'makeEvictable');
  const sequence = await kv.begin(prompt(1), { tenant });
  expect(sequence.cachedTokens).toBe(64);
  expect(offers.mock.calls.filter(([, tier]) => tier === 0)).toEqual([]);
  kv.release(sequence);
  expect(offers.mock.calls.filter(([, tier]) => tier === 0)).toHaveLength(promptBlocks);
  offers.mockRestore();
});

it('looks for a tail only where one of that length was sealed', async () => {
  await using kv = await openRuntime({});
  await ask(kv, 1);
  const hashes = vi.spyOn(KeyChain.prototype, 'hashPartial');
  const goesOn = (tokens: number): Uint32Array => prompt(1).slice(0, tokens);
  kv.release(await kv.begin(goesOn(60), { tenant }));
  expect(hashes).toHaveBeenCalledTimes(0);

  const sequence = await kv.begin(goesOn(53), { tenant });
  write(kv, sequence, 1);
  expect(await kv.seal(sequence, { tail: true })).toBe('done');
  kv.release(sequence);
  hashes.mockClear();
  const next = await kv.begin(goesOn(60), { tenant });
  expect(next.cachedTokens).toBe(53);
  expect(hashes).toHaveBeenCalledTimes(1);
  kv.release(next);
  hashes.mockRestore();
});
