/**
 * Makes a decoder of random weights for transformers.js, in the files that its exports have:
 *
 *     node examples/tinyDecoder/make.ts DIRECTORY [--large] [--seed 7] [--dtype f16]
 *
 * What it says has no meaning. But it is a whole Llama decoder with grouped-query attention and rotary positions: each
 * next token depends on the KV of all tokens before it, so that one wrong byte shows. The same seed gives the same
 * bytes on every machine: integers and f32 products only. The tiny one is below 1 MB; the larger one has the same
 * vocabulary and takes time for its prefill.
 */

import fs from 'node:fs';
import nodePath from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { OnnxGraph } from './onnxGraph.ts';

export interface DecoderShape {
  readonly layers: number;
  readonly hidden: number;
  readonly heads: number;
  /** As many as `heads` for MHA, 1 for MQA. */
  readonly kvHeads: number;
  readonly headDim: number;
  readonly ffn: number;
  readonly contextTokens: number;
  /** Type of the KV. Weights are f32. */
  readonly kvDtype: 'f32' | 'f16';
  readonly seed: number;
  readonly ropeBase: number;
  /** Name of the file of weights beside the graph, as exports above 2 GB have one; '' where they are in the graph. */
  readonly external: string;
  /** Sequences that are longer have other angles (longrope); 0 for none. */
  readonly longRopeTokens: number;
}

const vocabulary = 512;

/** What longrope divides the angles by. */
const longFactor = 4;

export const tinyDecoder: DecoderShape = {
  layers: 3,
  hidden: 64,
  heads: 4,
  kvHeads: 2,
  headDim: 16,
  ffn: 160,
  contextTokens: 8192,
  kvDtype: 'f32',
  seed: 0x7e57c0de,
  ropeBase: 10_000,
  external: '',
  longRopeTokens: 0,
};

/** 16 kB of KV a token, and about 23 million weights. */
export const largerDecoder: DecoderShape = {
  ...tinyDecoder,
  layers: 8,
  hidden: 512,
  heads: 8,
  kvHeads: 4,
  headDim: 64,
  ffn: 1408,
};

/** Where the tokenizer of the example server's tiny model lies: this decoder has the same vocabulary. */
const tokenizerDirectory = fileURLToPath(new URL('../server/tinyModel/files', import.meta.url));

/** Writes `config.json`, `generation_config.json`, the tokenizer's files and `onnx/model.onnx` into a directory. */
export function makeDecoder(directory: string, shape: Partial<DecoderShape> = {}): void {
  const decoder: DecoderShape = { ...tinyDecoder, ...shape };
  fs.mkdirSync(nodePath.join(directory, 'onnx'), { recursive: true });
  const write = (name: string, json: object): void =>
    fs.writeFileSync(nodePath.join(directory, name), `${JSON.stringify(json, null, 1)}\n`);
  write('config.json', configOf(decoder));
  write('generation_config.json', { bos_token_id: 0, eos_token_id: 2, pad_token_id: 0 });
  for (const name of ['tokenizer.json', 'tokenizer_config.json']) {
    fs.copyFileSync(nodePath.join(tokenizerDirectory, name), nodePath.join(directory, name));
  }
  const { model, data } = graphOf(decoder);
  fs.writeFileSync(nodePath.join(directory, 'onnx', 'model.onnx'), model);
  if (data !== undefined) fs.writeFileSync(nodePath.join(directory, 'onnx', decoder.external), data);
}

