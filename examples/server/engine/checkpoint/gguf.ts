/**
 * GGUF, as far as this engine needs it: metadata, and tensors of F32, F16, Q8_0 and Q4_1. Tensors get the
 * names that safetensors checkpoints of the same model have.
 *
 * GGUF orders the rows of each Q and K head for a rotary embedding of adjacent pairs: row 2 i is dimension i
 * and row 2 i + 1 dimension i + D / 2. They are put back in order here, since the engine rotates halves.
 *
 *     magic | version | tensors | metadata | name, shape, type, offset of each | padding | bytes
 */

import { headCounts } from './ggufModel.ts';
import { GgufReader, type GgufValue, integerTypes } from './ggufReader.ts';
import {
  fromF16,
  fromF32,
  fromQ41,
  fromQ80,
  q41BlockBytes,
  q80BlockBytes,
  quantBlock,
} from './numberFormats.ts';
import { OpenedBytes } from './openedBytes.ts';
import { checkpointError, elementsOf, type StoredTensors } from './tensorSource.ts';

/** By the type's number in the file; `of` elements take `bytes` bytes. */
const formats: Readonly<
  Record<number, { of: number; bytes: number; read: (bytes: Uint8Array<ArrayBuffer>) => Float32Array }>
> = {
  0: { of: 1, bytes: 4, read: fromF32 },
  1: { of: 1, bytes: 2, read: fromF16 },
  3: { of: quantBlock, bytes: q41BlockBytes, read: fromQ41 },
  8: { of: quantBlock, bytes: q80BlockBytes, read: fromQ80 },
};

const again = 'Fetch the file again: it is not whole.';

interface Entry {
  readonly shape: readonly number[];
  readonly type: number;
  readonly offset: number;
}

export class GgufFile implements StoredTensors {
  readonly path: string;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  /** The type's number of each value of the metadata. */
  readonly types: ReadonlyMap<string, number>;
  readonly #file: OpenedBytes;
  readonly #entries: ReadonlyMap<string, Entry>;
  readonly #dataAt: number;

  /** @throws TKV_INPUT for a file that is not GGUF, has another version, or ends before its tensors */
  constructor(path: string) {
    this.path = path;
    this.#file = new OpenedBytes(path);
    try {
      const reader = new GgufReader(this.#file);
      const { metadata, types, tensors } = reader.readHeader();
      this.metadata = metadata;
      this.types = types;
      const entries = new Map<string, Entry>();
      for (const { name, ...entry } of tensors) {
        const known = checkpointName(name);
        if (entries.has(known)) throw checkpointError(path, `has the tensor ${name} twice`, again, name);
        entries.set(known, entry);
      }
      this.#entries = entries;
      const alignment = metadata.get('general.alignment') ?? 32;
      const isAlignment =
        typeof alignment === 'number' && alignment >= 8 && alignment <= 2 ** 20 && alignment % 8 === 0;
      const isInteger = integerTypes.includes(types.get('general.alignment') ?? 4);
      if (!isAlignment || !isInteger) {
        const problem = `general.alignment is ${String(alignment).slice(0, 80)}`;
        throw checkpointError(path, problem, 'It must be a multiple of 8.', 'general.alignment');
      }
      this.#dataAt = Math.ceil(reader.at / alignment) * alignment;
    } catch (error) {
      this.close();
      throw error;
    }
  }

  get names(): readonly string[] {
    return [...this.#entries.keys()];
  }

  shape(name: string): readonly number[] | undefined {
    return this.#entries.get(name)?.shape;
  }

  read(name: string): Float32Array {
    const entry = this.#entries.get(name);
    if (entry === undefined) throw checkpointError(this.path, `has no tensor ${name}`, again, name);
    this.requireReadable(name);
    const heads = this.#rotatedHeads(name, entry.shape);
    const { of, bytes, read } = formats[entry.type];
    const length = (elementsOf(entry.shape) / of) * bytes;
    const values = read(this.#file.read(this.#dataAt + entry.offset, length));
    return heads === 0 ? values : halvesOf(values, heads, entry.shape[1]);
  }

  close(): void {
    this.#file.close();
  }

  requireReadable(name: string): void {
    const entry = this.#entries.get(name);
    if (entry === undefined) throw checkpointError(this.path, `has no tensor ${name}`, again, name);
    const { type, shape, offset } = entry;
    const format = formats[type];
    if (format === undefined) {
      const remedy = 'Known are F32, F16, Q8_0 and Q4_1: quantise the model to one of them.';
      throw checkpointError(this.path, `tensor ${name} has the type ${type}`, remedy, name);
    }
    if ((shape.at(-1) ?? 0) % format.of !== 0) {
      const problem = `tensor ${name} has rows of ${shape.at(-1)} elements, no multiple of ${format.of}`;
      throw checkpointError(this.path, problem, 'Fetch the model again.', name);
    }
    const end = this.#dataAt + offset + (elementsOf(shape) / format.of) * format.bytes;
    if (end > this.#file.size) {
      const problem = `tensor ${name} ends at byte ${end} of a file of ${this.#file.size}, which ends before byte ${end}`;
      throw checkpointError(this.path, problem, again, name);
    }
  }

  /** Heads of a tensor whose rows are in the order of adjacent pairs, or 0. */
  #rotatedHeads(name: string, [rows]: readonly number[]): number {
    const isQuery = name.endsWith('.q_proj.weight');
    if (!isQuery && !name.endsWith('.k_proj.weight')) return 0;
    const { heads, kvHeads } = headCounts(this);
    const count = isQuery ? heads : kvHeads;
    if (rows % (2 * count) === 0) return count;
    const problem = `tensor ${name} has ${rows} rows, which are not ${count} heads`;
    throw checkpointError(this.path, problem, again, name);
  }
}

/** Rows of each head from (0, D/2, 1, D/2 + 1, …) to (0, 1, …, D - 1). */
export function halvesOf(values: Float32Array, heads: number, columns: number): Float32Array {
  const headDim = values.length / columns / heads;
  const ordered = new Float32Array(values.length);
  for (let head = 0; head < heads; head++) {
    for (let row = 0; row < headDim; row++) {
      const dim = row % 2 === 0 ? row / 2 : headDim / 2 + (row - 1) / 2;
      const from = (head * headDim + row) * columns;
      ordered.set(values.subarray(from, from + columns), (head * headDim + dim) * columns);
    }
  }
  return ordered;
}

const outer: Readonly<Record<string, string>> = {
  'token_embd.weight': 'model.embed_tokens.weight',
  'output_norm.weight': 'model.norm.weight',
  'output.weight': 'lm_head.weight',
};
const inner: Readonly<Record<string, string>> = {
  attn_norm: 'input_layernorm',
  attn_q: 'self_attn.q_proj',
  attn_k: 'self_attn.k_proj',
  attn_v: 'self_attn.v_proj',
  attn_output: 'self_attn.o_proj',
  ffn_norm: 'post_attention_layernorm',
  ffn_gate: 'mlp.gate_proj',
  ffn_up: 'mlp.up_proj',
  ffn_down: 'mlp.down_proj',
};

function checkpointName(name: string): string {
  const [, layer, part] = /^blk\.(\d+)\.(\w+)\.weight$/.exec(name) ?? [];
  if (layer === undefined) return outer[name] ?? name;
  return inner[part] === undefined ? name : `model.layers.${layer}.${inner[part]}.weight`;
}
