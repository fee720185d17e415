/**
 * What the metadata of a GGUF file says about the model, checked for type and against `config.json`: Q and K are
 * put in order by the head counts, so a file of another model would give wrong rows without a word. What is
 * absent has the meaning that llama.cpp gives it.
 */

import type { GgufFile } from './gguf.ts';
import { integerTypes } from './ggufReader.ts';
import type { ModelConfig } from './modelConfig.ts';
import { checkpointError } from './tensorSource.ts';

const architecture = 'llama';

/** Query heads and KV heads. @throws TKV_INPUT where the file does not say them as positive whole numbers */
export function headCounts(file: GgufFile): { readonly heads: number; readonly kvHeads: number } {
  requireArchitecture(file);
  const heads = integerOf(file, 'attention.head_count');
  if (heads === undefined) {
    throw wrong(
      file,
      `${architecture}.attention.head_count`,
      'is missing',
      'Give a file with its head counts.',
    );
  }
  return { heads, kvHeads: integerOf(file, 'attention.head_count_kv') ?? heads };
}

/** @throws TKV_INPUT naming the metadata that contradicts `config`, or asks for what is not supported */
export function requireSameModel(file: GgufFile, config: ModelConfig): void {
  const { heads, kvHeads } = headCounts(file);
  const same = (name: string, value: number | undefined, expected: number, field: string): void => {
    if (value === undefined || value === expected) return;
    const problem = `is ${value}, but ${field} of config.json is ${expected}`;
    throw wrong(file, `${architecture}.${name}`, problem, 'Give the config.json of this file.');
  };
  same('attention.head_count', heads, config.heads, 'num_attention_heads');
  same('attention.head_count_kv', kvHeads, config.kvHeads, 'num_key_value_heads');
  for (const [name, expected, field] of [
    ['embedding_length', config.hidden, 'hidden_size'],
    ['block_count', config.layers, 'num_hidden_layers'],
    ['feed_forward_length', config.ffn, 'intermediate_size'],
    ['context_length', config.contextTokens, 'max_position_embeddings'],
    ['vocab_size', config.vocabulary, 'vocab_size'],
    ['rope.dimension_count', config.headDim, 'head_dim'],
    ['attention.sliding_window', config.window, 'sliding_window'],
  ] as const) {
    same(name, integerOf(file, name), expected, field);
  }
  const headDim = config.hidden / heads;
  same(
    'attention.key_length',
    integerOf(file, 'attention.key_length') ?? headDim,
    config.headDim,
    'head_dim',
  );
  same(
    'attention.value_length',
    integerOf(file, 'attention.value_length') ?? headDim,
    config.headDim,
    'head_dim',
  );
  const base = numberOf(file, 'rope.freq_base') ?? 10_000;
  same('rope.freq_base', base, nearest(file, 'rope.freq_base', config.ropeBase), 'rope_theta');
  const epsilon = 'attention.layer_norm_rms_epsilon';
  same(epsilon, numberOf(file, epsilon), nearest(file, epsilon, config.normEpsilon), 'rms_norm_eps');
  requireUnscaled(file);
  requireKnown(file);
}

function requireArchitecture(file: GgufFile): void {
  const named = file.metadata.get('general.architecture');
  if (named !== architecture) {
    const problem = named === undefined ? 'is missing' : `is ${JSON.stringify(named)}`;
    throw wrong(file, 'general.architecture', problem, `Give a ${architecture} model.`);
  }
  const kind = file.metadata.get('general.type') ?? 'model';
  if (kind !== 'model') throw wrong(file, 'general.type', `is ${JSON.stringify(kind)}`, 'Give a model.');
  const parts = file.metadata.get('split.count') ?? 0;
  if (typeof parts !== 'number' || parts > 1) {
    throw wrong(file, 'split.count', `is ${String(parts)}`, 'Merge the parts into one file.');
  }
}

function requireUnscaled(file: GgufFile): void {
  const remedy = 'Only unscaled rotary embeddings are known.';
  const kind = file.metadata.get(`${architecture}.rope.scaling.type`) ?? 'none';
  if (kind !== 'none') {
    throw wrong(file, `${architecture}.rope.scaling.type`, `is ${JSON.stringify(kind)}`, remedy);
  }
  for (const name of ['rope.scaling.factor', 'rope.scale_linear']) {
    const factor = numberOf(file, name) ?? 1;
    if (factor !== 1) throw wrong(file, `${architecture}.${name}`, `is ${factor}`, remedy);
  }
  for (const name of file.names) {
    const isScale = /^rope_(freqs|factors_long|factors_short)\.weight$/.test(name);
    if (isScale) throw wrong(file, name, 'scales the rotary embedding', remedy);
    if (/^(blk\.\d+\.\w+|output|output_norm|token_embd)\.bias$/.test(name)) {
      throw wrong(file, name, 'is a bias', 'Only models without biases are known.');
    }
  }
}

const known = new Set([
  'vocab_size',
  'context_length',
  'embedding_length',
  'block_count',
  'feed_forward_length',
  'attention.head_count',
  'attention.head_count_kv',
  'attention.key_length',
  'attention.value_length',
  'attention.layer_norm_rms_epsilon',
  'attention.sliding_window',
  'rope.dimension_count',
  'rope.freq_base',
  'rope.scaling.type',
  'rope.scaling.factor',
  'rope.scaling.finetuned',
  'rope.scale_linear',
]);

/** Keys that say nothing about the arithmetic. */
const others = /^(general|tokenizer|quantize|split|imatrix)\./;

function requireKnown(file: GgufFile): void {
  for (const name of file.metadata.keys()) {
    if (others.test(name)) continue;
    if (name.startsWith(`${architecture}.`) && known.has(name.slice(architecture.length + 1))) continue;
    const value = file.metadata.get(name);
    if (value === 0 || value === false) continue; // such as expert_count 0: switched off
    const remedy = `Give a ${architecture} model, with keys of that name.`;
    throw wrong(file, name, 'is not known, and may change what the model computes', remedy);
  }
}

function numberOf(file: GgufFile, name: string): number | undefined {
  const key = `${architecture}.${name}`;
  const value = file.metadata.get(key);
  if (value === undefined) return undefined;
  if (typeof value === 'number' && Number.isFinite(value) && value > 0) return value;
  throw wrong(file, key, `is ${shown(value)}`, 'It must be a number above 0.');
}

/** A positive whole number, also where each layer has its own and all are equal. */
function integerOf(file: GgufFile, name: string): number | undefined {
  const key = `${architecture}.${name}`;
  const value = file.metadata.get(key);
  if (value === undefined) return undefined;
  const one = Array.isArray(value) && value.every((each) => each === value[0]) ? value[0] : value;
  const isInteger = Array.isArray(value) || integerTypes.includes(file.types.get(key) ?? -1);
  if (isInteger && Number.isSafeInteger(one) && (one as number) > 0) return one as number;
  throw wrong(file, key, `is ${shown(value)}`, 'It must be one whole number from 1.');
}

/** `value` as the file would hold it. */
function nearest(file: GgufFile, name: string, value: number): number {
  return file.types.get(`${architecture}.${name}`) === 6 ? Math.fround(value) : value;
}

function shown(value: unknown): string {
  return (JSON.stringify(value) ?? String(value)).slice(0, 80);
}

function wrong(file: GgufFile, name: string, problem: string, remedy: string): Error {
  return checkpointError(file.path, `${name} ${problem}`, remedy, name);
}
