/**
 * Layers of sliding windows and linear layers: which they are, by configurations as published; groups and blocks as vLLM
 * has them; and an engine whose requests hold what a count token by token says.
 */

import { describe, expect, it } from 'vitest';
import { simulate } from '../../../src/sim/build/simulate.ts';
import { engineMemory, layerKvBytesPerToken } from '../../../src/sim/latency/engineMemory.ts';
import { kvLayout, sideBlockCount, sideBlocksOf } from '../../../src/sim/latency/kvLayout.ts';
import { BatchSums, sumBatch } from '../../../src/sim/latency/latencyModel.ts';
import { type ModelConfig, parseModelConfig } from '../../../src/sim/latency/modelConfig.ts';
import { engineShape, PhysicalFloor } from '../../../src/sim/latency/physics.ts';
import { loadHardware, loadModel } from './setups.ts';

const base = {
  torch_dtype: 'bfloat16',
  hidden_size: 2048,
  num_attention_heads: 16,
  num_key_value_heads: 2,
  head_dim: 256,
  intermediate_size: 5120,
  vocab_size: 1000,
  max_position_embeddings: 262_144,
};
const parsed = (layers: number, more: object): ModelConfig =>
  parseModelConfig(JSON.stringify({ ...base, num_hidden_layers: layers, ...more }), 'config.json', 'm');

/** Keys of Qwen3-Next-80B-A3B's config.json that are about its layers. */
const qwen3Next = parsed(48, {
  full_attention_interval: 4,
  linear_conv_kernel_dim: 4,
  linear_key_head_dim: 128,
  linear_num_key_heads: 16,
  linear_num_value_heads: 32,
  linear_value_head_dim: 128,
});

describe('the kinds of layers', () => {
  it.each([
    ['gpt-oss: every second', loadModel('gpt-oss-20b'), 12, 0],
    ['Gemma 3: all but every sixth', loadModel('gemma-3-27b-it'), 52, 0],
    ['Gemma 2: every second', parsed(26, { model_type: 'gemma2', sliding_window: 4096 }), 13, 0],
    [
      'by layer_types',
      parsed(4, {
        sliding_window: 64,
        layer_types: ['sliding_attention', 'full_attention', 'sliding_attention', 'full_attention'],
      }),
      2,
      0,
    ],
    [
      'Qwen2 from max_window_layers on',
      parsed(28, { sliding_window: 4096, use_sliding_window: true, max_window_layers: 21 }),
      7,
      0,
    ],
    [
      'Qwen2 with the window off',
      parsed(28, { sliding_window: 4096, use_sliding_window: false, max_window_layers: 21 }),
      0,
      0,
    ],
    ['Mistral: a window of null', parsed(32, { model_type: 'mistral', sliding_window: null }), 0, 0],
    ['all of one window: kept whole', parsed(32, { model_type: 'mistral', sliding_window: 4096 }), 0, 0],
    [
      'a window as long as the context',
      parsed(32, { sliding_window: 262_144, sliding_window_pattern: 2 }),
      0,
      0,
    ],
    ['Qwen3-Next: three of four are linear', qwen3Next, 0, 36],
    [
      'Jamba: one of eight attends',
      parsed(32, { attn_layer_period: 8, attn_layer_offset: 4, mamba_d_state: 16 }),
      0,
      28,
    ],
  ] as const)('%s', (_, { hybrid }, windows, linear) => {
    expect([hybrid?.windowLayers ?? 0, hybrid?.linearLayers ?? 0]).toEqual([windows, linear]);
  });
});

