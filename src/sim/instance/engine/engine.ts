/**
 * What an instance needs of an engine: it takes requests, and forms and settles one step at a time. The one
 * engine of the simulator is `SchedulerEngine`, the real scheduler on the real manager; the interface lets
 * tests put a model of another simulator's engine under the same instance, cluster and metrics.
 */

import type { BlockKeys } from '../../../runtime/keys/index.ts';
import type { StateVisitor } from '../../../runtime/snapshot/index.ts';
import type { BatchSums } from '../../latency/index.ts';
import type { SimRequest } from '../simRequest.ts';

/** One step: what it computes, and what comes of it. The engine fills one object again and again. */
export interface EngineStep {
  /** What the latency model is asked. */
  readonly sums: BatchSums;
  /** Transfers that the step waits for, in microseconds. */
  readonly transferUs: number;
  /** Requests that joined the batch, in order. */
  readonly admitted: readonly SimRequest[];
  /** Requests that gave way, in order. */
  readonly preempted: readonly SimRequest[];
  /** Decoding requests that the step leaves out. */
  readonly leftOut: readonly SimRequest[];
  /** Requests whose prompts go to another instance, of those that the step prefills. */
  readonly leaving: readonly SimRequest[];
  /** By index in `leaving`: tokens of the prompt that are there when the step ends. */
  readonly leavingTokens: readonly number[];
  /** Requests that sample a token at the end of a prefill. */
  readonly started: readonly SimRequest[];
  /** Requests that end with the step, in batch order. */
  readonly finished: readonly SimRequest[];
  /** By index in `finished`: tokens generated. */
  readonly outputTokens: readonly number[];
  /** Keys of requests whose loads, since the last such step, brought back blocks that had just gone down. */
  readonly thrashedFor: readonly BlockKeys[];
}

/** What an engine says of one of its tiers, in blocks. */
export interface TierReport {
  readonly capacityBlocks: number;
  /** Blocks that requests hold; in lower tiers all that hold anything. */
  readonly usedBlocks: number;
  /** Free or evictable. */
  readonly freeBlocks: number;
}

/** What went on in a tier. */
export interface TierMetrics {
  readonly tier: string;
  readonly capacityBlocks: number;
  /** Blocks that requests found here. */
  readonly hits: number;
  readonly evictions: number;
  /** Bytes that came from the tier above, and that went up to HBM. */
  readonly writtenBytes: number;
  readonly readBytes: number;
}

export interface LinkMetrics {
  readonly link: string;
  readonly bytes: number;
  /** Time in which the link carried something; of several engines, the sum of theirs. */
  readonly busyUs: number;
}

/** What an engine counted of its tiers and links since the start. */
export interface EngineTraffic {
  readonly tiers: readonly TierMetrics[];
  readonly links: readonly LinkMetrics[];
}

export interface EngineCounters {
  /** Blocks that admitted requests found, by tier from HBM down. */
  readonly hits: readonly number[];
  /** Blocks that were opened to be computed. */
  readonly openedBlocks: number;
  readonly preemptions: number;
  /** Blocks that went down from HBM, and that came up to it. */
  readonly offloads: number;
  readonly reloads: number;
  /** Share of reloads that brought a block back soon after it went down. */
  readonly thrashing: number;
}

/** Told of each block that can be found from now on in the tier at that position, or no more. */
export interface CacheListener {
  /** `key` is read during the call only. */
  stored(tier: number, key: Uint32Array): void;
  removed(tier: number, key: Uint32Array): void;
}

export interface InstanceEngine {
  readonly capacityBlocks: number;
  readonly blockBytes: number;
  /** Requests outside the batch. */
  readonly waitingCount: number;
  readonly runningCount: number;
  /** Calls so far that may have changed what the engine says of itself. Left out where nobody counts. */
  readonly changes?: number;
  /** Whether an emptied engine may begin a step while its last one still runs. */
  readonly overlapsLastStep: boolean;
  readonly counters: EngineCounters;
  /** By tier, HBM first. */
  tiers(): readonly TierReport[];
  traffic(): EngineTraffic;
  /** Leading blocks under these keys that HBM holds. Changes nothing. */
  cachedBlocks(keys: BlockKeys, count: number): number;
  /** Leading blocks under these keys in any tier, by the fastest tier that holds each. Changes nothing. */
  cachedByTier(keys: BlockKeys, count: number): readonly number[];
  watchCache(listener: CacheListener): void;
  /** The request will be added after `slackUs`: loads of its blocks may begin. */
  announce(request: SimRequest, nowUs: number, slackUs: number): void;
  add(request: SimRequest, nowUs: number): void;
  /** Ends a request, wherever it is. */
  abort(request: SimRequest, nowUs: number): void;
  /**
   * Forms the next step and settles it: what it computes is decided when it begins, so what comes of it is
   * too. With `sums.tokens` 0 there is nothing to compute now, and only `preempted` says anything.
   */
  step(nowUs: number): EngineStep;
  /** Keeps the cached blocks of the request's prompt from being evicted until they are let go. */
  hold(request: SimRequest, nowUs: number): void;
  /** Takes room for the request's prompt, whose KV another instance sends. False when there is none. */
  reserve(request: SimRequest, nowUs: number): boolean;
  /** The KV for which room was reserved is there: it can be found, and stays until the request runs. */
  fill(request: SimRequest, nowUs: number): void;
  /** Ends what `hold` or `reserve` began. */
  letGo(request: SimRequest, nowUs: number): void;
  /** A transfer of the modeled driver is due. */
  transferred(flight: number): void;
  /**
   * Everything that changes, between two calls.
   * @param requestOf the request of a row, for those that the engine has
   */
  visitState(visitor: StateVisitor, requestOf: (row: number) => SimRequest): void;
  checkIntegrity(): void;
}
