/** The device goes away under a live runtime, on the software device. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { KVRuntime } from '../../../src/index.ts';
import { FaultPlan, FaultStore } from '../../../src/testing/faults.ts';
import {
  ask,
  blocks,
  cacheBelow,
  contents,
  openRuntime,
  prompt,
  rightContents,
  tenant,
  write,
} from '../liveRuntime.ts';

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  delete process.env.TIERKV_ADAPTER;
});

async function open(config: Parameters<typeof openRuntime>[0]): Promise<KVRuntime> {
  const kv = await openRuntime({ device: undefined, ...config });
  cleanups.push(() => kv[Symbol.asyncDispose]());
  return kv;
}

function scratch(): string {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-lost-'));
  cleanups.push(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** Until the runtime has noticed the loss and has a device again. */
async function replaced(kv: KVRuntime, losses: number): Promise<void> {
  while (kv.devicesLost < losses || kv.describe().runtime.devicePresent !== true) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

it('a cached tail that is lost just after it was copied does not count as cached', async () => {
  const kv = await open({ ddrBytes: blocks(20) });
  const tokens = prompt(10).subarray(0, 40);
  const first = await kv.begin(tokens.subarray(0, 25), { tenant });
  write(kv, first, 1);
  await kv.seal(first, { tail: true });
  kv.release(first);
  await kv.idle();
  kv.manager.evict(0, 2, kv.nowUs());
  await kv.idle();
  const { manager } = kv;
  const cancel = manager.cancel.bind(manager);
  // the table that pinned the tail is closed between its copy and the look at the whole sequence
  vi.spyOn(manager, 'cancel').mockImplementationOnce((table, nowUs) => {
    cancel(table, nowUs);
    manager.loseTier(0, nowUs);
  });
  const next = await kv.begin(tokens, { tenant });
  expect(next.cachedTokens, 'the full block came back from host memory').toBe(16);
  expect(kv.openBlocks(next).map(({ index }) => index)).toEqual([1, 2]);
  kv.release(next);
  manager.checkIntegrity();
});

it('a fork that is under way when HBM is lost leaves no table behind, whenever that is', async () => {
  const kv = await open({ ddrBytes: blocks(20) });
  const { manager } = kv;
  const ends = new Set<string>();
  for (let turns = 0; turns < 12; turns++) {
    const sequence = await kv.begin(prompt(50 + turns).subarray(0, 40), { tenant });
    write(kv, sequence, 1);
    await kv.seal(sequence);
    const forking = kv.fork(sequence, 35).then(
      (forked) => {
        ends.add(forked === 'interrupted' ? forked : 'forked');
        if (forked !== 'interrupted') kv.release(forked);
      },
      (error: unknown) => ends.add(String(error)),
    );
    for (let i = 0; i < turns; i++) await Promise.resolve();
    manager.loseTier(0, kv.nowUs());
    await forking;
    kv.release(sequence);
    await kv.idle();
    expect(manager.inspect.openSequences, `lost after ${turns} turns`).toBe(0);
    manager.checkIntegrity();
  }
  expect([...ends]).toEqual(['interrupted']);
});

describe('a lost device', () => {
  it.each([
    ['host memory', 1],
    ['files', 2],
  ])('gives way to another one, and blocks with a copy in %s come back verified', async (_, levels) => {
    const kv = await open({ ddrBytes: blocks(20), nvme: { dir: scratch(), bytes: blocks(40) } });
    await cacheBelow(kv, 10, levels);
    await cacheBelow(kv, 20, 0);
    const before = kv.device;
    before.destroy();
    await replaced(kv, 1);
    expect(kv.device).not.toBe(before);
    expect(kv.lookup(prompt(10), { tenant }).byTier[levels]).toBe(4);
    expect(kv.lookup(prompt(20), { tenant }).blocks).toBe(0);
    expect(kv.manager.inspect.counters.lost).toBe(4);
    expect(await ask(kv, 10)).toEqual({ cachedTokens: 64, right: true });
    expect(await ask(kv, 20)).toEqual({ cachedTokens: 0, right: true });
    expect(await ask(kv, 20)).toEqual({ cachedTokens: 64, right: true });
  });

  it('interrupts a sequence, which comes back: what lies below is loaded, the rest is open again', async () => {
    const kv = await open({ ddrBytes: blocks(20) });
    const head = prompt(30).slice(0, 33);
    const first = await kv.begin(head, { tenant });
    write(kv, first, 30);
    expect(await kv.seal(first)).toBe('done');
    kv.release(first);
    kv.manager.evict(0, 2, kv.nowUs());
    await kv.idle();

    const sequence = await kv.begin(prompt(30), { tenant });
    expect(sequence.cachedTokens).toBe(32);
    expect(write(kv, sequence, 30)).toEqual([2, 3, 4]);
    kv.device.destroy();
    expect(await kv.seal(sequence)).toBe('interrupted');
    expect(() => kv.blockTable(sequence)).toThrow(/recover/);
    expect(await kv.append(sequence, prompt(30))).toBe('interrupted');

    expect(await kv.recover(sequence)).toEqual([2, 3, 4]);
    expect(sequence.cachedTokens).toBe(32);
    write(kv, sequence, 30);
    expect(await kv.seal(sequence)).toBe('done');
    expect(kv.blockTable(sequence).length).toBe(5);
    expect(await contents(kv, sequence)).toEqual(rightContents(30));
    kv.release(sequence);
    await kv.idle();
    kv.manager.checkIntegrity();
  });

  it('in the middle of a reload does not end it: the same call answers on the next device', async () => {
    const kv = await open({ ddrBytes: blocks(20) });
    await cacheBelow(kv, 40, 1);
    const begun = kv.begin(prompt(40), { tenant });
    kv.device.destroy();
    const sequence = await begun;
    expect(kv.devicesLost).toBe(1);
    expect(sequence.cachedTokens).toBe(64);
    expect(write(kv, sequence, 40)).toEqual([4]);
    expect(await kv.seal(sequence)).toBe('done');
    expect(await contents(kv, sequence)).toEqual(rightContents(40));
    kv.release(sequence);
  });

  it('again and again: nothing leaks and nothing wrong is served', async () => {
    const kv = await open({ ddrBytes: blocks(12), nvme: { dir: scratch(), bytes: blocks(24) } });
    for (let round = 1; round <= 5; round++) {
      await cacheBelow(kv, 50 + (round % 3) * 10, round % 3);
      kv.device.destroy();
      await replaced(kv, round);
      for (const seed of [50, 60, 70]) expect((await ask(kv, seed)).right).toBe(true);
    }
    expect(kv.describe().runtime).toMatchObject({ devicesLost: 5, devicePresent: true, overdueTransfers: 0 });
    expect(kv.manager.inspect.usage(0)).toMatchObject({
      heldBytes: 0,
      slots: { draining: 0, filling: 0, open: 0 },
    });
  });

  it('with no other to be had: callers are told why, lower tiers stay, and the next call asks again', async () => {
    const lines: string[] = [];
    const kv = await open({ ddrBytes: blocks(20), notice: (line) => lines.push(line) });
    await cacheBelow(kv, 80, 1);
    const live = await kv.begin(prompt(90), { tenant });
    process.env.TIERKV_ADAPTER = 'no such adapter';
    kv.device.destroy();
    await expect(kv.recover(live))
      .rejects.toMatchObject({ code: 'TKV_STATE' })
      .catch(() => {});
    while (kv.devicesLost === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    await expect(kv.begin(prompt(80), { tenant })).rejects.toMatchObject({ code: 'TKV_DEVICE' });
    await expect(kv.recover(live)).rejects.toMatchObject({ code: 'TKV_DEVICE' });
    expect(kv.describe().runtime).toMatchObject({ devicePresent: false });
    expect(lines.some((line) => line.includes('Asking for another device'))).toBe(true);
    expect(kv.lookup(prompt(80), { tenant }).byTier).toEqual([0, 4]);

    delete process.env.TIERKV_ADAPTER;
    expect(await ask(kv, 80)).toEqual({ cachedTokens: 64, right: true });
    expect(await kv.recover(live)).toEqual([0, 1, 2, 3, 4]);
    write(kv, live, 90);
    expect(await kv.seal(live)).toBe('done');
    kv.release(live);
  });
});

it('a disk that never answers costs a deadline, not the caller: the block is computed, and the runtime can be closed', async () => {
  const plan = new FaultPlan({ seed: 1, rates: { stalled: 1 }, stalledMax: 100 });
  plan.pause();
  let disk: FaultStore | undefined;
  const kv = await openRuntime({
    device: undefined,
    nvme: { dir: scratch(), bytes: blocks(40) },
    transferDeadlineMs: 100,
    wrapStores: ({ hbm, nvme }) => {
      disk = new FaultStore(nvme!, { plan, wait: () => Promise.resolve() });
      return { hbm, nvme: disk };
    },
  });
  // a busy machine may be late with the write itself, which then is given up as well, and its block stays
  const lies = (): readonly number[] => kv.lookup(prompt(10), { tenant }).byTier;
  while (lies()[0] > 0 || lies()[1] < 4) await cacheBelow(kv, 10, 1);
  plan.resume();
  expect(await ask(kv, 10)).toEqual({ cachedTokens: 0, right: true });
  expect(disk!.stalledCalls).toBeGreaterThan(0);
  expect(kv.describe().runtime.overdueTransfers).toBeGreaterThan(0);
  expect(kv.manager.inspect.counters.loadsFailed[3]).toBeGreaterThan(0);
  plan.pause();
  disk!.releaseStalled();
  while (kv.manager.inspect.jobsOverdue > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  kv.manager.checkIntegrity();
  expect(kv.manager.inspect.usage(0).slots.draining).toBe(0);
  plan.resume();
  kv.manager.evict(0, 4, kv.nowUs());
  await kv[Symbol.asyncDispose]();
});

describe('the device is lost under a state', () => {
  const tokens = prompt(90);
  const state = Uint8Array.from({ length: blocks(3) + 77 }, (_, i) => (i * 31 + (i >>> 8)) & 255);

  /** Destroys the device at the `at`th call of a method of the manager from now on. @returns how often it was called */
  function destroyAt(kv: KVRuntime, method: 'seal' | 'readableBlock', at: number): () => number {
    const { manager } = kv;
    const real = manager[method].bind(manager) as (...args: unknown[]) => unknown;
    let calls = 0;
    vi.spyOn(manager, method as 'seal').mockImplementation((...args: unknown[]) => {
      const result = real(...args);
      if (++calls === at) kv.device.destroy();
      return result as never;
    });
    return () => calls;
  }

  it('what is called stored is found, at whichever block the loss came', async () => {
    for (let at = 1, calls = at; calls >= at; at++) {
      const kv = await open({ ddrBytes: blocks(40) });
      const sealed = destroyAt(kv, 'seal', at);
      const stored = await kv.putState(tokens, state, { tenant });
      calls = sealed();
      if (calls >= at) await replaced(kv, 1);
      vi.restoreAllMocks();
      const found = await kv.getState(tokens, { tenant });
      expect(stored, `a loss at block ${at}`).toBe(true);
      expect(found?.state, `a loss at block ${at}`).toEqual(state);
      await kv[Symbol.asyncDispose]();
    }
  });

  it('what another tier has is found, at whichever block the loss came', async () => {
    const most = 24;
    for (let at = 1; at <= most; at++) {
      const kv = await open({ ddrBytes: blocks(40), migration: false });
      await kv.putState(tokens, state, { tenant });
      kv.manager.evict(0, 20, kv.nowUs());
      await kv.idle();
      const looked = destroyAt(kv, 'readableBlock', at);
      const found = await kv.getState(tokens, { tenant });
      vi.restoreAllMocks();
      expect(found?.state, `a loss at look ${at}`).toEqual(state);
      if (looked() < at) return;
      await replaced(kv, 1);
      await kv[Symbol.asyncDispose]();
    }
  });
});
