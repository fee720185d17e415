/** The shape of a Llama-like decoder, read from `config.json` and checked: what is not supported is said. */

import fs from 'node:fs';
import nodePath from 'node:path';
import { jsonBounds, readJsonObject } from './jsonFiles.ts';
import { checkpointError } from './tensorSource.ts';

export interface ModelConfig {
  readonly layers: number;
  readonly hidden: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly ffn: number;
  readonly vocabulary: number;
  readonly normEpsilon: number;
  readonly ropeBase: number;
  /** Prompt and answer together, in tokens. */
  readonly contextTokens: number;
  /** The head's weights are the embedding's. */
  readonly tied: boolean;
  /** A token attends over this number of tokens up to itself; 0: over all. */
  readonly window: number;
  /** Tokens that end an answer. */
  readonly endTokens: readonly number[];
}

const architectures = ['LlamaForCausalLM', 'MistralForCausalLM'];

/** @throws TKV_IO or TKV_INPUT naming the field that is missing, malformed or not supported */
export function readModelConfig(path: string): ModelConfig {
  const remedy = 'Give --model a directory with config.json, tokenizer.json and model.safetensors.';
  const config = parseModelConfig(readJsonObject(path, jsonBounds.config, remedy), path);
  const generation = nodePath.join(nodePath.dirname(path), 'generation_config.json');
  if (!fs.existsSync(generation)) return config;
  const fields = new Fields(readJsonObject(generation, jsonBounds.config, remedy), generation);
  for (const name of constraints) fields.requireAbsent(name, [null]);
  if (!fields.has('eos_token_id')) return config;
  return { ...config, endTokens: endTokensOf(fields, config.vocabulary) };
}

/**
 * Fields of `generation_config.json` that forbid or force tokens. Its end tokens go before the end tokens of
 * `config.json`, as in transformers; how to sample is what a request says.
 */
const constraints = [
  'bad_words_ids',
  'begin_suppress_tokens',
  'forced_bos_token_id',
  'forced_decoder_ids',
  'forced_eos_token_id',
  'sequence_bias',
  'suppress_tokens',
];

export function parseModelConfig(json: unknown, path: string): ModelConfig {
  const fields = new Fields(json, path);
  const named = fields.get('architectures');
  const [architecture] = Array.isArray(named) ? named : [];
  if (!architectures.includes(architecture)) {
    const known = architectures.join(' and ');
    throw fields.error('architectures', `is ${JSON.stringify(named) ?? 'missing'}`, `Known are ${known}.`);
  }
  fields.requireAbsent('attention_bias', [false, null]);
  fields.requireAbsent('mlp_bias', [false, null]);
  fields.requireAbsent('hidden_act', ['silu', 'swish']);
  fields.requireAbsent('quantization_config', [null]);
  fields.requireAbsent('partial_rotary_factor', [1, null]);
  fields.requireAbsent('layer_types', [null]);
  const isMistral = architecture === 'MistralForCausalLM';
  const rope = ropeOf(fields);
  const heads = fields.integer('num_attention_heads', 1, 1024);
  const kvHeads = fields.integer(
    'num_key_value_heads',
    1,
    1024,
    isMistral && !fields.has('num_key_value_heads') ? 8 : heads,
  );
  const hidden = fields.integer('hidden_size', 4, 65_536);
  const headDim = fields.integer('head_dim', 4, 512, hidden / heads);
  if (heads % kvHeads !== 0) {
    throw fields.error('num_key_value_heads', `is ${kvHeads} for ${heads} heads`, 'It has to divide them.');
  }
  const vocabulary = fields.integer('vocab_size', 1, 4_194_304);
  const config: ModelConfig = {
    layers: fields.integer('num_hidden_layers', 1, 512),
    hidden,
    heads,
    kvHeads,
    headDim,
    ffn: fields.integer('intermediate_size', 4, 1_048_576),
    vocabulary,
    normEpsilon: fields.positive('rms_norm_eps', 1e-6),
    ropeBase: rope,
    contextTokens: fields.integer('max_position_embeddings', 2, 16_777_216, isMistral ? 131_072 : 2048),
    tied: fields.boolean('tie_word_embeddings'),
    window: isMistral ? windowOf(fields) : 0,
    endTokens: endTokensOf(fields, vocabulary),
  };
  for (const [name, size] of [
    ['hidden_size', hidden],
    ['head_dim', headDim],
    ['intermediate_size', config.ffn],
  ] as const) {
    if (size % 4 !== 0) throw fields.error(name, `is ${size}`, 'The kernels want a multiple of 4.');
  }
  return config;
}

/** Null: without a window. Absent: the default of transformers. */
function windowOf(fields: Fields): number {
  return fields.integer('sliding_window', 0, 16_777_216, fields.has('sliding_window') ? 0 : 4096);
}

const layerTypes = ['full_attention', 'sliding_attention'];

/**
 * The base of the rotary embedding: of `rope_parameters`, for all layers or for each type of layer, as newer
 * versions of transformers write it, or of `rope_theta`. Scaled variants would give other numbers, so they are
 * refused.
 */
