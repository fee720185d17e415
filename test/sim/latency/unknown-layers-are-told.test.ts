/** A config.json whose keys about layers or attention are not known is refused with the key's name, unless its user vouches for it. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel, modelNames } from '../../../src/sim/build/dataFiles.ts';
import { simulate } from '../../../src/sim/build/simulate.ts';
import { kvBytesPerToken } from '../../../src/sim/latency/capacity.ts';
import { parseModelConfig } from '../../../src/sim/latency/modelConfig.ts';
import { type DeploymentChoice, deploymentFile, modelOfTime } from '../../../src/studies/plan/choice.ts';
import { checkQuestion } from '../../../src/studies/plan/question.ts';

const plain = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  torch_dtype: 'bfloat16',
  hidden_size: 4096,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  head_dim: 128,
  num_hidden_layers: 24,
  intermediate_size: 8192,
  vocab_size: 32_000,
  max_position_embeddings: 131_072,
};
const textOf = (more: object): string => JSON.stringify({ ...plain, ...more }, null, 1);
const parsed = (more: object, assume = false) => parseModelConfig(textOf(more), 'config.json', 'm', assume);

/** What published families say of their layers. */
const unknown: readonly (readonly [key: string, more: object])[] = [
  ['hybrid_override_pattern', { hybrid_override_pattern: 'MEM*MEMEM*' }],
  ['hybrid_override_pattern', { hybrid_override_pattern: 'MEX*'.repeat(6) }],
  ['compress_ratios', { compress_ratios: [0, 4, 128], sliding_window: 128 }],
  ['layers_block_type', { layers_block_type: ['mamba', 'hybrid'] }],
  ['block_types', { block_types: ['recurrent', 'recurrent', 'attention'] }],
  ['block_configs', { block_configs: [{ attention: { n_heads_in_group: 8 } }] }],
  ['attn_layer_indices', { attn_layer_indices: [9, 24] }],
  ['full_attn_idxs', { full_attn_idxs: [2, -5] }],
  ['attn_type_list', { attn_type_list: [0, 0, 1] }],
  ['attn_type_list', { attn_type_list: Array.from({ length: 24 }, () => 2) }],
  ['linear_attn_config', { linear_attn_config: { kda_layers: [1, 2, 3] } }],
  ['index_topk', { kv_lora_rank: 512, qk_rope_head_dim: 64, index_topk: 2048 }],
  ['num_kv_shared_layers', { num_kv_shared_layers: 15 }],
  ['num_kv_shared_layers', { num_kv_shared_layers: 24, layer_types: ['full_attention'] }],
  ['cla_share_factor', { cla_share_factor: 2 }],
  ['layer_switch', { sliding_window: 4096, layer_switch: 4 }],
  ['swa_num_key_value_heads', { swa_num_key_value_heads: 8 }],
  ['global_head_dim', { global_head_dim: 512 }],
  ['mamba_d_ssm', { mamba_d_ssm: 1 }],
  ['index_kpool', { index_kpool: 4 }],
  ['sparse_attention_config', { sparse_attention_config: { use_sparse_attention: true } }],
  ['layer_types', { layer_types: ['conv1', 'full_attention'] }],
  ['layer_types', { layer_types: ['full_attention', 'compressed_sparse_attention'] }],
];

describe('a key that is not known', () => {
  it.each(unknown)('%s of %j', (key, more) => {
    for (const each of [more, { text_config: { ...plain, ...more } }]) {
      const field = 'text_config' in each ? `text_config.${key}` : key;
      expect(() => parsed(each)).toThrow(expect.objectContaining({ code: 'TKV_INPUT', field }));
      expect(() => parsed(each)).toThrow(/assume_plain_attention/);
    }
    const bytes = kvBytesPerToken(
      parsed('kv_lora_rank' in more ? { kv_lora_rank: 512, qk_rope_head_dim: 64 } : {}),
      1,
    );
    expect(kvBytesPerToken(parsed(more, true), 1)).toBe(bytes);
    expect(kvBytesPerToken(parsed({ ...more, assume_plain_attention: true }), 1)).toBe(bytes);
  });

  it('that says nothing, or is about something else, changes nothing', () => {
    const silent = {
      hybrid_override_pattern: null,
      block_types: [],
      swa_head_dim: 0,
      layers_block_type: [],
      multi_query: false,
      mamba_x: '',
    };
    const other = {
      attention_bias: false,
      layer_norm_eps: 1e-5,
      use_cache: true,
      rope_theta: 1e4,
      decoder_sparse_step: 1,
    };
    expect(parsed({ ...silent, ...other })).toEqual(parsed({}));
  });

  it('is in no model that ships', () => {
    for (const name of modelNames()) expect(loadModel(name).layers).toBeGreaterThan(0);
  });
});

