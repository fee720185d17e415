import { afterEach, describe, expect, it, vi } from 'vitest';
import { ByteStream } from '../../../src/backends/engine/byteStream.ts';
import { HbmStore, openDevice } from '../../../src/backends/webgpu/index.ts';
import { digestBytes } from '../../../src/runtime/digest.ts';
import { poolShape } from '../../../src/runtime/pool/shape.ts';
import { outcomeNames } from '../../../src/runtime/transfer/outcome.ts';
import { corrupt, loaded } from '../../../src/runtime/transfer/slotLedger.ts';
import type { ArrivingBytes, StoreItem, StoreResult } from '../../../src/runtime/transfer/tierStore.ts';
import {
  emptyItem,
  mismatchedWords,
  patternItem,
  SeededRandom,
  testSeed,
} from '../../../src/testing/index.ts';
import { softwareDevice } from './softwareDevice.ts';

const device = softwareDevice();

afterEach(() => vi.restoreAllMocks());

const UNIT = 64 * 1024;
const shape = poolShape(8, UNIT, [UNIT]);
const names = (results: readonly StoreResult[]): string[] => results.map((end) => outcomeNames[end.outcome]);
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** The item of (slot, generation) over memory that holds nothing yet, and how its bytes come. */
function arrivingItem(
  slot: number,
  generation = 1,
): { item: StoreItem; stream: ByteStream; bring(to: number): void } {
  const whole = patternItem(shape, slot, 0, generation);
  const stream = new ByteStream(UNIT);
  const item = { ...emptyItem(whole), arriving: stream };
  let at = 0;
  return {
    item,
    stream,
    bring(to) {
      item.bytes.set(whole.bytes.subarray(at, to), at);
      stream.arrived(at, to);
      at = to;
      if (to === UNIT) stream.end(loaded);
    },
  };
}

async function inStore(store: HbmStore, slot: number, generation = 1): Promise<string> {
  const target = emptyItem(patternItem(shape, slot, 0, generation));
  const [outcome] = names(await store.read([target]));
  return outcome === 'loaded' && mismatchedWords(target) > 0 ? 'wrong' : outcome;
}

for (const uploadPath of ['ring', 'writeBuffer'] as const) {
  for (const verifyWrites of ['kernel', 'readback', 'none'] as const) {
    const seed = testSeed(91);
    it(`are written as they come, beside others of the same call: ${uploadPath}, ${verifyWrites} (seed ${seed})`, async () => {
      const random = new SeededRandom(seed);
      const options = { uploadPath, verifyWrites, stagingBytes: 20_000, stagingBuffers: 2 };
      await using store = await HbmStore.open(device.live, shape, options);
      for (let generation = 1; generation <= 6; generation++) {
        const coming = Array.from({ length: 6 }, (_, slot) => arrivingItem(slot, generation));
        const whole = [6, 7].map((slot) => patternItem(shape, slot, 0, generation));
        const items = [...coming.map(({ item }) => item), ...whole];
        const writes = [store.write(items.slice(0, 3)), store.write(items.slice(3))];
        const left = coming.map(() => 0);
        while (left.some((at) => at < UNIT)) {
          const one = random.below(coming.length);
          if (left[one] === UNIT) continue;
          left[one] = Math.min(UNIT, left[one] + 4 * (1 + random.below(UNIT / 12)));
          coming[one].bring(left[one]);
          if (random.chance(0.5)) await turn();
        }
        expect(names((await Promise.all(writes)).flat())).toEqual(items.map(() => 'loaded'));
        for (const { slot } of items) expect(await inStore(store, slot, generation)).toBe('loaded');
      }
    });
  }
}

