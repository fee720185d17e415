/**
 * `begin` with `arriving` over a prompt that goes on from a sealed tail: the tail is loaded beside the blocks
 * before it, and only what is behind it is handed out.
 */

import { afterEach, describe, expect, it, vi } from 'vitest';
import type { KVRuntime, KVSequence, PrefillPart } from '../../../src/index.ts';
import { Entry } from '../../../src/runtime/index.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { deviceBytes } from '../deviceBytes.ts';
import { nothingLeaked, openHeld, untilHeld } from '../disk/heldDisk.ts';
import { blocks, layout, openRuntime, tenant } from '../liveRuntime.ts';

const { blockTokens } = layout;
/** Tokens of the sealed beginning: one block and a tail. */
const sealed = 25;
const tokensOf = (count: number, from = 0): Uint32Array =>
  Uint32Array.from({ length: count }, (_, i) => from + i);

let kv: KVRuntime | undefined;
afterEach(async () => {
  await kv?.close();
  kv = undefined;
});

const random = new SeededRandom(29);

/** Bytes by block and layer group. */
type Written = Map<string, Uint8Array>;

/** Seals the beginning of a prompt with its tail and pushes it down. */
async function cacheWithTail(
  runtime: KVRuntime,
  levels: number,
  tokens = tokensOf(sealed),
): Promise<Written> {
  const first = await runtime.begin(tokens, { tenant, shareWaitMs: 0 });
  const bytes: Written = new Map();
  for (const { index, group } of runtime.openBlocks(first)) {
    const { buffer, offsetBytes, sizeBytes } = runtime.slot(first, index, group);
    const written = Uint8Array.from({ length: sizeBytes }, () => random.below(256));
    runtime.device.queue.writeBuffer(buffer, offsetBytes, written);
    bytes.set(`${index}/${group}`, written);
  }
  expect(await runtime.seal(first, { tail: true })).toBe('done');
  runtime.release(first);
  for (let tier = 0; tier < levels; tier++) {
    runtime.manager.evict(tier, bytes.size, runtime.nowUs());
    await runtime.idle();
  }
  return bytes;
}

/** Spoils what host memory has of these bytes. */
function damage(runtime: KVRuntime, bytes: Uint8Array | undefined): void {
  const { ddr } = runtime.stores;
  for (let slot = 0; slot < 8; slot++) {
    const view = ddr?.view(slot, 0);
    if (bytes?.every((byte, i) => byte === view?.[i])) return void view?.fill(255);
  }
  throw new Error('the bytes are not in host memory');
}

function bytesOf(runtime: KVRuntime, sequence: KVSequence, index: number, group = 0): Promise<Uint8Array> {
  return deviceBytes(runtime.device, runtime.slot(sequence, index, group));
}

/** All parts of the prefill. Nothing is written in them: what was cached can be seen as it is. */
async function parts(runtime: KVRuntime, sequence: KVSequence): Promise<PrefillPart[]> {
  const found: PrefillPart[] = [];
  for (;;) {
    const part = await runtime.nextPart(sequence);
    if (part === null) return found;
    if (part === 'interrupted') throw new Error('interrupted');
    found.push(part);
  }
}

const begin = (runtime: KVRuntime, tokens = tokensOf(40)): Promise<KVSequence> =>
  runtime.begin(tokens, { tenant, arriving: true, shareWaitMs: 0 });

function nothingIsHeld(runtime: KVRuntime): void {
  runtime.manager.checkIntegrity();
  expect(runtime.manager.inspect.usage(0).heldBytes).toBe(0);
}

