import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  blockBytesLimit,
  type KVLayout,
  type KVLayoutConfig,
  kvLayout,
  layoutFingerprint,
  requireLayout,
} from '../../../src/runtime/geometry/layout.ts';
import { layoutConfigs, layouts } from './arbitraries.ts';

const llama8b: KVLayoutConfig = { layers: 32, kvHeads: 8, headDim: 128, dtype: 'bf16', blockTokens: 16 };

test('a block of Llama-3.1-8B is 2 MiB: 128 KiB a token, 64 KiB a layer', () => {
  const layout = kvLayout(llama8b);
  expect(layout.blockBytes).toBe(2 * 2 ** 20);
  expect(layout.tokenBytes).toBe(128 * 2 ** 10);
  expect(layout.layerStrideBytes).toBe(64 * 2 ** 10);
});

describe('a bad layout names its field', () => {
  test.each<[string, Partial<Record<keyof KVLayoutConfig, unknown>>]>([
    ['layers', { layers: 0 }],
    ['layers', { layers: 1.5 }],
    ['kvHeads', { kvHeads: -8 }],
    ['headDim', { headDim: Number.NaN }],
    ['headDim', { headDim: 127 }],
    ['headDim', { dtype: 'i8', headDim: 6 }],
    ['dtype', { dtype: 'int4' }],
    ['dtype', { dtype: 'toString' }],
    ['dtype', { dtype: undefined }],
    ['blockTokens', { blockTokens: Number.POSITIVE_INFINITY }],
    ['blockTokens', { blockTokens: 16 * 1024 }],
  ])('%s in %o', (field, change) => {
    const config = { ...llama8b, ...change } as KVLayoutConfig;
    expect(() => kvLayout(config)).toThrow(expect.objectContaining({ code: 'TKV_CONFIG', field }));
  });

  test('and the largest block that is allowed still is', () => {
    const row = { layers: 1, kvHeads: 1, headDim: 4, dtype: 'i8' } as const;
    const tokens = Math.floor(blockBytesLimit / 8);
    expect(kvLayout({ ...row, blockTokens: tokens }).blockBytes).toBeLessThanOrEqual(blockBytesLimit);
    expect(() => kvLayout({ ...row, blockTokens: tokens + 1 })).toThrow('Lower blockTokens');
  });
});

describe('the fingerprint (hazard 38: layout drift)', () => {
  test('changes when any one field of the layout changes', () => {
    fc.assert(
      fc.property(layouts, (layout) => {
        const original = layoutFingerprint(layout);
        for (const field of Object.keys(layout) as (keyof KVLayout)[]) {
          const value = layout[field];
          const mutated = { ...layout, [field]: typeof value === 'number' ? value + 1 : `${value}x` };
          expect(layoutFingerprint(mutated), field).not.toBe(original);
        }
      }),
    );
  });

  test('is one text per layout and one layout per text', () => {
    fc.assert(
      fc.property(layoutConfigs, layoutConfigs, (a, b) => {
        const same = (Object.keys(a) as (keyof KVLayoutConfig)[]).every((field) => a[field] === b[field]);
        expect(layoutFingerprint(kvLayout(a)) === layoutFingerprint(kvLayout(b))).toBe(same);
      }),
    );
  });

  test('tells two layouts of equal shape and size apart: K,V against two heads, f16 against bf16', () => {
    const oneHead = kvLayout({ ...llama8b, kvHeads: 1, headDim: 256 });
    const twoHeads = kvLayout({ ...llama8b, kvHeads: 2, headDim: 128 });
    expect(oneHead.blockBytes).toBe(twoHeads.blockBytes);
    expect(layoutFingerprint(oneHead)).not.toBe(layoutFingerprint(twoHeads));
    expect(layoutFingerprint(kvLayout({ ...llama8b, dtype: 'f16' }))).not.toBe(
      layoutFingerprint(kvLayout(llama8b)),
    );
  });

  test('stored by another layout is refused with the field that differs and where it was found', () => {
    const layout = kvLayout(llama8b);
    const stored = layoutFingerprint(kvLayout({ ...llama8b, dtype: 'f16' }));
    expect(() => requireLayout(layout, layoutFingerprint(layout))).not.toThrow();
    expect(() => requireLayout(layout, stored, 'kv.dat')).toThrow(
      expect.objectContaining({ code: 'TKV_MISMATCH', field: 'dtype', path: 'kv.dat' }),
    );
    expect(() => requireLayout(layout, stored)).toThrow('dtype=f16, this layout has dtype=bf16');
    expect(() => requireLayout(layout, '')).toThrow(expect.objectContaining({ code: 'TKV_MISMATCH' }));
    expect(() => requireLayout(layout, `${layoutFingerprint(layout)} extra=1`)).toThrow('extra=1');
  });
});
