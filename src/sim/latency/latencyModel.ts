/**
 * The one interface between a simulator and any model of time. All times are whole microseconds; a step takes
 * at least 1. A model is immutable and keeps no history, so one object serves any number of instances, forks
 * and runs.
 */

import type { BatchSums } from './batchSums.ts';

export interface LatencyModel {
  readonly backend: string;
  /** How long the engine takes for one step over a batch of these sums. */
  stepTimeUs(batch: BatchSums): number;
  /** What a step time is made of, for people; the parts add up to the time before truncation and floor. */
  explain(batch: BatchSums): readonly StepPart[];
  /** From arrival until the request may be scheduled. */
  queueingTimeUs(promptTokens: number): number;
  /** After each generated token, before the client sees it. */
  readonly outputTokenProcessingUs: number;
  /** After the last token of a request. */
  readonly postDecodeOverheadUs: number;
}

export interface StepPart {
  readonly part: string;
  readonly us: number;
}

/** Which part of the machine one engine has. */
export interface Parallelism {
  /** Tensor parallel GPUs, at least 1. */
  readonly tp: number;
  /** Data parallel ranks of a mixture-of-experts model, at least 1. */
  readonly dp: number;
}

/** Largest tick of upstream, 2^63 - 1, in the nearest double. */
export const maxTicks: number = 2 ** 63;

/**
 * Whole ticks as upstream takes them from a float: towards zero, and everything that does not fit is the
 * largest.
 */
export function toTicks(us: number): number {
  return Number.isNaN(us) || us >= maxTicks ? maxTicks : Math.trunc(us);
}

/** A step time in whole ticks, at least 1. */
export function toStepTicks(us: number): number {
  return Math.max(1, toTicks(us));
}

/**
 * A step under LoRA adapters: `factor` times as long, where factors up to 1 and senseless ones change
 * nothing.
 * @param factor 1 + k6/k7 times the number of distinct adapters in the batch.
 */
export function withAdapterOverhead(stepUs: number, factor: number): number {
  return Number.isFinite(factor) && factor > 1 ? toStepTicks(stepUs * factor) : stepUs;
}
