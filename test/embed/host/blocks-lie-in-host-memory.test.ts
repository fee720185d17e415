/** A runtime without a device: sequences read and write host memory, and the tiers below are as under a device. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { fileLayout, recordOffset } from '../../../src/backends/file/record.ts';
import type { KVRuntime, KVSequence } from '../../../src/index.ts';
import { Outcome } from '../../../src/runtime/index.ts';
import { editFile } from '../../backends/file/scratch.ts';
import {
  blocks,
  cacheBelow,
  contents,
  layout,
  openHostRuntime,
  openRuntime,
  prompt,
  promptBlocks,
  rightContents,
  tenant,
  write,
} from '../liveRuntime.ts';

const scratch = mkdtempSync(join(tmpdir(), 'tierkv-host-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const directory = (): string => mkdtempSync(join(scratch, 'disk-'));

const isSameMemory = (a: Uint8Array, b: Uint8Array): boolean =>
  a.buffer === b.buffer && a.byteOffset === b.byteOffset && a.byteLength === b.byteLength;

async function computed(kv: KVRuntime, seed: number, who = tenant): Promise<KVSequence> {
  const sequence = await kv.begin(prompt(seed), { tenant: who });
  write(kv, sequence, seed);
  expect(await kv.seal(sequence)).toBe('done');
  return sequence;
}

describe('a hit in the top tier', () => {
  it('costs no copy: two sequences read the same memory', async () => {
    const calls: string[] = [];
    await using kv = await openHostRuntime({
      wrapStores: (stores) => ({
        ...stores,
        ddr: new Proxy(stores.ddr!, {
          get(target, name) {
            const value: unknown = Reflect.get(target, name, target);
            if (typeof value !== 'function') return value;
            return (...args: unknown[]) => {
              calls.push(String(name));
              return value.apply(target, args);
            };
          },
        }),
      }),
    });
    const first = await computed(kv, 1);
    const seals = calls.length;
    expect(new Set(calls)).toEqual(new Set(['seal']));
    const second = await kv.begin(prompt(1), { tenant });
    expect(second.cachedTokens).toBe(promptBlocks * layout.blockTokens);
    for (let i = 0; i < promptBlocks; i++) {
      expect(isSameMemory(kv.read(first, i), kv.read(second, i))).toBe(true);
      expect(kv.read(second, i)).toEqual(new Uint8Array(layout.blockBytes).fill(1 + i));
    }
    expect(calls.length).toBe(seals);
    const { views, entries, slabs } = kv.deviceBlockTable(second);
    expect([views?.length, entries.length, slabs.length]).toEqual([promptBlocks + 1, 0, 0]);
    expect(isSameMemory(views![2], kv.read(first, 2))).toBe(true);
    kv.release(first);
    kv.release(second);
    kv.manager.checkIntegrity();
  });

  it('is of one tenant, or of a group that shares', async () => {
    await using kv = await openHostRuntime({ sharingGroups: { team: ['a', 'b'] } });
    kv.release(await computed(kv, 3, 'a'));
    expect(kv.lookup(prompt(3), { tenant: 'b' }).blocks).toBe(promptBlocks);
    expect(kv.lookup(prompt(3), { tenant: 'c' }).blocks).toBe(0);
  });

  it('leaves a slot of another tenant cleared', async () => {
    await using kv = await openHostRuntime({ ddrBytes: blocks(promptBlocks + 1), migration: false });
    kv.release(await computed(kv, 5, 'a'));
    const other = await kv.begin(prompt(6), { tenant: 'b' });
    for (const { index } of kv.openBlocks(other)) {
      expect(kv.read(other, index).every((byte) => byte === 0)).toBe(true);
    }
    kv.release(other);
  });

  it('stays in the room that a quota gives', async () => {
    await using kv = await openHostRuntime({ ddrBytes: blocks(12), migration: false });
    kv.setQuota('a', 'ddr', blocks(promptBlocks));
    kv.release(await computed(kv, 7, 'a'));
    for (let seed = 20; seed < 26; seed++) kv.release(await computed(kv, seed, 'b'));
    expect(kv.lookup(prompt(7), { tenant: 'a' }).blocks).toBe(promptBlocks);
    expect(() => kv.setQuota('a', 'hbm', blocks(1))).toThrow(/hbm/);
  });
});

describe('the tiers below', () => {
  it('take what has no room, and bring it back verified', async () => {
    await using kv = await openHostRuntime({ nvme: { dir: directory(), bytes: blocks(40) } });
    await cacheBelow(kv, 10, 1);
    expect(kv.lookup(prompt(10), { tenant }).byTier).toEqual([0, promptBlocks]);
    const sequence = await kv.begin(prompt(10), { tenant });
    expect(await contents(kv, sequence)).toEqual(rightContents(10));
    kv.release(sequence);
    kv.manager.checkIntegrity();
  });

  it('are not believed: one flipped bit in the file is found on arrival, and the block computed again', async () => {
    const dir = directory();
    await using kv = await openHostRuntime({ nvme: { dir, bytes: blocks(40) } });
    await cacheBelow(kv, 30, 1);
    const records = fileLayout(kv.manager.config.tiers[1].shape);
    const { slot } = kv.manager.inspect.locate((await keysOf(kv, 30)).slice(4, 8))!;
    const at = recordOffset(records, slot, 0) + records.records[0].payloadOffset + 4097;
    editFile(join(dir, 'tierkv.blocks'), at, 1, (bytes) => {
      expect(bytes[0]).toBe(31);
      bytes[0] ^= 1;
    });
    const sequence = await kv.begin(prompt(30), { tenant });
    expect(kv.manager.inspect.counters.loadsFailed[Outcome.CORRUPT]).toBe(1);
    expect(sequence.cachedTokens).toBe(layout.blockTokens);
    write(kv, sequence, 30);
    await kv.seal(sequence);
    expect(await contents(kv, sequence)).toEqual(rightContents(30));
    kv.release(sequence);
  });

  it('outlive the process: a restart finds them, and events tell of both', async () => {
    const nvme = { dir: directory(), bytes: blocks(40) };
    {
      await using kv = await openHostRuntime({ nvme });
      const events = kv.events({ capacity: 100 });
      kv.release(await computed(kv, 40));
      expect((await events.next()).value).toMatchObject({ tier: 'ddr' });
      expect(await kv.save()).toBe(promptBlocks);
    }
    await using again = await openHostRuntime({ nvme });
    const sequence = await again.begin(prompt(40), { tenant });
    expect(sequence.cachedTokens).toBe(promptBlocks * layout.blockTokens);
    expect(await contents(again, sequence)).toEqual(rightContents(40));
    expect(again.describe()).toMatchObject({ ddr: { store: 'memory' }, runtime: { devicePresent: false } });
    again.release(sequence);
  });
});

async function keysOf(kv: KVRuntime, seed: number): Promise<Uint32Array> {
  const queue = await kv.begin(prompt(seed).subarray(0, 1), { tenant });
  const [{ chain }] = queue.groups;
  kv.release(queue);
  const { BlockKeys } = await import('../../../src/runtime/index.ts');
  const keys = new BlockKeys();
  chain.hashBlocks(prompt(seed), 0, keys);
  return keys.words;
}

describe('by copy, with a device and without', () => {
  it.each([
    ['a device', () => openRuntime({})],
    ['host memory', () => openHostRuntime()],
  ] as const)('a block of %s is written and read', async (_, open) => {
    await using kv = await open();
    const sequence = await kv.begin(prompt(1), { tenant });
    const bytes = Uint8Array.from({ length: layout.blockBytes }, (_, i) => i % 251);
    kv.writeBlock(sequence, 0, bytes);
    kv.writeBlock(sequence, 1, (block) => block.set(bytes.toReversed()));
    for (let i = 2; i < promptBlocks; i++) kv.writeBlock(sequence, i, new Uint8Array(layout.blockBytes));
    await kv.seal(sequence);
    expect(await kv.readBlock(sequence, 0)).toEqual(bytes);
    const copy = await kv.readBlock(sequence, 1);
    expect(copy).toEqual(bytes.toReversed());
    copy.fill(0);
    expect((await kv.readBlock(sequence, 1))[0]).toBe(bytes.at(-1));
    const seen: number[] = [];
    await kv.readBlocks(sequence, 2, (block, index) => void seen.push(index, block[1]));
    expect(seen).toEqual([0, 1, 1, bytes.at(-2)]);
    expect(() => kv.writeBlock(sequence, 0, bytes)).toThrow(/block 0 is sealed/);
    kv.release(sequence);
    kv.manager.checkIntegrity();
  });
});

describe('what is asked of the wrong runtime, or wrongly', () => {
  it('is refused by name, and changes nothing', async () => {
    await using kv = await openHostRuntime();
    const sequence = await kv.begin(prompt(2), { tenant });
    const whole = new Uint8Array(layout.blockBytes);
    const cases: [() => unknown, string, string, RegExp][] = [
      [() => kv.device, 'TKV_STATE', 'hbmBytes', /device needs a device.*read and write/],
      [() => kv.slot(sequence, 0), 'TKV_STATE', 'hbmBytes', /needs a device/],
      [() => kv.read(sequence, 9), 'TKV_INPUT', 'index', /index is 9, and the sequence has 5 blocks/],
      [() => kv.read(sequence, 0, 1), 'TKV_INPUT', 'group', /group is 1/],
      [
        () => kv.write(sequence, 0, new Uint8Array(3)),
        'TKV_INPUT',
        'bytes',
        /has 3 bytes, and the block has 16384/,
      ],
      [() => kv.write(sequence, 0, 'x' as never), 'TKV_INPUT', 'bytes', /bytes is "x"/],
      [() => kv.writeBlock(sequence, -1, whole), 'TKV_INPUT', 'index', /index is -1/],
    ];
    for (const [call, code, field, message] of cases) {
      expect(call).toThrow(expect.objectContaining({ code, field, message: expect.stringMatching(message) }));
    }
    await expect(kv.readBlock(sequence, 7)).rejects.toMatchObject({ field: 'index' });
    await expect(kv.begin(new Uint32Array(30 * 16), { tenant })).rejects.toMatchObject({
      code: 'TKV_CAPACITY',
      field: 'ddrBytes',
      message: expect.stringContaining('of DDR'),
    });
    write(kv, sequence, 2);
    await kv.seal(sequence);
    expect(await contents(kv, sequence)).toEqual(rightContents(2));
    kv.release(sequence);
    expect(() => kv.read(sequence, 0)).toThrow(expect.objectContaining({ code: 'TKV_UNKNOWN_ID' }));
    await expect(openRuntime({ hbmBytes: undefined })).rejects.toMatchObject({
      code: 'TKV_CONFIG',
      field: 'hbmBytes',
      message: expect.stringMatching(/hbmBytes or to ddrBytes/),
    });
    await using device = await openRuntime({});
    const other = await device.begin(prompt(2), { tenant });
    expect(() => device.read(other, 0)).toThrow(/readBlock/);
    expect(() => device.write(other, 0, whole)).toThrow(/writeBlock/);
    device.release(other);
  });
});
