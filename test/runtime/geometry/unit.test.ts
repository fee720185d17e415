import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  blockBox,
  boxBytes,
  contains,
  cover,
  Granularity,
  intersect,
  requireBox,
  sameBox,
  type UnitConfig,
  type UnitSpec,
  unitAt,
  unitBox,
  unitCount,
  unitSpec,
} from '../../../src/runtime/geometry/box.ts';
import { type KVLayout, kvLayout } from '../../../src/runtime/geometry/layout.ts';
import { boxesIn, layouts, walkBytes } from './arbitraries.ts';

function specsOf(layout: KVLayout): fc.Arbitrary<UnitSpec> {
  const range = (limit: number) =>
    fc
      .tuple(fc.nat(limit - 1), fc.integer({ min: 1, max: limit }))
      .map(([start, length]) => [start, Math.min(limit, start + length)] as const);
  const tokensPerUnit = fc.integer({ min: 1, max: 7 });
  const head = fc
    .record({ layers: range(layout.layers), heads: range(layout.kvHeads), tokensPerUnit })
    .chain(({ layers, heads, tokensPerUnit }) =>
      fc.record({
        granularity: fc.constant(Granularity.HEAD),
        layers: fc.constant(layers),
        heads: fc.constant(heads),
        tokensPerUnit: fc.constant(tokensPerUnit),
        layersPerUnit: fc.integer({ min: 1, max: layers[1] - layers[0] }),
        headsPerUnit: fc.integer({ min: 1, max: heads[1] - heads[0] }),
      }),
    );
  const config: fc.Arbitrary<UnitConfig> = fc.oneof(
    fc.constant({ granularity: Granularity.BLOCK }),
    fc.constant({ granularity: Granularity.TOKEN }),
    head,
    fc.record({ granularity: fc.constant(Granularity.LAYER), layers: range(layout.layers), tokensPerUnit }),
  );
  return config.map((each) => unitSpec(layout, each));
}

const layoutAndSpec = layouts.chain((layout) => fc.tuple(fc.constant(layout), specsOf(layout)));
const layoutSpecAndBox = layoutAndSpec.chain(([layout, spec]) =>
  fc.tuple(
    fc.constant(layout),
    fc.constant(spec),
    boxesIn({
      layerStart: spec.layerStart,
      layerEnd: spec.layerEnd,
      headStart: spec.headStart,
      headEnd: spec.headEnd,
      tokenStart: 0,
      tokenEnd: 15,
    }),
  ),
);

describe('units of every granularity', () => {
  test('tile the region of a sequence: each cell lies in exactly one unit, and unitAt names it', () => {
    fc.assert(
      fc.property(layoutAndSpec, fc.nat(11), ([layout, spec], tokens) => {
        const count = unitCount(spec, tokens);
        const region = { ...spec, tokenStart: 0, tokenEnd: Math.max(1, tokens) };
        const seen = new Set<string>();
        for (let unit = 0; unit < count; unit++) {
          const box = requireBox(layout, unitBox(layout, spec, unit));
          expect(boxBytes(layout, box)).toBeLessThanOrEqual(spec.unitBytes);
          for (let layer = box.layerStart; layer < box.layerEnd; layer++) {
            for (let head = box.headStart; head < box.headEnd; head++) {
              for (let token = box.tokenStart; token < Math.min(tokens, box.tokenEnd); token++) {
                expect(unitAt(spec, layer, head, token)).toBe(unit);
                expect(seen.size).toBe(seen.add(`${layer}.${head}.${token}`).size - 1);
              }
            }
          }
        }
        const cells = tokens === 0 ? 0 : boxBytes(layout, region) / (2 * layout.rowBytes);
        expect(seen.size).toBe(cells);
      }),
    );
  });

  test('keep their numbers when the sequence grows: the units of its first tokens come first', () => {
    fc.assert(
      fc.property(layoutAndSpec, fc.nat(20), ([layout, spec], tokens) => {
        const count = unitCount(spec, tokens);
        for (let unit = 0; unit < count + spec.unitsPerTokenRange; unit++) {
          expect(unitBox(layout, spec, unit).tokenStart < tokens).toBe(unit < count);
        }
      }),
    );
  });

  test('a BLOCK unit is the block, a TOKEN unit one token of all layers and heads', () => {
    fc.assert(
      fc.property(layouts, fc.nat(12), (layout, unit) => {
        const block = unitSpec(layout, { granularity: Granularity.BLOCK });
        expect(sameBox(unitBox(layout, block, unit), blockBox(layout, unit))).toBe(true);
        expect(block.unitBytes).toBe(layout.blockBytes);
        const token = unitSpec(layout, { granularity: Granularity.TOKEN });
        const box = unitBox(layout, token, unit);
        expect(box).toEqual({ ...blockBox(layout, 0), tokenStart: unit, tokenEnd: unit + 1 });
        expect(token.unitBytes).toBe(layout.tokenBytes);
      }),
    );
  });

  test('a LAYER unit is one layer, all heads, a token range; a HEAD unit some heads of some layers', () => {
    const layout = kvLayout({ layers: 4, kvHeads: 8, headDim: 2, dtype: 'f16', blockTokens: 16 });
    const layer = unitSpec(layout, { granularity: Granularity.LAYER, tokensPerUnit: 32 });
    expect(unitBox(layout, layer, 6)).toEqual({
      layerStart: 2,
      layerEnd: 3,
      headStart: 0,
      headEnd: 8,
      tokenStart: 32,
      tokenEnd: 64,
    });
    const head = unitSpec(layout, {
      granularity: Granularity.HEAD,
      layers: [1, 4],
      heads: [2, 8],
      layersPerUnit: 2,
      headsPerUnit: 4,
    });
    expect(head.unitsPerTokenRange).toBe(4);
    expect(unitBox(layout, head, 7)).toEqual({
      layerStart: 3,
      layerEnd: 4,
      headStart: 6,
      headEnd: 8,
      tokenStart: 16,
      tokenEnd: 32,
    });
  });
});

