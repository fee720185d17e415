/**
 * Random layouts and boxes for the geometry laws, and the slow truth they are held against: a walk over every
 * element in `[layer][head][K,V][token][headDim]` order that never multiplies a stride.
 */

import fc from 'fast-check';
import type { KVBox } from '../../../src/runtime/geometry/box.ts';
import { type KVLayout, type KVLayoutConfig, kvLayout } from '../../../src/runtime/geometry/layout.ts';

export const layoutConfigs: fc.Arbitrary<KVLayoutConfig> = fc
  .record({
    layers: fc.integer({ min: 1, max: 4 }),
    kvHeads: fc.integer({ min: 1, max: 4 }),
    element: fc.constantFrom(
      { dtype: 'f32', headDim: 1 } as const,
      { dtype: 'f16', headDim: 2 } as const,
      { dtype: 'bf16', headDim: 6 } as const,
      { dtype: 'f8e4m3', headDim: 4 } as const,
      { dtype: 'f8e5m2', headDim: 8 } as const,
      { dtype: 'i8', headDim: 4 } as const,
      { dtype: 'u8', headDim: 12 } as const,
    ),
    blockTokens: fc.integer({ min: 1, max: 5 }),
  })
  .map(({ layers, kvHeads, element, blockTokens }) => ({ layers, kvHeads, blockTokens, ...element }));

export const layouts: fc.Arbitrary<KVLayout> = layoutConfigs.map(kvLayout);

/** The whole axis every other time: it is where runs merge. */
function ranges(limit: number): fc.Arbitrary<readonly [number, number]> {
  return fc.oneof(
    fc.constant([0, limit] as const),
    fc
      .tuple(fc.integer({ min: 0, max: limit - 1 }), fc.integer({ min: 1, max: limit }))
      .map(([start, length]) => [start, Math.min(start + length, limit)] as const),
  );
}

/** Boxes of `layout` over up to four blocks' worth of tokens. */
export function boxes(layout: KVLayout): fc.Arbitrary<KVBox> {
  return boxesIn({
    layerStart: 0,
    layerEnd: layout.layers,
    headStart: 0,
    headEnd: layout.kvHeads,
    tokenStart: 0,
    tokenEnd: 4 * layout.blockTokens,
  });
}

export function boxesIn(outer: KVBox): fc.Arbitrary<KVBox> {
  return fc
    .tuple(
      ranges(outer.layerEnd - outer.layerStart),
      ranges(outer.headEnd - outer.headStart),
      ranges(outer.tokenEnd - outer.tokenStart),
    )
    .map(([layer, head, token]) => ({
      layerStart: outer.layerStart + layer[0],
      layerEnd: outer.layerStart + layer[1],
      headStart: outer.headStart + head[0],
      headEnd: outer.headStart + head[1],
      tokenStart: outer.tokenStart + token[0],
      tokenEnd: outer.tokenStart + token[1],
    }));
}

/**
 * Names of the bytes of `box` in packed order: one string a byte, so that two boxes can be compared byte by
 * byte.
 */
export function walkBytes(layout: KVLayout, box: KVBox): string[] {
  const names: string[] = [];
  for (let layer = box.layerStart; layer < box.layerEnd; layer++) {
    for (let head = box.headStart; head < box.headEnd; head++) {
      for (const kv of ['K', 'V']) {
        for (let token = box.tokenStart; token < box.tokenEnd; token++) {
          for (let dim = 0; dim < layout.headDim; dim++) {
            for (let byte = 0; byte < layout.bytesPerElement; byte++) {
              names.push(`${layer}.${head}.${kv}.${token}.${dim}.${byte}`);
            }
          }
        }
      }
    }
  }
  return names;
}
