/**
 * `calibrated`: the kernels of a step at their measured efficiency, plus the engine's own time for each
 * layer, request and step. Everything but the efficiencies follows from the architecture, so a model fitted
 * on one LLM and one degree of parallelism holds for others. The parameters come from fitting (../fit) and
 * are kept in data/latency.
 */

import { configError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { type BatchSums, type LatencyModel, type StepPart, toStepTicks } from './latencyModel.ts';
import type { Hardware } from './modelConfig.ts';
import {
  type AttentionEfficiency,
  type EngineShape,
  expertsTouched,
  type GemmEfficiency,
  gemmUs,
  type Peak,
} from './physics.ts';

/** Time that an engine adds to its kernels. */
interface EngineOverhead {
  /** Norms, rotations, launches and gaps of one layer, µs. */
  readonly perLayerUs: number;
  /** Scheduling, sampling and detokenising of one request, µs. */
  readonly perRequestUs: number;
  readonly perStepUs: number;
  /** Share of the interconnect's bandwidth that a reduction over the GPUs reaches. */
  readonly reduceEfficiency: number;
  /**
   * Bytes from which on a reduction goes round the ring in pieces, and not from each GPU to each in one go.
   */
  readonly ringSetupBytes: number;
  /** Least time of a reduction beyond its share in `perLayerUs`, µs; 0 unless set. */
  readonly reduceLatencyUs?: number;
}

export interface CalibratedCoefficients {
  readonly gemm16: GemmEfficiency;
  readonly gemm8: GemmEfficiency;
  readonly attention: AttentionEfficiency;
  readonly engine: EngineOverhead;
  /** Queueing, post-decode and output token overhead in µs, as upstream's alpha. */
  readonly request: {
    readonly queueingUs: number;
    readonly postDecodeUs: number;
    readonly outputTokenUs: number;
  };
}

/**
 * Coefficients as they are on the links of another GPU: what reductions reach there is the link's. Where the GPU is
 * the one that they were fitted on, they stay.
 */
export function onLinksOf(
  hardware: Pick<Hardware, 'name' | 'reduceEfficiency' | 'reduceLatencyUs'>,
  gpu: string,
  coefficients: CalibratedCoefficients,
): CalibratedCoefficients {
  if (hardware.reduceEfficiency === 0 || gpu.toLowerCase() === hardware.name.toLowerCase())
    return coefficients;
  const { reduceEfficiency, reduceLatencyUs } = hardware;
  return { ...coefficients, engine: { ...coefficients.engine, reduceEfficiency, reduceLatencyUs } };
}

export class Calibrated implements LatencyModel {
  readonly backend: string = 'calibrated';
  readonly outputTokenProcessingUs: number;
  readonly postDecodeOverheadUs: number;
  readonly windowTokens: number;
  readonly #shape: EngineShape;
  readonly #coefficients: CalibratedCoefficients;
  readonly #gemm: GemmEfficiency;
  readonly #peak: Peak;
  readonly #reduceBytesPerUs: number;
  #lastRows = { tokens: 0, sampled: 0, us: 0 };

  /**
   * @param interconnectGbPerS one direction, between the GPUs of the engine; needed from two GPUs on.
   * @throws {TierKVError} TKV_CONFIG when it is needed and 0.
   */
  constructor(shape: EngineShape, interconnectGbPerS: number, coefficients: CalibratedCoefficients) {
    checkInputs(
      { shape, interconnectGbPerS, coefficients },
      {
        shape: is.fields({ layers: is.number(), moeLayers: is.number() }),
        interconnectGbPerS: is.number(),
        coefficients: is.fields({ gemm16: is.object(), gemm8: is.object() }),
      },
    );
    if (shape.tp * shape.dp > 1 && !(interconnectGbPerS > 0)) {
      const remedy = 'Add it to the GPU file, in GB/s for one direction.';
      throw configError('interconnectGbPerS', `is 0, but the engine has several GPUs`, remedy);
    }
    this.#shape = shape;
    this.windowTokens = shape.windowTokens;
    this.#coefficients = coefficients;
    this.#gemm = shape.eightBit ? coefficients.gemm8 : coefficients.gemm16;
    this.#peak = { flopsPerUs: shape.peakFlopsPerUs, bytesPerUs: shape.peakBytesPerUs };
    this.#reduceBytesPerUs = interconnectGbPerS * 1e3 * coefficients.engine.reduceEfficiency;
    this.outputTokenProcessingUs = Math.trunc(coefficients.request.outputTokenUs);
    this.postDecodeOverheadUs = Math.trunc(coefficients.request.postDecodeUs);
  }

  stepTimeUs(batch: BatchSums): number {
    return toStepTicks(this.stepUs(batch));
  }

  /** The step time before truncation, which fits need. */
  stepUs(batch: BatchSums): number {
    if (batch.requests === 0) return 0;
    return (
      this.#matrixUs(batch) +
      this.#expertUs(batch) +
      this.#attentionUs(batch) +
      this.#communicationUs(batch) +
      this.#engineUs(batch)
    );
  }

  explain(batch: BatchSums): readonly StepPart[] {
    return [
      { part: 'matrix products', us: this.#matrixUs(batch) },
      { part: 'experts', us: this.#expertUs(batch) },
      { part: 'attention', us: this.#attentionUs(batch) },
      { part: 'communication', us: this.#communicationUs(batch) },
      { part: 'engine', us: this.#engineUs(batch) },
    ];
  }

  queueingTimeUs(): number {
    return Math.trunc(this.#coefficients.request.queueingUs);
  }

  #productUs(rows: number, depth: number, columns: number): number {
    const { weightBytes, activationBytes } = this.#shape;
    return gemmUs(this.#gemm, this.#peak, rows, depth, columns, weightBytes, activationBytes);
  }

  /** Depends on rows alone, which stay from step to step while a batch decodes: the last value is kept. */
  #matrixUs(batch: BatchSums): number {
    const { tokens, sampledTokens } = batch;
    if (tokens !== this.#lastRows.tokens || sampledTokens !== this.#lastRows.sampled) {
      this.#lastRows = { tokens, sampled: sampledTokens, us: this.#rowsUs(batch) };
    }
    return this.#lastRows.us;
  }

  #rowsUs(batch: BatchSums): number {
    const { dp, tokenMatrices, headMatrix } = this.#shape;
    const rows = batch.tokens / dp;
    if (rows === 0) return 0;
    let us = 0;
    for (const { depth, columns, count } of tokenMatrices)
      us += count * this.#productUs(rows, depth, columns);
    const sampled = batch.sampledTokens / dp;
    return sampled === 0 ? us : us + this.#productUs(sampled, headMatrix.depth, headMatrix.columns);
  }

  /** One grouped product a matrix: the experts touched here, with the rows routed to them. */
  #expertUs(batch: BatchSums): number {
    const shape = this.#shape;
    if (shape.experts === 0 || batch.tokens === 0) return 0;
    const touched = expertsTouched(shape, batch.tokens);
    const here = touched / shape.expertGpus;
    const rowsEach = (shape.expertImbalance * batch.tokens * shape.expertsPerToken) / touched;
    const { launchUs } = this.#gemm;
    let us = 0;
    for (const { depth, columns, count } of shape.expertMatrices) {
      us += count * (launchUs + here * (this.#productUs(rowsEach, depth, columns) - launchUs));
    }
    return us;
  }

  #attentionUs(batch: BatchSums): number {
    const shape = this.#shape;
    const { attention } = this.#coefficients;
    const pairs = batch.prefillCausalPairs2 / 2 + batch.prefillTokens;
    const inWindow = batch.prefillWindowPairs2 / 2 + batch.prefillTokens;
    const flops = shape.attentionFlopsPerPair * pairs + shape.windowFlopsPerPair * inWindow;
    const prefillUs = flops / (shape.peakFlops16PerUs * attention.prefill);
    const decodeBytes =
      shape.kvBytesPerToken * (batch.decodeContextTokens + batch.decodeRequests) +
      shape.windowKvBytesPerToken * (batch.decodeWindowTokens + batch.decodeRequests) +
      2 * shape.stateBytes * batch.decodeRequests;
    return (prefillUs + decodeBytes / (shape.peakBytesPerUs * attention.decode)) / shape.dp;
  }

  #communicationUs(batch: BatchSums): number {
    const { tp, dp, mixingLayers, denseLayers, moeLayers, hiddenSize, activationBytes, expertGpus } =
      this.#shape;
    if (tp * dp === 1) return 0;
    const message = (batch.tokens / dp) * hiddenSize * activationBytes;
    const direct = (tp - 1) * message;
    const ring = ((2 * (tp - 1)) / tp) * message + this.#coefficients.engine.ringSetupBytes;
    const reductions = mixingLayers + denseLayers + (dp === 1 ? moeLayers : 0);
    const { expertImbalance } = this.#shape;
    const exchanged =
      dp > 1 ? expertImbalance * moeLayers * ((2 * (expertGpus - 1)) / expertGpus) * message : 0;
    const latencyUs =
      (this.#coefficients.engine.reduceLatencyUs ?? 0) * (reductions + (dp > 1 ? 2 * moeLayers : 0));
    return latencyUs + (reductions * Math.min(direct, ring) + exchanged) / this.#reduceBytesPerUs;
  }

  #engineUs(batch: BatchSums): number {
    const { perLayerUs, perRequestUs, perStepUs } = this.#coefficients.engine;
    return perStepUs + this.#shape.layers * perLayerUs + perRequestUs * batch.requests;
  }
}
