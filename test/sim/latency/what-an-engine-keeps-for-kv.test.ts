/**
 * The memory of an engine beside what vLLM logged: weights, peak of the profile run and what is left for KV, on cards and
 * models that the constants were fitted to, and block counts of runs that they were not.
 */

import { describe, expect, it } from 'vitest';
import { latencyDataFile, loadHardware, loadModel, readText } from '../../../src/sim/build/dataFiles.ts';
import {
  type EngineMemory,
  engineMemory,
  localKvBytesPerToken,
  localWeightBytes,
} from '../../../src/sim/latency/engineMemory.ts';

interface Logged {
  readonly model: string;
  readonly gpu: string;
  readonly tp: number;
  readonly weights: number;
  readonly activations: number;
  readonly kv: number;
  readonly blocks: number;
  readonly use: string;
  readonly ours: EngineMemory;
}

const [, ...lines] = readText(latencyDataFile('vllm-memory.csv')).trimEnd().split('\n');
const logged = lines.map((line): Logged => {
  const [model, gpu, tp, sequences, tokens, utilization, weights, activations, kv, blocks, , use] =
    line.split(',');
  const ours = engineMemory(loadModel(model), loadHardware(gpu), {
    tp: Number(tp),
    dp: 1,
    blockTokens: 16,
    memoryUtilization: Number(utilization),
    maxSequences: Number(sequences),
    maxBatchedTokens: Number(tokens),
  });
  const figures = {
    weights: Number(weights),
    activations: Number(activations),
    kv: Number(kv),
    blocks: Number(blocks),
  };
  return { model, gpu, tp: Number(tp), ...figures, use, ours };
});

describe("beside vLLM's log", () => {
  it.each(logged.filter(({ use }) => use === 'fitted'))(
    '$model on $gpu',
    ({ ours, weights, activations, kv }) => {
      expect(Math.abs(ours.weightsGib - weights)).toBeLessThan(0.05);
      expect(Math.abs(ours.activationsGib - activations)).toBeLessThan(0.05);
      expect(Math.abs(ours.kvGib / kv - 1)).toBeLessThan(0.05);
    },
  );

  it.each(logged.filter(({ use }) => use === 'judged'))(
    '$model on $tp x $gpu: blocks that nothing was fitted to',
    ({ ours, blocks }) => {
      expect(Math.abs(ours.blocks / blocks - 1)).toBeLessThan(0.005);
    },
  );
});

// parameters that the publishers give, in billions
it.each([
  ['llama-3.3-70b-instruct', 70.6],
  ['qwen3-0.6b', 0.6],
  ['qwen3-8b', 8.19],
  ['qwen3-14b', 14.8],
  ['qwen3-32b', 32.8],
  ['qwen3-30b-a3b', 30.5],
  ['qwen3-235b-a22b', 235],
  ['qwen2.5-72b-instruct', 72.7],
  ['mistral-small-24b-instruct-2501', 23.6],
  ['phi-4', 14.7],
  ['gemma-3-27b-it', 27.0],
  ['gpt-oss-20b', 20.9],
  ['gpt-oss-120b', 116.8],
  ['deepseek-v3', 671],
  ['kimi-k2-instruct', 1030],
  ['glm-4.5-air', 106],
])('the matrices of %s add up to what its publisher counts', (name, billions) => {
  // parameters are counted without what an engine pads for its kernels
  const { expertPadding: _, ...unpadded } = loadModel(name);
  const model = { ...unpadded, weightBytes: 1, activationBytes: 1 };
  expect(Math.abs(localWeightBytes(model, 1, 1) / 1e9 / billions - 1)).toBeLessThan(0.015);
});

// sizes of the checkpoints as their model card has them, in GiB: experts in 4.25 bits, attention and embeddings in 16
it.each([
  ['gpt-oss-20b', 12.8],
  ['gpt-oss-120b', 60.8],
])('the weights of %s are as large as its checkpoint', (name, gibibytes) => {
  const { expertPadding: _, ...unpadded } = loadModel(name);
  expect(Math.abs(localWeightBytes(unpadded, 1, 1) / 2 ** 30 / gibibytes - 1)).toBeLessThan(0.01);
});

describe('on several GPUs', () => {
  const options = {
    tp: 1,
    dp: 1,
    blockTokens: 16,
    memoryUtilization: 0.9,
    maxSequences: 128,
    maxBatchedTokens: 2048,
  };

  it('repeats KV heads from more GPUs than heads on, and keeps the latent of MLA whole', () => {
    const model = loadModel('qwen3-30b-a3b'); // 4 KV heads of 128, 48 layers
    expect(localKvBytesPerToken(model, 4, 2)).toBe(48 * 2 * 128 * 2);
    expect(localKvBytesPerToken(model, 8, 2)).toBe(48 * 2 * 128 * 2);
    expect(localKvBytesPerToken(loadModel('deepseek-v3'), 8, 2)).toBe(61 * 576 * 2);
  });

  it('spreads experts over tp x dp, and all else over tp', () => {
    const model = loadModel('qwen3-30b-a3b');
    const [one, two] = [1, 2].map((dp) => localWeightBytes(model, 1, dp));
    const experts = 48 * 3 * 2048 * 768 * 128 * 2;
    expect(one - two).toBe(experts / 2);
  });

  it('holds twice the blocks in FP8, and fewer with graphs and adapters', () => {
    const model = loadModel('llama-3.1-8b-instruct');
    const card = loadHardware('RTX-4090');
    const of = (more: object): number => engineMemory(model, card, { ...options, ...more }).blocks;
    expect(Math.abs(of({ kvElementBytes: 1 }) - 2 * of({}))).toBeLessThanOrEqual(1);
    expect(of({}) - of({ graphGib: 0.5 })).toBe(256);
    expect(of({}) - of({ adapterBytes: 2 ** 30 })).toBe(512);
  });

  it('gives a 24 GiB card what vLLM gives it, not a fifth', () => {
    const { kvGib } = engineMemory(loadModel('llama-3.1-8b-instruct'), loadHardware('RTX-4090'), options);
    expect(kvGib).toBeGreaterThan(5);
  });

  it('says what does not fit', () => {
    expect(() => engineMemory(loadModel('llama-3.3-70b-instruct'), loadHardware('H100'), options)).toThrow(
      /^llama-3\.3-70b-instruct needs 13\d\.\d GiB on each GPU before its first KV block, and H100 gives 71\.3 GiB/,
    );
  });
});