describe("vLLM's groups", () => {
  it('are of as many layers as its own examples have', () => {
    // ten of full attention and twenty of a window: three groups of ten (kv_cache_utils.py)
    const types = Array.from({ length: 30 }, (_, i) =>
      i % 3 === 0 ? 'full_attention' : 'sliding_attention',
    );
    expect(kvLayout(parsed(30, { sliding_window: 128, layer_types: types }))).toEqual({
      groupLayers: 10,
      fullGroups: 1,
      windowGroups: 2,
      linearGroups: 0,
      paddingLayers: 0,
    });
    // 52 and 10 layers: 1 + 6 groups, the last filled up by 8 (docs.vllm.ai, design/hybrid_kv_cache_manager)
    expect(kvLayout(loadModel('gemma-3-27b-it'))).toMatchObject({
      groupLayers: 10,
      fullGroups: 1,
      windowGroups: 6,
      paddingLayers: 8,
    });
    // 12 of a window and 13 others with a draft layer: one group each, not two (the comment beside the factor)
    const draft = [
      ...Array.from({ length: 12 }, () => 'sliding_attention'),
      ...Array.from({ length: 13 }, () => 'full_attention'),
    ];
    expect(kvLayout(parsed(25, { sliding_window: 128, layer_types: draft }))).toMatchObject({
      groupLayers: 13,
      windowGroups: 1,
      paddingLayers: 1,
    });
    expect(kvLayout(loadModel('llama-3.1-8b-instruct'))).toMatchObject({
      groupLayers: 32,
      fullGroups: 1,
      windowGroups: 0,
    });
  });

  it('give gpt-oss-120b the tokens that vLLM logged for 5.38 GiB', () => {
    // "Available KV cache memory: 5.38 GiB", "GPU KV cache size: 78,384 tokens" (alvarobartt/hf-mem issue 60);
    // that size is the pool's blocks over the groups, in tokens
    const model = loadModel('gpt-oss-120b');
    const { groupLayers, fullGroups, windowGroups } = kvLayout(model);
    const page = groupLayers * layerKvBytesPerToken(model, 1, 2) * 16;
    const tokens = Math.floor(Math.floor((5.38 * 2 ** 30) / page) / (fullGroups + windowGroups)) * 16;
    expect(Math.abs(tokens / 78_384 - 1)).toBeLessThan(0.001); // the log rounds to 0.01 GiB, 0.2 %
  });

  it("make room for Qwen3-Next's state in as many tokens as vLLM's block has", () => {
    // "Setting attention block size to 544 tokens to ensure that attention page size is >= mamba page size"
    const { stateElements } = qwen3Next.hybrid!;
    expect(stateElements).toBe(3 * (2 * 16 * 128 + 32 * 128) + 32 * 128 * 128);
    const side = sideBlocksOf(qwen3Next, 1, 16, layerKvBytesPerToken(qwen3Next, 1, 2))!;
    // three groups of twelve linear layers, each with a state of 544 tokens of attention
    expect(kvLayout(qwen3Next)).toMatchObject({ groupLayers: 12, fullGroups: 1, linearGroups: 3 });
    expect(side.stateBlocks).toBe((3 * 544) / 16);
  });

  it('hold the blocks that a count token by token says', () => {
    const side = { windowTokens: 128, windowGroups: 2, stateBlocks: 5, fullGroups: 1 };
    for (const tokens of [1, 15, 16, 17, 127, 128, 129, 144, 145, 1000]) {
      const blocks = Math.ceil(tokens / 16);
      // the newest token and the 127 before it: blocks that any of them lies in, at the worst place in a block
      let most = 0;
      for (let at = Math.max(0, (blocks - 1) * 16); at < blocks * 16; at++) {
        const inUse = new Set<number>();
        for (let i = Math.max(0, at - 127); i <= at; i++) inUse.add(Math.floor(i / 16));
        most = Math.max(most, inUse.size);
      }
      expect(sideBlockCount(side, blocks, 1, 16)).toBe(2 * most + 5);
    }
    expect(sideBlockCount(side, 200, 64, 16)).toBe(2 * (8 + 64) + 5);
    expect(sideBlockCount(side, 0, 0, 16)).toBe(0);
  });
});

