import { describe, expect, it } from 'vitest';
import { type DataFile, IoError } from '../../../src/backends/file/dataFile.ts';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import { fileLayout, recordOffset } from '../../../src/backends/file/record.ts';
import { type PoolShape, poolShape } from '../../../src/runtime/tables/slotPool.ts';
import type { StoreItem } from '../../../src/runtime/tier/tierStore.ts';
import { patternItem } from '../../../src/testing/index.ts';
import { ends, faulty, item, items, KiB, shape } from './diskFaults.ts';
import { mountedDir, scratchDir } from './scratch.ts';

describe('file store, when the disk refuses', () => {
  for (const errno of ['EIO', 'ENOSPC', 'EMFILE', 'EROFS', 'EDQUOT']) {
    it(`refuses with ${errno}, loses nothing else and goes on`, async () => {
      let broken: 'readv' | 'writev' | undefined;
      const wrapFile = faulty((call) =>
        call === broken ? Promise.reject(new IoError(errno, call)) : undefined,
      );
      await using store = await FileStore.open(scratchDir(), shape, { wrapFile });
      await store.write(items(6));
      broken = 'writev';
      expect(await ends(store, 'write', item(0, 2))).toEqual([`refused ${errno}`]);
      expect(await ends(store, 'read', item(0, 2))).toEqual(['missing']);
      broken = 'readv';
      expect(await ends(store, 'read', ...items(6).slice(1))).toEqual(Array(5).fill(`refused ${errno}`));
      broken = undefined;
      expect(await ends(store, 'read', ...items(6).slice(1))).toEqual(Array(5).fill('loaded'));
      expect(await ends(store, 'write', item(0, 2))).toEqual(['loaded']);
      expect(await ends(store, 'read', item(0, 2))).toEqual(['loaded']);
      expect(store.describe()).toMatchObject({ lastError: errno, stuck: 0 });
      store.checkIntegrity();
    });
  }

  it('fails only the record that is bad, not its neighbours in the same I/O', async () => {
    const single = poolShape(32, 16 * KiB, [16 * KiB]);
    const bad = recordOffset(fileLayout(single), 3, 0);
    let calls = 0;
    const wrapFile = (file: DataFile): DataFile => ({
      ...faulty(() => undefined)(file),
      async readv(parts, at) {
        calls += 1;
        const bytes = parts.reduce((sum, part) => sum + part.byteLength, 0);
        if (at <= bad && bad < at + bytes) throw new IoError('EIO', 'readv');
        await file.readv(parts, at);
      },
    });
    await using store = await FileStore.open(scratchDir(), single, { wrapFile });
    const eight = Array.from({ length: 8 }, (_, slot) => patternItem(single, slot, 0, 1));
    await store.write(eight);
    const wanted = eight.map((_, slot) => (slot === 3 ? 'refused EIO' : 'loaded'));
    expect(await ends(store, 'read', ...eight)).toEqual(wanted);
    expect(calls).toBe(1 + 8);
  });

  it('uses staging for memory that the device cannot reach', async () => {
    let unreachable = 0;
    const wrapFile = (file: DataFile): DataFile => ({
      ...faulty(() => undefined)(file),
      writev: async (parts, at) => {
        if (parts.length > 1 && unreachable++ < 4) throw new IoError('EFAULT', 'writev');
        await file.writev(parts, at);
      },
    });
    await using store = await FileStore.open(scratchDir(), shape, { wrapFile, mode: 'buffered' });
    expect(await ends(store, 'write', item(0))).toEqual(['loaded']);
    expect(unreachable).toBe(1);
    expect(await ends(store, 'read', item(0))).toEqual(['loaded']);
  });

  it('refuses what a full disk cannot hold, and keeps serving what it holds (tmpfs of 2 MiB)', async ({
    skip,
  }) => {
    const { dir, why } = mountedDir('tmpfs', 'size=2m');
    skip(why !== '', why);
    const large = poolShape(1024, 16 * KiB, [16 * KiB]);
    await using store = await FileStore.open(dir, large, { allocation: 'extents', extentBytes: 256 * KiB });
    const wanted = Array.from({ length: 200 }, (_, slot) => patternItem(large, slot, 0, 1));
    const written = await ends(store, 'write', ...wanted);
    expect(new Set(written)).toEqual(new Set(['loaded', 'refused ENOSPC']));
    const held = wanted.filter((_, slot) => written[slot] === 'loaded');
    expect(held.length * 20 * KiB).toBeGreaterThan(0.97 * 2 * KiB * KiB);
    expect(new Set(await ends(store, 'read', ...held))).toEqual(new Set(['loaded']));
  });

  it('refuses what a full disk cannot hold (injected)', async () => {
    const { pageStrideBytes } = fileLayout(shape);
    const wrapFile = (file: DataFile): DataFile => ({
      ...faulty(() => undefined)(file),
      async allocate(at, bytes) {
        if (at + bytes > 10.5 * pageStrideBytes) throw new IoError('ENOSPC', 'fallocate');
        await file.allocate(at, bytes);
      },
    });
    const options = { wrapFile, allocation: 'extents', extentBytes: 4 * pageStrideBytes } as const;
    await using store = await FileStore.open(scratchDir(), shape, options);
    const written = await ends(store, 'write', ...items(32));
    expect(written.filter((end) => end === 'loaded').length).toBe(10);
    expect(written.filter((end) => end === 'refused ENOSPC').length).toBe(22);
    expect(await ends(store, 'read', item(0))).toEqual(['loaded']);
  });
});

describe('file store, sizes', () => {
  const sizes: [string, PoolShape][] = [
    ['256 B', poolShape(64, 4 * KiB, [256])],
    ['4 KiB less a header, the largest that one block holds', poolShape(16, 8 * KiB, [4 * KiB - 128])],
    ['4 KiB and one word', poolShape(16, 16 * KiB, [4 * KiB + 4])],
    ['8 MiB', poolShape(3, 8 * KiB * KiB, [8 * KiB * KiB])],
    ['8 MiB and three words', poolShape(3, 8 * KiB * KiB + 12, [8 * KiB * KiB + 12])],
  ];
  for (const [name, pool] of sizes) {
    for (const mode of ['auto', 'buffered'] as const) {
      it(`holds slots of ${name} (${mode})`, async () => {
        await using store = await FileStore.open(scratchDir(), pool, { mode });
        const all: StoreItem[] = [];
        for (let page = 0; page < pool.pages; page++) {
          for (let index = 0; index < pool.slotsPerPage[0]; index++) {
            all.push(patternItem(pool, page * pool.slotsPerPageMax + index, 0, 1));
          }
        }
        expect(new Set(await ends(store, 'write', ...all))).toEqual(new Set(['loaded']));
        expect(new Set(await ends(store, 'read', ...all))).toEqual(new Set(['loaded']));
        store.checkIntegrity();
      });
    }
  }
});
