/**
 * Physical cost of a step: a model as one GPU sees it (matrices, bytes, messages), the floor below which no step can
 * be, and the times of its three kernels.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { layerKvBytesPerToken } from './engineMemory.ts';
import { fullLayersOf } from './hybridLayers.ts';
import type { BatchSums, LatencyModel, Parallelism, StepPart } from './latencyModel.ts';
import {
  type Hardware,
  kvElementBytesOf,
  kvElements,
  layerSplit,
  type ModelConfig,
  trueHeadDim,
} from './modelConfig.ts';

// A model as one GPU of an engine sees it. Unlike upstream's step times this takes the true head size,
// three feed-forward matrices, dense first layers and the output head, since `calibrated` and the physical
// floor are about what the hardware has to do.

/** A weight matrix: products of `rows` x `depth` with it occur `count` times in a pass. */
export interface WeightMatrix {
  readonly depth: number;
  readonly columns: number;
  readonly count: number;
}

export interface EngineShape {
  readonly layers: number;
  /** Layers that attend or keep a state: not feed-forward blocks that count as layers. */
  readonly mixingLayers: number;
  readonly moeLayers: number;
  readonly denseLayers: number;
  readonly hiddenSize: number;
  readonly tp: number;
  readonly dp: number;
  readonly weightBytes: number;
  readonly activationBytes: number;
  /** Matrices that every token of the rank goes through. */
  readonly tokenMatrices: readonly WeightMatrix[];
  /** How many of them, the first, are of attention. */
  readonly attentionMatrices: number;
  /** Matrices of one expert; `count` is the number of MoE layers. */
  readonly expertMatrices: readonly WeightMatrix[];
  /** Applied to sampled tokens only. */
  readonly headMatrix: WeightMatrix;
  readonly experts: number;
  readonly expertsPerToken: number;
  /** GPUs over which the experts are spread. */
  readonly expertGpus: number;
  /** Tokens that go to the busiest of them, over the mean: a step takes as long as that GPU. */
  readonly expertImbalance: number;
  /** KV bytes of one token on one GPU, over all layers that attend to their whole context. */
  readonly kvBytesPerToken: number;
  /** Operations of one GPU for one pair of a token and an earlier one, over all those layers: scores and weighted sum. */
  readonly attentionFlopsPerPair: number;
  /** The same of the layers that attend to a sliding window, and its tokens; 0 without any. */
  readonly windowTokens: number;
  readonly windowKvBytesPerToken: number;
  readonly windowFlopsPerPair: number;
  /** Bytes of the states of linear layers, of one sequence on one GPU: a step reads and writes them. */
  readonly stateBytes: number;
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

/**
 * Projections of MLA. Where the file does not say what they are made of, the one into the latent is all that can be told, and
 * the floor stays a lower bound.
 */
function latentMatrices(model: ModelConfig, tp: number): WeightMatrix[] {
  const { hiddenSize: d, heads, kvLoraRank, qkRopeHeadDim, layers: count, mla } = model;
  const into: WeightMatrix = { depth: d, columns: kvLoraRank + qkRopeHeadDim, count };
  if (mla === undefined) return [into];
  const { queryRank, plainHeadDim, valueHeadDim } = mla;
  const query = (heads * (plainHeadDim + qkRopeHeadDim)) / tp;
  const queries: WeightMatrix[] =
    queryRank > 0
      ? [
          { depth: d, columns: queryRank, count },
          { depth: queryRank, columns: query, count },
        ]
      : [{ depth: d, columns: query, count }];
  return [
    into,
    ...queries,
    { depth: kvLoraRank, columns: (heads * (plainHeadDim + valueHeadDim)) / tp, count },
    { depth: (heads * valueHeadDim) / tp, columns: d, count },
  ];
}

/**
 * The part of a context that a step reads and computes over: of the whole of it, and of a window. Sparse attention reads what its indexer
 * chose, at most a number of tokens, as a window does, and the indexer's keys of all.
 */
function attended(
  model: ModelConfig,
  tp: number,
  full: number,
  windows: number,
  pairFlops: number,
): Pick<
  EngineShape,
  | 'kvBytesPerToken'
  | 'attentionFlopsPerPair'
  | 'windowTokens'
  | 'windowKvBytesPerToken'
  | 'windowFlopsPerPair'
> {
  const bytes = full * layerKvBytesPerToken(model, tp, kvElementBytesOf(model));
  const { indexer } = model;
  if (indexer !== undefined) {
    return {
      kvBytesPerToken: indexer.layers * indexer.tokenBytes,
      attentionFlopsPerPair: indexer.layers * 2 * indexer.heads * indexer.headDim,
      windowTokens: indexer.topk,
      windowKvBytesPerToken: bytes,
      windowFlopsPerPair: full * pairFlops,
    };
  }
  const elements = kvElements(model, tp, true);
  return {
    kvBytesPerToken: bytes,
    attentionFlopsPerPair: full * pairFlops,
    windowTokens: windows > 0 ? (model.hybrid?.windowTokens ?? 0) : 0,
    windowKvBytesPerToken: windows * elements * kvElementBytesOf(model),
    windowFlopsPerPair: windows * pairFlops,
  };
}

const gatedActivations: readonly string[] = ['', 'silu', 'swiglu', 'geglu', 'situ', 'gelu_pytorch_tanh'];

export function engineShape(
  model: ModelConfig,
  hardware: Hardware,
  ranks: Parallelism & { readonly expertImbalance?: number },
): EngineShape {
  checkInputs(
    { model, hardware, ranks },
    {
      model: is.fields({ name: is.text(), layers: is.number() }),
      hardware: is.fields({ name: is.text(), peakTflops: is.number() }),
      ranks: is.fields({ tp: is.number() }),
    },
  );
  const { tp, dp, expertImbalance = 1 } = ranks;
  const d = model.hiddenSize;
  const headDim = trueHeadDim(model);
  const querySize = (model.heads * headDim) / tp;
  const valueDim = model.valueDim ?? headDim;
  const valueSize = (model.heads * valueDim) / tp;
  const { moe, dense } = layerSplit(model, true);
  const inputs = gatedActivations.includes(model.hiddenAct) ? 2 : 1;
  const block = (width: number, count: number): WeightMatrix[] =>
    width === 0 || count === 0
      ? []
      : [
          { depth: d, columns: (inputs * width) / tp, count },
          { depth: width / tp, columns: d, count },
        ];
  const { windowLayers = 0, sharingWindowLayers = 0, linearLayers = 0, idleLayers = 0 } = model.hybrid ?? {};
  const attending = model.layers - linearLayers - idleLayers;
  const full = fullLayersOf(model).attending;
  const { linearInputs = 0, linearOutputs = 0, stateElements = 0 } = model.hybrid ?? {};
  const linear: WeightMatrix[] =
    linearLayers === 0
      ? []
      : [
          { depth: d, columns: linearInputs / tp, count: linearLayers },
          { depth: linearOutputs / tp, columns: d, count: linearLayers },
        ];
  const attention: WeightMatrix[] =
    model.kvLoraRank > 0
      ? latentMatrices(model, tp)
      : [
          { depth: d, columns: querySize + kvElements(model, tp), count: attending },
          { depth: valueSize, columns: d, count: attending },
        ];
  const expertFfn = model.expertFfnSize || model.ffnSize;
  // scores and weighted sum: twice two products a pair, over the heads' own keys and values
  const { plainHeadDim = headDim, valueHeadDim = headDim } = model.mla ?? {};
  const pairFlops =
    model.mla === undefined
      ? 2 * (querySize + valueSize)
      : (2 * model.heads * (plainHeadDim + model.qkRopeHeadDim + valueHeadDim)) / tp;
  const router = moe > 0 ? [{ depth: d, columns: model.experts, count: moe }] : [];
  const eightBit = model.weightBytes === 1 && hardware.peakTflops8bit > 0;
  return {
    layers: model.layers,
    mixingLayers: model.layers - idleLayers,
    moeLayers: moe,
    denseLayers: dense,
    hiddenSize: d,
    tp,
    dp,
    weightBytes: model.weightBytes,
    activationBytes: model.activationBytes,
    attentionMatrices: attention.length,
    tokenMatrices: [
      ...attention,
      ...linear,
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
    expertImbalance,
    ...attended(model, tp, full, windowLayers + sharingWindowLayers, pairFlops),
    stateBytes: (linearLayers * stateElements * model.activationBytes) / tp,
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
export function expertsTouched(
  shape: Pick<EngineShape, 'experts' | 'expertsPerToken'>,
  tokens: number,
): number {
  if (shape.experts === 0) return 0;
  return shape.experts * (1 - (1 - shape.expertsPerToken / shape.experts) ** tokens);
}

// The physical floor: no step is shorter than its arithmetic at the GPU's peak, nor than its compulsory
// traffic at the full bandwidth. Compulsory are each weight that the step uses once, the KV it reads once and
// the KV it writes; attention is counted over causal pairs only. Experts are counted as uniform routing
// touches them.

interface PhysicalWork {
  /** Operations on one GPU. */
  readonly flops: number;
  readonly bytes: number;
}

function elements(matrices: readonly WeightMatrix[]): number {
  return matrices.reduce((sum, { depth, columns, count }) => sum + depth * columns * count, 0);
}

export class PhysicalFloor {
  readonly #shape: EngineShape;
  readonly #tokenWeights: number;
  readonly #expertWeights: number;
  readonly #headWeights: number;

  readonly windowTokens: number;

  constructor(shape: EngineShape) {
    this.#shape = shape;
    this.windowTokens = shape.windowTokens;
    this.#tokenWeights = elements(shape.tokenMatrices);
    this.#expertWeights = elements(shape.expertMatrices);
    this.#headWeights = elements([shape.headMatrix]);
  }

  /**
   * Arithmetic and traffic of the busiest kind of GPU for a step, with the batch spread evenly over the
   * ranks.
   */
  work(batch: BatchSums): PhysicalWork {
    const flops = this.#productFlops(batch) + this.#attentionFlops(batch);
    const bytes = this.#bytes(batch);
    return { flops, bytes };
  }

  /** max(flops / peak, bytes / bandwidth) in µs, not rounded. */
  floorUs(batch: BatchSums): number {
    return Math.max(
      this.#productFlops(batch) / this.#shape.peakFlopsPerUs +
        this.#attentionFlops(batch) / this.#shape.peakFlops16PerUs,
      this.#bytes(batch) / this.#shape.peakBytesPerUs,
    );
  }

  #productFlops(batch: BatchSums): number {
    const shape = this.#shape;
    return (
      (2 * batch.tokens * this.#tokenWeights) / shape.dp +
      (2 * batch.tokens * shape.expertsPerToken * this.#expertWeights) / shape.expertGpus +
      (2 * batch.sampledTokens * this.#headWeights) / shape.dp
    );
  }

  #attentionFlops(batch: BatchSums): number {
    const { attentionFlopsPerPair, windowFlopsPerPair, dp } = this.#shape;
    const own = batch.prefillTokens + batch.decodeRequests;
    const pairs = batch.prefillCausalPairs2 / 2 + batch.decodeContextTokens + own;
    const inWindow = batch.prefillWindowPairs2 / 2 + batch.decodeWindowTokens + own;
    return (attentionFlopsPerPair * pairs + windowFlopsPerPair * inWindow) / dp;
  }

  #bytes(batch: BatchSums): number {
    const shape = this.#shape;
    const { tokens, sampledTokens } = batch;
    if (tokens === 0) return 0;
    const experts = expertsTouched(shape, tokens) / shape.expertGpus;
    const weights =
      this.#tokenWeights + experts * this.#expertWeights + (sampledTokens > 0 ? this.#headWeights : 0);
    const kvTokens = batch.decodeContextTokens + batch.prefillCachedTokens + tokens;
    const inWindow = batch.decodeWindowTokens + batch.prefillWindowCachedTokens + tokens;
    const kv = shape.kvBytesPerToken * kvTokens + shape.windowKvBytesPerToken * inWindow;
    return weights * shape.weightBytes + (kv + 2 * shape.stateBytes * batch.decodeRequests) / shape.dp;
  }
}

/** Another model with the floor under its step times. */
export class FlooredModel implements LatencyModel {
  readonly backend: string;
  readonly outputTokenProcessingUs: number;
  readonly postDecodeOverheadUs: number;
  readonly windowTokens: number;
  readonly borrowed: readonly string[];
  readonly #model: LatencyModel;
  readonly #floor: PhysicalFloor;

  constructor(model: LatencyModel, floor: PhysicalFloor) {
    this.#model = model;
    this.#floor = floor;
    this.backend = model.backend;
    this.windowTokens = floor.windowTokens;
    this.borrowed = model.borrowed ?? [];
    this.outputTokenProcessingUs = model.outputTokenProcessingUs;
    this.postDecodeOverheadUs = model.postDecodeOverheadUs;
  }

  stepTimeUs(batch: BatchSums): number {
    return Math.max(this.#model.stepTimeUs(batch), Math.ceil(this.#floor.floorUs(batch)));
  }

  explain(batch: BatchSums): readonly StepPart[] {
    const missing = this.stepTimeUs(batch) - this.#model.stepTimeUs(batch);
    const parts = this.#model.explain(batch);
    return missing > 0 ? [...parts, { part: 'up to the physical floor', us: missing }] : parts;
  }

  queueingTimeUs(promptTokens: number): number {
    return this.#model.queueingTimeUs(promptTokens);
  }
}

// Times of the three kernels that a transformer step consists of, as functions with a few parameters that are
// fitted to kernel measurements. A matrix product takes the p-norm of streaming its operands and of
// computing, which is the larger one far from the ridge of the roofline and a little more near it. Attention
// adds up, since its streams do not overlap.

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
