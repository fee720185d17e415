/**
 * Makes a Llama decoder of random weights as a GGUF file, which llama.cpp reads: `node examples/tinyDecoder/gguf.ts FILE`.
 * It has the tokenizer of the example server's tiny model. The same seed gives the same bytes.
 */

import fs from 'node:fs';
import { fileURLToPath } from 'node:url';

const shape = { layers: 2, hidden: 64, heads: 4, kvHeads: 2, ffn: 128, contextTokens: 2048 };
/** Bytes at which each tensor begins. */
const ALIGNMENT = 32;
/** How GGUF numbers the types of its values. */
const types = { u32: 4, i32: 5, f32: 6, text: 8, list: 9 } as const;

type Value = { readonly u32: number } | { readonly f32: number } | { readonly text: string } | ListValue;
type ListValue = { readonly texts: readonly string[] } | { readonly i32s: readonly number[] };

class GgufBytes {
  readonly #parts: Buffer[] = [];
  length = 0;

  add(bytes: Buffer): this {
    this.#parts.push(bytes);
    this.length += bytes.length;
    return this;
  }

  u32(value: number): this {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value);
    return this.add(bytes);
  }

  u64(value: number): this {
    return this.u32(value >>> 0).u32(Math.floor(value / 2 ** 32));
  }

  f32(value: number): this {
    const bytes = Buffer.alloc(4);
    bytes.writeFloatLE(value);
    return this.add(bytes);
  }

  text(value: string): this {
    const bytes = Buffer.from(value);
    return this.u64(bytes.length).add(bytes);
  }

  value(value: Value): this {
    if ('u32' in value) return this.u32(types.u32).u32(value.u32);
    if ('f32' in value) return this.u32(types.f32).f32(value.f32);
    if ('text' in value) return this.u32(types.text).text(value.text);
    this.u32(types.list);
    if ('texts' in value) {
      this.u32(types.text).u64(value.texts.length);
      for (const each of value.texts) this.text(each);
      return this;
    }
    this.u32(types.i32).u64(value.i32s.length);
    for (const each of value.i32s) this.u32(each);
    return this;
  }

  pad(): this {
    return this.add(Buffer.alloc((ALIGNMENT - (this.length % ALIGNMENT)) % ALIGNMENT));
  }

  whole(): Buffer {
    return Buffer.concat(this.#parts);
  }
}

interface TokenizerFile {
  readonly model: {
    readonly vocab: Readonly<Record<string, number>>;
    readonly merges: readonly (string | readonly [string, string])[];
  };
  readonly added_tokens: readonly { readonly id: number; readonly content: string }[];
}

const chatTemplate = (
  JSON.parse(
    fs.readFileSync(new URL('../server/tinyModel/files/tokenizer_config.json', import.meta.url), 'utf8'),
  ) as {
    readonly chat_template: string;
  }
).chat_template;
const tokenizerFile = fileURLToPath(new URL('../server/tinyModel/files/tokenizer.json', import.meta.url));

function vocabulary(): { tokens: string[]; kinds: number[]; merges: string[] } {
  const { model, added_tokens } = JSON.parse(fs.readFileSync(tokenizerFile, 'utf8')) as TokenizerFile;
  const tokens: string[] = [];
  for (const [text, id] of Object.entries(model.vocab)) tokens[id] = text;
  for (const { id, content } of added_tokens) tokens[id] = content;
  // 3: a token that stands for no text, 1: any other
  const kinds = tokens.map((_, id) => (added_tokens.some((added) => added.id === id) ? 3 : 1));
  const merges = model.merges.map((merge) => (typeof merge === 'string' ? merge : merge.join(' ')));
  return { tokens, kinds, merges };
}

/** @param seed of the weights */
export function makeGguf(file: string, seed = 1): void {
  const { layers, hidden, heads, kvHeads, ffn, contextTokens } = shape;
  const { tokens, kinds, merges } = vocabulary();
  const values: Readonly<Record<string, Value>> = {
    'general.architecture': { text: 'llama' },
    'general.name': { text: 'tiny decoder of random weights' },
    'general.alignment': { u32: ALIGNMENT },
    'llama.context_length': { u32: contextTokens },
    'llama.embedding_length': { u32: hidden },
    'llama.block_count': { u32: layers },
    'llama.feed_forward_length': { u32: ffn },
    'llama.attention.head_count': { u32: heads },
    'llama.attention.head_count_kv': { u32: kvHeads },
    'llama.attention.layer_norm_rms_epsilon': { f32: 1e-5 },
    'llama.rope.dimension_count': { u32: hidden / heads },
    'llama.vocab_size': { u32: tokens.length },
    'tokenizer.ggml.model': { text: 'gpt2' },
    'tokenizer.ggml.pre': { text: 'gpt-2' },
    'tokenizer.ggml.tokens': { texts: tokens },
    'tokenizer.ggml.token_type': { i32s: kinds },
    'tokenizer.ggml.merges': { texts: merges },
    'tokenizer.ggml.bos_token_id': { u32: 0 },
    'tokenizer.ggml.eos_token_id': { u32: 2 },
    'tokenizer.chat_template': { text: chatTemplate },
  };
  const kvWidth = (hidden / heads) * kvHeads;
  // dims as GGUF has them: the one that lies together first
  const tensors: [name: string, dims: number[]][] = [['token_embd.weight', [hidden, tokens.length]]];
  for (let layer = 0; layer < layers; layer++) {
    const of = (name: string, dims: number[]) => tensors.push([`blk.${layer}.${name}.weight`, dims]);
    of('attn_norm', [hidden]);
    of('attn_q', [hidden, hidden]);
    of('attn_k', [hidden, kvWidth]);
    of('attn_v', [hidden, kvWidth]);
    of('attn_output', [hidden, hidden]);
    of('ffn_norm', [hidden]);
    of('ffn_gate', [hidden, ffn]);
    of('ffn_up', [hidden, ffn]);
    of('ffn_down', [ffn, hidden]);
  }
  tensors.push(['output_norm.weight', [hidden]], ['output.weight', [hidden, tokens.length]]);

  let state = seed >>> 0;
  const random = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 31 - 1;
  };
  const head = new GgufBytes().add(Buffer.from('GGUF')).u32(3);
  head.u64(tensors.length).u64(Object.keys(values).length);
  for (const [name, value] of Object.entries(values)) head.text(name).value(value);
  const data = new GgufBytes();
  for (const [name, dims] of tensors) {
    head.text(name).u32(dims.length);
    for (const size of dims) head.u64(size);
    head.u32(0).u64(data.length); // type 0: f32
    const count = dims.reduce((product, size) => product * size, 1);
    const scale = dims.length === 1 ? 0.1 : Math.sqrt(3 / dims[0]);
    const floats = Float32Array.from({ length: count }, () => (dims.length === 1 ? 1 : 0) + scale * random());
    data.add(Buffer.from(floats.buffer)).pad();
  }
  fs.writeFileSync(file, Buffer.concat([head.pad().whole(), data.whole()]));
}

if (import.meta.main) makeGguf(process.argv[2]);
