/**
 * The weights of a checkpoint on a device, as f32 and transposed to [in][out], so that neighbouring
 * invocations read neighbouring columns. Q, K and V are one matrix, and gate and up another.
 */

import type { Checkpoint, ModelConfig } from '../checkpoint/index.ts';
import type { BufferNeed, DeviceBuffers } from './deviceBuffers.ts';
import { gpuUsage } from './gpuUsage.ts';

export interface LayerWeights {
  readonly attentionNorm: GPUBuffer;
  readonly qkv: GPUBuffer;
  readonly output: GPUBuffer;
  readonly ffnNorm: GPUBuffer;
  readonly gateUp: GPUBuffer;
  readonly down: GPUBuffer;
}

export interface Weights {
  /** [hidden][vocabulary], columns padded to a multiple of 4. */
  readonly embedding: GPUBuffer;
  /** The same buffer as `embedding` where the model ties them. */
  readonly head: GPUBuffer;
  readonly finalNorm: GPUBuffer;
  readonly layers: readonly LayerWeights[];
}

/** Columns of the embedding: the vocabulary, padded so that rows are whole vectors. */
export function paddedVocabulary(vocabulary: number): number {
  return Math.ceil(vocabulary / 4) * 4;
}

/** A matrix on the device, [rows][columns], and the tensors that are its columns, one beside the other. */
export interface WeightMatrix {
  readonly label: string;
  readonly rows: number;
  readonly columns: number;
  readonly names: readonly string[];
}

interface WeightMatrices {
  readonly embedding: WeightMatrix;
  /** undefined where the model ties it to the embedding. */
  readonly head: WeightMatrix | undefined;
  readonly finalNorm: WeightMatrix;
  readonly layers: readonly { readonly [name in keyof LayerWeights]: WeightMatrix }[];
}

function weightMatrices(config: ModelConfig): WeightMatrices {
  const { hidden, heads, kvHeads, headDim, ffn, vocabulary } = config;
  const matrix = (label: string, rows: number, columns: number, names: readonly string[]): WeightMatrix => ({
    label,
    rows,
    columns,
    names,
  });
  const norm = (name: string): WeightMatrix => matrix(name, 1, hidden, [name]);
  const columns = paddedVocabulary(vocabulary);
  return {
    embedding: matrix('embedding', hidden, columns, ['model.embed_tokens.weight']),
    head: config.tied ? undefined : matrix('head', hidden, columns, ['lm_head.weight']),
    finalNorm: norm('model.norm.weight'),
    layers: Array.from({ length: config.layers }, (_, layer) => {
      const of = (part: string): string => `model.layers.${layer}.${part}.weight`;
      const all = (...parts: string[]): string[] => parts.map(of);
      const qkv = all('self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj');
      return {
        attentionNorm: norm(of('input_layernorm')),
        qkv: matrix(`qkv ${layer}`, hidden, (heads + 2 * kvHeads) * headDim, qkv),
        output: matrix(`output ${layer}`, heads * headDim, hidden, all('self_attn.o_proj')),
        ffnNorm: norm(of('post_attention_layernorm')),
        gateUp: matrix(`gate, up ${layer}`, hidden, 2 * ffn, all('mlp.gate_proj', 'mlp.up_proj')),
        down: matrix(`down ${layer}`, ffn, hidden, all('mlp.down_proj')),
      };
    }),
  };
}

/** What the weights take on a device: a buffer each. */
export function weightNeeds(config: ModelConfig): BufferNeed[] {
  const { embedding, head, finalNorm, layers } = weightMatrices(config);
  const all = [embedding, ...(head === undefined ? [] : [head]), finalNorm, ...layers.flatMap(Object.values)];
  return all.map(({ label, rows, columns, names }: WeightMatrix) => ({
    label,
    bytes: rows * columns * 4,
    isBound: true,
    field: names[0],
    what: `the weights ${names.join(', ')} take as f32`,
    remedy: 'Take a smaller model, or another device with TIERKV_ADAPTER',
  }));
}

export function uploadWeights(buffers: DeviceBuffers, { config, tensors }: Checkpoint): Weights {
  const upload = ({ label, rows, columns, names }: WeightMatrix): GPUBuffer => {
    const buffer = buffers.make(label, rows * columns * 4, gpuUsage.STORAGE, true);
    const target = new Float32Array(buffer.getMappedRange());
    let column = 0;
    for (const name of names) {
      const values = tensors.read(name);
      transposeInto(target, values, rows, columns, column);
      column += values.length / rows;
    }
    buffer.unmap();
    return buffer;
  };
  const { embedding: table, head, finalNorm, layers } = weightMatrices(config);
  const embedding = upload(table);
  return {
    embedding,
    head: head === undefined ? embedding : upload(head),
    finalNorm: upload(finalNorm),
    layers: layers.map((layer) => ({
      attentionNorm: upload(layer.attentionNorm),
      qkv: upload(layer.qkv),
      output: upload(layer.output),
      ffnNorm: upload(layer.ffnNorm),
      gateUp: upload(layer.gateUp),
      down: upload(layer.down),
    })),
  };
}

/** Writes `values`, [out][rows], as columns from `column` on of `target`, [rows][columns]. */
function transposeInto(
  target: Float32Array,
  values: Float32Array,
  rows: number,
  columns: number,
  column: number,
): void {
  const outs = values.length / rows;
  const tile = 32; // both sides of a tile fit the processor's cache
  for (let first = 0; first < outs; first += tile) {
    const end = Math.min(first + tile, outs);
    for (let row = 0; row < rows; row++) {
      const to = row * columns + column;
      for (let out = first; out < end; out++) target[to + out] = values[out * rows + row];
    }
  }
}
