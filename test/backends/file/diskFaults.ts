/** A store of 32 pages, on a disk whose calls a test can make fail. */

import { expect } from 'vitest';
import type { DataFile } from '../../../src/backends/file/dataFile.ts';
import { type PoolShape, poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { outcomeNames } from '../../../src/runtime/tier/tier.ts';
import type { StoreItem, TierStore } from '../../../src/runtime/tier/tierStore.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../../src/testing/index.ts';

export const KiB = 1024;
export const shape: PoolShape = poolShape(32, 16 * KiB, [16 * KiB, 4 * KiB]);
export const item = (slot: number, generation = 1): StoreItem => patternItem(shape, slot, 0, generation);
export const items = (count: number, generation = 1): StoreItem[] =>
  Array.from({ length: count }, (_, page) => item(page * shape.slotsPerPageMax, generation));

export async function ends(
  store: TierStore,
  call: 'read' | 'write',
  ...list: StoreItem[]
): Promise<string[]> {
  const targets = call === 'read' ? list.map((one) => emptyItem(one)) : list;
  const results = await store[call](targets);
  results.forEach((result, index) => {
    if (call === 'read' && result.outcome === 0) expect(mismatchedWords(targets[index])).toBe(0);
  });
  return results.map((result) =>
    [outcomeNames[result.outcome], /\bE[A-Z]+\b/.exec(result.reason)?.[0] ?? ''].join(' ').trim(),
  );
}

export type Fault = (
  call: 'readv' | 'writev' | 'allocate',
  positionBytes: number,
) => Promise<void> | undefined;

/** Runs `fault` before each call; what it rejects with is what the call rejects with. */
export function faulty(fault: Fault): (file: DataFile) => DataFile {
  return (file) => ({
    async readv(parts, at) {
      await fault('readv', at);
      await file.readv(parts, at);
    },
    async writev(parts, at) {
      await fault('writev', at);
      await file.writev(parts, at);
    },
    async allocate(at, bytes) {
      await fault('allocate', at);
      await file.allocate(at, bytes);
    },
    sync: () => file.sync(),
    close: () => file.close(),
  });
}
