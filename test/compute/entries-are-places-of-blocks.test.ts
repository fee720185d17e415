/** An entry of a block table that is not the place of a block is refused: kernels would read and write foreign bytes there. */

import { expect, it } from 'vitest';
import { BufferUsage } from '../../src/backends/webgpu/device.ts';
import { BlockTensors, PagedAttention } from '../../src/compute/index.ts';
import { testDevice } from '../backends/webgpu/testDevice.ts';
import { pagedCase } from './cases/pagedCase.ts';

const device = testDevice();

it('beyond its slab, within the last block, between two units, and in no slab', async () => {
  const lengths = [21];
  const one = pagedCase({
    headDim: 8,
    kvHeads: 2,
    qHeads: 2,
    blockTokens: 4,
    lengths,
    positions: [[20]],
    seed: 3,
  });
  const { layout, entries, rows } = one;
  const gpu = device.live.device;
  const slabs = one.slabBytes.map(({ length }) =>
    gpu.createBuffer({ size: length, usage: BufferUsage.STORAGE | BufferUsage.COPY_DST }),
  );
  const tensors = await BlockTensors.open({ device: gpu, slabs, layout, tokensMax: 21 });
  using attention = await PagedAttention.open({
    ...{ device: gpu, slabs, layout, qHeads: 2, rowsMax: 1 },
    ...{ entriesMax: entries.length / 2, contextTokens: 21 },
  });
  const calls = [
    (given: Uint32Array) => attention.setStep({ rows, entries: given }),
    (given: Uint32Array) => tensors.gather({ layer: 0, entries: given, tokens: 21 }).destroy(),
    (given: Uint32Array) =>
      tensors.write({ layer: 0, entries: given, tokens: 21 }, new Float32Array(21 * 2 * 2 * 8)),
  ];
  const slab = entries[4];
  for (const call of calls) {
    call(entries);
    for (const [place, field] of [
      [[slab, slabs[slab].size], 'entries[2] offset'],
      [[slab, slabs[slab].size - layout.blockBytes + 16], 'entries[2] offset'],
      [[slab, 2], 'entries[2] offset'],
      [[slabs.length, 0], 'entries[2] slab'],
    ] as const) {
      const wrong = entries.slice();
      wrong.set(place, 4);
      expect(() => call(wrong), `${place}`).toThrow(expect.objectContaining({ code: 'TKV_CONFIG', field }));
    }
  }
  for (const each of slabs) each.destroy();
});
