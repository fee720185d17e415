/**
 * A model as one GPU of an engine sees it: the matrices it multiplies, the bytes it reads, the messages it
 * exchanges. Unlike upstream's step times this takes the true head size, three feed-forward matrices, dense
 * first layers and the output head, since `calibrated` and the physical floor are about what the hardware has
 * to do.
 */

import type { Hardware } from '../description/hardware.ts';
import { layerSplit, type ModelConfig, trueHeadDim } from '../description/modelConfig.ts';
import type { Parallelism } from '../latencyModel.ts';

/** A weight matrix: products of `rows` x `depth` with it occur `count` times in a pass. */
export interface WeightMatrix {
  readonly depth: number;
  readonly columns: number;
  readonly count: number;
}

export interface EngineShape {
  readonly layers: number;
  readonly moeLayers: number;
  readonly denseLayers: number;
  readonly hiddenSize: number;
  readonly tp: number;
  readonly dp: number;
  readonly weightBytes: number;
  readonly activationBytes: number;
  /** Matrices that every token of the rank goes through. */
  readonly tokenMatrices: readonly WeightMatrix[];
  /** Matrices of one expert; `count` is the number of MoE layers. */
  readonly expertMatrices: readonly WeightMatrix[];
  /** Applied to sampled tokens only. */
  readonly headMatrix: WeightMatrix;
  readonly experts: number;
  readonly expertsPerToken: number;
  /** GPUs over which the experts are spread. */
  readonly expertGpus: number;
  /** Of one token, one GPU, all layers. */
  readonly kvBytesPerToken: number;
  /** Of one pair of a token and one before it, one GPU, all layers: scores and weighted sum. */
  readonly attentionFlopsPerPair: number;
  /**
   * FLOP and bytes in a microsecond at the peak of one GPU; matrix products may run in 8 bits, attention in
   * 16.
   */
  readonly peakFlopsPerUs: number;
  readonly peakFlops16PerUs: number;
  /** Whether weights and products are 8 bits wide. */
  readonly eightBit: boolean;
  readonly peakBytesPerUs: number;
}

const gatedActivations: readonly string[] = ['', 'silu', 'swiglu', 'geglu', 'situ', 'gelu_pytorch_tanh'];

export function engineShape(model: ModelConfig, hardware: Hardware, { tp, dp }: Parallelism): EngineShape {
  const d = model.hiddenSize;
  const headDim = trueHeadDim(model);
  const querySize = (model.heads * headDim) / tp;
  const kvSize = (model.kvHeads * headDim) / tp;
  const { moe, dense } = layerSplit(model, true);
  const latent = model.kvLoraRank + model.qkRopeHeadDim;
  const inputs = gatedActivations.includes(model.hiddenAct) ? 2 : 1;
  const block = (width: number, count: number): WeightMatrix[] =>
    width === 0 || count === 0
      ? []
      : [
          { depth: d, columns: (inputs * width) / tp, count },
          { depth: width / tp, columns: d, count },
        ];
  // What of MLA's projections can be told from the file is the one into the latent; the floor stays a lower
  // bound.
  const attention: WeightMatrix[] =
    model.kvLoraRank > 0
      ? [{ depth: d, columns: latent, count: model.layers }]
      : [
          { depth: d, columns: querySize + 2 * kvSize, count: model.layers },
          { depth: querySize, columns: d, count: model.layers },
        ];
  const expertFfn = model.expertFfnSize || model.ffnSize;
  const router = moe > 0 ? [{ depth: d, columns: model.experts, count: moe }] : [];
  const eightBit = model.weightBytes === 1 && hardware.peakTflops8bit > 0;
  return {
    layers: model.layers,
    moeLayers: moe,
    denseLayers: dense,
    hiddenSize: d,
    tp,
    dp,
    weightBytes: model.weightBytes,
    activationBytes: model.activationBytes,
    tokenMatrices: [
      ...attention,
      ...block(model.denseFfnSize || model.ffnSize, dense),
      ...block(model.sharedExpertFfnSize, moe),
      ...router,
    ],
    expertMatrices:
      moe === 0
        ? []
        : [
            { depth: d, columns: inputs * expertFfn, count: moe },
            { depth: expertFfn, columns: d, count: moe },
          ],
    headMatrix: { depth: d, columns: model.vocabSize / tp, count: 1 },
    experts: model.experts,
    expertsPerToken: model.expertsPerToken,
    expertGpus: tp * dp,
    kvBytesPerToken:
      model.kvLoraRank > 0
        ? model.layers * latent * model.activationBytes
        : model.layers * 2 * kvSize * model.activationBytes,
    attentionFlopsPerPair: model.layers * 4 * querySize,
    peakFlopsPerUs: (eightBit ? hardware.peakTflops8bit : hardware.peakTflops) * 1e6,
    peakFlops16PerUs: hardware.peakTflops * 1e6,
    eightBit,
    peakBytesPerUs: hardware.memoryTbPerS * 1e6,
  };
}

/**
 * Experts that `tokens` tokens touch in a layer when routing is uniform and independent: N (1 - (1 -
 * k/N)^tokens).
 */
export function expertsTouched(shape: EngineShape, tokens: number): number {
  if (shape.experts === 0) return 0;
  return shape.experts * (1 - (1 - shape.expertsPerToken / shape.experts) ** tokens);
}
