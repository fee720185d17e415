/** Reading descriptions: what the many spellings mean, and one line about what is wrong with a bad file. */

import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseLinkCalibration } from '../../../src/sim/latency/capacity.ts';
import { type Coefficients, parseCoefficients } from '../../../src/sim/latency/coefficients.ts';
import {
  modelFileName,
  parseHardware,
  parseModelConfig,
  parseUpstreamHardware,
  requireKnownName,
} from '../../../src/sim/latency/modelConfig.ts';
import { h100, loadHardware, loadModel } from './setups.ts';

const base = {
  num_hidden_layers: 4,
  hidden_size: 64,
  num_attention_heads: 8,
  intermediate_size: 256,
  vocab_size: 1000,
  torch_dtype: 'bfloat16',
};
const model = (over: Record<string, unknown>, name: string = 'test'): ReturnType<typeof parseModelConfig> =>
  parseModelConfig(JSON.stringify({ ...base, ...over }, undefined, 1), 'config.json', name);

describe('a model configuration', () => {
  it('has as many KV heads as heads unless one of three keys says otherwise', () => {
    expect(model({}).kvHeads).toBe(8);
    expect(model({ num_key_value_heads: 2 }).kvHeads).toBe(2);
    expect(model({ num_kv_heads: 4 }).kvHeads).toBe(4);
    expect(model({ multi_query_group_num: 1 }).kvHeads).toBe(1);
  });

  it.each([
    [{ quantization_config: { bits: 4 } }, 'm', 0.5],
    [{ quantization_config: { bits: '8' } }, 'm', 1],
    [{ quantization_config: { quant_method: 'FP8' } }, 'm', 1],
    [
      {
        quantization_config: {
          quant_method: 'compressed-tensors',
          config_groups: { group_1: { weights: { num_bits: 8 } }, group_0: { weights: { num_bits: 4 } } },
        },
      },
      'm',
      0.5,
    ],
    [{}, 'org/Model-quantized.w4a16', 0.5],
    [{}, 'Model-FP8-dynamic', 1],
    [{}, 'Model-fp80', 2],
    [{ torch_dtype: 'float32' }, 'm', 2],
    [{ torch_dtype: undefined }, 'm', 2],
    [{}, 'Model-NVFP4', 4.5 / 8],
    [{}, 'Model-AWQ', 0.5],
  ])('takes the bytes of a weight from %j and the name %s', (over, name, bytes) => {
    expect(model(over, name).weightBytes).toBe(bytes);
  });

  it('is a mixture from two experts on, under any of five keys', () => {
    for (const key of [
      'num_experts',
      'moe_num_experts',
      'n_routed_experts',
      'num_local_experts',
      'num_routed_experts',
    ]) {
      expect(model({ [key]: 16, num_experts_per_tok: 2 }).experts).toBe(16);
    }
    expect(model({ num_local_experts: 1 }).experts).toBe(0);
    expect(model({ num_experts: 4, num_experts_per_tok: 1, n_shared_experts: 2 }).sharedExpertFfnSize).toBe(
      512,
    );
  });

  it('prefers the facts of text_config', () => {
    const nested = { text_config: { hidden_size: 128, num_key_value_heads: 2 } };
    expect(model(nested)).toMatchObject({ hiddenSize: 128, kvHeads: 2, layers: 4 });
  });

  it.each([
    [{ max_position_embeddings: 4096, rope_scaling: { type: 'linear', factor: 4 } }, 16384],
    [{ max_position_embeddings: 131072, rope_scaling: { rope_type: 'llama3', factor: 8 } }, 131072],
    [
      {
        max_position_embeddings: 40960,
        rope_scaling: { type: 'yarn', factor: 4, original_max_position_embeddings: 32768 },
      },
      131072,
    ],
    [{ max_position_embeddings: 4096, rope_scaling: { type: 'linear', factor: 1 } }, 4096],
    [
      {
        max_position_embeddings: 8192,
        model_type: 'gemma3_text',
        rope_scaling: { type: 'linear', factor: 8 },
      },
      8192,
    ],
    [{}, 0],
  ])('with %j holds contexts of %i tokens', (over, tokens) => {
    expect(model(over).maxModelTokens).toBe(tokens);
  });

  it.each([
    [{ num_attention_heads: undefined }, /^config\.json:1: num_attention_heads is missing or 0\. /],
    [{ hidden_size: 'wide' }, /^config\.json:3: hidden_size is wide\. /],
    [{ hidden_size: 63 }, /num_attention_heads is 8, which does not divide hidden_size 63/],
    [{ num_hidden_layers: -1 }, /num_hidden_layers is -1/],
    [{ torch_dtype: 'float7' }, /torch_dtype is "float7"\. Set it to one of: float32/],
    [{ num_experts: 8 }, /num_experts_per_tok is 0 for a model of 8 experts/],
    [{ num_experts: 8, num_experts_per_tok: 9 }, /num_experts_per_tok is 9/],
  ])('with %j is refused in one line', (over, message) => {
    expect(() => model(over)).toThrow(message);
  });

  it('is named without its organisation, in lower case', () => {
    expect(modelFileName('Qwen/Qwen3-14B')).toBe('qwen3-14b');
    expect(loadModel('codellama/CodeLlama-34b-Instruct-hf').layers).toBe(48);
    expect(loadModel('llama-2-70b').name).toBe('llama-2-70b-hf');
  });
});

