/**
 * The one interface between a simulator and any model of time. All times are whole microseconds; a step takes
 * at least 1. A model is immutable and keeps no history, so one object serves any number of instances, forks
 * and runs.
 */

import { invariant } from '../../runtime/errors.ts';

/** A model of time: how long an engine takes for a step. */
export interface LatencyModel {
  readonly backend: string;
  /** How long the engine takes for one step over a batch of these sums. */
  stepTimeUs(batch: BatchSums): number;
  /** Parts of a step time, for people; they add up to the time before truncation and floor. */
  explain(batch: BatchSums): readonly StepPart[];
  /** From arrival until the request may be scheduled. */
  queueingTimeUs(promptTokens: number): number;
  /** After each generated token, before the client sees it. */
  readonly outputTokenProcessingUs: number;
  /** After the last token of a request. */
  readonly postDecodeOverheadUs: number;
  /** Tokens of the sliding window that sums are to tell apart; left out where the model of time has none. */
  readonly windowTokens?: number;
  /** Kernels that were not measured, each with what stands in; left out where a model of time has none. */
  readonly borrowed?: readonly string[];
  /** How its engine speculates, where it does: instances then ask for more than one token a decode. */
  readonly speculation?: SpeculativeDecoding;
}

/** How an engine speculates (speculation.ts), as plain data. */
export interface SpeculationChoice {
  /** Tokens that a draft proposes before each step, at least 1. */
  readonly draftTokens: number;
  /** Chance that a proposed token is accepted where those before it were, in [0, 1]. */
  readonly acceptance: number;
  /** Time in which a draft proposes one token a request, µs; 0 where a model does it, or for n-grams. */
  readonly draftUs: number;
  /** Seed of the draws. */
  readonly seed: string;
}

export interface SpeculativeDecoding extends SpeculationChoice {
  /** The model of time of the draft, where another model proposes. */
  readonly draft?: LatencyModel;
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

/** Sums over the requests of a step, from which a latency model takes its time. */
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
  /** The part of these sums that layers of a sliding window see; all of it with a window of 0. */
  prefillWindowPairs2: number = 0;
  prefillWindowCachedTokens: number = 0;
  decodeWindowTokens: number = 0;
  /** Proposed tokens that the decodes verify beside the one that each computes anyway. */
  draftTokens: number = 0;
  readonly windowTokens: number;

  constructor(windowTokens: number = 0) {
    this.windowTokens = windowTokens;
  }

  /** Adds a request, as prefill while its prompt is not processed, else as decode if it generates at all. */
  add(request: BatchedRequest): void {
    this.#count(request, 1);
  }

  /** Takes a request out that was added with the same numbers. */
  remove(request: BatchedRequest): void {
    this.#count(request, -1);
    invariant(this.requests >= 0 && this.decodeRequests >= 0, 'a request left a batch that it was not in');
  }

  /**
   * Adds (or with a negative count removes) decodes whose caches hold `contextTokens` together.
   * @param windowTokens of them in the window: known where each is looked at; else no more than all windows hold
   */
  addDecodes(count: number, contextTokens: number, windowTokens?: number): void {
    this.requests += count;
    this.decodeRequests += count;
    this.decodeContextTokens += contextTokens;
    const all =
      this.windowTokens === 0 ? contextTokens : Math.min(contextTokens, count * (this.windowTokens - 1));
    this.decodeWindowTokens += windowTokens ?? all;
  }

  /** After a step: every decode has one token more in its cache. Not for sums with a window. */
  advanceDecodes(): void {
    invariant(this.windowTokens === 0, 'decodes leave the window one by one');
    this.decodeContextTokens += this.decodeRequests;
    this.decodeWindowTokens += this.decodeRequests;
  }

  /** Tokens before a new one that lie in its window. */
  inWindow(tokens: number): number {
    return this.windowTokens === 0 ? tokens : Math.min(tokens, this.windowTokens - 1);
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
    this.prefillWindowPairs2 = from.prefillWindowPairs2;
    this.prefillWindowCachedTokens = from.prefillWindowCachedTokens;
    this.decodeWindowTokens = from.decodeWindowTokens;
    this.draftTokens = from.draftTokens;
  }

  /** New tokens of both kinds: the rows of the weight matrix products. */
  get tokens(): number {
    return this.prefillTokens + this.decodeRequests + this.draftTokens;
  }

  /** Rows of the last matrix product, one for each token that is sampled. */
  get sampledTokens(): number {
    return this.finishingPrefills + this.decodeRequests + this.draftTokens;
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
      this.prefillWindowCachedTokens += sign * this.inWindow(progressTokens);
      this.prefillWindowPairs2 += sign * this.#windowPairs2(progressTokens, newTokens);
      if (progressTokens + newTokens >= promptTokens) this.finishingPrefills += sign;
    } else if (outputTokens > 0) {
      this.decodeRequests += sign;
      this.decodeContextTokens += sign * progressTokens;
      this.decodeWindowTokens += sign * this.inWindow(progressTokens);
    }
  }

  /** Twice the sum over t new tokens after p of what the window holds before each. */
  #windowPairs2(progressTokens: number, newTokens: number): number {
    const growing =
      this.windowTokens === 0
        ? newTokens
        : Math.min(newTokens, Math.max(0, this.windowTokens - 1 - progressTokens));
    const full = newTokens - growing;
    return growing * (2 * progressTokens + growing - 1) + 2 * full * (this.windowTokens - 1);
  }
}

const emptyBatch: BatchSums = new BatchSums();

/** The sums of a whole batch. @param windowTokens of the model of time that is asked */
export function sumBatch(requests: Iterable<BatchedRequest>, windowTokens: number = 0): BatchSums {
  const sums = new BatchSums(windowTokens);
  for (const request of requests) sums.add(request);
  return sums;
}
