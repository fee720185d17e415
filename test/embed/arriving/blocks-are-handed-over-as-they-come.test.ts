/** `begin` with `arriving`: the prompt is computed from the front while its found blocks come from the back. */

import { afterEach, describe, expect, it } from 'vitest';
import type { KVRuntime, KVSequence, PrefillPart } from '../../../src/index.ts';
import { nothingLeaked, openHeld, untilHeld } from '../disk/heldDisk.ts';
import {
  blocks,
  byteOf,
  cacheBelow,
  contents,
  layout,
  openRuntime,
  prompt,
  promptBlocks,
  rightContents,
  tenant,
} from '../liveRuntime.ts';

const { blockTokens } = layout;
const found = promptBlocks * blockTokens;

let kv: KVRuntime | undefined;
afterEach(async () => {
  await kv?.close();
  kv = undefined;
});

/** What a prefill of the part would write, in the open blocks that it reaches. */
function compute(runtime: KVRuntime, sequence: KVSequence, part: PrefillPart, seed: number): void {
  const open = new Set(runtime.openBlocks(sequence).map(({ index }) => index));
  for (let i = Math.floor(part.start / blockTokens); i * blockTokens < part.end; i++) {
    expect(open, `block ${i} of the part is open`).toContain(i);
    const { buffer, offsetBytes, sizeBytes } = runtime.slot(sequence, i);
    runtime.device.queue.writeBuffer(buffer, offsetBytes, new Uint8Array(sizeBytes).fill(seed + i));
  }
}

async function prefill(runtime: KVRuntime, sequence: KVSequence, seed: number): Promise<PrefillPart[]> {
  const parts: PrefillPart[] = [];
  for (;;) {
    const part = await runtime.nextPart(sequence);
    if (part === null) return parts;
    if (part === 'interrupted') throw new Error('interrupted');
    compute(runtime, sequence, part, seed);
    parts.push(part);
  }
}

/** From now on the runtime knows how long parts take. */
async function measurePace(runtime: KVRuntime): Promise<void> {
  for (let i = 0; i < 3; i++) {
    const other = await runtime.begin(prompt(40 + i), { tenant, arriving: true });
    await prefill(runtime, other, 40 + i);
    runtime.release(other);
    await runtime.device.queue.onSubmittedWorkDone();
  }
}

async function expectRight(runtime: KVRuntime, sequence: KVSequence, seed: number): Promise<void> {
  expect(await runtime.seal(sequence)).toBe('done');
  expect(await contents(runtime, sequence)).toEqual(rightContents(seed));
  runtime.release(sequence);
  await runtime.idle();
  runtime.manager.checkIntegrity();
}

