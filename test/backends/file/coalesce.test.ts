import { expect, it } from 'vitest';
import { runBytesMax, runsOf } from '../../../src/backends/file/coalesce.ts';
import { fileLayout, recordOffset } from '../../../src/backends/file/fileLayout.ts';
import { FileStore } from '../../../src/backends/file/index.ts';
import type { SlotRequest } from '../../../src/backends/file/slotOrder.ts';
import { poolShape } from '../../../src/runtime/pool/shape.ts';
import { outcomeNames } from '../../../src/runtime/transfer/outcome.ts';
import {
  emptyItem,
  mismatchedWords,
  patternItem,
  SeededRandom,
  testSeed,
} from '../../../src/testing/index.ts';
import { recordedWrites } from './recordedWrites.ts';
import { scratchDir } from './scratch.ts';

const KIB = 1024;

const seed = testSeed(31);
it(`requests go together where they are neighbours, few enough and not streamed (seed ${seed})`, () => {
  const random = new SeededRandom(seed);
  for (let round = 0; round < 100; round++) {
    const slotBytes = [4 * KIB, 40_004, 64 * KIB, 4][random.below(4)];
    const shape = poolShape(600, slotBytes, [slotBytes]);
    const layout = fileLayout(shape);
    const record = layout.records[0];
    const coalescedBytes = random.below(40) * 10_000;
    const slots = [...new Set(Array.from({ length: 400 }, () => random.below(600)))];
    const requests = slots.map((slot) => {
      const item = {
        ...patternItem(shape, slot, 0, 1),
        ...(random.below(20) === 0 ? { onArrived() {} } : {}),
      };
      return { item, offset: recordOffset(layout, slot, 0) } as unknown as SlotRequest;
    });
    const streams = (one: SlotRequest): boolean => one.item.onArrived !== undefined;
    const runs = runsOf(requests, layout, coalescedBytes);
    expect(runs.flat().map((one) => one.item.slot)).toEqual(slots.toSorted((a, b) => a - b));
    for (const [i, run] of runs.entries()) {
      const inLine = run.every((one, at) => one.offset === run[0].offset + at * record.recordBytes);
      expect(inLine).toBe(true);
      expect(run.length * record.recordBytes).toBeLessThanOrEqual(runBytesMax(layout, coalescedBytes));
      if (run.length === 1) continue;
      expect(run.some(streams)).toBe(false);
      expect(run.length * slotBytes).toBeLessThanOrEqual(coalescedBytes);
      const next = runs[i + 1]?.[0];
      if (next?.offset !== run[0].offset + run.length * record.recordBytes || streams(next)) continue;
      expect(run.length === 256 || (run.length + 1) * slotBytes > coalescedBytes).toBe(true);
    }
  }
});

it('a store takes any number of bytes to go together, and counts payloads alone', async () => {
  const shape = poolShape(16, 64 * KIB, [64 * KIB]);
  const written: number[] = [];
  await using store = await FileStore.open(scratchDir(), shape, {
    coalescedBytes: 4 * 64 * KIB + 1,
    wrapFile: recordedWrites(written),
  });
  written.length = 0;
  const items = Array.from({ length: 8 }, (_, slot) => patternItem(shape, slot, 0, 1));
  const targets = items.map((item) => emptyItem(item));
  const ends = [...(await store.write(items)), ...(await store.read(targets))];
  expect(ends.map(({ outcome }) => outcomeNames[outcome])).toEqual(ends.map(() => 'loaded'));
  expect(targets.map((target) => mismatchedWords(target))).toEqual(items.map(() => 0));
  expect(written.length).toBe(2);
});
