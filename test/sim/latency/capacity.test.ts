/** Block counts: weights against published parameter counts, the budget by hand, and what does not fit. */

import { describe, expect, it } from 'vitest';
import { automaticBlockCount, kvBytesPerToken, weightBytes } from '../../../src/sim/latency/capacity.ts';
import { h100, loadModel } from './setups.ts';

const options = { tp: 1, dp: 1, blockTokens: 16, memoryUtilization: 0.9, adapterBytes: 0 };

describe('weights', () => {
  // parameter counts that the models' publishers give
  it.each([
    ['llama-3.1-8b-instruct', 8_030_261_248],
    ['llama-3.1-70b-instruct', 70_553_706_496],
    ['llama-2-7b-hf', 6_738_415_616],
    ['llama-2-70b-hf', 68_976_648_192],
    ['mixtral-8x7b-v0.1', 46_702_792_704],
  ])('of %s are as many as published', (name, parameters) => {
    expect(weightBytes(loadModel(name))).toBe(2 * parameters);
  });

  it('are a byte each in an 8-bit model', () => {
    const model = loadModel('llama-4-scout-17b-16e-instruct-fp8-dynamic');
    expect(weightBytes(model)).toBe(weightBytes({ ...model, weightBytes: 2 }) / 2);
  });
});

describe('the automatic block count', () => {
  it('is the memory left over, in whole blocks', () => {
    const model = loadModel('llama-3.1-8b-instruct');
    const leftBytes = Math.trunc((80 * 0.9 - 16_060_522_496 / 2 ** 30 - 5.5 - 0.15) * 2 ** 30);
    expect(automaticBlockCount(model, h100, options)).toBe(Math.trunc(leftBytes / (131072 * 16)));
  });

  it('takes more for the runtime of several GPUs and for experts, and counts every rank', () => {
    const model = loadModel('mixtral-8x7b-v0.1');
    const leftBytes = Math.trunc((80 * 0.9 * 2 - (2 * 46_702_792_704) / 2 ** 30 - 8 - 2 * 0.6) * 2 ** 30);
    const blocks = Math.trunc(leftBytes / (65536 * 16));
    expect(automaticBlockCount(model, h100, { ...options, tp: 2 })).toBe(blocks);
    expect(automaticBlockCount(model, h100, { ...options, tp: 2, dp: 3 })).toBe(3 * blocks);
  });

  it('gives up blocks for adapters', () => {
    const model = loadModel('llama-3.1-8b-instruct');
    const without = automaticBlockCount(model, h100, options);
    const adapterBytes = 100 * 131072 * 16;
    expect(without - automaticBlockCount(model, h100, { ...options, adapterBytes })).toBe(100);
  });

  it('uses an explicit head size', () => {
    expect(kvBytesPerToken(loadModel('qwen3-30b-a3b'), 1)).toBe(48 * 2 * 128 * 4 * 2);
  });

  it('holds the latent of MLA whole on every GPU', () => {
    const model = { ...loadModel('llama-3.1-8b-instruct'), kvLoraRank: 512, qkRopeHeadDim: 64 };
    expect(kvBytesPerToken(model, 4)).toBe(32 * (512 + 64) * 2);
  });

  it('says how many GPUs a model needs', () => {
    const model = loadModel('llama-3.1-70b-instruct');
    expect(() => automaticBlockCount(model, h100, options)).toThrow(/137\.\d GiB.*at least 2 of them/);
    expect(automaticBlockCount(model, h100, { ...options, tp: 2 })).toBeGreaterThan(0);
  });

  it('refuses models that its formula does not describe, and shares outside (0, 1]', () => {
    const model = loadModel('llama-3.1-8b-instruct');
    expect(() => automaticBlockCount({ ...model, hiddenAct: 'relu' }, h100, options)).toThrow(
      /not a gated one/,
    );
    expect(() => automaticBlockCount(model, h100, { ...options, memoryUtilization: 1.1 })).toThrow(/above 1/);
    expect(() => automaticBlockCount(model, h100, { ...options, tp: 3 })).toThrow(/does not divide/);
  });
});