describe('a prompt whose blocks lie below', () => {
  it('comes up whole where loads are quick, and only the rest of it is handed out', async () => {
    kv = await openRuntime({ ddrBytes: blocks(40) });
    await cacheBelow(kv, 1, 1);
    const sequence = await kv.begin(prompt(1), { tenant, arriving: true });
    expect(await prefill(kv, sequence, 1)).toEqual([{ start: found, end: found + 1 }]);
    expect(sequence.cachedTokens).toBe(found);
    await expectRight(kv, sequence, 1);
  });

  it('that is not found at all is handed out in parts of the size that was asked for', async () => {
    kv = await openRuntime({});
    const sequence = await kv.begin(prompt(2), { tenant, arriving: true });
    const parts: PrefillPart[] = [];
    for (;;) {
      const part = await kv.nextPart(sequence, { maxTokens: 40 });
      if (part === null || part === 'interrupted') break;
      compute(kv, sequence, part, 2);
      parts.push(part);
    }
    expect(parts).toEqual([
      { start: 0, end: 40 },
      { start: 40, end: found + 1 },
    ]);
    expect(sequence.cachedTokens).toBe(0);
    await expectRight(kv, sequence, 2);
  });

  it('is computed from the front while the disk keeps silent, and no load is waited for in the end', async () => {
    const held = await openHeld();
    await cacheBelow(held.kv, 3, 1);
    held.hold();
    const sequence = await held.kv.begin(prompt(3), { tenant, arriving: true });
    const started = held.kv.manager.inspect.counters.reloads[1];
    // How long a part takes is known, so a disk that is late is measured by it.
    const warm = await held.kv.begin(prompt(30), { tenant });
    held.kv.release(warm);
    const other = await held.kv.begin(prompt(31), { tenant, arriving: true });
    await prefill(held.kv, other, 31);
    held.kv.release(other);
    await held.kv.device.queue.onSubmittedWorkDone();
    const parts = await prefill(held.kv, sequence, 3);
    expect(started).toBe(promptBlocks);
    expect(parts[0].start).toBe(0);
    expect(parts.at(-1)).toMatchObject({ end: found + 1 });
    expect(sequence.cachedTokens).toBe(0);
    expect(held.kv.manager.inspect.counters.recomputed).toBe(promptBlocks);
    held.letGo();
    await expectRight(held.kv, sequence, 3);
    await nothingLeaked(held.kv);
  });

  it('and is taken back to a part of its first block has no part beyond its end', async () => {
    const held = await openHeld();
    await measurePace(held.kv);
    await cacheBelow(held.kv, 4, 1);
    held.hold();
    const sequence = await held.kv.begin(prompt(4), { tenant, arriving: true });
    expect(await held.kv.nextPart(sequence, { maxTokens: 4 })).toEqual({ start: 0, end: 4 });
    const truncated = held.kv.truncate(sequence, 8);
    held.letGo();
    expect(await truncated).toBe('done');
    expect(await prefill(held.kv, sequence, 4)).toEqual([{ start: 4, end: 8 }]);
    held.kv.release(sequence);
    await nothingLeaked(held.kv);
  });

  it('goes on behind the blocks that came while its first part was computed', async () => {
    const held = await openHeld();
    await measurePace(held.kv);
    await cacheBelow(held.kv, 4, 1);
    held.hold();
    const sequence = await held.kv.begin(prompt(4), { tenant, arriving: true });
    const first = await held.kv.nextPart(sequence, { maxTokens: blockTokens });
    expect(first).toEqual({ start: 0, end: blockTokens });
    compute(held.kv, sequence, first as PrefillPart, 4);
    held.letGo();
    await held.kv.idle();
    expect(await prefill(held.kv, sequence, 4)).toEqual([{ start: found, end: found + 1 }]);
    expect(sequence.cachedTokens).toBe(found - blockTokens);
    await expectRight(held.kv, sequence, 4);
    await nothingLeaked(held.kv);
  });
});

