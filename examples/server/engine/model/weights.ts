/**
 * The weights of a checkpoint on a device, as f32 and transposed to [in][out], so that neighbouring
 * invocations read neighbouring columns. Q, K and V are one matrix, and gate and up another.
 */

import type { Checkpoint } from '../checkpoint/index.ts';
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

export function uploadWeights(device: GPUDevice, { config, tensors }: Checkpoint): Weights {
  const { hidden, heads, kvHeads, headDim, ffn, vocabulary } = config;
  const matrix = (label: string, rows: number, columns: number, names: readonly string[]): GPUBuffer => {
    const size = rows * columns * 4;
    const buffer = device.createBuffer({ label, size, usage: gpuUsage.STORAGE, mappedAtCreation: true });
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
  const norm = (name: string): GPUBuffer => matrix(name, 1, hidden, [name]);
  const columns = paddedVocabulary(vocabulary);
  const embedding = matrix('embedding', hidden, columns, ['model.embed_tokens.weight']);
  return {
    embedding,
    head: config.tied ? embedding : matrix('head', hidden, columns, ['lm_head.weight']),
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