describe('the time of a step', () => {
  it('counts what windows see, pair by pair', () => {
    const window = 5;
    const batch = [
      { promptTokens: 20, progressTokens: 3, newTokens: 9, outputTokens: 4 },
      { promptTokens: 4, progressTokens: 2, newTokens: 1, outputTokens: 9 },
      { promptTokens: 3, progressTokens: 30, newTokens: 1, outputTokens: 40 },
      { promptTokens: 3, progressTokens: 4, newTokens: 1, outputTokens: 40 },
    ];
    let pairs = 0;
    let cached = 0;
    let decode = 0;
    for (const { promptTokens, progressTokens, newTokens } of batch) {
      const seen = (at: number): number =>
        Array.from({ length: at }, (_, i) => i).filter((i) => at - i < window).length;
      if (progressTokens >= promptTokens) decode += seen(progressTokens);
      else {
        cached += seen(progressTokens);
        for (let t = 0; t < newTokens; t++) pairs += seen(progressTokens + t);
      }
    }
    const sums = sumBatch(batch, window);
    expect([sums.prefillWindowPairs2 / 2, sums.prefillWindowCachedTokens, sums.decodeWindowTokens]).toEqual([
      pairs,
      cached,
      decode,
    ]);
    for (const one of batch) sums.remove(one);
    expect({ ...sums }).toEqual({ ...new BatchSums(window) });
    const whole = sumBatch(batch);
    expect([whole.prefillWindowPairs2, whole.decodeWindowTokens]).toEqual([
      whole.prefillCausalPairs2,
      whole.decodeContextTokens,
    ]);
  });

  it('reads of a long context the window alone in such layers', () => {
    const model = loadModel('gpt-oss-20b');
    const bytes = (context: number): number => {
      const shape = engineShape(model, loadHardware('H100'), { tp: 1, dp: 1 });
      const sums = new BatchSums(shape.windowTokens);
      sums.addDecodes(1, context, sums.inWindow(context));
      return new PhysicalFloor(shape).work(sums).bytes;
    };
    // 12 layers of full attention: 12 x 2 x 8 x 64 x 2 bytes a token, nothing more in the others
    expect(bytes(100_000) - bytes(50_000)).toBe(50_000 * 12 * 2 * 8 * 64 * 2);
  });
});

describe('a simulated engine', () => {
  const asked = (more: object) =>
    simulate({
      model: 'gpt-oss-20b',
      hardware: 'H100',
      engine: { kvBlocks: 400, maxSequences: 64, maxBatchedTokens: 512, ...more },
      workload: { prompt: 1500, output: 200, rate: 30, requests: 60 },
    });

  it('serves all, with more at once than where windows keep everything', () => {
    const hybrid = asked({});
    expect(hybrid.conservation).toMatchObject({ injected: 60, completed: 60 });
    const whole = asked({ disableHybridKvCacheManager: true });
    expect(whole.conservation.completed).toBe(60);
    expect(hybrid.metrics.e2e_mean_ms).not.toBe(whole.metrics.e2e_mean_ms);
  });

  it('fits twice the tokens of long contexts into the memory', () => {
    const h100 = loadHardware('H100');
    const options = {
      tp: 1,
      dp: 1,
      blockTokens: 16,
      memoryUtilization: 0.9,
      maxSequences: 256,
      maxBatchedTokens: 2048,
    };
    const model = loadModel('gpt-oss-20b');
    const hybrid = engineMemory(model, h100, options);
    const whole = engineMemory({ ...model, hybrid: { ...model.hybrid!, keepsWhole: true } }, h100, options);
    expect(hybrid.blocks).toBe(Math.floor((hybrid.kvGib * 2 ** 30) / (12 * 2048 * 16)));
    expect(whole.blocks).toBe(Math.floor((whole.kvGib * 2 ** 30) / (24 * 2048 * 16)));
  });

  it('refuses the option for a model without windows, and memory below one window', () => {
    expect(() =>
      simulate({ model: 'llama-3.1-8b-instruct', engine: { disableHybridKvCacheManager: true } }),
    ).toThrow(/sliding window/);
    expect(() => simulate({ model: 'gemma-3-27b-it', tp: 2, engine: { kvBlocks: 300 } })).toThrow(
      /windows and states of one request/,
    );
  });
});
