/**
 * A GGUF of a Llama-shaped model with a byte-level BPE tokenizer as the files of a checkpoint: config.json,
 * tokenizer.json, tokenizer_config.json, and model.safetensors with f32, which keeps every quantised value.
 */

import fs from 'node:fs';
import nodePath from 'node:path';
import {
  checkpointError,
  type GgufFile,
  parseModelConfig,
  requireSameModel,
} from '../engine/checkpoint/index.ts';

/** Type of a token that stands for no text. */
const CONTROL = 3;

/** @throws TKV_INPUT for a model or tokenizer of another kind */
export function convertGguf(source: GgufFile, directory: string): void {
  const write = (name: string, json: object): void =>
    fs.writeFileSync(nodePath.join(directory, name), `${JSON.stringify(json, null, 1)}\n`);
  const config = configOf(source);
  // What config.json cannot say, such as scaled rotary embeddings, would be lost by the conversion.
  requireSameModel(source, parseModelConfig(JSON.parse(JSON.stringify(config)), source.path));
  write('config.json', config);
  write('tokenizer.json', tokenizerOf(source));
  write('tokenizer_config.json', {
    tokenizer_class: 'GPT2Tokenizer',
    clean_up_tokenization_spaces: false,
    bos_token: tokenAt(source, 'tokenizer.ggml.bos_token_id'),
    eos_token: tokenAt(source, 'tokenizer.ggml.eos_token_id'),
    chat_template: source.metadata.get('tokenizer.chat_template'),
  });
  writeSafetensors(source, nodePath.join(directory, 'model.safetensors'));
}

function configOf(source: GgufFile): object {
  const { metadata } = source;
  const architecture = metadata.get('general.architecture');
  if (architecture !== 'llama') {
    throw checkpointError(
      source.path,
      `is a model of the kind ${String(architecture)}`,
      'Give a llama model.',
    );
  }
  const vocabulary = source.shape('model.embed_tokens.weight')?.[0];
  return {
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    hidden_act: 'silu',
    hidden_size: metadata.get('llama.embedding_length'),
    intermediate_size: metadata.get('llama.feed_forward_length'),
    num_hidden_layers: metadata.get('llama.block_count'),
    num_attention_heads: metadata.get('llama.attention.head_count'),
    num_key_value_heads: metadata.get('llama.attention.head_count_kv'),
    max_position_embeddings: metadata.get('llama.context_length'),
    rms_norm_eps: metadata.get('llama.attention.layer_norm_rms_epsilon'),
    rope_theta: metadata.get('llama.rope.freq_base'),
    tie_word_embeddings: source.shape('lm_head.weight') === undefined,
    vocab_size: vocabulary,
    eos_token_id: metadata.get('tokenizer.ggml.eos_token_id'),
    torch_dtype: 'float32',
  };
}

function tokenizerOf(source: GgufFile): object {
  const { metadata } = source;
  const tokens = listOf(source, 'tokenizer.ggml.tokens');
  const types = listOf(source, 'tokenizer.ggml.token_type');
  if (metadata.get('tokenizer.ggml.model') !== 'gpt2') {
    throw checkpointError(source.path, 'has no byte-level BPE tokenizer', 'Give a model that has one.');
  }
  const added = tokens.flatMap((content, id) => {
    if (types[id] !== CONTROL) return [];
    return [
      { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true },
    ];
  });
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  const splitsDigits = metadata.get('tokenizer.ggml.pre') === 'smollm';
  const digits = { type: 'Digits', individual_digits: true };
  return {
    version: '1.0',
    added_tokens: added,
    normalizer: null,
    pre_tokenizer: splitsDigits ? { type: 'Sequence', pretokenizers: [digits, byteLevel] } : byteLevel,
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      fuse_unk: false,
      byte_fallback: false,
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: listOf(source, 'tokenizer.ggml.merges'),
    },
  };
}

function listOf({ metadata, path }: GgufFile, name: string): readonly (string | number)[] {
  const list = metadata.get(name);
  if (Array.isArray(list)) return list as (string | number)[];
  throw checkpointError(path, `has no ${name}`, 'Give a model with its tokenizer.', name);
}

function tokenAt(source: GgufFile, name: string): string | number | undefined {
  const id = source.metadata.get(name);
  return typeof id === 'number' ? listOf(source, 'tokenizer.ggml.tokens')[id] : undefined;
}

function writeSafetensors(source: GgufFile, path: string): void {
  const header: Record<string, object> = {};
  let at = 0;
  for (const name of source.names) {
    const shape = source.shape(name) ?? [];
    const bytes = 4 * shape.reduce((product, size) => product * size, 1);
    header[name] = { dtype: 'F32', shape, data_offsets: [at, at + bytes] };
    at += bytes;
  }
  const text = JSON.stringify(header);
  const head = Buffer.from(text.padEnd(Math.ceil(text.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(head.length));
  const file = fs.openSync(path, 'w');
  try {
    // not by writeSync, whose call may be cut short
    for (const part of [length, head]) fs.writeFileSync(file, part);
    for (const name of source.names) {
      const values = source.read(name);
      fs.writeFileSync(file, new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    }
  } finally {
    fs.closeSync(file);
  }
}