describe('hardware', () => {
  it('has aliases', () => {
    expect(loadHardware('a100-80')).toEqual(loadHardware('A100-SXM'));
  });

  it('reads upstream’s file to the same figures', () => {
    const text = JSON.stringify({
      H100: {
        _comment: 'x',
        TFlopsPeak: 989.5,
        TFlopsFP8: 1979,
        BwPeakTBs: 3.35,
        mfuPrefill: 0.45,
        mfuDecode: 0.3,
        MemoryGiB: 80,
      },
    });
    expect(parseUpstreamHardware(text, 'hw.json')).toEqual([
      { ...h100, visibleGib: 0, interconnectGbPerS: 0 },
    ]);
  });

  it.each([
    ['{"name": "X"}', /hw\.json:1: peakTflops is missing/],
    ['{"name": "X", "peakTflops": -1}', /peakTflops is -1/],
    ['{"name": "X", "mfuDecode": 1.5}', /mfuDecode is 1\.5/],
    [
      '{"name": "X",\n "peakTflop": 3}',
      /hw\.json:2: peakTflop is not a key here\. Did you mean "peakTflops"/,
    ],
    ['{"name": ', /hw\.json:1: not valid YAML/],
    ['[1]', /hw\.json:1: holds no mapping/],
  ])('%s is refused in one line', (text, message) => {
    expect(() => parseHardware(text, 'hw.json')).toThrow(message);
  });

  it('that is unknown gets the nearest name', () => {
    expect(() => requireKnownName('GPU', 'H10O', ['H100', 'L40S'], 'Add it.')).toThrow(
      'unknown GPU "H10O". Did you mean H100? Known: H100, L40S. Add it.',
    );
    expect(() => loadModel('qwen3-41b')).toThrow(/unknown model "qwen3-41b"\. Did you mean qwen3-14b\?/);
  });

  it.each(['/models/mine', './mine', 'models/of/mine'])('that is the path %s is named whole', (asked) => {
    const file = path.join(asked, 'config.json');
    expect(() => loadModel(asked)).toThrow(
      `model is "${asked}", neither a name nor a .json file. ` +
        `Give the path of its config.json, such as ${file}.`,
    );
  });
});

describe('coefficients', () => {
  const text = (value: unknown): string => JSON.stringify(value);
  const linear = {
    schema: 'tierkv.latency/1',
    backend: 'linear',
    alpha: { alpha0: 1, alpha1: 2, alpha2: 3 },
    beta: { step: 5, prefillToken: 1 },
  };

  it('may leave out the last ones, but not one in between', () => {
    const read = parseCoefficients(text(linear), 'c.json') as Extract<Coefficients, { backend: 'linear' }>;
    expect(read.values).toEqual({ alpha: [1, 2, 3], beta: [5, 1] });
    const gap = { ...linear, beta: { step: 5, decode: 1 } };
    expect(() => parseCoefficients(text(gap), 'c.json')).toThrow(
      /decode follows a coefficient that is missing/,
    );
  });

  it.each([
    [{ ...linear, schema: 'tierkv.latency/2' }, /schema is "tierkv\.latency\/2"/],
    [{ ...linear, backend: 'liner' }, /backend is "liner"\. Did you mean "linear"/],
    [{ ...linear, alpha: { alpha0: -1 } }, /alpha\.alpha0 is -1/],
    [{ ...linear, betas: {} }, /betas is not a key here\. Did you mean "beta"/],
    [{ schema: 'tierkv.latency/1', backend: 'calibrated' }, /attention is missing/],
    [{ ...linear, backend: 'trained-physics' }, /beta\.step follows a coefficient that is missing/],
  ])('%j are refused in one line', (value, message) => {
    expect(() => parseCoefficients(text(value), 'c.json')).toThrow(message);
  });
});

describe('a link profile', () => {
  const profile = (links: unknown): string =>
    JSON.stringify({ schema: 'tierkv.links/1', device: 'x', links });

  it('gives base latency and bandwidth, or sizes to find them from', () => {
    const sizes = [1e4, 1e6].map((bytes) => ({ bytes, latencyUs: 5 + bytes / 1e4 }));
    const read = parseLinkCalibration(
      profile({ hbmToDdr: { baseLatencyUs: 7, bandwidthBytesPerS: 1e10 }, ddrToHbm: { sizes } }),
      'links.json',
    );
    expect(read.links.hbmToDdr).toEqual({ baseLatencyUs: 7, bandwidthBytesPerS: 1e10 });
    expect(read.links.ddrToHbm.baseLatencyUs).toBeCloseTo(5, 9);
    expect(read.links.ddrToHbm.bandwidthBytesPerS / 1e10).toBeCloseTo(1, 9);
    expect(read.software).toBe(false);
  });

  it.each([
    [{ hbmToDrr: {} }, /links\.hbmToDrr is not a key here\. Did you mean "hbmToDdr"/],
    [{ hbmToDdr: {} }, /links\.hbmToDdr\.bandwidthBytesPerS is missing/],
    [{ hbmToDdr: { bandwidthBytesPerS: 0 } }, /bandwidthBytesPerS is 0/],
    [{ hbmToDdr: { sizes: [{ bytes: 0, latencyUs: 1 }] } }, /sizes\[0\]\.bytes is 0/],
    [undefined, /links is missing/],
  ])('with links %j is refused in one line', (links, message) => {
    expect(() => parseLinkCalibration(profile(links), 'links.json')).toThrow(message);
  });
});
