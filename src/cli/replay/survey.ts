/** What a trace needs, read before anything is opened: so a bad line costs no device and no disk. */

import { readMooncakeTrace } from '../trace/index.ts';
import type { ReplayOptions } from './options.ts';

export interface TraceSurvey {
  readonly requests: number;
  readonly blockLookups: number;
  readonly uniqueBlocks: number;
  /** Blocks of the largest request. */
  readonly longestRequest: number;
}

/** @throws TKV_INPUT for the first malformed line, unless they are to be skipped */
export async function surveyTrace(options: ReplayOptions, signal: AbortSignal): Promise<TraceSurvey> {
  const ids = new Set<number>();
  let requests = 0;
  let blockLookups = 0;
  let longestRequest = 0;
  for await (const request of readMooncakeTrace(options.tracePath, traceOptions(options))) {
    if (requests++ % 1024 === 0) signal.throwIfAborted();
    blockLookups += request.hashIds.length;
    longestRequest = Math.max(longestRequest, request.hashIds.length);
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
