/** Reads a trace for a study: a recorded workload whose requests name their blocks or their tokens. */

import type { WorkloadRequest } from '../../../sim/workload/index.ts';
import { inputError } from '../../input/index.ts';
import { type Format, formatOf, openWorkload } from '../../workload/open.ts';
import { chainsOf, firstRequests, type PrefixTrace } from './chains.ts';

/** Formats that tell blocks apart, with their usual tokens a block; `text` has bytes, four for a token. */
const formats: Partial<Record<Format, { readonly blockTokens: number; readonly unitsPerToken: number }>> = {
  mooncake: { blockTokens: 512, unitsPerToken: 1 },
  weka: { blockTokens: 64, unitsPerToken: 1 },
  'token-ids': { blockTokens: 16, unitsPerToken: 1 },
  miniswe: { blockTokens: 64, unitsPerToken: 4 },
};

/**
 * @param blockTokens undefined for what the format usually has
 * @param requests stop after so many
 * @throws TKV_INPUT for a trace that does not say which blocks are equal, or a bad line
 */
export function readChains(path: string, blockTokens?: number, requests?: number): PrefixTrace {
  const format = formatOf(path);
  const usual = formats[format];
  if (usual === undefined) {
    const names = Object.keys(formats).join(', ');
    throw inputError(path, `is a ${format} workload, which names no blocks`, `Give a trace of ${names}.`);
  }
  const tokens = blockTokens ?? usual.blockTokens;
  const opened = openWorkload(path, { format, blockTokens: tokens });
  const all = chainsOf(firstOf(opened.requests(), requests), tokens, usual.unitsPerToken);
  return firstRequests(all, requests ?? Number.POSITIVE_INFINITY);
}

function* firstOf(requests: Iterable<WorkloadRequest>, count: number | undefined): Iterable<WorkloadRequest> {
  let left = count ?? Number.POSITIVE_INFINITY;
  for (const request of requests) {
    if (left-- <= 0) return;
    yield request;
  }
}

/** Whether `tierkv replay` can move bytes for the trace; studies take more formats. */
export function isMooncake(path: string): boolean {
  return formatOf(path) === 'mooncake';
}