describe('cover', () => {
  test('tiles a box exactly: no byte lost, none doubled, each part inside its unit, in order of units', () => {
    fc.assert(
      fc.property(layoutSpecAndBox, ([layout, spec, box]) => {
        const parts = cover(layout, spec, box);
        const bytes = parts.flatMap((part) => walkBytes(layout, part.box));
        expect(bytes.sort()).toEqual(walkBytes(layout, box).sort());
        for (const [i, part] of parts.entries()) {
          const unit = unitBox(layout, spec, part.unit);
          expect(contains(unit, part.box)).toBe(true);
          expect(part.whole).toBe(boxBytes(layout, unit) === boxBytes(layout, part.box));
          if (i > 0) expect(part.unit).toBeGreaterThan(parts[i - 1].unit);
        }
      }),
    );
  });

  test('of a whole sequence names each of its units once', () => {
    fc.assert(
      fc.property(layoutAndSpec, fc.integer({ min: 1, max: 15 }), ([layout, spec], tokens) => {
        const region = intersect(
          { ...spec, tokenStart: 0, tokenEnd: tokens },
          { ...blockBox(layout, 0), tokenEnd: tokens },
        )!;
        const numbers = cover(layout, spec, region).map((part) => part.unit);
        expect(numbers).toEqual([...Array(unitCount(spec, tokens)).keys()]);
      }),
    );
  });

  test('refuses a box that reaches outside the region of its units', () => {
    const layout = kvLayout({ layers: 4, kvHeads: 4, headDim: 4, dtype: 'i8', blockTokens: 4 });
    const spec = unitSpec(layout, { granularity: Granularity.LAYER, layers: [1, 3] });
    expect(() => cover(layout, spec, blockBox(layout, 0))).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG', field: 'box' }),
    );
    expect(cover(layout, spec, { ...blockBox(layout, 0), layerStart: 1, layerEnd: 3 })).toHaveLength(2);
  });
});

describe('a bad unit spec names its field', () => {
  const layout = kvLayout({ layers: 4, kvHeads: 4, headDim: 4, dtype: 'i8', blockTokens: 4 });

  test.each<[string, UnitConfig]>([
    ['granularity', { granularity: 4 as Granularity }],
    ['layers', { granularity: Granularity.BLOCK, layers: [0, 2] }],
    ['tokensPerUnit', { granularity: Granularity.TOKEN, tokensPerUnit: 2 }],
    ['tokensPerUnit', { granularity: Granularity.BLOCK, tokensPerUnit: 4 }],
    ['heads', { granularity: Granularity.LAYER, heads: [0, 2] }],
    ['layersPerUnit', { granularity: Granularity.LAYER, layersPerUnit: 2 }],
    ['layers[1]', { granularity: Granularity.HEAD, layers: [0, 5] }],
    ['layers[1]', { granularity: Granularity.HEAD, layers: [2, 2] }],
    ['heads[0]', { granularity: Granularity.HEAD, heads: [-1, 2] }],
    ['headsPerUnit', { granularity: Granularity.HEAD, heads: [0, 2], headsPerUnit: 3 }],
    ['layersPerUnit', { granularity: Granularity.HEAD, layersPerUnit: 0 }],
    ['tokensPerUnit', { granularity: Granularity.HEAD, tokensPerUnit: 1.5 }],
  ])('%s in %o', (field, config) => {
    expect(() => unitSpec(layout, config)).toThrow(expect.objectContaining({ code: 'TKV_CONFIG', field }));
  });
});
