/**
 * Prompts that wait: what the queue says of them is what `begin` then finds, on the software device over
 * three tiers.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import type { KVRuntime, WaitingRequest } from '../../src/index.ts';
import { KeyChain } from '../../src/runtime/index.ts';
import { SeededRandom } from '../../src/testing/patternItems.ts';
import { blocks, cacheBelow, layout, openRuntime, prompt, tenant } from './liveRuntime.ts';

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  vi.restoreAllMocks();
});

/** Prompt 10 in HBM, prompt 20 in host memory, prompt 30 in the files. */
async function open(): Promise<KVRuntime> {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-queue-'));
  cleanups.push(() => rmSync(dir, { recursive: true, force: true }));
  const kv = await openRuntime({ ddrBytes: blocks(20), nvme: { dir, bytes: blocks(40) } });
  cleanups.push(() => kv[Symbol.asyncDispose]());
  for (const [seed, levels] of [
    [30, 2],
    [20, 1],
    [10, 0],
  ] as const)
    await cacheBelow(kv, seed, levels);
  return kv;
}

const cachedOf = (requests: readonly WaitingRequest[]): number[] => requests.map((each) => each.cachedTokens);

it('says of each request what begin then finds, wherever the blocks lie', async () => {
  const kv = await open();
  const { blockTokens } = layout;
  const requests = [prompt(10), prompt(20), prompt(30)].flatMap((tokens) => [
    tokens,
    tokens.subarray(0, 4 * blockTokens), // its last token is left to compute, and so is the block that it lies in
    tokens.subarray(0, 2 * blockTokens + 5),
  ]);
  const queue = kv.requestQueue();
  for (const tokens of requests) queue.add(tokens, tenant);
  queue.add(prompt(10), 'tenant-b');
  queue.add(prompt(40), tenant);
  queue.add([], tenant);
  const waiting = queue.lookup();
  expect(cachedOf(waiting)).toEqual([64, 48, 32, 64, 48, 32, 64, 48, 32, 0, 0, 0]);
  for (const request of waiting) {
    const sequence = await kv.begin(request.tokens, { tenant: request.tenant });
    expect(sequence.cachedTokens).toBe(request.cachedTokens);
    kv.release(sequence);
  }
});

it('asks the manager once for all, hashes each prompt once, and changes nothing', async () => {
  const kv = await open();
  const hashed = vi.spyOn(KeyChain.prototype, 'hashBlocks');
  const asked = vi.spyOn(kv.manager, 'matchLengths');
  const queue = kv.requestQueue();
  const before = JSON.stringify(kv.manager.inspect.dump());
  for (const seed of [10, 20, 30]) queue.add(prompt(seed), tenant);
  for (let step = 0; step < 3; step++) queue.lookup();
  expect(hashed).toHaveBeenCalledTimes(3);
  expect(asked).toHaveBeenCalledTimes(3);
  expect(JSON.stringify(kv.manager.inspect.dump())).toBe(before);
});

it('sees what others computed or lost since the last look', async () => {
  const kv = await open();
  const queue = kv.requestQueue();
  const request = queue.add(prompt(50), tenant);
  expect(request.cachedTokens).toBe(0);
  expect(cachedOf(queue.lookup())).toEqual([0]);
  await cacheBelow(kv, 50, 0);
  expect(queue.lookup()).toEqual([request]);
  expect(request.cachedTokens).toBe(64);
  for (let tier = 0; tier < 3; tier++) {
    kv.manager.evict(tier, 40, kv.nowUs());
    await kv.idle();
  }
  queue.lookup();
  expect(request.cachedTokens).toBe(0);
});

it('holds its requests in the order in which they joined, also when others leave in between', async () => {
  const kv = await open();
  const random = new SeededRandom(3);
  const queue = kv.requestQueue();
  const expected: { request: WaitingRequest; cachedTokens: number }[] = [];
  for (let step = 0; step < 300; step++) {
    if (random.chance(0.55)) {
      const seed = 10 * (1 + random.below(4));
      const tokens = prompt(seed).subarray(0, random.below(66));
      const whole = Math.floor(Math.max(tokens.length - 1, 0) / layout.blockTokens) * layout.blockTokens;
      expected.push({ request: queue.add(tokens, tenant), cachedTokens: seed === 40 ? 0 : whole });
    } else if (expected.length > 0) {
      const [gone] = expected.splice(random.below(expected.length), 1);
      expect(queue.delete(gone.request)).toBe(true);
      expect(queue.delete(gone.request)).toBe(false);
    }
    expect(queue.size).toBe(expected.length);
    const found = queue.lookup();
    expect(found).toEqual(expected.map(({ request }) => request));
    expect(cachedOf(found)).toEqual(expected.map(({ cachedTokens }) => cachedTokens));
  }
  for (const { request } of expected) queue.delete(request);
  expect(queue.lookup()).toEqual([]);
});

it('refuses a prompt that holds no token ids, and goes on without it', async () => {
  const kv = await open();
  const queue = kv.requestQueue();
  expect(() => queue.add([7, 1.5, ...prompt(10)], tenant)).toThrow(/tokens\[1\] is 1.5/);
  expect(queue.size).toBe(0);
  queue.add(prompt(20), tenant);
  expect(cachedOf(queue.lookup())).toEqual([64]);
});
