/**
 * Sizes beyond this machine are refused by name before a table is made, and functions that callers give do no
 * harm, whatever they throw and whenever.
 */

import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { KVRuntimeConfig } from '../../../src/index.ts';
import { TieredKVStorage } from '../../../src/views/tieredKVStorage.ts';
import { blocks, openRuntime } from '../liveRuntime.ts';

const dir = mkdtempSync(join(tmpdir(), 'tierkv-sizes-'));
afterAll(() => rmSync(dir, { recursive: true }));
/** Bytes of HBM whose tables alone, of small blocks, take more memory than this machine has. */
const least = Math.max(40, Math.ceil(Math.log2(totalmem())) + 8);
const powers = [least, least + 2, 50, 52];

describe.each(powers)('2^%i bytes', (power) => {
  const bytes = 2 ** power;
  const cases: readonly (readonly [string, Partial<KVRuntimeConfig>])[] = [
    ['hbmBytes', { hbmBytes: bytes }],
    ['ddrBytes', { ddrBytes: bytes }],
    ['nvme.bytes', { nvme: { dir, bytes, allocation: 'extents' } }],
    ['nvme.bytes', { nvme: { dir, bytes } }],
  ];
  it.each(cases)('as %s are refused, and little memory is touched', async (field, config) => {
    const before = process.memoryUsage();
    await expect(openRuntime(config)).rejects.toMatchObject({ code: 'TKV_CONFIG', field });
    const after = process.memoryUsage();
    expect(after.arrayBuffers - before.arrayBuffers).toBeLessThan(256 * 2 ** 20);
    expect(readdirSync(dir)).toEqual([]);
  });

  it('as a tier of a tiered storage are refused', async () => {
    const pool = {
      layout: { layers: 1, kvHeads: 1, headDim: 64, dtype: 'f16' as const },
      model: 'm',
      secretKey: new Uint8Array(32),
    };
    const tiers = [{ tier: 'hbm' as const, capacityBytes: bytes }];
    await expect(TieredKVStorage.open({ pool, tiers })).rejects.toMatchObject({ code: 'TKV_CONFIG' });
  });
});

it.each([
  [
    'throws',
    () => {
      throw new Error('from a notice');
    },
  ],
  ['rejects', async () => Promise.reject(new Error('from a notice'))],
  [
    'rejects later',
    async () => {
      await new Promise((resolve) => setTimeout(resolve, 5));
      throw new Error('from a notice');
    },
  ],
])('a notice that %s changes nothing', async (_, notice) => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown): void => void unhandled.push(reason);
  process.on('unhandledRejection', note);
  try {
    let told = 0;
    const counted = (): unknown => {
      told++;
      return notice();
    };
    await using kv = await openRuntime({ hbmBytes: blocks(8), notice: counted as () => void });
    kv.device.destroy();
    const sequence = await kv.begin([1, 2, 3], { tenant: 'a' });
    kv.release(sequence);
    while (told === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    await new Promise((resolve) => setTimeout(resolve, 30)); // a rejection without a handler is told in a later turn
  } finally {
    process.off('unhandledRejection', note);
  }
  expect(unhandled).toEqual([]);
});

it('a directory that takes no files says so', async () => {
  const error: unknown = await openRuntime({ nvme: { dir: '/proc', bytes: blocks(8) } }).catch(
    (reason: unknown) => reason,
  );
  expect(error).toMatchObject({ code: 'TKV_IO', field: 'nvme.dir' });
  expect(String(error)).not.toMatch(/Create the directory/);
});

it('a save whose files were removed meanwhile says so, and counts nothing; a fresh store came from nothing', async () => {
  const disk = mkdtempSync(join(dir, 'removed-'));
  await using kv = await openRuntime({ hbmBytes: blocks(8), nvme: { dir: disk, bytes: blocks(16) } });
  const { nvme, ddr } = kv.describe();
  expect(nvme.recoveredFrom).toMatch(/^nothing/);
  for (const facts of [nvme, ddr ?? {}]) expect(Object.values(facts)).not.toContain('');
  const sequence = await kv.begin([1, 2, 3, ...Array(30).fill(7)], { tenant: 'a' });
  await kv.seal(sequence);
  kv.release(sequence);
  expect(await kv.save()).toBe(2);
  rmSync(join(disk, 'tierkv.blocks'));
  await expect(kv.save()).rejects.toMatchObject({ code: 'TKV_IO', field: 'nvme.dir' });
});