describe('a prompt that goes on from a sealed tail', () => {
  it.each([
    ['HBM', 0],
    ['host memory', 1],
  ])('computes what is behind it, over the very bytes that were sealed, from %s', async (_, levels) => {
    kv = await openRuntime({ ddrBytes: blocks(20) });
    const bytes = await cacheWithTail(kv, levels);
    const sequence = await begin(kv);
    expect(await parts(kv, sequence)).toEqual([{ start: sealed, end: 40 }]);
    expect(sequence.cachedTokens).toBe(sealed);
    expect(kv.openBlocks(sequence).map(({ index }) => index)).toEqual([1, 2]);
    expect(await bytesOf(kv, sequence, 0)).toEqual(bytes.get('0/0'));
    expect(await bytesOf(kv, sequence, 1)).toEqual(bytes.get('1/0'));
    const awaited = await kv.begin(tokensOf(40), { tenant, shareWaitMs: 0 });
    expect(awaited.cachedTokens, 'as a begin that waits').toBe(sealed);
    expect(await bytesOf(kv, awaited, 1)).toEqual(bytes.get('1/0'));
    kv.release(sequence);
    kv.release(awaited);
    await kv.idle();
    nothingIsHeld(kv);
  });

  it('takes the longest that is sealed of it, and none that goes on otherwise', async () => {
    kv = await openRuntime({});
    for (const count of [3, 9, 15, 16, 17, 30]) await cacheWithTail(kv, 0, tokensOf(count));
    const starts = [2, 3, 4, 10, 15, 16, 17, 18, 30, 31, 40].map((count) => [count, 0]);
    const expected = [0, 0, 3, 9, 9, 15, 16, 17, 17, 30, 30].map((start, i) => [starts[i][0], start]);
    for (const row of starts) {
      const sequence = await begin(kv, tokensOf(row[0]));
      [{ start: row[1] }] = await parts(kv, sequence);
      kv.release(sequence);
    }
    expect(starts).toEqual(expected);
    const other = await begin(kv, tokensOf(40).with(20, 999));
    expect(await parts(kv, other)).toEqual([{ start: 17, end: 40 }]);
    kv.release(other);
    nothingIsHeld(kv);
  });

  it('waits for it alone, where the blocks before are in place', async () => {
    kv = await openRuntime({ ddrBytes: blocks(20) });
    const bytes = await cacheWithTail(kv, 1);
    kv.prefetch(tokensOf(blockTokens + 1), { tenant });
    await kv.idle();
    const sequence = await begin(kv);
    expect(sequence.cachedTokens, 'the first block is there, the tail on its way').toBe(blockTokens);
    expect(await parts(kv, sequence)).toEqual([{ start: sealed, end: 40 }]);
    expect(await bytesOf(kv, sequence, 1)).toEqual(bytes.get('1/0'));
    kv.release(sequence);
    nothingIsHeld(kv);
  });

  it('is not handed out before its copy has ended, also when others free room meanwhile', async () => {
    kv = await openRuntime({});
    const bytes = await cacheWithTail(kv, 0);
    const [sequence, other] = [await begin(kv), await begin(kv, tokensOf(5, 7000))];
    const part = kv.nextPart(sequence);
    expect(kv.manager.inspect.counters.copies, 'the copy has begun').toBe(1);
    kv.release(other);
    expect(await part).toEqual({ start: sealed, end: 40 });
    expect(await bytesOf(kv, sequence, 1)).toEqual(bytes.get('1/0'));
    kv.release(sequence);
    nothingIsHeld(kv);
  });

  it('computes it when its bytes were damaged below', async () => {
    kv = await openRuntime({ ddrBytes: blocks(20) });
    const bytes = await cacheWithTail(kv, 1);
    damage(kv, bytes.get('1/0'));
    const sequence = await begin(kv);
    expect(await parts(kv, sequence)).toEqual([{ start: blockTokens, end: 40 }]);
    expect(sequence.cachedTokens).toBe(blockTokens);
    expect(kv.manager.inspect.counters.loadsFailed.some((count) => count > 0)).toBe(true);
    kv.release(sequence);
    nothingIsHeld(kv);
  });

  it('computes it while the disk keeps silent, and does not wait for it in the end', async () => {
    const held = await openHeld();
    await cacheWithTail(held.kv, 1);
    held.kv.prefetch(tokensOf(blockTokens + 1), { tenant });
    await held.kv.idle();
    for (const from of [5000, 6000]) {
      const other = await begin(held.kv, tokensOf(40, from)); // how long a part takes is known then
      await parts(held.kv, other);
      held.kv.release(other);
      await held.kv.device.queue.onSubmittedWorkDone();
    }
    held.hold();
    const sequence = await begin(held.kv);
    expect(await parts(held.kv, sequence)).toEqual([{ start: blockTokens, end: 40 }]);
    expect(sequence.cachedTokens).toBe(blockTokens);
    held.kv.release(sequence);
    held.letGo();
    await nothingLeaked(held.kv);
  });
});

