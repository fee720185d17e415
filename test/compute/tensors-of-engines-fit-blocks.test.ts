/** Tensors of engines, in every order of their axes, go into blocks and come out with the same elements. */

import { describe, expect, it } from 'vitest';
import { type KVTensor, type LayerTensors, packBlock, unpackBlock } from '../../src/compute/hostTensors.ts';
import { blockBox, rowOffsetBytes } from '../../src/runtime/geometry/box.ts';
import type { KVLayoutConfig } from '../../src/runtime/geometry/layout.ts';
import { type KVLayout, kvLayout, layoutFingerprint } from '../../src/runtime/index.ts';

const shape = { layers: 2, kvHeads: 3, headDim: 4, dtype: 'f16', blockTokens: 4 } as const;
const TOKENS = 11;
const BATCH = 2;

/** A number for each element, which fits 16 bits. */
const valueAt = (layer: number, kv: number, head: number, token: number, element: number): number =>
  1 + ((((layer * 2 + kv) * 8 + head) * 16 + token) * 16 + element);

function sizesOf(layout: KVLayout, axes: string, kv: number): number[] {
  const width = kv === 0 ? layout.headDim : layout.valueDim;
  const sizes: Record<string, number> = { b: BATCH, h: layout.kvHeads, t: TOKENS, d: width, k: 2 };
  return [...axes].map((axis) => sizes[axis]);
}

/** Fills a tensor of row 1 of the batch; others hold 0. */
function tensorOf(layout: KVLayout, axes: string, layer: number, kv: number, filled = true): KVTensor {
  const dims = sizesOf(layout, axes, kv);
  const data = new Uint16Array(dims.reduce((a, b) => a * b, 1));
  const at = new Array<number>(dims.length).fill(0);
  for (let i = 0; filled && i < data.length; i++) {
    const of = (axis: string, other: number): number =>
      axes.includes(axis) ? at[axes.indexOf(axis)] : other;
    const row = of('b', 1);
    if (row === 1) data[i] = valueAt(layer, of('k', kv), of('h', 0), of('t', 0), of('d', 0));
    for (let axis = dims.length - 1; axis >= 0 && ++at[axis] === dims[axis]; axis--) at[axis] = 0;
  }
  return { data, axes, dims };
}

function layersOf(layout: KVLayout, axes: string, filled = true): LayerTensors[] {
  return Array.from({ length: layout.layers }, (_, layer) => ({
    key: tensorOf(layout, axes, layer, 0, filled),
    ...(axes.includes('k') || layout.valueDim === 0
      ? {}
      : { value: tensorOf(layout, axes, layer, 1, filled) }),
  }));
}

/** The block as its layout says, element by element. */
function expectedBlock(layout: KVLayout, token: number, tokens: number): Uint8Array {
  const block = new Uint8Array(layout.blockBytes);
  const words = new DataView(block.buffer);
  const box = blockBox(layout, 0);
  for (let layer = 0; layer < layout.layers; layer++) {
    for (const kv of [0, 1] as const) {
      for (let head = 0; head < layout.kvHeads; head++) {
        for (let t = 0; t < tokens; t++) {
          const row = rowOffsetBytes(layout, box, layer, head, kv, t);
          const width = kv === 0 ? layout.headDim : layout.valueDim;
          for (let d = 0; d < width; d++) {
            words.setUint16(row + 2 * d, valueAt(layer, kv, head, token + t, d), true);
          }
        }
      }
    }
  }
  return block;
}

const layouts: [string, KVLayoutConfig, string[]][] = [
  ['K and V alike', shape, ['bhtd', 'bthd', 'tbhd', 'bhdt', 'htd', 'thd', 'kbhtd', 'bkhtd', 'dhtb']],
  ['V narrower than K', { ...shape, headDim: 6, valueDim: 4 }, ['bhtd', 'bthd', 'bhdt']],
  ["MLA's latent", { ...shape, kvHeads: 1, headDim: 8, valueDim: 0 }, ['btd', 'bhtd', 'bdt']],
];

