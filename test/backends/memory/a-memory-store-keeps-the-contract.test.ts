import { describe, expect, it } from 'vitest';
import { MemoryStore } from '../../../src/backends/host/memoryStore.ts';
import { loadLibc } from '../../../src/backends/host/posix.ts';
import { TierKVError } from '../../../src/runtime/errors.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { Outcome } from '../../../src/runtime/tier/tier.ts';
import {
  emptyItem,
  mismatchedWords,
  patternItem,
  SeededRandom,
  testSeed,
} from '../../../src/testing/index.ts';
import { tierContract } from '../../../src/testing/tierContract.ts';

for (const native of [true, false]) {
  for (const verifyReads of [true, false]) {
    const kind = `${native ? 'locked' : 'plain'} arena${verifyReads ? ', verified' : ''}`;
    tierContract(`memory, ${kind}`, async (shape) => {
      // Chunks of two pages, so that the pool's slots are spread over several.
      const store = await MemoryStore.open(shape, { native, verifyReads, chunkBytes: 2 * shape.pageBytes });
      return {
        store,
        movesBytes: true,
        flipBit(slot, sizeClass, byteIndex) {
          const bytes = store.view(slot, sizeClass);
          bytes[byteIndex] = bytes[byteIndex] ^ 0x10;
        },
      };
    });
  }
}

describe('memory store', () => {
  const shape = poolShape(8, 8192, [8192, 2048]);

  it('shares its slots through views: what is written there is what is read', async () => {
    await using store = await MemoryStore.open(shape, { verifyReads: true });
    const item = patternItem(shape, 4, 1, 3);
    expect(store.generationOf(4)).toBe(0);
    store.view(4, 1).set(item.bytes);
    store.markWritten(4, 3);
    expect(store.generationOf(4)).toBe(3);
    const target = emptyItem(item);
    expect((await store.read([target]))[0].outcome).toBe(Outcome.LOADED);
    expect(mismatchedWords(target)).toBe(0);
  });

  it('refuses to mark an older generation as written', async () => {
    await using store = await MemoryStore.open(shape);
    store.view(0, 0);
    store.markWritten(0, 5);
    expect(() => store.markWritten(0, 4)).toThrowError(expect.objectContaining({ code: 'TKV_STALE' }));
    expect(store.generationOf(0)).toBe(5);
  });

  for (const native of [true, false]) {
    it(`survives views that outlive it (${native ? 'locked' : 'plain'})`, async () => {
      const store = await MemoryStore.open(shape, { native });
      const view = store.view(1, 1);
      view.fill(9);
      await store[Symbol.asyncDispose]();
      expect(() => store.view(1, 1)).toThrowError(expect.objectContaining({ code: 'TKV_STATE' }));
      expect(view.length).toBe(2048);
      if (native && typeof (await loadLibc()) !== 'string')
        expect(view.every((byte) => byte === 0)).toBe(true);
      view[0] = 1;
    });
  }

  it('says what the system granted', async () => {
    const large = poolShape(4, 4 * 1024 * 1024, [4 * 1024 * 1024]);
    await using mapped = await MemoryStore.open(large);
    await using fallback = await MemoryStore.open(large, { native: false });
    const facts = mapped.describe();
    expect(facts.pageAligned).toBe(true);
    if (facts.locked === false) expect(facts.notGranted).toMatch(/mlock: E|native calls|koffi/);
    expect(fallback.describe()).toMatchObject({
      pageAligned: true,
      locked: false,
      hugePageBytes: 0,
      notGranted: 'native calls are switched off',
    });
  });

  it('names the setting and the remedy when there is too little memory', async () => {
    const enormous = poolShape(1024, 1024 ** 4, [1024 ** 4]);
    for (const native of [true, false]) {
      const opening = MemoryStore.open(enormous, { native, field: '--ddr-blocks' });
      const error = await opening.then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(error).toBeInstanceOf(TierKVError);
      expect(error).toMatchObject({ code: 'TKV_CONFIG', field: '--ddr-blocks' });
      expect((error as TierKVError).message).toMatch(/needs \d+ bytes .* Lower --ddr-blocks/);
    }
  });

  it('refuses slots that a digest cannot cover, if it verifies', async () => {
    const opening = MemoryStore.open(poolShape(1, 1002, [1002]), { verifyReads: true });
    await expect(opening).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'slotBytes[0]' });
  });

  const seed = testSeed(907);
  it(`keeps 10,000 tiny slots apart (seed ${seed})`, async () => {
    const random = new SeededRandom(seed);
    const tiny = poolShape(625, 4096, [256]);
    await using store = await MemoryStore.open(tiny, { verifyReads: true });
    const generations = new Uint32Array(tiny.slotLimit);
    for (let step = 0; step < 30_000; step++) {
      const slot = random.below(tiny.slotLimit);
      generations[slot] = generations[slot] + 1;
      await store.write([patternItem(tiny, slot, 0, generations[slot])]);
    }
    for (let slot = 0; slot < tiny.slotLimit; slot++) {
      const target = emptyItem(patternItem(tiny, slot, 0, Math.max(1, generations[slot])));
      const [result] = await store.read([target]);
      expect(result.outcome).toBe(generations[slot] === 0 ? Outcome.MISSING : Outcome.LOADED);
      if (generations[slot] !== 0) expect(mismatchedWords(target)).toBe(0);
    }
  });
});
