/** Wrong bytes below HBM, planted in a real arena and a real file under a real (software) device. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { fileLayout, recordOffset } from '../../../src/backends/file/record.ts';
import { KVRuntime } from '../../../src/index.ts';
import { Outcome } from '../../../src/runtime/index.ts';
import { editFile } from '../../backends/file/scratch.ts';
import { sharedDevice } from '../../sharedDevice.ts';
import { blocks, contents, layout, tenant, write } from '../liveRuntime.ts';

const prompt = (from: number): Uint32Array => Uint32Array.from({ length: 65 }, (_, i) => from + i);

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function open(tiers: {
  ddr: boolean;
  nvme: boolean;
  nvmeBlocks?: number;
}): Promise<{ kv: KVRuntime; file: string }> {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-corrupt-'));
  cleanups.push(() => rmSync(dir, { recursive: true }));
  const kv = await KVRuntime.open({
    layout,
    model: 'test@1',
    secretKey: new Uint8Array(32).fill(7),
    hbmBytes: blocks(20),
    device: sharedDevice,
    ...(tiers.ddr ? { ddrBytes: blocks(40) } : {}),
    ...(tiers.nvme ? { nvme: { dir, bytes: blocks(tiers.nvmeBlocks ?? 80) } } : {}),
    offloadThreshold: 1,
  });
  cleanups.push(() => kv[Symbol.asyncDispose]());
  return { kv, file: join(dir, 'tierkv.blocks') };
}

/** Caches four blocks and pushes them down `levels` tiers. */
async function cacheBelow(kv: KVRuntime, seed: number, levels: number): Promise<void> {
  const sequence = await kv.begin(prompt(seed), { tenant });
  write(kv, sequence, seed);
  await kv.seal(sequence);
  kv.release(sequence);
  for (let tier = 0; tier < levels; tier++) {
    kv.manager.evict(tier, 4, kv.nowUs());
    await kv.idle();
  }
}

/** The slot that each of the four blocks was sent to, in the order of the blocks. */
const slotsBelow = [3, 2, 1, 0];

async function expectRecomputed(kv: KVRuntime, seed: number, wrong: number, outcome: Outcome): Promise<void> {
  const sequence = await kv.begin(prompt(seed), { tenant });
  expect(kv.manager.inspect.counters.loadsFailed[outcome]).toBe(1);
  expect(sequence.cachedTokens).toBe(wrong * 16);
  expect(write(kv, sequence, seed)).toEqual([wrong, 4]);
  await kv.seal(sequence);
  expect(await contents(kv, sequence)).toEqual([0, 1, 2, 3].map((i) => seed + i));
  kv.release(sequence);
  await kv.idle();
  kv.manager.checkIntegrity();
}

describe('a block that is right', () => {
  it.each([
    ['host memory', { ddr: true, nvme: false }, 1],
    ['a file, straight to HBM', { ddr: false, nvme: true }, 1],
    ['a file, by way of host memory', { ddr: true, nvme: true }, 2],
  ] as const)('comes back from %s', async (_, tiers, levels) => {
    const { kv } = await open(tiers);
    await cacheBelow(kv, 10, levels);
    expect(kv.lookup(prompt(10), { tenant }).byTier[levels]).toBe(4);
    const sequence = await kv.begin(prompt(10), { tenant });
    expect(sequence.cachedTokens).toBe(64);
    expect(await contents(kv, sequence)).toEqual([10, 11, 12, 13]);
    kv.release(sequence);
  });
});

describe('one flipped bit', () => {
  it('in host memory: the read ends as corrupt, the block is computed again, nothing wrong is served', async () => {
    const { kv } = await open({ ddr: true, nvme: false });
    await cacheBelow(kv, 20, 1);
    const view = kv.stores.ddr!.view(slotsBelow[2], 0);
    expect(view[100]).toBe(22);
    view[100] = view[100] ^ 0x10;
    await expectRecomputed(kv, 20, 2, Outcome.CORRUPT);
  });

  it('in the file: the read ends as corrupt, the block is computed again, nothing wrong is served', async () => {
    const { kv, file } = await open({ ddr: false, nvme: true });
    await cacheBelow(kv, 30, 1);
    const records = fileLayout(kv.manager.config.tiers[1].shape);
    const at = recordOffset(records, slotsBelow[1], 0) + records.records[0].payloadOffset + 4097;
    editFile(file, at, 1, (bytes) => {
      expect(bytes[0]).toBe(31);
      bytes[0] = bytes[0] ^ 0x01;
    });
    await expectRecomputed(kv, 30, 1, Outcome.CORRUPT);
  });

  it('in host memory on the way to the file: it is found when the block comes back', async () => {
    const { kv } = await open({ ddr: true, nvme: true });
    await cacheBelow(kv, 40, 1);
    const view = kv.stores.ddr!.view(slotsBelow[3], 0);
    view[0] = view[0] ^ 0x80;
    kv.manager.evict(1, 4, kv.nowUs());
    await kv.idle();
    await expectRecomputed(kv, 40, 3, Outcome.CORRUPT);
  });
});

describe('a stale generation', () => {
  it('in the file, a write that never reached the disk: the old record is not read as the new one', async () => {
    const { kv, file } = await open({ ddr: false, nvme: true });
    await cacheBelow(kv, 50, 1);
    const records = fileLayout(kv.manager.config.tiers[1].shape);
    const slot = slotsBelow[0];
    const bytesOf = (edit: (bytes: Uint8Array) => void): void =>
      editFile(file, recordOffset(records, slot, 0), records.records[0].recordBytes, edit);
    let old = new Uint8Array(0);
    bytesOf((bytes) => {
      old = bytes.slice();
    });
    kv.manager.evict(1, 4, kv.nowUs());
    await cacheBelow(kv, 60, 1);
    let wrong = -1;
    bytesOf((bytes) => {
      wrong = bytes[records.records[0].payloadOffset] - 60;
      bytes.set(old);
    });
    expect([0, 1, 2, 3]).toContain(wrong);
    await expectRecomputed(kv, 60, wrong, Outcome.CORRUPT);
  });

  it('in host memory, a slot that moved on: the load is refused and the block is computed again', async () => {
    const { kv } = await open({ ddr: true, nvme: false });
    await cacheBelow(kv, 70, 1);
    kv.stores.ddr!.view(slotsBelow[1], 0).fill(99);
    kv.stores.ddr!.markWritten(slotsBelow[1], 1000);
    await expectRecomputed(kv, 70, 1, Outcome.REFUSED);
  });
});
