import { describe, expect, it } from 'vitest';
import type { BlockPair } from '../../../src/compute/blocks.ts';
import { BlockConversion, BlockCopies } from '../../../src/compute/index.ts';
import { kvLayout } from '../../../src/runtime/geometry/layout.ts';
import { testSeed } from '../../../src/testing/index.ts';
import { testDevice } from '../../backends/webgpu/testDevice.ts';
import { bytesOf } from '../cases/attentionRun.ts';
import { caseLayout } from '../cases/pagedCase.ts';
import { wrongBytesOfConversion } from './convertedBlocks.ts';
import { filled, recordAndSubmit, somePairs, wrongBytesOfCopies } from './copiedBlocks.ts';

const device = testDevice();
const seed = testSeed(29);
const shape = { layers: 3, kvHeads: 2, blockTokens: 5 };

describe('copies', () => {
  it.each([
    [16, kvLayout({ ...shape, headDim: 8, dtype: 'f32' })],
    [8, kvLayout({ ...shape, headDim: 4, dtype: 'bf16' })],
    [4, kvLayout({ ...shape, headDim: 12, dtype: 'f8e4m3' })],
  ])(
    `move the rows of some tokens bit for bit, and no byte beside them, in units of %i (seed ${seed})`,
    async (_, layout) => {
      expect(await wrongBytesOfCopies(device.live.device, layout, seed)).toBe(0);
    },
  );

  it('cover more units than one dimension has workgroups for', async () => {
    const gpu = device.live.device;
    const layout = kvLayout({ layers: 4, kvHeads: 8, headDim: 4, blockTokens: 1024, dtype: 'f8e5m2' });
    const many = 65; // x 65536 units of 4 bytes
    const words = Uint32Array.from({ length: (2 * many * layout.blockBytes) / 4 }, (_, i) => i);
    const slabs = [filled(gpu, new Uint8Array(words.buffer))];
    using copies = await BlockCopies.open({ device: gpu, slabs, layout, pairsMax: many });
    const place = (block: number) => ({ slab: 0, offsetBytes: block * layout.blockBytes });
    copies.setPairs(Array.from({ length: many }, (_, i) => ({ from: place(i), to: place(many + i) })));
    expect((many * layout.blockBytes) / 4 / 64).toBeGreaterThan(0xffff);
    recordAndSubmit(gpu, copies);
    const found = Buffer.from(await bytesOf(gpu, slabs[0]));
    const half = found.length / 2;
    expect(Buffer.compare(found.subarray(half), found.subarray(0, half))).toBe(0);
    expect(found.readUInt32LE(found.length - 4)).toBe(words.length / 2 - 1);
    slabs[0].destroy();
  });

  it('refuse a bad pair by name, and change nothing', async () => {
    const gpu = device.live.device;
    const layout = kvLayout({ ...shape, headDim: 4, dtype: 'f32' });
    const { blockBytes } = layout;
    const slabs = [4, 4, 4].map((blocks) => filled(gpu, new Uint8Array(blocks * blockBytes)));
    using copies = await BlockCopies.open({ device: gpu, slabs, layout, pairsMax: 3 });
    const at = (slab: number, block: number) => ({ slab, offsetBytes: block * blockBytes });
    const bad: readonly (readonly [field: string, pairs: BlockPair[]])[] = [
      ['pairs.length', somePairs(layout)],
      ['pairs[0].from.slab', [{ from: at(3, 0), to: at(0, 0) }]],
      ['pairs[0].to.offsetBytes', [{ from: at(0, 0), to: at(0, 4) }]],
      ['pairs[0].to.offsetBytes', [{ from: at(0, 0), to: { slab: 0, offsetBytes: 8 } }]],
      ['pairs[0].tokens', [{ from: at(0, 0), to: at(0, 1), tokens: 6 }]],
      [
        'pairs[1].to',
        [
          { from: at(0, 0), to: at(1, 1) },
          { from: at(0, 2), to: at(1, 1) },
        ],
      ],
      [
        'pairs[1].from',
        [
          { from: at(0, 0), to: at(1, 1) },
          { from: at(1, 1), to: at(0, 2) },
        ],
      ],
      ['pairs[0].from', [{ from: at(1, 2), to: at(1, 2) }]],
    ];
    for (const [field, pairs] of bad) {
      expect(() => copies.setPairs(pairs), field).toThrow(
        expect.objectContaining({ code: 'TKV_CONFIG', field }),
      );
    }
    for (const slab of slabs) slab.destroy();
  });
});

describe('conversion', () => {
  const dtypes = ['f32', 'f16', 'i8'] as const;
  const ways = dtypes.flatMap((from) => dtypes.filter((to) => to !== from).map((to) => [from, to] as const));
  it.each(ways)('%s to %s gives the bytes that writing gives, and no byte beside them', async (from, to) => {
    expect(await wrongBytesOfConversion(device.live.device, from, to)).toBe(0);
  });

  it('refuses pools that differ in more than their format, or in nothing', async () => {
    const gpu = device.live.device;
    const of = (more: object) =>
      caseLayout({ headDim: 8, kvHeads: 2, qHeads: 2, blockTokens: 4, lengths: [], ...more });
    const slabs = [filled(gpu, new Uint8Array(4096))];
    const others = [filled(gpu, new Uint8Array(4096))];
    const from = { slabs, layout: of({}) };
    const open = (to: object, more: object = {}) =>
      BlockConversion.open({
        device: gpu,
        from,
        to: { slabs: others, layout: of(to), ...more },
        pairsMax: 1,
      });
    const bad = [
      ['to.layout.dtype', {}, {}],
      ['to.layout.headDim', { dtype: 'f16', headDim: 4 }, {}],
      ['to.layout.layers', { dtype: 'f16', layers: 2 }, {}],
      ['to.slabs', { dtype: 'f16' }, { slabs }],
    ] as const;
    for (const [field, to, more] of bad) {
      await expect(open(to, more), field).rejects.toMatchObject({ code: 'TKV_CONFIG', field });
    }
    for (const slab of [...slabs, ...others]) slab.destroy();
  });
});
