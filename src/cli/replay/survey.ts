/**
 * What a trace needs, read before anything is opened: so a bad line costs no device and no disk. Blocks are
 * told apart only where a tier shall hold all of them, since that takes memory for each.
 */

import { configError } from '../../runtime/errors.ts';
import { readMooncakeTrace } from '../trace/index.ts';
import type { ReplayOptions } from './options.ts';

export interface TraceSurvey {
  readonly requests: number;
  readonly blockLookups: number;
  /** Different blocks; 0 where no tier is to hold all of them. */
  readonly uniqueBlocks: number;
  /** Blocks of the largest request. */
  readonly longestRequest: number;
}

/** Most blocks that `all` may come to. */
export const maxUniqueBlocks: number = 2 ** 22;

/** The option that says `all`, if one does. */
function optionOfAll({ hbmBlocks, ddrBlocks, nvmeBlocks }: ReplayOptions): string | undefined {
  if (hbmBlocks === 'all') return '--hbm-blocks';
  if (ddrBlocks === 'all') return '--ddr-blocks';
  return nvmeBlocks === 'all' ? '--nvme-blocks' : undefined;
}

/**
 * @throws {TierKVError} TKV_INPUT for the first malformed line, unless they are to be skipped; TKV_CONFIG
 * when `all` would be more blocks than a replay can hold. Throws the signal's reason after a stop.
 */
export async function surveyTrace(options: ReplayOptions, signal: AbortSignal): Promise<TraceSurvey> {
  const all = optionOfAll(options);
  const ids = new Set<number>();
  let requests = 0;
  let blockLookups = 0;
  let longestRequest = 0;
  for await (const request of readMooncakeTrace(options.tracePath, { ...traceOptions(options), signal })) {
    requests++;
    blockLookups += request.hashIds.length;
    longestRequest = Math.max(longestRequest, request.hashIds.length);
    if (all === undefined) continue;
    for (const id of request.hashIds) ids.add(id);
    if (ids.size > maxUniqueBlocks) {
      const problem = `is all, and the trace has more than ${maxUniqueBlocks} blocks`;
      throw configError(all, problem, `Give ${all} a number, or stop earlier with --requests.`);
    }
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
