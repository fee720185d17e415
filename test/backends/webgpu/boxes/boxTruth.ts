/**
 * What boxes of blocks must be, found on the host run by run, and pools filled with bytes that are all
 * different.
 */

import { expect } from 'vitest';
import type { HbmStore } from '../../../../src/backends/webgpu/hbmStore.ts';
import type { KVBox } from '../../../../src/runtime/geometry/box.ts';
import type { KVLayout } from '../../../../src/runtime/geometry/layout.ts';
import { countRuns, writeRuns } from '../../../../src/runtime/geometry/runs.ts';
import type { PoolShape } from '../../../../src/runtime/tables/slotPool.ts';
import { outcomeNames } from '../../../../src/runtime/tier/tier.ts';
import type { StoreItem, StoreResult } from '../../../../src/runtime/tier/tierStore.ts';
import { emptyItem, patternItem } from '../../../../src/testing/index.ts';

export const names = (ends: readonly StoreResult[]): string[] => ends.map((end) => outcomeNames[end.outcome]);

export function expectLoaded(ends: readonly StoreResult[]): void {
  expect(ends.filter((end) => end.reason !== '')).toEqual([]);
  expect(new Set(names(ends))).toEqual(new Set(['loaded']));
}

/** One (offset in the container, offset in the packed bytes, length) for each run of the box. */
export function runsOf(layout: KVLayout, box: KVBox, container: KVBox): [number, number, number][] {
  const out = new Float64Array(2 * countRuns(box, container));
  const runs = writeRuns(layout, box, container, out);
  let packed = 0;
  return Array.from({ length: runs }, (_, run) => {
    const [offset, length] = [out[2 * run], out[2 * run + 1]];
    packed += length;
    return [offset, packed - length, length];
  });
}

export function gathered(layout: KVLayout, box: KVBox, container: KVBox, unit: Uint8Array): Uint8Array {
  const parts = runsOf(layout, box, container).map(([at, , length]) => unit.subarray(at, at + length));
  return Buffer.concat(parts);
}

export function scatter(
  layout: KVLayout,
  box: KVBox,
  container: KVBox,
  unit: Uint8Array,
  bytes: Uint8Array,
): void {
  for (const [at, packed, length] of runsOf(layout, box, container)) {
    unit.set(bytes.subarray(packed, packed + length), at);
  }
}

/** Every slot of the pool, cut into `sizeClass`, each with a pattern of its own; generation 1. */
export async function fillPool(
  store: HbmStore,
  shape: PoolShape,
  sizeClass: number = 0,
): Promise<StoreItem[]> {
  const items: StoreItem[] = [];
  for (let page = 0; page < shape.pages; page++) {
    for (let index = 0; index < shape.slotsPerPage[sizeClass]; index++) {
      items.push(patternItem(shape, page * shape.slotsPerPageMax + index, sizeClass, 1));
    }
  }
  expectLoaded(await store.write(items));
  return items;
}

/** Compares what lies in every slot with the bytes of `items`. */
export async function expectPool(store: HbmStore, items: readonly StoreItem[]): Promise<void> {
  const found = items.map((item) => emptyItem(item));
  expectLoaded(await store.read(found));
  const wrong = items.filter((item, index) => Buffer.compare(item.bytes, found[index].bytes) !== 0);
  expect(wrong.map((item) => item.slot)).toEqual([]);
}
