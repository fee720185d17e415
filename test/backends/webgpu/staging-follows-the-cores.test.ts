/** Rings lend as many buffers, and stores fill as much of each, as is fastest for cores that are as far apart as they are now. */

import { afterEach, describe, expect, it, vi } from 'vitest';
import type { CacheDistance } from '../../../src/backends/webgpu/cacheDistance.ts';
import { MapMode } from '../../../src/backends/webgpu/gpuConstants.ts';
import { HbmStore, type LiveDevice } from '../../../src/backends/webgpu/index.ts';
import { LendingRing } from '../../../src/backends/webgpu/lendingRing.ts';
import { StagingSpread } from '../../../src/backends/webgpu/stagingSpread.ts';
import { poolShape } from '../../../src/runtime/pool/shape.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../../src/testing/index.ts';
import { SeededRandom, testSeed } from '../../../src/testing/seededRandom.ts';
import { softwareDevice } from './softwareDevice.ts';

const MIB = 1024 * 1024;
const device = softwareDevice();

afterEach(() => vi.restoreAllMocks());

describe('a ring', () => {
  const live = { onLost: () => () => {} } as unknown as LiveDevice;
  const ring = (most: () => number) => new LendingRing(live, ['a', 'b', 'c', 'd'], most);

  it('that lends few lends again what came back last', async () => {
    const few = ring(() => 2);
    const [first, second] = [await few.acquire(), await few.acquire()];
    const third = few.acquire();
    few.release(second!);
    expect(await third).toBe(second);
    few.release(first!);
    expect(await few.acquire()).toBe(first);
  });

  it('that lends all lends them in turn', async () => {
    const all = ring(() => 4);
    const lent: (string | undefined)[] = [];
    for (let i = 0; i < 8; i++) {
      const one = await all.acquire();
      lent.push(one);
      all.release(one!);
    }
    expect(lent).toEqual(['a', 'b', 'c', 'd', 'a', 'b', 'c', 'd']);
  });

  it('serves everyone in line when more may be lent, and waits for all when fewer may', async () => {
    let most = 1;
    const changing = ring(() => most);
    const first = (await changing.acquire())!;
    const line = [changing.acquire(), changing.acquire(), changing.acquire(), changing.acquire()];
    most = 4;
    changing.release(first);
    const served = await Promise.all(line);
    expect(new Set(served).size).toBe(4);
    most = 1;
    let drained = false;
    const draining = changing.drain().then(() => {
      drained = true;
    });
    const late = changing.acquire();
    for (const one of served) {
      await new Promise((resolve) => setImmediate(resolve));
      expect(drained).toBe(false);
      changing.release(one!);
    }
    await draining;
    expect(await late).toBeUndefined();
    expect(await changing.acquire()).toBeUndefined();
  });
});

describe('a spread', () => {
  const wide = { bytes: 8, buffers: 2 };
  const alone = { bytes: 4, buffers: 3 };
  const beside = { bytes: 2, buffers: 4 };

  it('has room for any choice', () => {
    const distance = { near: false } as CacheDistance;
    const other = (): StagingSpread => spread;
    const spread = new StagingSpread(wide, { distance, alone, beside, other });
    expect(spread.most).toEqual({ bytes: 8, buffers: 4 });
  });

  it('is wide while the cores are far apart, and makes room for the other direction while they are near', () => {
    const cores = { near: false };
    const distance = cores as CacheDistance;
    const other = new StagingSpread(wide);
    const spread = new StagingSpread(wide, { distance, alone, beside, other: () => other });
    const lenders = [{ lent: 0 }, { lent: 0 }];
    for (const lender of lenders) other.isLentBy(lender);
    expect(spread.now).toEqual(wide);
    cores.near = true;
    expect(spread.now).toEqual(alone);
    lenders[1].lent = 1;
    expect(spread.now).toEqual(beside);
    cores.near = false;
    expect(spread.now).toEqual(wide);
    lenders[1].lent = 0;
    cores.near = true;
    expect(spread.now).toEqual(alone);
  });

  it('looks at nothing that is too large to be in a cache', () => {
    const seen: number[] = [];
    const distance = { look: (_: ArrayBuffer, end: number) => seen.push(end) } as unknown as CacheDistance;
    const close = { distance, alone, beside, other: () => new StagingSpread(wide) };
    const spread = new StagingSpread(wide, close);
    for (const end of [1, 4, 5, 8]) spread.look(new ArrayBuffer(8), end);
    expect(seen).toEqual([1, 4]);
  });
});

