/**
 * The amount of work in an hour of the soak. The measure is the conversation trace's excerpt that the project
 * carries (`data/`): its own arrivals, over its own span, scaled to an hour,
 *
 *     requests an hour = requests / (last timestamp - first timestamp) * 1 h       blocks an hour: the same for hash ids
 *
 * and its own lengths: a request of the soak is as many blocks long as one that was drawn from the trace. The
 * trace counts in blocks of 512 tokens, the soak in blocks of 16; what is equal is the number of blocks that
 * are looked up, allocated and moved, which is what a leak would grow with.
 */

import { join } from 'node:path';
import { mooncakeBlockTokens, readMooncakeTrace } from '../../src/sim/build/mooncakeTrace.ts';

export const tracePath: string = join(
  import.meta.dirname,
  '..',
  '..',
  'data',
  'mooncake-conversation-excerpt.jsonl.gz',
);

export interface BusyHour {
  readonly requestsPerHour: number;
  /** Blocks that an hour's prompts name. */
  readonly blocksPerHour: number;
  /** Seconds from the first request of the excerpt to its last. */
  readonly spanSeconds: number;
  /** Of each request of the trace: blocks of its prompt, and blocks with the answer. */
  readonly promptBlocks: Uint16Array;
  readonly totalBlocks: Uint16Array;
}

const HOUR_MS = 3_600_000;

/** @throws TKV_INPUT when the excerpt is not there or damaged */
export async function busyHour(path: string = tracePath): Promise<BusyHour> {
  const prompts: number[] = [];
  const totals: number[] = [];
  let firstMs = Number.POSITIVE_INFINITY;
  let lastMs = 0;
  for await (const { arrivalUs, inputTokens, outputTokens, hashIds } of readMooncakeTrace(path)) {
    firstMs = Math.min(firstMs, arrivalUs / 1000);
    lastMs = Math.max(lastMs, arrivalUs / 1000);
    prompts.push(hashIds.length);
    totals.push(Math.ceil((inputTokens + outputTokens) / mooncakeBlockTokens));
  }
  const toHour = HOUR_MS / (lastMs - firstMs);
  return {
    requestsPerHour: prompts.length * toHour,
    blocksPerHour: prompts.reduce((sum, blocks) => sum + blocks, 0) * toHour,
    spanSeconds: (lastMs - firstMs) / 1000,
    promptBlocks: Uint16Array.from(prompts),
    totalBlocks: Uint16Array.from(totals),
  };
}
