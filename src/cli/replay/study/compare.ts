/**
 * Runs each policy at each capacity, with LRU beside it, and the clairvoyant optimum of the same size: where
 * there are lower tiers, of all tiers together.
 */

import { setImmediate } from 'node:timers/promises';
import type { PrefixTrace } from './chains.ts';
import { Optimum } from './optimum.ts';
import type { StudyOptions } from './options.ts';
import { PoolStudy } from './pool.ts';

export interface StudyRow {
  /** Blocks of HBM. */
  readonly capacity: number;
  readonly policy: string;
  /** Leading blocks found, of all requests together, in any tier. */
  readonly hits: number;
  readonly hitPercent: number;
  /** Share of the gap from LRU to the optimum, in percent; null where there is no gap. */
  readonly closedPercent: number | null;
  /** Against LRU, in percentage points. */
  readonly points: number;
  /** Processor time per block, that of the manager included; null for the optimum, which is no policy. */
  readonly nsPerBlock: number | null;
}

export interface Study {
  readonly requests: number;
  readonly lookups: number;
  readonly blockTokens: number;
  readonly lower: readonly [ddr: number, nvme: number];
  readonly rows: readonly StudyRow[];
}

export interface StudyListener {
  readonly signal: AbortSignal;
  /** @param share done of all runs; `requests` counts those of all runs */
  progress(share: number, requests: number, run: string): void;
}

const LRU = 'lru';
/** Blocks between two looks at the signal. */
const SLICE_BLOCKS = 100_000;
/** Blocks of the run before the first, which makes the engine compile what is then timed. */
const WARM_BLOCKS = 30_000;

/** @throws the signal's reason after a stop */
export async function comparePolicies(
  trace: PrefixTrace,
  options: StudyOptions,
  listener: StudyListener,
): Promise<Study> {
  const policies = [LRU, ...options.policies.filter((policy) => policy !== LRU)];
  const runs = policies.length * options.capacities.length;
  let finished = 0;
  const run = async (capacity: number, policy: string): Promise<{ hits: number; nsPerBlock: number }> => {
    const study = new PoolStudy(trace, { capacity, lower: options.lower, eviction: { policy } });
    while (study.done < study.requests) {
      study.advance(SLICE_BLOCKS);
      await setImmediate();
      listener.signal.throwIfAborted();
      const share = (finished + study.done / study.requests) / runs;
      listener.progress(share, finished * study.requests + study.done, `${policy} at ${capacity}`);
    }
    finished++;
    return study.result();
  };
  for (const policy of policies) {
    const capacity = options.capacities[0] ?? 1;
    new PoolStudy(trace, { capacity, lower: options.lower, eviction: { policy } }).advance(WARM_BLOCKS);
  }
  const optimum = new Optimum(trace);
  const rows: StudyRow[] = [];
  for (const capacity of options.capacities) {
    const best = optimum.hits(capacity + options.lower[0] + options.lower[1]);
    let lru = 0;
    const add = (policy: string, hits: number, nsPerBlock: number | null): void => {
      rows.push({ capacity, policy, ...shareOf(hits, lru, best, trace.lookups), nsPerBlock });
    };
    for (const policy of policies) {
      const { hits, nsPerBlock } = await run(capacity, policy);
      if (policy === LRU) lru = hits;
      add(policy, hits, nsPerBlock);
    }
    add('optimum', best, null);
  }
  const { lookups, blockTokens } = trace;
  return { requests: trace.runs.length, lookups, blockTokens, lower: options.lower, rows };
}

/** Hits beside those of LRU and of the optimum. */
export function shareOf(
  hits: number,
  lru: number,
  best: number,
  lookups: number,
): Pick<StudyRow, 'hits' | 'hitPercent' | 'closedPercent' | 'points'> {
  return {
    hits,
    hitPercent: percent(hits, lookups),
    closedPercent: best === lru ? null : percent(hits - lru, best - lru),
    points: percent(hits - lru, lookups),
  };
}

function percent(part: number, whole: number): number {
  return whole === 0 ? 0 : (100 * part) / whole;
}
