/** The shape of a Llama-like decoder, read from `config.json` and checked: what is not supported is said. */

import fs from 'node:fs';
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
  /** A token attends over so many tokens up to itself; 0: over all. */
  readonly window: number;
  /** Tokens that end an answer. */
  readonly endTokens: readonly number[];
}

const architectures = ['LlamaForCausalLM', 'MistralForCausalLM'];

/** @throws TKV_IO or TKV_INPUT naming the field that is missing, malformed or not supported */
export function readModelConfig(path: string): ModelConfig {
  let text: string;
  try {
    text = fs.readFileSync(path, 'utf8');
  } catch {
    const remedy = 'Give --model a directory with config.json, tokenizer.json and model.safetensors.';
    throw checkpointError(path, 'cannot be read', remedy);
  }
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw checkpointError(path, 'is not JSON', 'Fetch the model again.');
  }
  return parseModelConfig(json, path);
}

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
  const rope = ropeOf(fields);
  const heads = fields.integer('num_attention_heads', 1, 1024);
  const kvHeads = fields.integer('num_key_value_heads', 1, 1024, heads);
  const hidden = fields.integer('hidden_size', 4, 65_536);
  const headDim = fields.integer('head_dim', 4, 512, hidden / heads);
  if (heads % kvHeads !== 0) {
    throw fields.error('num_key_value_heads', `is ${kvHeads} for ${heads} heads`, 'It has to divide them.');
  }
  const config: ModelConfig = {
    layers: fields.integer('num_hidden_layers', 1, 512),
    hidden,
    heads,
    kvHeads,
    headDim,
    ffn: fields.integer('intermediate_size', 4, 1_048_576),
    vocabulary: fields.integer('vocab_size', 1, 4_194_304),
    normEpsilon: fields.positive('rms_norm_eps', 1e-6),
    ropeBase: rope,
    contextTokens: fields.integer('max_position_embeddings', 2, 16_777_216, 2048),
    tied: fields.get('tie_word_embeddings') === true,
    window: architecture === 'MistralForCausalLM' ? fields.integer('sliding_window', 0, 16_777_216, 0) : 0,
    endTokens: endTokensOf(fields),
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

/** The base of the rotary embedding. Scaled variants would give other numbers, so they are refused. */
function ropeOf(fields: Fields): number {
  const parameters = fields.get('rope_parameters') ?? fields.get('rope_scaling');
  const inner = (parameters ?? {}) as Record<string, unknown>;
  const type = inner.rope_type ?? inner.type ?? 'default';
  if (type !== 'default') {
    throw fields.error(
      'rope_scaling',
      `is of type ${String(type)}`,
      'Only unscaled rotary embeddings are known.',
    );
  }
  const base = inner.rope_theta ?? fields.get('rope_theta') ?? 10_000;
  if (typeof base === 'number' && Number.isFinite(base) && base > 1) return base;
  throw fields.error('rope_theta', `is ${String(base)}`, 'Give a number above 1.');
}

function endTokensOf(fields: Fields): number[] {
  const value = fields.get('eos_token_id') ?? [];
  const list: unknown[] = Array.isArray(value) ? value : [value];
  if (list.every((id): id is number => Number.isSafeInteger(id) && (id as number) >= 0)) return list;
  throw fields.error('eos_token_id', `is ${JSON.stringify(value)}`, 'Give one token id or a list of them.');
}

class Fields {
  readonly #json: Readonly<Record<string, unknown>>;
  readonly #path: string;

  constructor(json: unknown, path: string) {
    if (typeof json !== 'object' || json === null || Array.isArray(json)) {
      throw checkpointError(path, 'is no JSON object', 'Fetch the model again.');
    }
    this.#json = json as Record<string, unknown>;
    this.#path = path;
  }

  /** undefined also for null. */
  get(name: string): unknown {
    return this.#json[name] ?? undefined;
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
    throw this.error(name, `is ${String(value)}`, `Only ${known} is supported.`);
  }

  error(name: string, problem: string, remedy: string): Error {
    return checkpointError(this.#path, `${name} ${problem}`, remedy, name);
  }
}
