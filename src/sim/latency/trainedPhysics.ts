/**
 * `trained-physics`: upstream's default. Analytical times of computing, reading KV and weights and exchanging
 * activations, each times a trained coefficient. It is reproduced to the microsecond, with the properties
 * that make it wrong in places (a prefill at several times the GPU's peak, all experts read in each step, KV
 * always in 16 bits): those are why the physical floor is put under it unless it is asked not to.
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
import type { MoeCommBackend } from './latencyNames.ts';
import { derivedHeadDim, type Hardware, layerSplit, type ModelConfig } from './modelConfig.ts';

/**
 * alpha: queueing, post-decode and per-token overhead in µs. beta: 7 to 11 corrections in upstream's order.
 */
export interface TrainedPhysicsCoefficients {
  readonly alpha: readonly number[];
  readonly beta: readonly number[];
}

function requireCoefficients({ alpha, beta }: TrainedPhysicsCoefficients): void {
  if (alpha.length !== 3) throw configError('alpha', `has ${alpha.length} values, not 3`, 'Give three.');
  if (beta.length < 7 || beta.length > 11) {
    throw configError('beta', `has ${beta.length} values, not 7 to 11`, 'Give 7 to 11.');
  }
  for (const [name, values] of Object.entries({ alpha, beta })) {
    values.forEach((value, i) => {
      if (Number.isFinite(value) && value >= 0) return;
      throw configError(`${name}[${i}]`, `is ${value}`, 'Use finite numbers of at least 0.');
    });
  }
}

/** @param repeats whether an engine repeats KV heads over more GPUs than there are of them, as vLLM; upstream has no such case */
export function requireDivisibleHeads(model: ModelConfig, tp: number, repeats: boolean): void {
  for (const [what, heads] of [
    ['attention heads', model.heads],
    ['KV heads', model.kvHeads],
  ] as const) {
    const isRepeated = what === 'KV heads' && repeats && tp % heads === 0;
    // a latent is on every GPU
    const isLatent = what === 'KV heads' && repeats && model.kvLoraRank > 0;
    if (heads % tp !== 0 && !isRepeated && !isLatent) {
      const remedy = `Choose a tensor parallelism that divides ${heads}.`;
      throw configError(
        'tp',
        `is ${tp}, which does not divide the ${heads} ${what} of ${model.name}`,
        remedy,
      );
    }
  }
}

export class TrainedPhysics implements LatencyModel {
  readonly backend: string = 'trained-physics';
  readonly outputTokenProcessingUs: number;
  readonly postDecodeOverheadUs: number;
  readonly #queueingUs: number;
  readonly #beta: readonly number[];
  readonly #betas: number;

  // Constants of the formulas; flops and bytes are of one GPU.
  readonly #layers: number;
  readonly #projectionFlopsPerToken: number;
  readonly #attentionFlopsPerPair: number;
  readonly #ffnFlopsPerToken: number;
  readonly #kvBytesPerToken: number;
  readonly #weightUs: number;
  readonly #reduceUsPerToken: number;
  readonly #dispatchUsPerToken: number;
  readonly #interleavedUs: number;
  readonly #flopsPerUs: number;
  readonly #bytesPerUs: number;