describe('a sequence that ends while its tail is on the way', () => {
  it.each(['release', 'cancel'] as const)('leaves nothing behind: %s', async (end) => {
    const held = await openHeld();
    await cacheWithTail(held.kv, 1);
    held.hold();
    const sequence = await begin(held.kv);
    await untilHeld(held.held);
    held.kv[end](sequence);
    held.letGo();
    await nothingLeaked(held.kv);
  });

  it('with a few tokens only has no tail that others go on from otherwise', async () => {
    kv = await openRuntime({});
    await cacheWithTail(kv, 0);
    const sequence = await begin(kv);
    expect(await kv.truncate(sequence, 20)).toBe('done');
    expect(await kv.append(sequence, tokensOf(40).fill(7, 20))).toBe('done');
    expect(await parts(kv, sequence)).toEqual([{ start: blockTokens, end: 40 }]);
    expect(sequence.cachedTokens).toBe(blockTokens);
    const longer = await begin(kv);
    expect(await kv.truncate(longer, 30)).toBe('done');
    expect(await parts(kv, longer)).toEqual([{ start: sealed, end: 30 }]);
    for (const each of [sequence, longer]) kv.release(each);
    nothingIsHeld(kv);
  });

  it('and is taken back behind its tail is computed again from there', async () => {
    kv = await openRuntime({});
    await cacheWithTail(kv, 0);
    const sequence = await begin(kv);
    expect(await parts(kv, sequence)).toEqual([{ start: sealed, end: 40 }]);
    expect(await kv.truncate(sequence, 20)).toBe('done');
    expect(sequence.cachedTokens).toBe(20);
    kv.release(sequence);
    const again = await begin(kv);
    expect(await kv.nextPart(again, { maxTokens: 5 })).toEqual({ start: sealed, end: 30 });
    expect(await kv.truncate(again, 20)).toBe('done');
    expect(await kv.append(again, tokensOf(40).fill(7, 20))).toBe('done');
    expect(await parts(kv, again)).toEqual([{ start: 20, end: 40 }]);
    kv.release(again);
    nothingIsHeld(kv);
  });
});

