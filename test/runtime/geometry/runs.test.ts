import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  blockBox,
  boxBytes,
  Granularity,
  intersect,
  type KVBox,
  unitBox,
  unitSpec,
} from '../../../src/runtime/geometry/box.ts';
import { type KVLayout, kvLayout } from '../../../src/runtime/geometry/layout.ts';
import {
  countRuns,
  valuesPerCopyRun,
  writeBlockRuns,
  writeCopyRuns,
  writeRuns,
} from '../../../src/runtime/geometry/runs.ts';
import { boxes, boxesIn, layouts, walkBytes } from './arbitraries.ts';

const nested = layouts.chain((layout) =>
  boxes(layout).chain((container) =>
    fc.tuple(fc.constant(layout), fc.constant(container), boxesIn(container)),
  ),
);

/** Maximal runs found the slow way: mark the box's bytes in the container and merge neighbours. */
function naiveRuns(layout: KVLayout, box: KVBox, container: KVBox): number[] {
  const wanted = new Set(walkBytes(layout, box));
  const runs: number[] = [];
  let open = false;
  for (const [at, byte] of walkBytes(layout, container).entries()) {
    if (wanted.has(byte)) {
      if (open) runs[runs.length - 1]++;
      else runs.push(at, 1);
    }
    open = wanted.has(byte);
  }
  return runs;
}

function runsOf(layout: KVLayout, box: KVBox, container: KVBox): number[] {
  const out = new Int32Array(4096);
  return [...out.subarray(0, 2 * writeRuns(layout, box, container, out))];
}

describe('runs', () => {
  test('are the maximal runs of a byte-by-byte walk: sorted, disjoint, apart, and as many bytes as the box', () => {
    fc.assert(
      fc.property(nested, ([layout, container, box]) => {
        const runs = runsOf(layout, box, container);
        expect(runs).toEqual(naiveRuns(layout, box, container));
        expect(runs.length).toBe(2 * countRuns(box, container));
        let bytes = 0;
        for (let i = 0; i < runs.length; i += 2) {
          if (i > 0) expect(runs[i]).toBeGreaterThan(runs[i - 2] + runs[i - 1]);
          bytes += runs[i + 1];
        }
        expect(bytes).toBe(boxBytes(layout, box));
      }),
      { numRuns: 300 },
    );
  });

  test('of a box over several blocks are, block by block, the runs of its part of that block', () => {
    fc.assert(
      fc.property(
        layouts.chain((layout) => fc.tuple(fc.constant(layout), boxes(layout))),
        ([layout, box]) => {
          let bytes = 0;
          for (let block = 0; block < 5; block++) {
            const out = new Float64Array(512);
            const count = writeBlockRuns(layout, box, block, out, 2);
            const part = intersect(box, blockBox(layout, block));
            const expected = part === undefined ? [] : naiveRuns(layout, part, blockBox(layout, block));
            expect([...out.subarray(2, 2 + 2 * count)]).toEqual(expected);
            expect(out[0]).toBe(0);
            expect(out[2 + 2 * count]).toBe(0);
            for (let i = 1; i < expected.length; i += 2) bytes += expected[i];
          }
          expect(bytes).toBe(boxBytes(layout, box));
        },
      ),
    );
  });

  test('a BLOCK is one run, a LAYER unit one run, a HEAD unit one run a layer, a TOKEN one a head and K,V', () => {
    const layout = kvLayout({ layers: 4, kvHeads: 8, headDim: 64, dtype: 'bf16', blockTokens: 16 });
    const out = new Int32Array(256);
    const count = (config: Parameters<typeof unitSpec>[1]) =>
      writeBlockRuns(layout, unitBox(layout, unitSpec(layout, config), 0), 0, out);
    expect(count({ granularity: Granularity.BLOCK })).toBe(1);
    expect(count({ granularity: Granularity.LAYER })).toBe(1);
    expect(count({ granularity: Granularity.HEAD, headsPerUnit: 2 })).toBe(4);
    expect([...out.subarray(0, 4)]).toEqual([
      0,
      2 * layout.headStrideBytes,
      layout.layerStrideBytes,
      2 * layout.headStrideBytes,
    ]);
    expect(count({ granularity: Granularity.HEAD, headsPerUnit: 2, layersPerUnit: 1 })).toBe(1);
    expect(count({ granularity: Granularity.TOKEN })).toBe(4 * 8 * 2);
  });

  test('with one token a block, where a token is all tokens, merge as whole blocks do', () => {
    const layout = kvLayout({ layers: 3, kvHeads: 2, headDim: 4, dtype: 'f16', blockTokens: 1 });
    expect(runsOf(layout, blockBox(layout, 5), blockBox(layout, 5))).toEqual([0, layout.blockBytes]);
  });

  test('beyond 2 GiB need a Float64Array and are exact there', () => {
    const layout = kvLayout({ layers: 2, kvHeads: 1, headDim: 128, dtype: 'f32', blockTokens: 16 });
    const container = { ...blockBox(layout, 0), tokenEnd: 4_000_000 };
    const box = { ...container, layerStart: 1, tokenStart: 3_999_999 };
    expect(() => writeRuns(layout, box, container, new Int32Array(8))).toThrow('Float64Array');
    const out = new Float64Array(4);
    expect(writeRuns(layout, box, container, out)).toBe(2);
    expect([...out]).toEqual([6_143_999_488, 512, 8_191_999_488, 512]);
  });

  test('are refused where they cannot be right: outside the container, or in an array without room', () => {
    const layout = kvLayout({ layers: 2, kvHeads: 2, headDim: 4, dtype: 'i8', blockTokens: 4 });
    const box = { ...blockBox(layout, 0), tokenEnd: 2 };
    expect(() => writeRuns(layout, blockBox(layout, 1), blockBox(layout, 0), new Int32Array(64))).toThrow(
      'contains',
    );
    expect(() => writeRuns(layout, box, blockBox(layout, 0), new Int32Array(15))).toThrow('do not fit');
    expect(writeRuns(layout, box, blockBox(layout, 0), new Int32Array(16))).toBe(8);
  });
});

