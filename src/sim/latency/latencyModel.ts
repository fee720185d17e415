/**
 * The one interface between a simulator and any model of time. All times are whole microseconds; a step takes
 * at least 1. A model is immutable and keeps no history, so one object serves any number of instances, forks
 * and runs.
 */

import { invariant } from '../../runtime/errors.ts';
import { requireShapes } from '../../runtime/options.ts';

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
const maxTicks: number = 2 ** 63;

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
  requireShapes({ stepUs, factor }, { stepUs: 'number', factor: 'number' });
  return Number.isFinite(factor) && factor > 1 ? toStepTicks(stepUs * factor) : stepUs;
}

// The sums over a batch that step times are made of. A scheduler adds a request when it schedules it, takes
// it out when it does not any more, and moves all decodes on by a token after a step; so a step costs what
// changed and not the batch's size. Every sum is a whole number far below 2^53, therefore removing a request
// leaves exactly what adding it had brought.

/**
 * One scheduled request: prompt length, tokens processed so far, tokens of this step, and tokens it is to
 * generate.
 */
export interface BatchedRequest {
  readonly promptTokens: number;
  readonly progressTokens: number;
  readonly newTokens: number;
  readonly outputTokens: number;
}

export class BatchSums {
  /** Requests of any kind. */
  requests: number = 0;
  prefillRequests: number = 0;
  /** New prompt tokens. */
  prefillTokens: number = 0;
  /** Tokens before the new ones, over the prefills: KV that is read and not computed. */
  prefillCachedTokens: number = 0;
  /** Sum of t (2 p + t - 1), twice the pairs of a new token and one before it. t new tokens after p. */
  prefillCausalPairs2: number = 0;
  /** Sum of t (2 S + t) with the whole prompt S, which `trained-physics` was trained on. */
  prefillPromptPairs2: number = 0;
  /** Prefills that end in this step and so sample a token. */
  finishingPrefills: number = 0;
  decodeRequests: number = 0;
  /** Tokens in the caches of the decodes. */
  decodeContextTokens: number = 0;

  /** Adds a request, as prefill while its prompt is not processed, else as decode if it generates at all. */
  add(request: BatchedRequest): void {
    this.#count(request, 1);
  }

  /** Takes a request out that was added with the same numbers. */
  remove(request: BatchedRequest): void {
    this.#count(request, -1);
    invariant(this.requests >= 0 && this.decodeRequests >= 0, 'a request left a batch that it was not in');
  }

  /** Adds (or with a negative count removes) decodes whose caches hold `contextTokens` together. */
  addDecodes(count: number, contextTokens: number): void {
    this.requests += count;
    this.decodeRequests += count;
    this.decodeContextTokens += contextTokens;
  }

  /** After a step: every decode has one token more in its cache. */
  advanceDecodes(): void {
    this.decodeContextTokens += this.decodeRequests;
  }

  clear(): void {
    this.copy(emptyBatch);
  }

  copy(from: BatchSums): void {
    this.requests = from.requests;
    this.prefillRequests = from.prefillRequests;
    this.prefillTokens = from.prefillTokens;
    this.prefillCachedTokens = from.prefillCachedTokens;
    this.prefillCausalPairs2 = from.prefillCausalPairs2;
    this.prefillPromptPairs2 = from.prefillPromptPairs2;
    this.finishingPrefills = from.finishingPrefills;
    this.decodeRequests = from.decodeRequests;
    this.decodeContextTokens = from.decodeContextTokens;
  }

  /** New tokens of both kinds: the rows of the weight matrix products. */
  get tokens(): number {
    return this.prefillTokens + this.decodeRequests;
  }

  /** Rows of the last matrix product, one for each token that is sampled. */
  get sampledTokens(): number {
    return this.finishingPrefills + this.decodeRequests;
  }

  #count(request: BatchedRequest, sign: 1 | -1): void {
    const { promptTokens, progressTokens, newTokens, outputTokens } = request;
    this.requests += sign;
    if (progressTokens < promptTokens) {
      this.prefillRequests += sign;
      this.prefillTokens += sign * newTokens;
      this.prefillCachedTokens += sign * progressTokens;
      this.prefillCausalPairs2 += sign * newTokens * (2 * progressTokens + newTokens - 1);
      this.prefillPromptPairs2 += sign * newTokens * (2 * promptTokens + newTokens);
      if (progressTokens + newTokens >= promptTokens) this.finishingPrefills += sign;
    } else if (outputTokens > 0) {
      this.decodeRequests += sign;
      this.decodeContextTokens += sign * progressTokens;
    }
  }
}

const emptyBatch: BatchSums = new BatchSums();

/** The sums of a whole batch. */
export function sumBatch(requests: Iterable<BatchedRequest>): BatchSums {
  const sums = new BatchSums();
  for (const request of requests) sums.add(request);
  return sums;
}
