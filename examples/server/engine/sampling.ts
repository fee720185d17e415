/**
 * The next token from logits. The random number of a token depends on the request's seed and the token's
 * index alone, so that a request that gave way and came back goes on with the tokens it would have had.
 */

import { TierKVError } from '../../../src/index.ts'; // in your project: 'tierkv'

export interface SamplingOptions {
  /** 0: always the most likely token; ties go to the lower id. */
  readonly temperature: number;
  /** Only this number of most likely tokens; 0: all. */
  readonly topK: number;
  /** Only the most likely tokens that have this share of the probability together; 1: all. */
  readonly topP: number;
  /** An integer of up to 64 bits; one above 2^53 has to be a bigint. */
  readonly seed: number | bigint;
}

/** Whether a token can be drawn from them: no NaN and no infinity among them. */
export function areFinite(logits: Float32Array): boolean {
  for (let i = 0; i < logits.length; i++) if (!Number.isFinite(logits[i])) return false;
  return true;
}

/**
 * @param logits one for each token of the vocabulary
 * @param index of the token in the answer, from 0
 * @throws TKV_INPUT for logits that are not all finite: no comparison with a NaN is true, so that a token
 * would come of the order of the vocabulary
 */
export function sampleToken(logits: Float32Array, options: SamplingOptions, index: number): number {
  const { temperature, topK, topP, seed } = options;
  if (!areFinite(logits)) {
    const message = 'The logits hold a NaN or an infinity, and no token can be drawn from them.';
    throw new TierKVError('TKV_INPUT', `${message} Check the weights and the device.`, { field: 'logits' });
  }
  const best = likeliest(logits);
  if (temperature === 0 || topK === 1) return best;
  const weights = new Float64Array(logits.length);
  const largest = logits[best];
  let total = 0;
  for (let i = 0; i < logits.length; i++) {
    weights[i] = Math.exp((logits[i] - largest) / temperature);
    total += weights[i];
  }
  if ((topK === 0 || topK >= logits.length) && topP >= 1) return pick(weights, undefined, total, seed, index);
  const order = Uint32Array.from(logits, (_, i) => i).sort((a, b) => weights[b] - weights[a] || a - b);
  const most = topK === 0 ? order.length : Math.min(topK, order.length);
  let kept = 0;
  let among = 0;
  for (let i = 0; i < most; i++) among += weights[order[i]];
  let count = 0;
  while (count < most && (count === 0 || kept < topP * among)) kept += weights[order[count++]];
  return pick(weights, order.subarray(0, count), kept, seed, index);
}

function likeliest(logits: Float32Array): number {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i] > logits[best]) best = i;
  return best;
}

function pick(
  weights: Float64Array,
  order: Uint32Array | undefined,
  total: number,
  seed: number | bigint,
  index: number,
): number {
  const count = order?.length ?? weights.length;
  let left = uniform(seed, index) * total;
  let last = 0;
  for (let i = 0; i < count; i++) {
    const token = order?.[i] ?? i;
    if (weights[token] > 0) last = token;
    left -= weights[token];
    if (left < 0) return token;
  }
  return last; // what rounding left over; never a token that cannot be
}

/** From 0 to below 1, the same for the same seed and index: two rounds of a 32-bit mixer for each half. */
function uniform(seed: number | bigint, index: number): number {
  const [lower, upper] =
    typeof seed === 'bigint'
      ? [Number(BigInt.asUintN(32, seed)), Number(BigInt.asIntN(32, seed >> 32n))]
      : [seed >>> 0, Math.floor(seed / 2 ** 32)];
  const high = mix(mix(lower) ^ mix(upper ^ index));
  const low = mix(high ^ 0x9e3779b9);
  return ((high >>> 5) * 2 ** 26 + (low >>> 6)) / 2 ** 53;
}

function mix(value: number): number {
  let x = (value + 0x9e3779b9) | 0;
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return (x ^ (x >>> 15)) >>> 0;
}
