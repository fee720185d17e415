/** The tensors of a checkpoint as a GGUF file of F32, with the rows of Q and K in the order that GGUF has. */

import type { TensorSource } from '../../../../examples/server/engine/checkpoint/index.ts';

const parts: readonly (readonly [RegExp, string])[] = [
  [/^model\.embed_tokens\./, 'token_embd.'],
  [/^model\.norm\./, 'output_norm.'],
  [/^model\.layers\.(\d+)\./, 'blk.$1.'],
  [/input_layernorm/, 'attn_norm'],
  [/post_attention_layernorm/, 'ffn_norm'],
  [/self_attn\.([qkv])_proj/, 'attn_$1'],
  [/self_attn\.o_proj/, 'attn_output'],
  [/mlp\.(gate|up|down)_proj/, 'ffn_$1'],
];

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function text(value: string): Buffer {
  return Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);
}

export function writeGguf(tensors: TensorSource, heads: number, kvHeads: number): Buffer {
  const infos: Buffer[] = [];
  const data: Buffer[] = [];
  let offset = 0;
  for (const name of tensors.names) {
    const shape = tensors.shape(name) ?? [];
    let values = tensors.read(name);
    if (name.includes('q_proj')) values = pairsOf(values, heads, shape[1]);
    if (name.includes('k_proj')) values = pairsOf(values, kvHeads, shape[1]);
    const other = parts.reduce((so, [from, to]) => so.replace(from, to), name);
    const sizes = [...shape].reverse().map(u64);
    infos.push(text(other), u32(shape.length), ...sizes, u32(0), u64(offset));
    const bytes = Buffer.from(values.slice().buffer);
    const padding = Buffer.alloc((32 - (bytes.length % 32)) % 32);
    data.push(bytes, padding);
    offset += bytes.length + padding.length;
  }
  const metadata = [
    [text('general.architecture'), u32(8), text('llama')],
    [text('llama.attention.head_count'), u32(4), u32(heads)],
    [text('llama.attention.head_count_kv'), u32(4), u32(kvHeads)],
    [text('tokenizer.ggml.tokens'), u32(9), u32(8), u64(2), text('a'), text('b')],
  ];
  const counts = [u64(tensors.names.length), u64(metadata.length)];
  const head = Buffer.concat([Buffer.from('GGUF'), u32(3), ...counts, ...metadata.flat(), ...infos]);
  return Buffer.concat([head, Buffer.alloc((32 - (head.length % 32)) % 32), ...data]);
}

/** Dimension i of a head becomes row 2 i, and dimension i + D / 2 row 2 i + 1. */
function pairsOf(values: Float32Array, heads: number, columns: number): Float32Array {
  const headDim = values.length / columns / heads;
  const ordered = new Float32Array(values.length);
  for (let head = 0; head < heads; head++) {
    for (let dim = 0; dim < headDim; dim++) {
      const row = dim < headDim / 2 ? 2 * dim : 2 * (dim - headDim / 2) + 1;
      const from = (head * headDim + dim) * columns;
      ordered.set(values.subarray(from, from + columns), (head * headDim + row) * columns);
    }
  }
  return ordered;
}
