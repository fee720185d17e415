/**
 * What engines logged of their memory in public, and times between tokens on other cards and several GPUs. The bounds are what
 * is claimed on the accuracy page; rows that are known to be off stand there with their reason, and here by name.
 */

import { describe, expect, it } from 'vitest';
import { latencyDataFile, loadModel, readText } from '../../src/sim/build/dataFiles.ts';
import { engineMemory, localWeightBytes } from '../../src/sim/latency/engineMemory.ts';
import { parseModelConfig } from '../../src/sim/latency/modelConfig.ts';
import { engineShape } from '../../src/sim/latency/physics.ts';
import { loggedFigures, servedTokens } from '../../tools/publicFigures.ts';
import { h100 } from '../sim/latency/setups.ts';

const logged = loggedFigures(readText(latencyDataFile('vllm-logs.csv')));
const served = servedTokens(readText(latencyDataFile('served-tokens.csv')));

it.each(logged.filter(({ what, engine }) => what !== 'kv' && !engine.startsWith('gemma')))(
  '$what of $engine',
  ({ errorPercent }) => {
    expect(Math.abs(errorPercent)).toBeLessThan(2.5);
  },
);

it('each row says where it stands in public', () => {
  for (const { source } of [...logged, ...served]) expect(source).toMatch(/^https:\/\/[\w.]+\/\S+$/);
});

it.each(served.filter(({ engine }) => /x H[12]00/.test(engine) && !engine.includes('AWQ')))(
  'tokens of $engine with $served',
  ({ errorPercent }) => {
    expect(Math.abs(errorPercent)).toBeLessThan(15);
  },
);

describe('a configuration as it is published', () => {
  const dims = {
    torch_dtype: 'bfloat16',
    hidden_size: 1024,
    num_hidden_layers: 2,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    intermediate_size: 4096,
    vocab_size: 1000,
    tie_word_embeddings: true,
  };
  const model = (quantization: object, more: object = {}) =>
    parseModelConfig(
      JSON.stringify({ ...dims, ...more, quantization_config: quantization }),
      'config.json',
      'm',
    );

  it.each([
    ['MXFP4', { quant_method: 'mxfp4' }, 4.25 / 8],
    ['NVFP4 by ModelOpt', { quant_method: 'modelopt', quant_algo: 'NVFP4' }, 4.5 / 8],
    ['FP8 by ModelOpt', { quant_method: 'modelopt', quant_algo: 'FP8' }, 1],
    ['FP8 by FBGEMM', { quant_method: 'fbgemm_fp8' }, 1],
    ['bitsandbytes in 4 bits', { quant_method: 'bitsandbytes', load_in_4bit: true }, 0.5],
    ['bitsandbytes in 8 bits', { quant_method: 'bitsandbytes', _load_in_8bit: true }, 1],
    ['AWQ', { quant_method: 'awq', bits: 4, group_size: 128 }, 0.5],
    ['a method of none of them', { quant_method: 'other' }, 2],
  ])('in %s', (_, quantization, bytes) => {
    expect(model(quantization).weightBytes).toBe(bytes);
  });

  it('keeps scales of groups beside the bits, by the size of a group', () => {
    const of = (size: number): number =>
      localWeightBytes(model({ quant_method: 'gptq', bits: 4, group_size: size }), 1, 1);
    const plain = localWeightBytes(model({ bits: 4 }), 1, 1);
    const matrices = 2 * (1024 * (2 * 1024 + 2 * 256) + 3 * 1024 * 4096);
    expect(of(128) - plain).toBeCloseTo((matrices * 2.5) / 128, 0);
    expect(of(32) - plain).toBeCloseTo((matrices * 2.5) / 32, 0);
    expect(of(-1)).toBe(plain);
  });

  it('pads experts in MXFP4 to what kernels take, on each GPU', () => {
    const experts = {
      num_local_experts: 4,
      num_experts_per_tok: 2,
      intermediate_size: 2880,
      hidden_size: 2880,
    };
    const padded = model({ quant_method: 'mxfp4' }, { ...experts, num_attention_heads: 45 });
    const { expertPadding: _, ...plain } = padded;
    const more = (tp: number): number =>
      localWeightBytes(padded, tp, 1) - localWeightBytes(plain as typeof padded, tp, 1);
    const cells = 2 * 4 * 3 * (4.25 / 8);
    expect(more(1)).toBeCloseTo(cells * (3072 * 2944 - 2880 * 2880), 0);
    expect(more(2)).toBeCloseTo(cells * (3072 * 1536 - 2880 * 1440), 0);
  });
});

describe('on several GPUs', () => {
  it('repeats KV heads in times too, from more GPUs than heads on', () => {
    const model = loadModel('qwen3-30b-a3b'); // 4 KV heads of 128, 48 layers
    const of = (tp: number): number => engineShape(model, h100, { tp, dp: 1 }).kvBytesPerToken;
    expect(of(4)).toBe(48 * 2 * 128 * 2);
    expect(of(8)).toBe(of(4));
  });

  it('streams the projections of MLA, which are a third of what a token reads', () => {
    const model = loadModel('deepseek-v3');
    const { tokenMatrices } = engineShape(model, h100, { tp: 1, dp: 1 });
    const sum = tokenMatrices.reduce((all, { depth, columns, count }) => all + depth * columns * count, 0);
    const attention = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168;
    const dense = 3 * 3 * 7168 * 18432;
    const shared = 58 * 3 * 7168 * 2048;
    expect(sum).toBe(61 * attention + dense + shared + 58 * 7168 * 256);
  });

  it('samples no more dummy requests than the profile run has tokens', () => {
    const model = loadModel('gpt-oss-20b');
    const of = (maxBatchedTokens: number): number =>
      engineMemory(model, h100, {
        tp: 1,
        dp: 1,
        blockTokens: 16,
        memoryUtilization: 0.9,
        maxSequences: 1024,
        maxBatchedTokens,
      }).activationsGib;
    expect(of(512)).toBeLessThan(0.55 * of(1024));
  });
});