describe('a write whose bytes do not all arrive', () => {
  it('ends as their read did, and leaves its slot empty', async () => {
    await using store = await HbmStore.open(device.live, shape);
    await store.write([patternItem(shape, 0, 0, 1)]);
    for (const [round, brought] of [0, 4096, UNIT - 4].entries()) {
      const generation = 2 + round;
      const { item, stream, bring } = arrivingItem(0, generation);
      const write = store.write([item]);
      if (brought > 0) bring(brought);
      await turn();
      const end = corrupt('the header names another slot');
      stream.end(end);
      expect(await write).toEqual([end]);
      expect(await inStore(store, 0, generation)).toBe('missing');
    }
  });

  it('leaves nothing behind that could land on what takes the slot next, however busy the line is', async () => {
    const many = poolShape(64, 4096, [4096]);
    await using store = await HbmStore.open(device.live, many, { uploadPath: 'ring' });
    const end = corrupt('the header names another slot');
    const others: Promise<readonly StoreResult[]>[] = [];
    let asked = 0;
    const arriving: ArrivingBytes = {
      leading: 2048,
      get failure() {
        const first = 32 * asked++ + 1; // calls that keep the line busy, before and after the failure
        for (let slot = first; slot < first + 31; slot++) {
          others.push(store.write([patternItem(many, slot, 0, 1)]));
        }
        return asked === 1 ? undefined : end;
      },
      beyond: () => Promise.resolve(),
    };
    expect(await store.write([{ ...patternItem(many, 0, 0, 1), arriving }])).toEqual([end]);
    const next = { slot: 0, sizeClass: 0, generation: 2 };
    expect(names(await store.fillPattern([{ ...next, seedLo: 0, seedHi: 2 }]))).toEqual(['loaded']);
    expect(names((await Promise.all(others)).flat())).toEqual(others.map(() => 'loaded'));
    expect(asked).toBe(2);
    const target = emptyItem(patternItem(many, 0, 0, 2));
    expect(names(await store.read([target]))).toEqual(['loaded']);
    expect(mismatchedWords(target)).toBe(0);
  });

  it('is verified as a whole: one bit that came wrong is corrupt', async () => {
    await using store = await HbmStore.open(device.live, shape);
    const { item, stream } = arrivingItem(1);
    item.bytes.set(patternItem(shape, 1, 0, 1).bytes);
    item.bytes[UNIT - 9] ^= 2;
    expect(digestBytes(item.bytes)).not.toEqual(item.digest);
    const write = store.write([item]);
    stream.arrived(0, UNIT / 2);
    await turn();
    stream.end(loaded);
    expect(names(await write)).toEqual(['corrupt']);
    expect(await inStore(store, 1)).toBe('missing');
  });
});

describe('a write that waits for bytes', () => {
  it('takes no room in the ring, and holds up no call but those on its slot', async () => {
    const options = { stagingBytes: 8192, stagingBuffers: 1, uploadPath: 'ring' } as const;
    await using store = await HbmStore.open(device.live, shape, options);
    const { item, bring } = arrivingItem(0);
    const first = store.write([item]);
    bring(4096);
    const second = store.write([patternItem(shape, 0, 0, 2)]);
    for (let slot = 1; slot < 8; slot++) {
      expect(names(await store.write([patternItem(shape, slot, 0, 1)]))).toEqual(['loaded']);
      expect(await inStore(store, slot)).toBe('loaded');
    }
    bring(UNIT);
    expect(names([...(await first), ...(await second)])).toEqual(['loaded', 'loaded']);
    expect(await inStore(store, 0, 2)).toBe('loaded');
  });

  it.each([0, 4096])('is refused when the pool is closed, %i bytes having come', async (brought) => {
    const store = await HbmStore.open(device.live, shape);
    const { item, bring } = arrivingItem(0);
    const write = store.write([item]);
    if (brought > 0) bring(brought);
    await turn();
    await store[Symbol.asyncDispose]();
    expect(await write).toMatchObject([{ reason: 'the pool is closed' }]);
  });

  it.each([0, 4096])('is refused when the device is lost, %i bytes having come', async (brought) => {
    await using live = await openDevice({ adapter: 'software' });
    await using store = await HbmStore.open(live, shape);
    const { item, bring } = arrivingItem(0);
    const writes = [store.write([item]), store.write([patternItem(shape, 0, 0, 2)])];
    if (brought > 0) bring(brought);
    await turn();
    live.device.destroy();
    const ends = (await Promise.all(writes)).flat();
    expect(names(ends)).toEqual(['refused', 'refused']);
    for (const { reason } of ends) expect(reason).toMatch(/device lost/);
  });
});