describe('a lost device', () => {
  it('takes a tail that is on its way with it', async () => {
    const held = await openHeld();
    await cacheWithTail(held.kv, 1);
    held.hold();
    const sequence = await begin(held.kv);
    await untilHeld(held.held);
    held.kv.device.destroy();
    while (held.kv.devicesLost === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    held.letGo();
    expect(await held.kv.nextPart(sequence)).toBe('interrupted');
    expect(await held.kv.recover(sequence)).toEqual([1, 2]);
    expect(sequence.cachedTokens).toBe(blockTokens);
    expect(await held.kv.nextPart(sequence)).toBe(null);
    held.kv.release(sequence);
    await nothingLeaked(held.kv);
  });

  it('just after the tail was copied: it does not count as cached', async () => {
    kv = await openRuntime({ ddrBytes: blocks(20) });
    await cacheWithTail(kv, 1);
    const { manager } = kv;
    const cancel = manager.cancel.bind(manager);
    // the table that pinned the tail is closed when its copy has begun
    vi.spyOn(manager, 'cancel').mockImplementationOnce((table, nowUs) => {
      cancel(table, nowUs);
      manager.loseTier(0, nowUs);
    });
    const sequence = await begin(kv);
    expect(await kv.nextPart(sequence)).toBe('interrupted');
    expect(await kv.recover(sequence)).toEqual([1, 2]);
    expect(sequence.cachedTokens, 'the full block came back from host memory').toBe(blockTokens);
    kv.release(sequence);
    nothingIsHeld(kv);
  });

  it('when the tail had been taken over: its tokens are computed again', async () => {
    kv = await openRuntime({ ddrBytes: blocks(20) });
    await cacheWithTail(kv, 1);
    const sequence = await begin(kv);
    expect(await kv.nextPart(sequence)).toEqual({ start: sealed, end: 40 });
    kv.manager.loseTier(0, kv.nowUs());
    expect(await kv.nextPart(sequence)).toBe('interrupted');
    expect(await kv.recover(sequence)).toEqual([1, 2]);
    expect(sequence.cachedTokens).toBe(blockTokens);
    kv.release(sequence);
    nothingIsHeld(kv);
  });
});

describe('layer groups', () => {
  const layerGroups = [
    { first: 0, end: 1 },
    { first: 1, end: 2 },
  ];

  it('have their tail with their blocks', async () => {
    kv = await openRuntime({ ddrBytes: blocks(40), layerGroups });
    const bytes = await cacheWithTail(kv, 1);
    const sequence = await begin(kv);
    expect(sequence.cachedTokens).toBe(sealed);
    for (const group of [0, 1]) {
      expect(await kv.readyLayers(sequence, group)).toMatchObject({ group, open: [1, 2] });
      for (const index of [0, 1]) {
        expect(await bytesOf(kv, sequence, index, group)).toEqual(bytes.get(`${index}/${group}`));
      }
    }
    expect(await kv.seal(sequence)).toBe('done');
    expect(await kv.readyLayers(sequence, 0), 'it can be asked again').toMatchObject({ open: [2] });
    kv.release(sequence);
    nothingIsHeld(kv);
  });

  it('are interrupted when the sequence was taken back into a tail that had not come', async () => {
    kv = await openRuntime({ ddrBytes: blocks(40), layerGroups });
    await cacheWithTail(kv, 1);
    const sequence = await begin(kv);
    await kv.truncate(sequence, 20);
    expect(await kv.append(sequence, tokensOf(40).fill(7, 20))).toBe('done');
    expect(await kv.readyLayers(sequence, 0)).toBe('interrupted');
    expect(await kv.recover(sequence)).toEqual([1, 2]);
    expect(sequence.cachedTokens).toBe(blockTokens);
    expect(await kv.readyLayers(sequence, 0)).toMatchObject({ open: [1, 2] });
    kv.release(sequence);
    nothingIsHeld(kv);
  });

  it('wait for the block that a tail in HBM goes into, and let others go on meanwhile', async () => {
    kv = await openRuntime({ hbmBytes: blocks(12), layerGroups });
    await cacheWithTail(kv, 0);
    const other = await kv.begin(tokensOf(blockTokens, 9000), { tenant });
    const sequence = await kv.begin(tokensOf(3 * blockTokens), { tenant, arriving: true });
    const [{ table }] = sequence.groups;
    // The block waits as one does whose slot has to come free first.
    kv.manager.releaseRange(table, 1, 2, kv.nowUs());
    kv.manager.copy(other.groups[0].table, 0, table, 1, kv.nowUs());
    expect(table.state[1]).toBe(Entry.WAITING);
    for (const group of [0, 1]) expect(await kv.readyLayers(sequence, group)).toMatchObject({ group });
    expect(sequence.cachedTokens).toBe(sealed);
    for (const each of [sequence, other]) kv.release(each);
  });

  it('are interrupted where one of them does not get it', async () => {
    kv = await openRuntime({ ddrBytes: blocks(40), layerGroups });
    const bytes = await cacheWithTail(kv, 1);
    damage(kv, bytes.get('1/1'));
    const sequence = await begin(kv);
    expect(await kv.readyLayers(sequence, 0)).toMatchObject({ open: [1, 2] });
    expect(await kv.readyLayers(sequence, 1)).toBe('interrupted');
    expect(await kv.recover(sequence)).toEqual([1, 2]);
    expect(sequence.cachedTokens).toBe(blockTokens);
    expect(await kv.readyLayers(sequence, 1)).toMatchObject({ open: [1, 2] });
    kv.release(sequence);
    nothingIsHeld(kv);
  });
});
