/**
 * A request whose blocks lie on the disk, while most of HBM is in use: they are read into host memory before
 * it takes room, on the software device, over a real file whose reads can be held.
 */

import { expect, it } from 'vitest';
import type { KVRuntime, KVSequence } from '../../../src/index.ts';
import {
  ask,
  blocks,
  cacheBelow,
  contents,
  layout,
  prompt,
  rightContents,
  tenant,
  write,
} from '../liveRuntime.ts';
import { nothingLeaked, openHeld, turn, untilHeld } from './heldDisk.ts';

const DDR_BLOCKS = 16;
/** More than half of HBM. */
const BUSY_BLOCKS = 11;

/** Prompt 10 is on the disk alone. */
async function openCold(): ReturnType<typeof openHeld> {
  const opened = await openHeld({ ddrBytes: blocks(DDR_BLOCKS) });
  await cacheBelow(opened.kv, 10, 2);
  return opened;
}

/** Another request holds more than half of HBM. */
function hold(kv: KVRuntime): Promise<KVSequence> {
  const tokens = Uint32Array.from({ length: BUSY_BLOCKS * layout.blockTokens }, (_, i) => 700_000 + i);
  return kv.begin(tokens, { tenant });
}

const heldBytes = (kv: KVRuntime): number => kv.manager.inspect.usage(0).heldBytes;
const onDiskOnly = (kv: KVRuntime): number => kv.manager.inspect.usage(2).slots.ready;

it('holds no HBM while the disk is read, and later requests go ahead', async () => {
  const disk = await openCold();
  const { kv } = disk;
  expect(onDiskOnly(kv)).toBe(4);
  const busy = await hold(kv);
  const before = heldBytes(kv);
  disk.hold();
  const slow = kv.begin(prompt(10), { tenant, wait: true });
  await untilHeld(disk.held);
  expect(heldBytes(kv)).toBe(before);
  expect(kv.room.waiting).toBe(1);

  const later = await kv.begin(prompt(30), { tenant, wait: true });
  expect(kv.openBlocks(later)).toHaveLength(5);
  kv.release(later);

  disk.letGo();
  const sequence = await slow;
  expect(sequence.cachedTokens).toBe(64);
  expect(kv.metrics().counters).toMatchObject({ 'hits.ddr': 4, 'hits.nvme': 0, 'promotions.ddr': 4 });
  write(kv, sequence, 10);
  expect(await contents(kv, sequence)).toEqual(rightContents(10));
  for (const each of [sequence, busy]) kv.release(each);
  await nothingLeaked(kv);
});

it('with most of HBM free to take, or without a wish to wait, the disk is read right into it', async () => {
  const { kv } = await openCold();
  expect(await ask(kv, 10)).toEqual({ cachedTokens: 64, right: true });
  kv.manager.evict(0, 4, kv.nowUs());
  await kv.idle();
  kv.manager.evict(1, 4, kv.nowUs());
  await kv.idle();
  const busy = await hold(kv);
  const sequence = await kv.begin(prompt(10), { tenant });
  expect(kv.metrics().counters).toMatchObject({ 'hits.nvme': 8, 'promotions.ddr': 0 });
  for (const each of [sequence, busy]) kv.release(each);
  await nothingLeaked(kv);
});

it('a client that leaves meanwhile is gone at once, and those behind it are served', async () => {
  const disk = await openCold();
  const { kv } = disk;
  const busy = await hold(kv);
  disk.hold();
  const client = new AbortController();
  const slow = kv.begin(prompt(10), { tenant, wait: true, signal: client.signal });
  await untilHeld(disk.held);
  const full = kv.begin(prompt(30), { tenant, wait: true });
  const second = await full;
  client.abort();
  await expect(slow).rejects.toMatchObject({ name: 'AbortError' });
  expect(kv.room.waiting).toBe(0);
  disk.letGo();
  for (const each of [second, busy]) kv.release(each);
  await nothingLeaked(kv);
  expect(await ask(kv, 10)).toEqual({ cachedTokens: 64, right: true });
});

it('two that ask for the same read it once', async () => {
  const disk = await openCold();
  const { kv } = disk;
  const busy = await hold(kv);
  disk.hold();
  const both = [1, 2].map(() => kv.begin(prompt(10), { tenant, wait: true }));
  await untilHeld(disk.held);
  await turn();
  disk.letGo();
  for (const begun of both) {
    const sequence = await begun;
    expect(sequence.cachedTokens).toBe(64);
    write(kv, sequence, 10);
    expect(await contents(kv, sequence)).toEqual(rightContents(10));
    kv.release(sequence);
  }
  expect(kv.metrics().counters).toMatchObject({ 'promotions.ddr': 4 });
  kv.release(busy);
  await nothingLeaked(kv);
});

it('a cached tail on the disk is read with the rest', async () => {
  const disk = await openHeld({ ddrBytes: blocks(DDR_BLOCKS) });
  const { kv } = disk;
  const first = await kv.begin(prompt(10).subarray(0, 60), { tenant });
  write(kv, first, 10);
  await kv.seal(first, { tail: true });
  kv.release(first);
  for (const tier of [0, 1]) {
    kv.manager.evict(tier, 8, kv.nowUs());
    await kv.idle();
  }
  const busy = await hold(kv);
  const before = heldBytes(kv);
  disk.hold();
  const slow = kv.begin(prompt(10), { tenant, wait: true });
  await untilHeld(disk.held);
  expect(heldBytes(kv)).toBe(before);
  disk.letGo();
  const sequence = await slow;
  expect(sequence.cachedTokens).toBe(60);
  expect(kv.metrics().counters).toMatchObject({ 'promotions.ddr': 4, 'hits.nvme': 0 });
  for (const each of [sequence, busy]) kv.release(each);
  await nothingLeaked(kv);
});

it('what cannot be read is computed', async () => {
  const disk = await openCold();
  const { kv } = disk;
  const busy = await hold(kv);
  const { nvme } = kv.stores;
  const read = nvme!.read.bind(nvme);
  nvme!.read = async (...args) => {
    await read(...args);
    throw new Error('the disk is gone');
  };
  const sequence = await kv.begin(prompt(10), { tenant, wait: true });
  expect(sequence.cachedTokens).toBe(0);
  expect(kv.openBlocks(sequence)).toHaveLength(5);
  for (const each of [sequence, busy]) kv.release(each);
  await nothingLeaked(kv);
});