function ropeOf(fields: Fields): number {
  const bases = ['rope_parameters', 'rope_scaling'].flatMap((name) => {
    const value = fields.get(name);
    if (value === undefined) return [];
    if (typeof value !== 'object' || Array.isArray(value)) {
      throw fields.error(name, `is ${JSON.stringify(value)}`, 'It must be an object.');
    }
    const entries = Object.entries(value as object);
    const isNested =
      entries.length > 0 && entries.every(([, each]) => typeof each === 'object' && each !== null);
    if (!isNested) return [unscaledBase(fields, name, value as Record<string, unknown>)];
    return entries.map(([type, each]) => {
      if (layerTypes.includes(type)) return unscaledBase(fields, `${name}.${type}`, each);
      const known = layerTypes.join(' and ');
      throw fields.error(`${name}.${type}`, 'is for an unknown type of layer', `Known are ${known}.`);
    });
  });
  const outer = baseOf(fields, 'rope_theta', fields.get('rope_theta'));
  const said = [...bases, outer].filter((base) => base !== undefined);
  if (said.some((base) => base !== said[0])) {
    throw fields.error('rope_theta', `is said as ${said.join(' and as ')}`, 'Only one base is supported.');
  }
  if (said.length > 0) return said[0];
  if (fields.get('rope_parameters') === undefined) return 10_000; // as transformers, where nothing says another
  throw fields.error('rope_parameters', 'has no rope_theta', 'Give the base of the rotary embedding.');
}

function unscaledBase(fields: Fields, name: string, rope: Record<string, unknown>): number | undefined {
  const type = rope.rope_type ?? rope.type ?? 'default';
  const remedy = 'Only unscaled rotary embeddings are known.';
  if (type !== 'default') throw fields.error(name, `is of type ${String(type)}`, remedy);
  for (const [key, value] of Object.entries(rope)) {
    if (['rope_type', 'type', 'rope_theta'].includes(key) || value === null) continue;
    if (['factor', 'partial_rotary_factor', 'attention_factor'].includes(key) && value === 1) continue;
    throw fields.error(`${name}.${key}`, `is ${JSON.stringify(value)}`, remedy);
  }
  return baseOf(fields, `${name}.rope_theta`, rope.rope_theta);
}

function baseOf(fields: Fields, name: string, base: unknown): number | undefined {
  if (base === undefined || base === null) return undefined;
  if (typeof base === 'number' && Number.isFinite(base) && base > 1) return base;
  throw fields.error(name, `is ${String(base)}`, 'Give a number above 1.');
}

/** Absent: token 2, the default of transformers for these models. Null: without one. */
function endTokensOf(fields: Fields, vocabulary: number): number[] {
  const value = fields.has('eos_token_id') ? (fields.get('eos_token_id') ?? []) : 2;
  const list: unknown[] = Array.isArray(value) ? value : [value];
  const isToken = (id: unknown): id is number => Number.isSafeInteger(id) && (id as number) >= 0;
  if (!list.every(isToken)) {
    throw fields.error('eos_token_id', `is ${JSON.stringify(value)}`, 'Give one token id or a list of them.');
  }
  if (!fields.has('eos_token_id')) return list.filter((id) => id < vocabulary);
  const beyond = list.find((id) => id >= vocabulary);
  if (beyond === undefined) return list;
  throw fields.error(
    'eos_token_id',
    `is ${beyond}, and the model has ${vocabulary} tokens`,
    'Give one of them.',
  );
}

class Fields {
  readonly #json: Readonly<Record<string, unknown>>;
  readonly #path: string;

  constructor(json: unknown, path: string) {
    if (typeof json !== 'object' || json === null || Array.isArray(json)) {
      throw checkpointError(path, 'is not a JSON object', 'Fetch the model again.');
    }
    this.#json = json as Record<string, unknown>;
    this.#path = path;
  }

  /** undefined also for null. */
  get(name: string): unknown {
    return this.#json[name] ?? undefined;
  }

  /** Whether the file has the field, also as null. */
  has(name: string): boolean {
    return this.#json[name] !== undefined;
  }

  /** False where it is absent. */
  boolean(name: string): boolean {
    const value = this.get(name) ?? false;
    if (typeof value === 'boolean') return value;
    throw this.error(name, `is ${JSON.stringify(value)}`, 'Give true or false.');
  }

  integer(name: string, min: number, max: number, otherwise?: number): number {
    const value = this.get(name) ?? otherwise;
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max)
      return value;
    throw this.error(name, `is ${value === undefined ? 'missing' : String(value)}`, `Give ${min} to ${max}.`);
  }

  positive(name: string, otherwise: number): number {
    const value = this.get(name) ?? otherwise;
    if (typeof value === 'number' && Number.isFinite(value) && value > 0) return value;
    throw this.error(name, `is ${String(value)}`, 'Give a number above 0.');
  }

  /** What would need arithmetic that the engine has not. */
  requireAbsent(name: string, allowed: readonly unknown[]): void {
    const value = this.#json[name];
    if (value === undefined || allowed.includes(value)) return;
    const known = allowed.filter((each) => each !== null).join(' or ');
    const shown = typeof value === 'object' ? (JSON.stringify(value) ?? '').slice(0, 80) : String(value);
    const remedy = known === '' ? 'Only models without it are supported.' : `Only ${known} is supported.`;
    throw this.error(name, `is ${shown}`, remedy);
  }

  error(name: string, problem: string, remedy: string): Error {
    return checkpointError(this.#path, `${name} ${problem}`, remedy, name);
  }
}