describe('copy runs', () => {
  const copies = layouts.chain((layout) =>
    fc
      .tuple(boxes(layout), boxes(layout))
      .filter(([a, b]) => intersect(a, b) !== undefined)
      .chain(([a, b]) =>
        fc.tuple(fc.constant(layout), fc.constant(a), fc.constant(b), boxesIn(intersect(a, b)!)),
      ),
  );

  test('move every byte of the box to its own place and no other byte, in as few pieces as both ends allow', () => {
    fc.assert(
      fc.property(copies, ([layout, source, destination, box]) => {
        const out = new Int32Array(4096);
        const count = writeCopyRuns(layout, box, source, destination, out);
        const from = walkBytes(layout, source);
        const arrived = walkBytes(layout, destination).fill('untouched');
        for (let run = 0; run < count; run++) {
          const [read, write, bytes] = out.subarray(run * valuesPerCopyRun, (run + 1) * valuesPerCopyRun);
          for (let i = 0; i < bytes; i++) {
            // an `expect` for each of 185,000 bytes would take most of the time
            if (arrived[write + i] !== 'untouched') expect.fail(`byte ${write + i} is written twice`);
            arrived[write + i] = from[read + i];
          }
          const next = out.subarray((run + 1) * valuesPerCopyRun);
          const joins = next[0] === read + bytes && next[1] === write + bytes;
          if (run + 1 < count) expect(joins).toBe(false);
        }
        const wanted = new Set(walkBytes(layout, box));
        expect(arrived).toEqual(
          walkBytes(layout, destination).map((byte) => (wanted.has(byte) ? byte : 'untouched')),
        );
      }),
      { numRuns: 1500 },
    );
  });
});
