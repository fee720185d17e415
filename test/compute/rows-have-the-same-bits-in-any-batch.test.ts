import { expect, it } from 'vitest';
import { SeededRandom, testSeed } from '../../src/testing/index.ts';
import { testDevice } from '../backends/webgpu/testDevice.ts';
import { openCase } from './cases/attentionRun.ts';
import { type CaseShape, pagedCase } from './cases/pagedCase.ts';

const device = testDevice();
const seed = testSeed(29);
const lengths = [260, 131];
const positions = lengths.map((length) => Array.from({ length: 12 }, (_, i) => length - 12 + i));
const shape: CaseShape = { headDim: 64, kvHeads: 1, qHeads: 2, blockTokens: 16, lengths, positions, seed };

it(`results of the lanes kernel are bit-identical alone, in chunks, in any order, with little room and over other slabs (seed ${seed})`, async () => {
  const one = pagedCase(shape);
  const words = 2 * 64;
  const whole = await openCase(device.live.device, one);
  const wanted = new Uint32Array((await whole.run()).slice().buffer);
  const random = new SeededRandom(seed);
  const orders = [[17], [3, 4, 5, 6], random.distinctBelow(24, 24), random.distinctBelow(24, 7)];
  const compare = (attended: Float32Array, rows: readonly number[]): void => {
    const found = new Uint32Array(attended.slice().buffer);
    rows.forEach((row, i) => {
      const expected = wanted.subarray(row * words, (row + 1) * words);
      expect(found.subarray(i * words, (i + 1) * words), `row ${row} in ${rows}`).toEqual(expected);
    });
  };
  for (const rows of orders) compare(await whole.run(rows), rows);
  whole.destroy();

  const cramped = await openCase(device.live.device, one, { partialBytesMax: 1 });
  compare(await cramped.run(orders[2]), orders[2]);
  cramped.destroy();

  // with this number of slabs an invocation has one query head instead of two
  const scattered = pagedCase({ ...shape, slabs: 3 });
  expect(scattered.stored).toEqual(one.stored);
  const other = await openCase(device.live.device, { ...scattered, qkv: one.qkv });
  const all = Array.from({ length: 24 }, (_, row) => row);
  compare(await other.run(all), all);
  other.destroy();
});

it('results of the workgroups kernel are bit-identical alone and in any order', async () => {
  const small = { ...shape, headDim: 8, lengths: [140, 9], positions: [[127, 128, 139], [8]] };
  const run = await openCase(device.live.device, pagedCase(small), { kernel: 'workgroups' });
  const words = 2 * 8;
  const bits = (attended: Float32Array): Uint32Array => new Uint32Array(attended.slice().buffer);
  const wanted = bits(await run.run());
  for (const rows of [[2], [3, 0, 2, 1]]) {
    const found = bits(await run.run(rows));
    rows.forEach((row, i) => {
      const expected = wanted.subarray(row * words, (row + 1) * words);
      expect(found.subarray(i * words, (i + 1) * words), `row ${row} in ${rows}`).toEqual(expected);
    });
  }
  run.destroy();
});
