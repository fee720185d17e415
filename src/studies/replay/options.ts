/**
 * Input of one `tierkv replay`: the contract between the command line, which checks every value before any work starts,
 * and `runReplay`, which may take them as right. All sizes are in bytes, all capacities in blocks.
 */

import type { EvictionChoice, KVManager } from '../../runtime/index.ts';
import { readMooncakeTrace } from '../../sim/build/mooncakeTrace.ts';
import type { SharedServer } from '../../sim/links/sharedServer.ts';
import type { SizedTier } from './sizedTiers.ts';

export type DriverName = 'real' | 'modeled';

export interface ReplayOptions {
  /** The trace that is read, or `inputsPath` where that is given. */
  readonly tracePath: string;
  /** Tiers that others share only with `driver: 'real'`. */
  readonly tiers: readonly SizedTier[];
  /** Bytes of one block, a positive multiple of 4. */
  readonly blockBytes: number;
  /** Tokens of one block: what the trace's hash ids are cut by. */
  readonly blockTokens: number;
  /** Stop after this many requests. Absent: the whole trace. */
  readonly requests?: number;
  readonly driver: DriverName;
  /** With `driver: 'modeled'`: the server of the tier that runs share. Runs that are given the same one find what others left. */
  readonly shared?: SharedServer;
  /** Who leaves a tier first. */
  readonly eviction: EvictionChoice;
  /** Share of the top tier, 0 to 1, above which cached blocks are offloaded after each request. */
  readonly offloadThreshold: number;
  /**
   * Bandwidth of every link of the modeled driver, in bytes per second. An assumption of the user's, not a measurement.
   */
  readonly linkBandwidthBytesPerS: number;
  /** Latency of every transfer of the modeled driver, in microseconds. */
  readonly linkBaseLatencyUs: number;
  /**
   * A profile of `tierkv calibrate` whose links the modeled driver takes; links that it lacks are as assumed.
   */
  readonly linksPath?: string;
  /** Write the decision log, and the inputs that led to it, here. */
  readonly logPath?: string;
  /** Inputs that an earlier run recorded, to be fed to the modeled driver. Only with `driver: 'modeled'`. */
  readonly inputsPath?: string;
  /** Write the report as JSON here. */
  readonly jsonPath?: string;
  /** Count malformed trace lines and go on, instead of stopping at the first. */
  readonly skipBad: boolean;
}

/** A request of the trace that was replayed. */
export interface ReplayedRequest {
  /** From 0, in the order of the trace. */
  readonly number: number;
  /** In the trace's time. */
  readonly arrivalUs: number;
  /** How long its loads and seals took, in microseconds of the driver's time: the clock's, or the link model's. */
  readonly tookUs: number;
  readonly blocks: number;
  readonly blockTokens: number;
}

/** News of a run while it goes. Every method returns at once and never throws. */
export interface TraceReplayListener {
  /** After each request, or as often as is cheap: listeners limit their own rate. */
  progress(state: ReplayProgress): void;
  /**
   * Something that the user should know and that does not stop the run: a software adapter, unlocked memory.
   */
  notice(message: string): void;
  /** Called with the manager before the first request. @returns what is told of each request */
  watch?(manager: KVManager): (request: ReplayedRequest) => void;
  /**
   * Raised when the user wants to stop. The run then ends soon, closes its stores and throws `signal.reason`.
   */
  readonly signal: AbortSignal;
}

interface ReplayProgress {
  readonly requests: number;
  /** Blocks looked up so far and in all: what a replay does goes by blocks, not by bytes of its file. */
  readonly blocks: number;
  readonly blocksTotal: number;
  /** Bytes moved over all links so far. */
  readonly bytesMoved: number;
}

// Facts of a trace, read before anything is opened: so a bad line costs no device and no disk. Blocks are told apart
// only where a tier shall hold all of them, since that takes memory for each.

export interface TraceSurvey {
  readonly requests: number;
  readonly blockLookups: number;
  /** Different blocks; 0 where no tier is to hold all of them. */
  readonly uniqueBlocks: number;
  /** Blocks of the largest request. */
  readonly longestRequest: number;
}

/**
 * The reader bounds the different blocks of a trace, and so those of `all`.
 * @throws {TierKVError} TKV_INPUT for the first malformed line, unless they are to be skipped. Throws the signal's
 * reason after a stop.
 */
export async function surveyTrace(options: ReplayOptions, signal: AbortSignal): Promise<TraceSurvey> {
  const holdsAll = options.tiers.some(({ blocks }) => blocks === 'all');
  const ids = new Set<number>();
  let requests = 0;
  let blockLookups = 0;
  let longestRequest = 0;
  for await (const request of readMooncakeTrace(options.tracePath, { ...traceOptions(options), signal })) {
    requests++;
    blockLookups += request.hashIds.length;
    longestRequest = Math.max(longestRequest, request.hashIds.length);
    if (!holdsAll) continue;
    for (const id of request.hashIds) ids.add(id);
  }
  return { requests, blockLookups, uniqueBlocks: ids.size, longestRequest };
}

export function traceOptions(options: ReplayOptions): {
  blockTokens: number;
  skipBad: boolean;
  limit?: number;
} {
  const { blockTokens, skipBad, requests } = options;
  return { blockTokens, skipBad, ...(requests === undefined ? {} : { limit: requests }) };
}