describe('waiting for a part', () => {
  it('ends with the signal, and nothing of the sequence stays when it is cancelled', async () => {
    const held = await openHeld();
    await cacheBelow(held.kv, 5, 1);
    held.hold();
    const sequence = await held.kv.begin(prompt(5), { tenant, arriving: true });
    await untilHeld(held.held);
    const gone = new AbortController();
    const part = held.kv.nextPart(sequence, { signal: gone.signal });
    gone.abort(new Error('the client left'));
    await expect(part).rejects.toThrow('the client left');
    held.kv.cancel(sequence);
    held.letGo();
    await nothingLeaked(held.kv);
  });

  it('is interrupted by a lost device, and recover brings back what lower tiers hold', async () => {
    kv = await openRuntime({ ddrBytes: blocks(40) });
    await cacheBelow(kv, 6, 1);
    const sequence = await kv.begin(prompt(6), { tenant, arriving: true });
    const { device } = kv;
    device.destroy();
    await device.lost;
    while (kv.devicesLost === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    expect(await kv.nextPart(sequence)).toBe('interrupted');
    expect(await kv.recover(sequence)).toEqual([promptBlocks]);
    expect(sequence.cachedTokens).toBe(found);
    expect(await kv.nextPart(sequence)).toBe(null);
    compute(kv, sequence, { start: found, end: found + 1 }, 6);
    await expectRight(kv, sequence, 6);
  });
});

describe('layer groups', () => {
  const layerGroups = [
    { first: 0, end: 1 },
    { first: 1, end: 2 },
  ];

  it('are handed over one by one, each when all of it is verified', async () => {
    kv = await openRuntime({ ddrBytes: blocks(40), layerGroups });
    await cacheGroupsBelow(kv, 7);
    const sequence = await kv.begin(prompt(7), { tenant, arriving: true });
    expect(sequence.cachedTokens).toBe(found);
    for (const group of [0, 1]) {
      const layers = await kv.readyLayers(sequence, group);
      expect(layers).toMatchObject({ group, first: group, end: group + 1, open: [promptBlocks] });
      if (layers === 'interrupted') throw new Error(layers);
      expect(layers.blockTable.blocks).toBe(promptBlocks + 1);
      const { table } = sequence.groups[group];
      expect(table.readyPrefix()).toBe(promptBlocks);
    }
    expect(await kv.nextPart(sequence)).toBe(null);
    expect(await kv.seal(sequence)).toBe('done');
    kv.release(sequence);
  });

  it('a unit that is damaged on its way is never handed over: the sequence is interrupted', async () => {
    kv = await openRuntime({ ddrBytes: blocks(40), layerGroups });
    await cacheGroupsBelow(kv, 8);
    const { ddr } = kv.stores;
    if (ddr === undefined) throw new Error('DDR is missing');
    ddr.view(0, 0).fill(255);
    const again = await kv.begin(prompt(8), { tenant, arriving: true });
    const ends = [await kv.readyLayers(again, 0), await kv.readyLayers(again, 1)];
    expect(ends).toContain('interrupted');
    const open = await kv.recover(again);
    expect(open.length).toBeGreaterThan(1);
    expect(again.cachedTokens).toBeLessThan(found);
    kv.release(again);
    await kv.idle();
    kv.manager.checkIntegrity();
  });
});

/** Computes a prompt in both groups and pushes it to DDR. */
async function cacheGroupsBelow(runtime: KVRuntime, seed: number): Promise<void> {
  const sequence = await runtime.begin(prompt(seed), { tenant });
  for (const { index, group } of runtime.openBlocks(sequence)) {
    const { buffer, offsetBytes, sizeBytes } = runtime.slot(sequence, index, group);
    const bytes = new Uint8Array(sizeBytes).fill(seed + index + 16 * group);
    runtime.device.queue.writeBuffer(buffer, offsetBytes, bytes);
  }
  expect(await runtime.seal(sequence)).toBe('done');
  runtime.release(sequence);
  runtime.manager.evict(0, 2 * promptBlocks, runtime.nowUs());
  await runtime.idle();
}

describe('a mistake is one clear error', () => {
  it('a part of no tokens, a group that is not there, a sequence that has ended', async () => {
    kv = await openRuntime({});
    const sequence = await kv.begin(prompt(9), { tenant, arriving: true });
    await expect(kv.nextPart(sequence, { maxTokens: 0 })).rejects.toMatchObject({ field: 'maxTokens' });
    await expect(kv.readyLayers(sequence, 1)).rejects.toMatchObject({ code: 'TKV_INPUT', field: 'group' });
    kv.release(sequence);
    await expect(kv.nextPart(sequence)).rejects.toMatchObject({ code: 'TKV_UNKNOWN_ID' });
    await expect(kv.readyLayers(sequence, 0)).rejects.toMatchObject({ code: 'TKV_UNKNOWN_ID' });
  });

  it('a sequence that was begun without it has no parts', async () => {
    kv = await openRuntime({});
    const sequence = await kv.begin(prompt(10), { tenant });
    expect(await kv.nextPart(sequence)).toBe(null);
    expect(await byteOf(kv, sequence, 0)).toBeTypeOf('number');
    kv.release(sequence);
  });
});
