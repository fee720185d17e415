import { copyFileSync, rmSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import { fileLayout, recordOffset } from '../../../src/backends/file/record.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { outcomeNames } from '../../../src/runtime/tier/tier.ts';
import type { StoreItem } from '../../../src/runtime/tier/tierStore.ts';
import { emptyItem, patternItem, SeededRandom, testSeed } from '../../../src/testing/index.ts';
import { ends, item, items, KiB, shape } from './diskFaults.ts';
import { editFile, scratchDir } from './scratch.ts';

describe('file store, what lies on disk', () => {
  const pathIn = (dir: string): string => join(dir, 'tierkv.blocks');
  const offsetOf = (slot: number): number => recordOffset(fileLayout(shape), slot, 0);

  it('answers corrupt when any one of the 128 header bytes is damaged', async () => {
    const dir = scratchDir();
    await using store = await FileStore.open(dir, shape);
    await store.write([item(0)]);
    for (let byte = 0; byte < 128; byte++) {
      const damage = (): void =>
        editFile(pathIn(dir), offsetOf(0) + byte, 1, (one) => void (one[0] = one[0] ^ 0x81));
      damage();
      expect(await ends(store, 'read', item(0)), `header byte ${byte}`).toEqual(['corrupt']);
      damage();
    }
    expect(await ends(store, 'read', item(0))).toEqual(['loaded']);
  });

  it('answers corrupt when the disk swapped two records, or kept an older one', async () => {
    const dir = scratchDir();
    await using store = await FileStore.open(dir, shape);
    const [first, second] = items(2) as [StoreItem, StoreItem];
    await store.write([first, second]);
    const recordBytes = fileLayout(shape).records[0].recordBytes;
    let kept = new Uint8Array();
    editFile(pathIn(dir), offsetOf(first.slot), recordBytes, (bytes) => void (kept = bytes.slice()));
    editFile(pathIn(dir), offsetOf(second.slot), recordBytes, (bytes) => bytes.set(kept));
    expect(await ends(store, 'read', first, second)).toEqual(['loaded', 'corrupt']);

    await store.write([item(first.slot, 2)]);
    editFile(pathIn(dir), offsetOf(first.slot), recordBytes, (bytes) => bytes.set(kept));
    expect(await ends(store, 'read', item(first.slot, 2))).toEqual(['corrupt']);
  });

  it('does not serve a record from another place, even with the same content and key', async () => {
    const dir = scratchDir();
    await using store = await FileStore.open(dir, shape);
    const first = item(0);
    const alias = { ...first, slot: shape.slotsPerPageMax };
    await store.write([first, alias]);
    const recordBytes = fileLayout(shape).records[0].recordBytes;
    let misdirected = new Uint8Array();
    editFile(pathIn(dir), offsetOf(0), recordBytes, (bytes) => void (misdirected = bytes.slice()));
    editFile(pathIn(dir), offsetOf(alias.slot), recordBytes, (bytes) => bytes.set(misdirected));
    const results = await store.read([emptyItem(first), emptyItem(alias)]);
    expect(results.map((result) => outcomeNames[result.outcome])).toEqual(['loaded', 'corrupt']);
  });

  const seed = testSeed(88);
  it(`writes only records and zeros to disk, no leftovers of other memory (seed ${seed})`, async () => {
    const random = new SeededRandom(seed);
    const dir = scratchDir();
    const pool = poolShape(16, 8 * KiB, [8 * KiB, 4 * KiB, 4 * KiB + 4, 1000]);
    const layout = fileLayout(pool);
    await using store = await FileStore.open(dir, pool, { mode: 'buffered', ioBytes: 4 * KiB });
    for (let generation = 1; generation <= 6; generation++) {
      const batch = random.distinctBelow(pool.pages, pool.pages).map((page) => {
        const one = patternItem(pool, page * pool.slotsPerPageMax, page % 4, generation);
        const elsewhere = new Uint8Array(one.bytes.byteLength + 1).subarray(1);
        elsewhere.set(one.bytes);
        return random.chance(0.5) ? one : { ...one, bytes: elsewhere };
      });
      expect(new Set(await ends(store, 'write', ...batch))).toEqual(new Set(['loaded']));
      for (let page = 0; page < pool.pages; page++) {
        const { recordBytes, payloadOffset, payloadBytes } = layout.records[page % 4];
        const at = recordOffset(layout, page * pool.slotsPerPageMax, page % 4);
        editFile(pathIn(dir), at, recordBytes, (bytes) => {
          const gaps = [
            ...bytes.subarray(128, payloadOffset),
            ...bytes.subarray(payloadOffset + payloadBytes),
          ];
          expect(gaps.length).toBe(recordBytes - 128 - payloadBytes);
          expect(gaps.findIndex((byte) => byte !== 0)).toBe(-1);
        });
      }
    }
  });

  it('does not take the records of another store for its own, though everything else agrees', async () => {
    const [dir, other] = [scratchDir(), scratchDir()];
    await using store = await FileStore.open(dir, shape);
    await using donor = await FileStore.open(other, shape);
    await store.write(items(4));
    await donor.write(items(4));
    copyFileSync(pathIn(other), pathIn(dir));
    expect(await ends(store, 'read', ...items(4))).toEqual(['corrupt', 'corrupt', 'corrupt', 'corrupt']);
  });

  it('answers corrupt when the file was cut off behind its back', async () => {
    const dir = scratchDir();
    await using store = await FileStore.open(dir, shape);
    await store.write(items(8));
    truncateSync(pathIn(dir), offsetOf(4 * shape.slotsPerPageMax) + 6000);
    const wanted = [...Array(4).fill('loaded'), ...Array(4).fill('corrupt EOF')];
    expect(await ends(store, 'read', ...items(8))).toEqual(wanted);
  });

  it('goes on when its directory vanishes', async () => {
    const dir = scratchDir();
    const store = await FileStore.open(dir, shape, {
      allocation: 'extents',
      extentBytes: 4 * fileLayout(shape).pageStrideBytes,
    });
    await store.write(items(4));
    rmSync(dir, { recursive: true });
    expect(new Set(await ends(store, 'write', ...items(16, 2)))).toEqual(new Set(['loaded']));
    expect(new Set(await ends(store, 'read', ...items(16, 2)))).toEqual(new Set(['loaded']));
    await store[Symbol.asyncDispose]();
  });
});
