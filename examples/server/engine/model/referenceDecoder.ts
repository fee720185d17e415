/**
 * The same decoder in float64 on the host, without any cache: all tokens at once, straight from the formulas.
 * Slow, and what the kernels are compared with.
 */

import type { Checkpoint } from '../checkpoint/index.ts';

/** The logits after each token. */
export function referenceLogits({ config, tensors }: Checkpoint, tokens: readonly number[]): Float64Array[] {
  const { hidden, heads, kvHeads, headDim, vocabulary } = config;
  const embedding = tensors.read('model.embed_tokens.weight');
  const head = config.tied ? embedding : tensors.read('lm_head.weight');
  let x: Float64Array[] = tokens.map((token) =>
    Float64Array.from(embedding.subarray(token * hidden, (token + 1) * hidden)),
  );
  for (let layer = 0; layer < config.layers; layer++) {
    const read = (part: string): Float32Array => tensors.read(`model.layers.${layer}.${part}.weight`);
    const norm = read('input_layernorm');
    const normed = x.map((row) => rmsNorm(row, norm, config.normEpsilon));
    const projected = (part: string): Float64Array[] => normed.map((row) => product(read(part), row));
    const turn = (rows: Float64Array[]): void => {
      rows.forEach((row, position) => {
        rotate(row, position, headDim, config.ropeBase);
      });
    };
    const q = projected('self_attn.q_proj');
    const k = projected('self_attn.k_proj');
    const v = projected('self_attn.v_proj');
    turn(q);
    turn(k);
    const output = read('self_attn.o_proj');
    const ffnNorm = read('post_attention_layernorm');
    const [gate, up, down] = ['mlp.gate_proj', 'mlp.up_proj', 'mlp.down_proj'].map(read);
    x = x.map((row, position) => {
      const attended = new Float64Array(heads * headDim);
      for (let h = 0; h < heads; h++) {
        const kvAt = Math.floor(h / (heads / kvHeads)) * headDim;
        const first = config.window > 0 ? Math.max(0, position + 1 - config.window) : 0;
        attend(attended, h * headDim, q[position], k, v, kvAt, headDim, first, position);
      }
      const afterAttention = sum(row, product(output, attended));
      const y = rmsNorm(afterAttention, ffnNorm, config.normEpsilon);
      const gates = product(gate, y);
      const active = product(up, y).map((value, i) => (value * gates[i]) / (1 + Math.exp(-gates[i])));
      return sum(afterAttention, product(down, active));
    });
  }
  const finalNorm = tensors.read('model.norm.weight');
  return x.map((row) => product(head, rmsNorm(row, finalNorm, config.normEpsilon)).subarray(0, vocabulary));
}

function product(weights: Float32Array, row: Float64Array): Float64Array {
  const out = new Float64Array(weights.length / row.length);
  for (let o = 0; o < out.length; o++) {
    let total = 0;
    for (let i = 0; i < row.length; i++) total += weights[o * row.length + i] * row[i];
    out[o] = total;
  }
  return out;
}

function sum(a: Float64Array, b: Float64Array): Float64Array {
  return a.map((value, i) => value + b[i]);
}

function rmsNorm(row: Float64Array, weight: Float32Array, epsilon: number): Float64Array {
  const mean = row.reduce((total, value) => total + value * value, 0) / row.length;
  const scale = 1 / Math.sqrt(mean + epsilon);
  return row.map((value, i) => value * scale * weight[i]);
}

function rotate(row: Float64Array, position: number, headDim: number, base: number): void {
  const half = headDim / 2;
  for (let at = 0; at < row.length; at += headDim) {
    for (let i = 0; i < half; i++) {
      const angle = position * base ** (-i / half);
      const [a, b] = [row[at + i], row[at + half + i]];
      row[at + i] = a * Math.cos(angle) - b * Math.sin(angle);
      row[at + half + i] = b * Math.cos(angle) + a * Math.sin(angle);
    }
  }
}

function attend(
  out: Float64Array,
  at: number,
  q: Float64Array,
  k: readonly Float64Array[],
  v: readonly Float64Array[],
  kvAt: number,
  headDim: number,
  first: number,
  last: number,
): void {
  const scores: number[] = [];
  for (let t = first; t <= last; t++) {
    let dot = 0;
    for (let d = 0; d < headDim; d++) dot += q[at + d] * k[t][kvAt + d];
    scores.push(dot / Math.sqrt(headDim));
  }
  const largest = Math.max(...scores);
  const weights = scores.map((score) => Math.exp(score - largest));
  const total = weights.reduce((a, b) => a + b, 0);
  for (let d = 0; d < headDim; d++) {
    let value = 0;
    weights.forEach((weight, i) => {
      value += weight * v[first + i][kvAt + d];
    });
    out[at + d] = value / total;
  }
}
