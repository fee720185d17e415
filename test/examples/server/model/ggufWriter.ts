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

/** A value with the number of its type in the file: 4 u32, 6 f32, 7 boolean, 8 text. */
export interface GgufMetadataValue {
  readonly type: number;
  readonly value: number | string;
}
export type GgufMetadata = Readonly<Record<string, GgufMetadataValue | undefined>>;

export const u32Of = (value: number): GgufMetadataValue => ({ type: 4, value });
export const u64Of: (value: number) => Buffer = u64;

export function headCountsOf(heads: number, kvHeads: number): GgufMetadata {
  return {
    'general.architecture': { type: 8, value: 'llama' },
    'llama.attention.head_count': u32Of(heads),
    'llama.attention.head_count_kv': u32Of(kvHeads),
  };
}

export function writeGguf(tensors: TensorSource, heads: number, kvHeads: number): Buffer {
  return ggufOf(tensors, headCountsOf(heads, kvHeads));
}

function bytesOf({ type, value }: GgufMetadataValue): Buffer {
  if (typeof value === 'string') return text(value);
  if (type === 7) return Buffer.from([value]);
  return type === 6 ? Buffer.from(Float32Array.of(value).buffer) : u32(value);
}

/**
 * Q and K of the tiny model in the order of 4 and 2 heads. @param more descriptions of tensors without data of
 * their own
 */
export function ggufOf(tensors: TensorSource, metadata: GgufMetadata, more: readonly Buffer[] = []): Buffer {
  const alignment = Number(metadata['general.alignment']?.value ?? 32) || 32;
  const padding = (length: number): Buffer => Buffer.alloc((alignment - (length % alignment)) % alignment);
  const infos: Buffer[] = [];
  const data: Buffer[] = [];
  let offset = 0;
  for (const name of tensors.names) {
    const shape = tensors.shape(name) ?? [];
    let values = tensors.read(name);
    if (name.includes('q_proj')) values = pairsOf(values, shape[0] / 32, shape[1]);
    if (name.includes('k_proj')) values = pairsOf(values, shape[0] / 32, shape[1]);
    const other = parts.reduce((so, [from, to]) => so.replace(from, to), name);
    const sizes = [...shape].reverse().map(u64);
    infos.push(text(other), u32(shape.length), ...sizes, u32(0), u64(offset));
    const bytes = Buffer.from(values.slice().buffer);
    data.push(bytes, padding(bytes.length));
    offset += bytes.length + padding(bytes.length).length;
  }
  const entries = Object.entries(metadata).flatMap(([name, value]) =>
    value === undefined ? [] : [[text(name), u32(value.type), bytesOf(value)]],
  );
  entries.push([text('tokenizer.ggml.tokens'), u32(9), u32(8), u64(2), text('a'), text('b')]);
  const counts = [u64(tensors.names.length + more.length), u64(entries.length)];
  const head = Buffer.concat([Buffer.from('GGUF'), u32(3), ...counts, ...entries.flat(), ...infos, ...more]);
  return Buffer.concat([head, padding(head.length), ...data]);
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
