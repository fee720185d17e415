import fs from 'node:fs';
import { DynamicCache } from '@huggingface/transformers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { layoutOf, type PrefixTurn, withPrefixCache } from '../../src/adapters/transformers/index.ts';
import { KVRuntime } from '../../src/index.ts';
import { testAdapter } from '../adapter.ts';
import {
  generated,
  type LoadedDecoder,
  loadDecoder,
  onesTensor,
  openRuntimeOf,
  randomIds,
  randomNumbers,
  removeDirectories,
  temporary,
} from './decoders.ts';

afterAll(removeDirectories);

const next = randomNumbers(21);
const prompt = randomIds(next, 200); // 12 full blocks
let decoder: LoadedDecoder;
beforeAll(async () => {
  decoder = await loadDecoder();
});

test('a prompt that the runtime can never hold is kept and restored as far as it fits', async () => {
  const { model, directory } = decoder;
  const layout = layoutOf(model);
  await using runtime = await openRuntimeOf(layout, { hbmBytes: 8 * layout.blockBytes });
  const turns: PrefixTurn[] = [];
  const report = (turn: PrefixTurn): void => void turns.push(turn);
  const cached = await withPrefixCache(model, {
    weights: directory,
    tenant: 'a',
    runtime,
    liveCaches: 0,
    report,
  });
  const plain = await generated(model, prompt);
  for (let i = 0; i < 2; i++) expect(await generated(cached, prompt)).toEqual(plain);
  expect(turns[0]).toMatchObject({ from: 'computed', uncached: undefined });
  expect(turns[0].savedBlocks).toBeGreaterThan(0);
  expect(turns[1]).toMatchObject({ from: 'restored', uncached: undefined });
  expect(turns[1].cachedTokens).toBe(16 * turns[0].savedBlocks);
});

test('blocks that others hold leave no room: the answer is computed, and the turn says why', async () => {
  const { model, directory } = decoder;
  const layout = layoutOf(model);
  await using runtime = await openRuntimeOf(layout, { hbmBytes: 16 * layout.blockBytes });
  const lines: string[] = [];
  const turns: PrefixTurn[] = [];
  const cached = await withPrefixCache(model, {
    weights: directory,
    tenant: 'a',
    runtime,
    liveCaches: 0,
    report: (turn) => void turns.push(turn),
    notice: (line) => void lines.push(line),
  });
  const plain = await generated(model, prompt);
  const held = await runtime.begin(randomIds(next, 14 * 16), { tenant: 'b' });
  expect(await generated(cached, prompt)).toEqual(plain);
  expect(turns.pop()).toMatchObject({ from: 'computed', savedBlocks: 0 });
  expect(lines.pop()).toMatch(/tierkv\/transformers: nothing was saved: /);
  await expect(cached.prefixCache.save(plain.slice(0, 64), await cacheOf(64))).rejects.toMatchObject({
    code: 'TKV_FULL',
  });
  runtime.release(held);
  expect(await generated(cached, prompt)).toEqual(plain);
  expect(turns.pop()).toMatchObject({ savedBlocks: 12, uncached: undefined });

  async function cacheOf(tokens: number): Promise<never> {
    const cache = new DynamicCache();
    const ids = plain.slice(0, tokens);
    const options = { attention_mask: onesTensor(tokens), past_key_values: cache, max_new_tokens: 1 };
    await generated(model, ids, options);
    return cache as never;
  }
});

test('files that go away cost no answer, and the end of the cache tells of them', async () => {
  const { model, directory } = decoder;
  const { blockBytes } = layoutOf(model);
  const dir = temporary('blocks');
  const options = {
    weights: directory,
    tenant: 'a',
    secretKey: new Uint8Array(32).fill(9),
    hbmBytes: 32 * blockBytes,
    ddrBytes: 32 * blockBytes,
    nvme: { dir, bytes: 128 * blockBytes },
    adapter: testAdapter,
    liveCaches: 0,
  };
  const plain = await generated(model, prompt);
  const first = await withPrefixCache(model, options);
  expect(await generated(first, prompt)).toEqual(plain);
  for (const name of fs.readdirSync(dir)) fs.rmSync(`${dir}/${name}`, { recursive: true });
  expect(await generated(first, prompt)).toEqual(plain);
  await expect(first.prefixCache.close()).rejects.toMatchObject({ code: 'TKV_IO' });
  await expect(first.prefixCache.close()).rejects.toMatchObject({ code: 'TKV_IO' }); // the same end
  // the directory is free again, and empty
  const second = await withPrefixCache(model, options);
  expect(await generated(second, prompt)).toEqual(plain);
  expect(second.prefixCache.counters).toMatchObject({ restoredTokens: 0, savedBlocks: 12 });
  await second.prefixCache.close();
  const third = await withPrefixCache(model, options);
  expect(await generated(third, prompt)).toEqual(plain);
  expect(third.prefixCache.counters).toMatchObject({ restoredTokens: 192, savedBlocks: 0 });
  await third.prefixCache.close();
  expect(third.prefixCache.runtime).toBeInstanceOf(KVRuntime);
});

test('a directory that another process owns, or that is not there, is an error at once', async () => {
  const { model, directory } = decoder;
  const { blockBytes } = layoutOf(model);
  const options = {
    weights: directory,
    tenant: 'a',
    secretKey: new Uint8Array(32),
    hbmBytes: 32 * blockBytes,
    adapter: testAdapter,
  };
  const nvme = { dir: temporary('blocks'), bytes: 128 * blockBytes };
  await using owner = await openRuntimeOf(layoutOf(model), { nvme });
  expect(owner.layout.blockTokens).toBe(16);
  await expect(withPrefixCache(model, { ...options, nvme })).rejects.toMatchObject({ code: 'TKV_LOCKED' });
  const absent = { ...nvme, dir: '/nowhere/at/all' };
  await expect(withPrefixCache(model, { ...options, nvme: absent })).rejects.toMatchObject({
    field: 'nvme.dir',
  });
});

test('a report and a notice that throw cost no answer', async () => {
  const { model, directory } = decoder;
  const thrown = (): never => {
    throw new Error('of the caller');
  };
  const layout = layoutOf(model);
  await using runtime = await openRuntimeOf(layout, {});
  const options = { weights: directory, tenant: 'a', runtime, report: thrown, notice: thrown };
  const cached = await withPrefixCache(model, options);
  const plain = await generated(model, prompt);
  expect(await generated(cached, prompt)).toEqual(plain);
  expect(await generated(cached, prompt, { prefixCache: { report: thrown } })).toEqual(plain);
  await runtime.close();
  expect(await generated(cached, prompt)).toEqual(plain); // nothing is restored, of which a notice is told
  expect(cached.prefixCache.counters).toMatchObject({ turns: 3, uncached: 1 });
});
