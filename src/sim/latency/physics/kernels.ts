/**
 * Times of the three kernels that a transformer step consists of, as functions with a few parameters that are
 * fitted to kernel measurements. A matrix product takes the p-norm of streaming its operands and of
 * computing, which is the larger one far from the ridge of the roofline and a little more near it. Attention
 * adds up, since its streams do not overlap.
 */

/** Matrix products of one precision. */
export interface GemmEfficiency {
  /** Share of the bandwidth reached while streaming weights. */
  readonly memory: number;
  /** Share of the dense peak reached on large products. */
  readonly compute: number;
  /** p of the p-norm, at least 1. */
  readonly exponent: number;
  /** Time of a product of nothing, µs. */
  readonly launchUs: number;
}

export interface AttentionEfficiency {
  /** Share of the dense 16-bit peak over the causal pairs of a prefill. */
  readonly prefill: number;
  /** Share of the bandwidth while reading KV for decodes. */
  readonly decode: number;
  /**
   * Time of a kernel of nothing when it is launched alone, µs; within a step it is part of the layer's
   * overhead.
   */
  readonly prefillLaunchUs: number;
  readonly decodeLaunchUs: number;
}

/** Peak rates of one GPU. */
export interface Peak {
  readonly flopsPerUs: number;
  readonly bytesPerUs: number;
}

/**
 * Time in µs of a product of rows x depth with depth x columns.
 * @param weightBytes bytes of a weight; activations take `activationBytes` on the way in and out.
 */
export function gemmUs(
  efficiency: GemmEfficiency,
  peak: Peak,
  rows: number,
  depth: number,
  columns: number,
  weightBytes: number,
  activationBytes: number,
): number {
  const bytes = depth * columns * weightBytes + rows * (depth + columns) * activationBytes;
  const memoryUs = bytes / (peak.bytesPerUs * efficiency.memory);
  const computeUs = (2 * rows * depth * columns) / (peak.flopsPerUs * efficiency.compute);
  const p = efficiency.exponent;
  return efficiency.launchUs + (memoryUs ** p + computeUs ** p) ** (1 / p);
}

/**
 * Time in µs of the attention of one prefill over `tokens` tokens, launched alone, for `heads` heads of
 * `headDim`.
 */
export function attentionPrefillUs(
  efficiency: AttentionEfficiency,
  flopsPerUs: number,
  heads: number,
  headDim: number,
  tokens: number,
): number {
  const flops = 2 * heads * headDim * tokens * tokens;
  return efficiency.prefillLaunchUs + flops / (flopsPerUs * efficiency.prefill);
}

/** Time in µs of one decode of `requests` requests with `contextTokens` each, launched alone. */
export function attentionDecodeUs(
  efficiency: AttentionEfficiency,
  bytesPerUs: number,
  kvHeads: number,
  headDim: number,
  requests: number,
  contextTokens: number,
): number {
  const bytes = 2 * kvHeads * headDim * 2 * requests * contextTokens;
  return efficiency.decodeLaunchUs + bytes / (bytesPerUs * efficiency.decode);
}
