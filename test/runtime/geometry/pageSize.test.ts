import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Granularity, unitSpec } from '../../../src/runtime/geometry/box.ts';
import { choosePageBytes, kvLayout, type PageSizeOptions } from '../../../src/runtime/geometry/layout.ts';

describe('choosePageBytes', () => {
  test('takes the least common multiple when it is small enough, and then wastes nothing', () => {
    expect(choosePageBytes([6000, 4000], { alignmentBytes: 8 })).toEqual({
      pageBytes: 12000,
      slotsPerPage: [2, 3],
      wasteShare: [0, 0],
    });
  });

  test('gives the units of a real model one block a page: HEAD, LAYER and TOKEN units divide it', () => {
    const layout = kvLayout({ layers: 32, kvHeads: 8, headDim: 128, dtype: 'bf16', blockTokens: 16 });
    const units = [
      { granularity: Granularity.BLOCK },
      { granularity: Granularity.HEAD, headsPerUnit: 2 },
      { granularity: Granularity.LAYER },
      { granularity: Granularity.TOKEN },
    ].map((config) => unitSpec(layout, config).unitBytes);
    const page = choosePageBytes(units);
    expect(page.pageBytes).toBe(layout.blockBytes);
    expect(page.slotsPerPage).toEqual([1, 4, 32, 16]);
  });

  test('falls back to the smallest aligned page within the waste bound, as a search of every page finds it', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 300 }), { minLength: 1, maxLength: 4 }),
        fc.constantFrom(1, 4, 16, 64),
        fc.double({ min: 0.01, max: 0.5, noNaN: true }),
        (unitBytes, alignmentBytes, maxWasteShare) => {
          const page = choosePageBytes(unitBytes, { alignmentBytes, maxWasteShare, lcmLimitBytes: 1 });
          const fits = (bytes: number) =>
            bytes % alignmentBytes === 0 &&
            unitBytes.every((unit) => unit <= bytes && (bytes % unit) / bytes <= maxWasteShare);
          let smallest = Math.max(...unitBytes);
          while (!fits(smallest)) smallest++;
          const allOnes = unitBytes.every((unit) => unit === 1) && alignmentBytes === 1;
          expect(page.pageBytes).toBe(allOnes ? 1 : smallest);
        },
      ),
    );
  });

  test('never wastes more than the share allowed, is aligned, and counts slots that do fit', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 64, max: 8 * 2 ** 20 }), { minLength: 1, maxLength: 6 }),
        fc.constantFrom(4, 256, 4096),
        (unitBytes, alignmentBytes) => {
          const page = choosePageBytes(unitBytes, { alignmentBytes, maxWasteShare: 0.03 });
          expect(page.pageBytes % alignmentBytes).toBe(0);
          for (const [i, unit] of unitBytes.entries()) {
            const usedBytes = page.slotsPerPage[i] * unit;
            expect(page.slotsPerPage[i]).toBeGreaterThanOrEqual(1);
            expect(usedBytes).toBeLessThanOrEqual(page.pageBytes);
            expect(page.wasteShare[i]).toBeCloseTo(1 - usedBytes / page.pageBytes, 12);
            expect(page.wasteShare[i]).toBeLessThanOrEqual(0.03);
          }
        },
      ),
    );
  });

  test.each<[string, number[], PageSizeOptions]>([
    ['unitBytes', [], {}],
    ['unitBytes[1]', [4096, 0], {}],
    ['unitBytes[0]', [1.5], {}],
    ['alignmentBytes', [4096], { alignmentBytes: 0 }],
    ['maxWasteShare', [4096], { maxWasteShare: 0 }],
    ['maxWasteShare', [4096], { maxWasteShare: 1 }],
    ['maxWasteShare', [4096], { maxWasteShare: Number.NaN }],
    ['lcmLimitBytes', [4096], { lcmLimitBytes: -1 }],
    ['maxPageBytes', [4096], { maxPageBytes: Number.POSITIVE_INFINITY }],
    ['maxPageBytes', [4097, 7919], { maxPageBytes: 8192, alignmentBytes: 1 }],
  ])('names the bad field: %s for %o with %o', (field, unitBytes, options) => {
    expect(() => choosePageBytes(unitBytes, options)).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG', field }),
    );
  });
});