  /**
   * @throws {TierKVError} TKV_CONFIG for coefficients out of range or heads that the GPUs cannot share
   * evenly.
   */
  constructor(
    model: ModelConfig,
    hardware: Hardware,
    ranks: Parallelism,
    coefficients: TrainedPhysicsCoefficients,
    comm: MoeCommBackend,
  ) {
    checkInputs(
      { model, hardware, coefficients, comm, ranks },
      {
        model: is.fields({ name: is.text(), layers: is.number() }),
        hardware: is.fields({ name: is.text(), peakTflops: is.number() }),
        coefficients: is.fields({ alpha: is.array(), beta: is.array() }),
        comm: is.text(),
        ranks: is.fields({ tp: is.number() }),
      },
    );
    const { tp, dp } = ranks;
    requireCoefficients(coefficients);
    requireDivisibleHeads(model, tp, false);
    const { alpha, beta } = coefficients;
    this.#queueingUs = toTicks(alpha[0]);
    this.postDecodeOverheadUs = toTicks(alpha[1]);
    this.outputTokenProcessingUs = toTicks(alpha[2]);
    this.#betas = beta.length;
    this.#beta = Array.from({ length: 11 }, (_, i) => beta[i] ?? (i === 10 ? beta[3] : 0));

    const d = model.hiddenSize;
    const headDim = derivedHeadDim(model);
    const kvSize = model.kvHeads * headDim;
    const layers = model.layers;
    const { moe, dense } = layerSplit(model, false);
    const isMoe = model.experts > 0;
    const k = Math.max(1, model.expertsPerToken);
    const group = isMoe ? tp * dp : tp;
    const expertFfn = model.expertFfnSize || model.ffnSize;
    const denseFfn = model.denseFfnSize || model.ffnSize;
    this.#layers = layers;
    this.#flopsPerUs =
      (model.weightBytes === 1 && hardware.peakTflops8bit > 0
        ? hardware.peakTflops8bit
        : hardware.peakTflops) * 1e6;
    this.#bytesPerUs = hardware.memoryTbPerS * 1e6;

    this.#projectionFlopsPerToken = (layers * 2 * d * (2 * d + 2 * kvSize)) / (tp * dp);
    this.#attentionFlopsPerPair = (layers * 4 * (model.heads / tp) * headDim) / dp;
    this.#ffnFlopsPerToken =
      (moe * k * 6 * d * expertFfn) / group +
      (moe * 6 * d * model.sharedExpertFfnSize) / (tp * dp) +
      (dense * 6 * d * denseFfn) / (tp * dp);
    this.#kvBytesPerToken = layers * 2 * (kvSize / (tp * dp)) * (model.kvElementBytes ?? 2);
    this.#weightUs =
      ((layers * d * (2 * d + 2 * kvSize) * model.weightBytes) / tp +
        moe * (model.experts / group) * 3 * d * expertFfn * model.weightBytes +
        (moe * 3 * d * model.sharedExpertFfnSize * model.weightBytes) / tp +
        (dense * 3 * d * denseFfn * model.weightBytes) / tp) /
      this.#bytesPerUs;
    const reduceUs = (units: number): number =>
      (units * d * model.activationBytes * 2 * (tp - 1)) / tp / this.#bytesPerUs;
    this.#reduceUsPerToken =
      reduceUs(layers) / dp + reduceUs(dense) / dp + (isMoe && dp === 1 ? reduceUs(moe) : 0);
    const allGather = comm === 'allgather_reducescatter' || comm === 'naive';
    const perToken = ((group - 1) / group) * 2 * d * model.activationBytes * (allGather ? 1 : k);
    this.#dispatchUsPerToken = isMoe && dp > 1 ? (moe * perToken) / dp / this.#bytesPerUs : 0;
    this.#interleavedUs = isMoe && model.interleaveMoeLayerStep > 0 ? this.#beta[7] * moe : 0;
  }

  stepTimeUs(batch: BatchSums): number {
    if (batch.requests === 0) return 1;
    const beta = this.#beta;
    return toStepTicks(
      this.#prefillUs(batch) +
        this.#decodeUs(batch) +
        beta[2] * this.#weightUs +
        beta[3] * (this.#reduceUsPerToken * batch.tokens) +
        beta[10] * (this.#dispatchUsPerToken * batch.tokens) +
        beta[4] * this.#layers +
        beta[5] * batch.requests +
        beta[6] +
        this.#interleavedUs,
    );
  }

  explain(batch: BatchSums): readonly StepPart[] {
    const beta = this.#beta;
    return [
      { part: 'prefill', us: this.#prefillUs(batch) },
      { part: 'decode', us: this.#decodeUs(batch) },
      { part: 'weights', us: beta[2] * this.#weightUs },
      { part: 'tensor parallel reduce', us: beta[3] * this.#reduceUsPerToken * batch.tokens },
      { part: 'expert dispatch', us: beta[10] * this.#dispatchUsPerToken * batch.tokens },
      { part: 'layers', us: beta[4] * this.#layers + this.#interleavedUs },
      { part: 'requests', us: beta[5] * batch.requests },
      { part: 'step', us: beta[6] },
    ];
  }

  queueingTimeUs(): number {
    return this.#queueingUs;
  }

  #prefillUs(batch: BatchSums): number {
    const tokens = batch.prefillTokens;
    if (tokens === 0) return 0;
    const flops =
      this.#projectionFlopsPerToken * tokens +
      this.#attentionFlopsPerPair * (batch.prefillPromptPairs2 / 2) +
      this.#ffnFlopsPerToken * tokens;
    const compute = flops / this.#flopsPerUs;
    const kv = (this.#kvBytesPerToken * tokens) / this.#bytesPerUs;
    if (this.#betas >= 9) return this.#beta[0] * compute + this.#beta[8] * kv;
    return this.#beta[0] * Math.max(compute, kv);
  }

  #decodeUs(batch: BatchSums): number {
    const tokens = batch.decodeRequests + batch.draftTokens;
    if (tokens === 0) return 0;
    const pairs = batch.decodeContextTokens * (tokens / batch.decodeRequests);
    const flops =
      this.#projectionFlopsPerToken * tokens +
      this.#attentionFlopsPerPair * pairs +
      this.#ffnFlopsPerToken * tokens;
    const compute = flops / this.#flopsPerUs;
    const kv = (this.#kvBytesPerToken * (batch.decodeContextTokens + tokens)) / this.#bytesPerUs;
    if (this.#betas >= 10) return this.#beta[1] * compute + this.#beta[9] * kv;
    return this.#beta[1] * Math.max(compute, kv);
  }
}