describe('a simulation', () => {
  let folder: string;
  beforeAll(() => {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-layers-'));
    fs.writeFileSync(path.join(folder, 'config.json'), textOf({ compress_ratios: [0, 4] }));
    fs.writeFileSync(path.join(folder, 'plain.json'), textOf({}));
  });
  afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

  it('refuses it, and takes it where it is told to', async () => {
    const run = { workload: { preset: 'chatbot', requests: 20 }, hardware: 'H100' } as const;
    const model = path.join(folder, 'config.json');
    await expect(async () => simulate({ ...run, model })).rejects.toMatchObject({ field: 'compress_ratios' });
    const vouched = await simulate({ ...run, model, engine: { assumePlainAttention: true } });
    const known = await simulate({ ...run, model: path.join(folder, 'plain.json') });
    expect(vouched.metrics).toEqual(known.metrics);
  });

  it('takes it from a deployment file that says so, too', async () => {
    const file = (assume: string): string => {
      const model = `{ name: m, config: ${path.join(folder, 'config.json')}, hardware: H100${assume} }`;
      const text = `version: 1\nmodels: [${model}]\npools: [{ name: p, replicas: 1 }]\nworkload: { preset: chatbot, rate: 4, num_requests: 20 }\n`;
      const place = path.join(folder, 'deployment.yaml');
      fs.writeFileSync(place, text);
      return place;
    };
    await expect(async () => simulate({ file: file('') })).rejects.toMatchObject({
      field: 'compress_ratios',
    });
    const { metrics } = await simulate({ file: file(', assume_plain_attention: true') });
    expect(metrics.completed_requests).toBe(20);
  });

  it('and a plan asks the same question: by name, and only where there is need', () => {
    const model = path.join(folder, 'config.json');
    const question = { model, workload: { preset: 'chatbot', rate: 1 }, targets: { ttft_p99: 500 } };
    expect(() => checkQuestion(question)).toThrow(expect.objectContaining({ field: 'compress_ratios' }));
    const checked = checkQuestion({ ...question, assumePlainAttention: true });
    expect(checked.assumePlainAttention).toBe(true);
    const needless = { ...question, model: path.join(folder, 'plain.json'), assumePlainAttention: true };
    expect(() => checkQuestion(needless)).toThrow(expect.objectContaining({ field: 'assumePlainAttention' }));
    const choice = {
      ...{ gpu: 'H100', tensorParallel: 1, instances: 1, prefillInstances: 0, routing: 'round robin' },
      ...{ batchedTokens: 2048, sequences: 256, eviction: 'lru', ddrGib: 0, nvmeGib: 0 },
    } as unknown as DeploymentChoice;
    const setting = { seed: 1, requests: 100 };
    expect(deploymentFile(choice, checked, setting, modelOfTime('roofline', 'H100'))).toContain(
      'assume_plain_attention: true',
    );
  });
});

describe('a name of a model', () => {
  it.each([
    ['Qwen/Qwen3-30B-A3B-Instruct-2507', 'qwen3-30b-a3b'],
    ['qwen3-235b-a22b-thinking-2507', 'qwen3-235b-a22b'],
    ['microsoft/phi-4-mini-instruct', 'phi-4'],
    ['zai-org/GLM-4.5-Air-FP8', 'glm-4.5-air'],
  ])('%s is a release of %s, and what it has is not guessed', (name, known) => {
    expect(() => loadModel(name)).toThrow(
      expect.objectContaining({
        code: 'TKV_CONFIG',
        message: expect.stringContaining(`${known} is known, and whether`),
      }),
    );
  });

  it.each([
    'glm-4.5',
    'gemma-3',
    'llama-4-scout-17b-16e-instruct',
    'llama-4',
    'mistral-small',
    'deepseek',
    'kimi',
  ])('%s names a family or another precision, and not the one model that begins so', (name) => {
    expect(() => loadModel(name)).toThrow(expect.objectContaining({ code: 'TKV_CONFIG', field: 'model' }));
  });

  it.each([
    ['llama-3.1-8b', 'llama-3.1-8b-instruct'],
    ['meta-llama/Llama-2-7b', 'llama-2-7b-hf'],
    ['mistral-nemo', 'mistral-nemo-instruct-2407'],
    ['mixtral-8x7b', 'mixtral-8x7b-v0.1'],
    ['qwen3-30b', 'qwen3-30b-a3b'],
  ])('%s may be cut short by what changes no layer', (name, whole) => {
    expect(loadModel(name).name).toBe(whole);
  });
});
