import { expect, it } from 'vitest';
import { testDevice } from '../backends/webgpu/testDevice.ts';
import { openCase } from './cases/attentionRun.ts';
import { int8Findings } from './cases/int8Rows.ts';
import { attendedInF64, type CaseShape, pagedCase } from './cases/pagedCase.ts';
import { firstBeyond } from './cases/shapeTable.ts';

const device = testDevice();
const lengths = [37, 5];
const shape: CaseShape = {
  headDim: 16,
  kvHeads: 2,
  qHeads: 4,
  blockTokens: 8,
  layers: 2,
  slabs: 2,
  lengths,
  positions: lengths.map((length) => Array.from({ length }, (_, token) => token)),
};

it.each(['f32', 'f16'] as const)('%s: the rows of a step, and no byte beside them', async (dtype) => {
  const one = pagedCase({ ...shape, dtype });
  const run = await openCase(device.live.device, one, { writes: true });
  const attended = await run.run();
  expect(await run.slabs()).toEqual(one.slabBytes);
  expect(firstBeyond(one, attended, attendedInF64(one))).toBe('');
  run.destroy();
});

it('f16: ties, the smallest, the largest, infinite and zero of both signs are rounded as Float16Array does', async () => {
  const one = pagedCase({
    ...shape,
    dtype: 'f16',
    lengths: [64],
    positions: [Array.from({ length: 64 }, (_, i) => i)],
  });
  const hard = [
    0,
    -0,
    65504,
    65519.99,
    65520,
    1e9,
    Infinity,
    2 ** -14,
    2 ** -24,
    2 ** -25,
    1.5 * 2 ** -25,
    3e-8,
    1e-40,
  ].concat([
    1 + 2 ** -11,
    1 + 3 * 2 ** -11,
    2 ** -14 * (1 - 2 ** -11),
    6.1e-5,
    -(2 ** -24) * 2.5,
    0.1,
    -1 / 3,
  ]);
  one.qkv.forEach((_, i) => {
    const scaled = hard[i % hard.length] * (i % 3 === 0 ? -1 : 1);
    one.qkv[i] = i % 7 === 0 ? scaled * (1 + (i % 1000) / 4096) : scaled;
  });
  const run = await openCase(device.live.device, one, { writes: true });
  await run.run();
  const slabs = await run.slabs();
  const stride = (4 + 2 * 2) * 16;
  for (let token = 0; token < 64; token++) {
    const entry = one.firstEntry[0] + Math.floor(token / 8);
    for (const [kv, head] of [
      [0, 0],
      [0, 1],
      [1, 0],
      [1, 1],
    ]) {
      const { layerStrideBytes, headStrideBytes, kvStrideBytes, rowBytes } = one.layout;
      const offset =
        one.entries[2 * entry + 1] + layerStrideBytes + head * headStrideBytes + kv * kvStrideBytes;
      const bytes = slabs[one.entries[2 * entry]];
      const found = new Uint16Array(bytes.slice(offset + (token % 8) * rowBytes).buffer, 0, 16);
      const from = token * stride + (4 + 2 * kv + head) * 16;
      const halves = new Float16Array(one.qkv.subarray(from, from + 16));
      expect(found, `${one.qkv.subarray(from, from + 16)}`).toEqual(new Uint16Array(halves.buffer));
    }
  }
  run.destroy();
});

it('int8: the error of a number is at most half its scale, and a NaN makes its row NaN', async () => {
  const one = pagedCase({ ...shape, dtype: 'i8' });
  const stride = (4 + 2 * 2) * 16;
  one.qkv[3 * stride + 4 * 16 + 5] = Number.NaN; // K of token 3, head 0
  one.qkv.fill(0, 5 * stride + 4 * 16, 5 * stride + 5 * 16);
  one.qkv.fill(1e-37, 6 * stride + 4 * 16, 6 * stride + 5 * 16); // 127 divided by it overflows
  one.qkv.fill(1e38, 7 * stride + 4 * 16, 7 * stride + 5 * 16);
  const run = await openCase(device.live.device, one, { writes: true });
  await run.run();
  const slabs = await run.slabs();
  run.destroy();
  expect(int8Findings(one, slabs)).toEqual({ compared: 42 * 4 * 16 - 16, wrong: 0, rowsOfNaN: 1 });
});