function configOf(decoder: DecoderShape): object {
  return {
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    hidden_act: 'silu',
    hidden_size: decoder.hidden,
    intermediate_size: decoder.ffn,
    num_hidden_layers: decoder.layers,
    num_attention_heads: decoder.heads,
    num_key_value_heads: decoder.kvHeads,
    head_dim: decoder.headDim,
    max_position_embeddings: decoder.contextTokens,
    rms_norm_eps: 1e-5,
    rope_theta: decoder.ropeBase,
    tie_word_embeddings: true,
    vocab_size: vocabulary,
    bos_token_id: 0,
    eos_token_id: 2,
    ...(decoder.longRopeTokens === 0
      ? {}
      : {
          original_max_position_embeddings: decoder.longRopeTokens,
          rope_scaling: {
            type: 'longrope',
            short_factor: new Array<number>(decoder.headDim / 2).fill(1),
            long_factor: new Array<number>(decoder.headDim / 2).fill(longFactor),
          },
        }),
    // onnxruntime finds files of other names by itself
    ...(decoder.external === 'model.onnx_data'
      ? { 'transformers.js_config': { use_external_data_format: true } }
      : {}),
  };
}

/** Numbers close to normal with variance 1: the sum of four uniform ones. */
function bellOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    let sum = 0;
    for (let i = 0; i < 4; i++) {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      sum += (state >>> 8) / 2 ** 24;
    }
    return (sum - 2) * Math.sqrt(3);
  };
}

