import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Axis,
  blockBox,
  boxBytes,
  boxShape,
  boxStrides,
  contains,
  intersect,
  type KVBox,
  requireBox,
  rowOffsetBytes,
  sameBox,
  split,
} from '../../../src/runtime/geometry/box.ts';
import { kvLayout } from '../../../src/runtime/geometry/layout.ts';
import { boxes, layouts, walkBytes } from './arbitraries.ts';

const layoutAndBox = layouts.chain((layout) => fc.tuple(fc.constant(layout), boxes(layout)));
const layoutAndTwoBoxes = layouts.chain((layout) =>
  fc.tuple(fc.constant(layout), boxes(layout), boxes(layout)),
);

describe('a box', () => {
  test('has as many bytes as a walk over its elements meets', () => {
    fc.assert(
      fc.property(layoutAndBox, ([layout, box]) => {
        const { layers, heads, tokens } = boxShape(box);
        const bytes = walkBytes(layout, box).length;
        expect(boxBytes(layout, box)).toBe(bytes);
        expect(layers * heads * 2 * tokens * layout.headDim * layout.bytesPerElement).toBe(bytes);
      }),
    );
  });

  test('has strides that lead from each element to its neighbour in the walk', () => {
    fc.assert(
      fc.property(layoutAndBox, ([layout, box]) => {
        const bytes = walkBytes(layout, box);
        const position = new Map(bytes.map((name, i) => [name, i]));
        const strides = boxStrides(layout, box);
        for (const [name, at] of position) {
          const [layer, head, kv, token, dim, byte] = name.split('.') as [
            string,
            string,
            string,
            string,
            string,
            string,
          ];
          const neighbours: [string, number][] = [
            [`${Number(layer) + 1}.${head}.${kv}.${token}.${dim}.${byte}`, strides.layerBytes],
            [`${layer}.${Number(head) + 1}.${kv}.${token}.${dim}.${byte}`, strides.headBytes],
            [`${layer}.${head}.${kv === 'K' ? 'V' : 'none'}.${token}.${dim}.${byte}`, strides.kvBytes],
            [`${layer}.${head}.${kv}.${Number(token) + 1}.${dim}.${byte}`, strides.tokenBytes],
            [`${layer}.${head}.${kv}.${token}.${Number(dim) + 1}.${byte}`, strides.elementBytes],
          ];
          for (const [neighbour, stride] of neighbours) {
            const next = position.get(neighbour);
            // an `expect` for each of 45,000 neighbours would take most of the time
            if (next !== undefined && next - at !== stride)
              expect.fail(`${neighbour} is ${next - at} behind ${name}`);
          }
        }
      }),
      { numRuns: 60 },
    );
  });

  test('finds each row where the walk finds its first byte', () => {
    fc.assert(
      fc.property(layoutAndBox, ([layout, box]) => {
        const bytes = walkBytes(layout, box);
        for (let at = 0; at < bytes.length; at += layout.rowBytes) {
          const [layer, head, kv, token] = bytes[at].split('.');
          expect(
            rowOffsetBytes(layout, box, Number(layer), Number(head), kv === 'K' ? 0 : 1, Number(token)),
          ).toBe(at);
        }
      }),
    );
  });

  test('of a block has the strides that the layout states', () => {
    fc.assert(
      fc.property(layouts, fc.nat(9), (layout, block) => {
        const box = blockBox(layout, block);
        expect(boxStrides(layout, box)).toEqual({
          layerBytes: layout.layerStrideBytes,
          headBytes: layout.headStrideBytes,
          kvBytes: layout.kvStrideBytes,
          tokenBytes: layout.rowBytes,
          elementBytes: layout.bytesPerElement,
        });
        expect(boxBytes(layout, box)).toBe(layout.blockBytes);
        expect(layout.tokenBytes * layout.blockTokens).toBe(layout.blockBytes);
      }),
    );
  });
});

describe('split', () => {
  test('loses no byte and doubles none, along every axis and at every place', () => {
    fc.assert(
      fc.property(layoutAndBox, ([layout, box]) => {
        const whole = walkBytes(layout, box).sort();
        for (const axis of ['layer', 'head', 'token'] as const satisfies Axis[]) {
          for (let at = box[`${axis}Start`] + 1; at < box[`${axis}End`]; at++) {
            const [low, high] = split(box, axis, at);
            requireBox(layout, low);
            requireBox(layout, high);
            expect(low[`${axis}End`]).toBe(at);
            expect(intersect(low, high)).toBeUndefined();
            expect([...walkBytes(layout, low), ...walkBytes(layout, high)].sort()).toEqual(whole);
          }
        }
      }),
      { numRuns: 60 },
    );
  });

  test('refuses a place that would leave one side empty, and says which places are allowed', () => {
    const box = { layerStart: 0, layerEnd: 2, headStart: 0, headEnd: 1, tokenStart: 4, tokenEnd: 8 };
    expect(() => split(box, 'token', 4)).toThrow('at is 4, not an integer from 5 to 7');
    expect(() => split(box, 'token', 8)).toThrow('at is 8');
    expect(() => split(box, 'head', 1)).toThrow('at is 1');
    expect(() => split(box, 'layer', 0.5)).toThrow('at is 0.5');
    expect(() => split(box, 'layer', 1)).not.toThrow();
  });
});

describe('intersect and contains', () => {
  test('agree with the bytes that both boxes hold', () => {
    fc.assert(
      fc.property(layoutAndTwoBoxes, ([layout, a, b]) => {
        const inB = new Set(walkBytes(layout, b));
        const shared = walkBytes(layout, a).filter((byte) => inB.has(byte));
        const both = intersect(a, b);
        expect(both === undefined ? [] : walkBytes(layout, both)).toEqual(shared);
        expect(contains(a, b)).toBe(shared.length === inB.size);
        expect(sameBox(a, b)).toBe(shared.length === inB.size && inB.size === boxBytes(layout, a));
      }),
    );
  });
});

describe('a bad box', () => {
  const layout = kvLayout({ layers: 2, kvHeads: 3, headDim: 4, dtype: 'f16', blockTokens: 4 });
  const good: KVBox = { layerStart: 0, layerEnd: 2, headStart: 0, headEnd: 3, tokenStart: 0, tokenEnd: 4 };

  test.each<[string, Partial<KVBox>]>([
    ['layerStart', { layerStart: -1 }],
    ['layerEnd', { layerEnd: 3 }],
    ['layerEnd', { layerStart: 1, layerEnd: 1 }],
    ['headStart', { headStart: 0.5 }],
    ['headEnd', { headEnd: 4 }],
    ['headEnd', { headStart: 2, headEnd: 1 }],
    ['tokenStart', { tokenStart: Number.NaN }],
    ['tokenEnd', { tokenEnd: Number.POSITIVE_INFINITY }],
    ['tokenEnd', { tokenEnd: 0 }],
    ['tokenEnd', { tokenEnd: Number.MAX_SAFE_INTEGER }],
  ])('is refused with the name of its range: %s of %o', (field, change) => {
    expect(requireBox(layout, good)).toBe(good);
    expect(() => requireBox(layout, { ...good, ...change })).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG', field }),
    );
  });
});