describe.each(layouts)('%s', (_, config, orders) => {
  const layout = kvLayout(config);

  it.each(orders)('%s into a block and back', (axes) => {
    for (const [token, tokens] of [
      [0, 4],
      [4, 4],
      [8, 3],
    ]) {
      const place = { token, tokens, batch: axes.includes('b') ? 1 : 0 };
      const block = new Uint8Array(layout.blockBytes);
      packBlock(layout, layersOf(layout, axes), place, block);
      expect(block).toEqual(expectedBlock(layout, token, tokens));
      const back = layersOf(layout, axes, false);
      unpackBlock(layout, block, back, place);
      const again = new Uint8Array(layout.blockBytes);
      packBlock(layout, back, place, again);
      expect(again).toEqual(block);
      const [written] = back;
      const sum = (written.key.data as Uint16Array).reduce((all, each) => all + (each === 0 ? 0 : 1), 0);
      expect(sum).toBe(tokens * layout.kvHeads * layout.headDim * (axes.includes('k') ? 2 : 1));
    }
  });
});

it('widths are part of the fingerprint where they differ, and only there', () => {
  expect(layoutFingerprint(kvLayout(shape))).not.toContain('valueDim');
  expect(layoutFingerprint(kvLayout({ ...shape, valueDim: 4 }))).toBe(layoutFingerprint(kvLayout(shape)));
  expect(layoutFingerprint(kvLayout({ ...shape, valueDim: 2 }))).toContain('valueDim=2');
  expect(kvLayout({ ...shape, valueDim: 2 }).blockBytes).toBe((kvLayout(shape).blockBytes * 3) / 4);
  expect(() => kvLayout({ ...shape, valueDim: 3 })).toThrow(/valueDim is 3/);
});

describe('what does not fit is refused by name', () => {
  const layout = kvLayout(shape);
  const good = layersOf(layout, 'bhtd');
  const block = new Uint8Array(layout.blockBytes);
  const place = { token: 0 };
  const changed = (change: Partial<KVTensor>): LayerTensors[] => [
    good[0],
    { key: good[1].key, value: { ...good[1].value!, ...change } },
  ];
  const detached = new Uint16Array(BATCH * 3 * TOKENS * 4);
  structuredClone(detached.buffer, { transfer: [detached.buffer] });

  it.each<[string, () => unknown, string]>([
    ['a layer too few', () => packBlock(layout, [good[0]], place, block), 'layers'],
    [
      'an unknown axis',
      () => packBlock(layout, changed({ axes: 'bhtx' }), place, block),
      'layers[1].value.axes',
    ],
    [
      'an axis twice',
      () => packBlock(layout, changed({ axes: 'bhtt' }), place, block),
      'layers[1].value.axes',
    ],
    [
      'other dims',
      () => packBlock(layout, changed({ dims: [2, 3, 11, 5] }), place, block),
      'layers[1].value.dims',
    ],
    [
      'f32 for f16',
      () => packBlock(layout, changed({ data: new Float32Array(264) }), place, block),
      'layers[1].value.data',
    ],
    [
      'a detached buffer',
      () => packBlock(layout, changed({ data: detached }), place, block),
      'layers[1].value.data',
    ],
    ['tokens beyond', () => packBlock(layout, good, { token: 8 }, block), 'layers[0].key.dims'],
    ['a batch beyond', () => packBlock(layout, good, { token: 0, batch: 2 }, block), 'layers[0].key.dims'],
    ['a block of another size', () => packBlock(layout, good, place, new Uint8Array(3)), 'block'],
    ['no V', () => packBlock(layout, [{ key: good[0].key }, good[1]], place, block), 'layers[0].value'],
    ['a misspelt name', () => packBlock(layout, good, { tokne: 0 } as never, block), 'place.tokne'],
  ])('%s', (_, call, field) => {
    expect(call).toThrow(expect.objectContaining({ code: 'TKV_INPUT', field }));
    expect(block.every((byte) => byte === 0)).toBe(true);
  });

  it('and arrays of the same width are taken: bytes, Uint16Array, Float16Array where there is one', () => {
    const bytes = changed({ data: new Uint8Array((good[1].value!.data as Uint16Array).slice().buffer) });
    const whole = new Uint8Array(layout.blockBytes);
    packBlock(layout, bytes, { token: 4, batch: 1 }, whole);
    expect(whole).toEqual(expectedBlock(layout, 4, 4));
  });
});