function graphOf(decoder: DecoderShape): { model: Uint8Array; data: Uint8Array | undefined } {
  const { layers, hidden, heads, kvHeads, headDim, ffn, kvDtype } = decoder;
  const graph = new OnnxGraph(decoder.external === '' ? undefined : decoder.external);
  const bell = bellOf(decoder.seed);
  const weights = (name: string, rows: number, columns: number, scale: number): string =>
    graph.constant(
      name,
      [rows, columns],
      Float32Array.from({ length: rows * columns }, () => scale * bell()),
    );
  /** A projection: `gain` keeps its outputs near variance `gain` squared. */
  const projected = (input: string, name: string, from: number, to: number, gain = 1.2): string =>
    one('MatMul', [input, weights(name, from, to, gain / Math.sqrt(from))]);
  const one = (type: string, inputs: string[], attributes = {}): string =>
    graph.node(type, inputs, undefined, attributes)[0];
  const integers = (name: string, values: number[], dims = [values.length]): string =>
    graph.constant(name, dims, BigInt64Array.from(values, BigInt));
  const norm = (input: string, name: string): string => {
    const scales = graph.constant(
      name,
      [hidden],
      Float32Array.from({ length: hidden }, () => 1 + 0.1 * bell()),
    );
    return one('SimplifiedLayerNormalization', [input, scales], {
      axis: -1,
      epsilon: { float: 1e-5 },
      stash_type: 1,
    });
  };
  const asKV = (input: string): string => (kvDtype === 'f16' ? one('Cast', [input], { to: 10 }) : input);
  const asFloat = (input: string): string => (kvDtype === 'f16' ? one('Cast', [input], { to: 1 }) : input);
  const kvType = kvDtype === 'f16' ? 'float16' : 'float';

  graph.input({ name: 'input_ids', type: 'int64', dims: ['batch_size', 'sequence_length'] });
  graph.input({ name: 'attention_mask', type: 'int64', dims: ['batch_size', 'total_sequence_length'] });
  graph.input({ name: 'num_logits_to_keep', type: 'int64', dims: [] });

  // where the tokens stand: what the attention operator asks for, out of the mask
  const tokens = one('ReduceSum', ['attention_mask', integers('axis1', [1])], { keepdims: 0 });
  const lastTokens = one('Cast', [one('Sub', [tokens, integers('one', [1])])], { to: 6 });
  const lengths = one('Gather', [one('Shape', ['attention_mask']), integers('at1', [1], [])]);
  const total = one('Cast', [lengths], { to: 6 });

  // the angles of each position: constants that the session computes once
  const scalar = (name: string, value: number): string => graph.constant(name, [], Float32Array.of(value));
  const positions = one('Range', [
    scalar('first', 0),
    scalar('limit', decoder.contextTokens),
    scalar('delta', 1),
  ]);
  const column = one('Unsqueeze', [positions, 'axis1']);
  const frequencies = graph.constant(
    'frequencies',
    [1, headDim / 2],
    Float32Array.from({ length: headDim / 2 }, (_, i) => decoder.ropeBase ** ((-2 * i) / headDim)),
  );
  const angles = one('Mul', [column, frequencies]);
  let rotation = ['Cos', 'Sin'].map((type) => asKV(one(type, [angles])));
  if (decoder.longRopeTokens > 0) {
    const wide = one('Div', [angles, scalar('long_factor', longFactor)]);
    const isLong = one('Greater', [total, graph.constant('long', [], Int32Array.of(decoder.longRopeTokens))]);
    rotation = ['Cos', 'Sin'].map((type, i) => one('Where', [isLong, asKV(one(type, [wide])), rotation[i]]));
  }

  const embedding = weights('embed_tokens', vocabulary, hidden, 0.2);
  let x = one('Gather', [embedding, 'input_ids']);
  for (let layer = 0; layer < layers; layer++) {
    const at = (name: string): string => `layer${layer}.${name}`;
    const past = ['key', 'value'].map((part) => `past_key_values.${layer}.${part}`);
    const present = ['key', 'value'].map((part) => `present.${layer}.${part}`);
    for (const name of past) {
      graph.input({ name, type: kvType, dims: ['batch_size', kvHeads, 'past_sequence_length', headDim] });
    }
    const before = norm(x, at('attention_norm'));
    const query = projected(before, at('q_proj'), hidden, heads * headDim, 1.5);
    const key = projected(before, at('k_proj'), hidden, kvHeads * headDim, 1.5);
    const value = projected(before, at('v_proj'), hidden, kvHeads * headDim);
    const [attended] = graph.node(
      'GroupQueryAttention',
      [asKV(query), asKV(key), asKV(value), ...past, lastTokens, total, ...rotation],
      [at('attended'), ...present],
      { num_heads: heads, kv_num_heads: kvHeads, do_rotary: 1 },
      'com.microsoft',
    );
    x = one('Add', [x, projected(asFloat(attended), at('o_proj'), heads * headDim, hidden)]);
    const between = norm(x, at('mlp_norm'));
    const gate = projected(between, at('gate_proj'), hidden, ffn);
    const silu = one('Mul', [gate, one('Sigmoid', [gate])]);
    const inner = one('Mul', [silu, projected(between, at('up_proj'), hidden, ffn)]);
    x = one('Add', [x, projected(inner, at('down_proj'), ffn, hidden)]);
    for (const name of present) {
      graph.output({ name, type: kvType, dims: ['batch_size', kvHeads, 'total_sequence_length', headDim] });
    }
  }
  // the last tokens alone need logits; 0 to keep means all
  const kept = one('Reshape', [one('Neg', ['num_logits_to_keep']), 'axis1']);
  const last = one('Slice', [x, kept, integers('end', [Number.MAX_SAFE_INTEGER]), 'axis1']);
  const heading = one('Transpose', [embedding], { perm: [1, 0] });
  graph.node('MatMul', [norm(last, 'final_norm'), heading], ['logits']);
  graph.output({ name: 'logits', type: 'float', dims: ['batch_size', 'kept_length', vocabulary] });
  return graph.finish();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      large: { type: 'boolean', default: false },
      seed: { type: 'string' },
      dtype: { type: 'string', default: 'f32' },
    },
  });
  const [directory] = positionals;
  if (directory === undefined || (values.dtype !== 'f32' && values.dtype !== 'f16')) {
    throw new Error(
      'usage: node examples/tinyDecoder/make.ts DIRECTORY [--large] [--seed N] [--dtype f32|f16]',
    );
  }
  makeDecoder(directory, {
    ...(values.large ? largerDecoder : tinyDecoder),
    kvDtype: values.dtype,
    ...(values.seed === undefined ? {} : { seed: Number(values.seed) }),
  });
}
