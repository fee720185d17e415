/**
 * The physical floor: no step is shorter than its arithmetic at the GPU's peak, nor than its compulsory
 * traffic at the full bandwidth. Compulsory are each weight that the step uses once, the KV it reads once and
 * the KV it writes; attention is counted over causal pairs only. Experts are counted as uniform routing
 * touches them.
 */

import type { BatchSums } from '../batchSums.ts';
import type { LatencyModel, StepPart } from '../latencyModel.ts';
import { type EngineShape, expertsTouched, type WeightMatrix } from './engineShape.ts';

export interface PhysicalWork {
  /** Of one GPU. */
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

  constructor(shape: EngineShape) {
    this.#shape = shape;
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
    const pairs =
      batch.prefillCausalPairs2 / 2 + batch.prefillTokens + batch.decodeContextTokens + batch.decodeRequests;
    return (this.#shape.attentionFlopsPerPair * pairs) / this.#shape.dp;
  }

  #bytes(batch: BatchSums): number {
    const shape = this.#shape;
    const { tokens, sampledTokens } = batch;
    if (tokens === 0) return 0;
    const experts = expertsTouched(shape, tokens) / shape.expertGpus;
    const weights =
      this.#tokenWeights + experts * this.#expertWeights + (sampledTokens > 0 ? this.#headWeights : 0);
    const kvTokens = batch.decodeContextTokens + batch.prefillCachedTokens + tokens;
    return weights * shape.weightBytes + (shape.kvBytesPerToken * kvTokens) / shape.dp;
  }
}

/** Another model with the floor under its step times. */
export class FlooredModel implements LatencyModel {
  readonly backend: string;
  readonly outputTokenProcessingUs: number;
  readonly postDecodeOverheadUs: number;
  readonly #model: LatencyModel;
  readonly #floor: PhysicalFloor;

  constructor(model: LatencyModel, floor: PhysicalFloor) {
    this.#model = model;
    this.#floor = floor;
    this.backend = model.backend;
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
