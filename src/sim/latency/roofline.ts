/**
 * `roofline`: upstream's analytical backend. The longer of computing at a fixed share of the peak and moving
 * bytes at the full bandwidth, with no overhead and no communication. Reproduced to the microsecond, with its
 * two-matrix feed-forward.
 */

import { configError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import {
  type BatchSums,
  type LatencyModel,
  type Parallelism,
  type StepPart,
  toStepTicks,
  toTicks,
} from './latencyModel.ts';
import { type Hardware, kvElementBytesOf, layerSplit, type ModelConfig } from './modelConfig.ts';

/** Upstream sizes a gated feed-forward block with two matrices here, and with three elsewhere. */
const ffnMatrices = 2;

export class Roofline implements LatencyModel {
  readonly backend: string = 'roofline';
  readonly outputTokenProcessingUs: number;
  readonly postDecodeOverheadUs: number = 0;
  readonly #alpha: readonly number[];
  readonly #prefillFlopsPerS: number;
  readonly #decodeFlopsPerS: number;
  readonly #bytesPerS: number;
  readonly #tp: number;
  readonly #flopsPerToken: number;
  readonly #flopsPerPair: number;
  readonly #weightBytes: number;
  readonly #bytesPerExpert: number;
  readonly #experts: number;
  readonly #idleShare: number;
  readonly #kvBytesPerToken: number;
  readonly #activationBytesPerToken: number;

  /** @param alpha queueing time, its slope in prompt tokens, and overhead of an output token, in µs. */
  constructor(model: ModelConfig, hardware: Hardware, ranks: Parallelism, alpha: readonly number[]) {
    checkInputs(
      { model, hardware, alpha, ranks },
      {
        model: is.fields({ name: is.text(), layers: is.number() }),
        hardware: is.fields({ name: is.text(), peakTflops: is.number() }),
        alpha: is.list(is.number()),
        ranks: is.fields({ tp: is.number() }),
      },
    );
    const { tp } = ranks;
    if (alpha.length !== 3 || alpha.some((value) => !(Number.isFinite(value) && value >= 0))) {
      throw configError('alpha', `is [${alpha.join(', ')}]`, 'Give three finite numbers of at least 0.');
    }
    this.#alpha = alpha;
    this.outputTokenProcessingUs = toTicks(alpha[2]);
    this.#tp = tp;
    const eightBit = model.weightBytes === 1 && hardware.peakTflops8bit > 0;
    const peak = (eightBit ? hardware.peakTflops8bit : hardware.peakTflops) * 1e12;
    this.#prefillFlopsPerS = peak * hardware.mfuPrefill;
    this.#decodeFlopsPerS = peak * hardware.mfuDecode;
    this.#bytesPerS = hardware.memoryTbPerS * 1e12;

    const d = model.hiddenSize;
    const headDim = d / model.heads;
    const kvSize = model.kvHeads * headDim;
    const { moe, dense } = layerSplit(model, false);
    const expertFfn = model.expertFfnSize || model.ffnSize;
    const denseFfn = model.denseFfnSize || model.ffnSize;
    const attentionWeights = d * (d + 2 * kvSize) + d * d;
    const denseWeights = ffnMatrices * d * denseFfn * dense;
    this.#flopsPerToken =
      model.layers * (2 * attentionWeights + 2 * d) +
      moe * 2 * ffnMatrices * d * expertFfn * model.expertsPerToken +
      2 * denseWeights;
    this.#flopsPerPair = model.layers * (4 * model.heads * headDim + 5 * model.heads);
    this.#weightBytes = (attentionWeights * model.layers + denseWeights) * model.weightBytes;
    this.#bytesPerExpert = ffnMatrices * d * expertFfn * moe * model.weightBytes;
    this.#experts = model.experts;
    this.#idleShare = model.experts > 0 ? (model.experts - model.expertsPerToken) / model.experts : 0;
    this.#kvBytesPerToken = 2 * model.layers * kvSize * kvElementBytesOf(model);
    this.#activationBytesPerToken = model.layers * d * model.activationBytes;
  }

  stepTimeUs(batch: BatchSums): number {
    if (batch.prefillRequests === 0 && batch.decodeRequests === 0) return 1;
    return toStepTicks(Math.max(this.#computeS(batch), this.#memoryS(batch)) * 1e6);
  }

  explain(batch: BatchSums): readonly StepPart[] {
    const compute = this.#computeS(batch) * 1e6;
    const memory = this.#memoryS(batch) * 1e6;
    const [bound, hidden] = compute > memory ? ['compute', 'memory'] : ['memory', 'compute'];
    return [
      { part: bound, us: Math.max(compute, memory) },
      { part: `${hidden} (hidden: ${Math.min(compute, memory).toFixed(1)} us)`, us: 0 },
    ];
  }

  queueingTimeUs(promptTokens: number): number {
    return toTicks(this.#alpha[0] + this.#alpha[1] * promptTokens);
  }

  #computeS(batch: BatchSums): number {
    const prefill =
      this.#flopsPerToken * batch.prefillTokens + this.#flopsPerPair * (batch.prefillCausalPairs2 / 2);
    const decode =
      this.#flopsPerToken * batch.decodeRequests + this.#flopsPerPair * batch.decodeContextTokens;
    return prefill / this.#tp / this.#prefillFlopsPerS + decode / this.#tp / this.#decodeFlopsPerS;
  }

  #memoryS(batch: BatchSums): number {
    const tokens = batch.tokens;
    const used = this.#experts > 0 ? this.#experts * (1 - this.#idleShare ** tokens) : 0;
    const weights = this.#weightBytes + this.#bytesPerExpert * used;
    const context = batch.prefillCachedTokens + batch.decodeContextTokens;
    const dynamic = this.#kvBytesPerToken * (tokens + context) + this.#activationBytesPerToken * tokens;
    return (weights / this.#tp + dynamic / this.#tp) / this.#bytesPerS;
  }
}
