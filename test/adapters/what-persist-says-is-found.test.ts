/** `prefixCache.persist()`: what it calls durable is found after a crash, it moves nothing, and a sick disk costs nothing. */

import { afterAll, beforeAll, expect, test } from 'vitest';
import { layoutOf, withPrefixCache } from '../../src/adapters/transformers/index.ts';
import { FaultPlan, FaultStore } from '../../src/testing/faults.ts';
import { crashed } from '../backends/file/scratch.ts';
import {
  generated,
  type LoadedDecoder,
  loadDecoder,
  openRuntimeOf,
  randomIds,
  randomNumbers,
  removeDirectories,
  temporary,
} from './decoders.ts';

afterAll(removeDirectories);

const prompt = randomIds(randomNumbers(22), 200); // 12 full blocks
let decoder: LoadedDecoder;
beforeAll(async () => {
  decoder = await loadDecoder();
});

test('on a sound disk: it says how many blocks, moves none, and a crash right after it loses none', async () => {
  const { model, directory } = decoder;
  const layout = layoutOf(model);
  const dir = temporary('persist');
  const nvme = { dir, bytes: 256 * (layout.blockBytes + 8192) };
  await using runtime = await openRuntimeOf(layout, { nvme });
  const options = { weights: directory, tenant: 'a', liveCaches: 0 };
  const cached = await withPrefixCache(model, { ...options, runtime });
  const plain = await generated(model, prompt);
  expect(await generated(cached, prompt)).toEqual(plain);
  const held = (): number[] =>
    runtime.manager.inspect.tiers.map((_, at) => runtime.manager.inspect.usage(at).slots.ready);
  const before = held();
  const durable = await cached.prefixCache.persist();
  expect(durable).toBeGreaterThanOrEqual(12);
  expect(held()).toEqual([before[0], durable]);
  expect(await cached.prefixCache.persist(), 'there is nothing more to do').toBe(durable);

  await using next = await openRuntimeOf(layout, { nvme: { ...nvme, dir: crashed(dir) } });
  expect(next.manager.inspect.usage(1).slots.ready).toBe(durable);
  const again = await withPrefixCache(model, { ...options, runtime: next });
  expect(await generated(again, prompt)).toEqual(plain);
  expect(again.prefixCache.counters.restoredTokens).toBe(192);
});

test('on a disk that takes no writes: it says so, all is still where it was, and it can be asked again', async () => {
  const { model, directory } = decoder;
  const layout = layoutOf(model);
  const dir = temporary('persist');
  const plan = new FaultPlan({ seed: 3, rates: { EIO: 1 } });
  const nvme = { dir, bytes: 256 * (layout.blockBytes + 8192) };
  await using runtime = await openRuntimeOf(layout, {
    nvme,
    notice: () => {},
    wrapStores: (stores) => {
      const sick = new FaultStore(stores.nvme!, { plan, wait: () => Promise.resolve() });
      return { ...stores, nvme: sick };
    },
  });
  const cached = await withPrefixCache(model, { weights: directory, tenant: 'a', liveCaches: 0, runtime });
  const plain = await generated(model, prompt);
  expect(await generated(cached, prompt)).toEqual(plain);
  const cachedBlocks = runtime.manager.inspect.usage(0).slots.ready;
  await expect(cached.prefixCache.persist()).rejects.toMatchObject({
    code: 'TKV_IO',
    message: expect.stringMatching(/holds 0 blocks durably, and \d+ are not saved and still where they were/),
  });
  expect(runtime.manager.inspect.usage(0).slots.ready).toBe(cachedBlocks);
  expect(await generated(cached, prompt)).toEqual(plain);
  expect(cached.prefixCache.counters.restoredTokens).toBe(192);
  plan.pause();
  expect(await cached.prefixCache.persist()).toBeGreaterThanOrEqual(12);
});