describe('a store', () => {
  it('moves the right bytes while cores come near and go away', async () => {
    const random = new SeededRandom(testSeed(2026));
    const shape = poolShape(10, 4 * MIB, [4 * MIB]);
    vi.spyOn(device.live.cacheDistance, 'near', 'get').mockImplementation(() => random.below(2) === 0);
    for (const verifyWrites of ['readback', 'none'] as const) {
      await using store = await HbmStore.open(device.live, shape, { verifyWrites, uploadPath: 'ring' });
      const items = Array.from({ length: 10 }, (_, slot) => patternItem(shape, slot, 0, 1));
      const next = items.map((item) => patternItem(shape, item.slot, 0, 2));
      const targets = items.map((item) => emptyItem(item));
      await Promise.all(items.map((item) => store.write([item])));
      const reads = targets.map((target) => store.read([target]));
      const writes = next.map((item) => store.write([item]));
      const ends = (await Promise.all([...reads, ...writes])).flat();
      expect(ends.map((end) => end.reason)).toEqual(ends.map(() => ''));
      expect(targets.map(mismatchedWords)).toEqual(targets.map(() => 0));
      const again = next.map((item) => emptyItem(item));
      await store.read(again);
      expect(again.map(mismatchedWords)).toEqual(again.map(() => 0));
    }
  });

  it('lends less down while something goes up and the cores are near', async () => {
    const shape = poolShape(16, 2 * MIB, [2 * MIB]);
    vi.spyOn(device.live.cacheDistance, 'near', 'get').mockReturnValue(true);
    await using store = await HbmStore.open(device.live, shape, { verifyWrites: 'none', uploadPath: 'ring' });
    const items = Array.from({ length: 16 }, (_, slot) => patternItem(shape, slot, 0, 1));
    await store.write(items);
    const most = async (work: () => Promise<unknown>): Promise<number> => {
      let mapped = 0;
      let atOnce = 0;
      const whenMapped = device.live.whenMapped.bind(device.live);
      const spy = vi.spyOn(device.live, 'whenMapped').mockImplementation(async (buffer, mode, bytes) => {
        const reads = mode === MapMode.READ;
        if (reads) atOnce = Math.max(atOnce, ++mapped);
        const done = await whenMapped(buffer, mode, bytes);
        if (reads) mapped -= 1;
        return done;
      });
      await work();
      spy.mockRestore();
      return atOnce;
    };
    const down = items.slice(13).map((item) => emptyItem(item));
    const next = items.slice(0, 13).map(({ slot }) => patternItem(shape, slot, 0, 2));
    expect(await most(() => store.read(down))).toBe(3);
    expect(await most(() => Promise.all([store.write(next), store.read(down)]))).toBe(2);
    expect(down.map(mismatchedWords)).toEqual(down.map(() => 0));
  });

  it('sends little down first, so that the host need not wait for a whole buffer', async () => {
    const shape = poolShape(8, MIB, [MIB]);
    vi.spyOn(device.live.cacheDistance, 'near', 'get').mockReturnValue(false);
    await using store = await HbmStore.open(device.live, shape);
    const items = Array.from({ length: 8 }, (_, slot) => patternItem(shape, slot, 0, 1));
    await store.write(items);
    const copied: number[] = [];
    const create = device.live.device.createCommandEncoder.bind(device.live.device);
    vi.spyOn(device.live.device, 'createCommandEncoder').mockImplementation((descriptor) => {
      const encoder = create(descriptor);
      const copy = encoder.copyBufferToBuffer.bind(encoder);
      encoder.copyBufferToBuffer = ((...args: Parameters<typeof copy>) => {
        copied.push(args[4]!);
        return copy(...args);
      }) as typeof encoder.copyBufferToBuffer;
      return encoder;
    });
    const targets = items.map((item) => emptyItem(item));
    await store.read(targets);
    expect(copied.slice(0, 4)).toEqual([MIB, MIB, 2 * MIB, 4 * MIB]);
    expect(targets.map(mismatchedWords)).toEqual(targets.map(() => 0));
  });
});
