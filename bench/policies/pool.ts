/**
 * A trace through the real manager with one tier and one request at a time, as the definition of the traces'
 * hit rates asks: look up the whole prefix, take part with every block of the request, let all go from the
 * last to the first, then trim once to the capacity. HBM has room for the longest request beside the
 * capacity, so that trimming comes last.
 *
 * With `held`, HBM has the capacity and no more, and room is made before the request's blocks are computed,
 * as in a server whose running requests share the room with the cache.
 */

import { BlockKeys, ExternalKeys, KVManager, type ManagerConfig, Outcome } from '../../src/runtime/index.ts';
import type { PolicyChoice } from '../../src/runtime/policy/index.ts';
import { expand, type PrefixTrace } from './traces.ts';

export interface PoolRun {
  readonly hits: number;
  /** Blocks looked up. */
  readonly lookups: number;
  /** Time of this process per block, the manager's part included. */
  readonly nsPerBlock: number;
}

export interface PoolOptions {
  readonly capacity: number;
  readonly eviction: PolicyChoice;
  readonly held: boolean;
  /** Requests to take, from the start of the trace. */
  readonly requests: number;
}

/** @param progress called now and then with the share that is done */
export function runPool(
  trace: PrefixTrace,
  options: PoolOptions,
  progress: (share: number) => void = () => {},
): PoolRun {
  const { capacity, eviction, held } = options;
  const requests = Math.min(options.requests, trace.runs.length);
  const longest = trace.lengths.reduce((most, length) => Math.max(most, length), 0);
  const config: ManagerConfig = {
    unitBytes: [1],
    hbm: { capacityBytes: held ? Math.max(capacity, longest) : capacity + longest },
    eviction,
    maxJobs: Math.max(16_384, longest),
  };
  const manager = new KVManager(config);
  const chain = new ExternalKeys({ tenant: 'bench', epoch: 0 });
  const keys = new BlockKeys(longest);
  const blocks = new Int32Array(longest);
  const ids = new Float64Array(longest);
  let hits = 0;
  let lookups = 0;
  const started = process.cpuUsage();
  for (let r = 0; r < requests; r++) {
    const count = expand(trace.runs[r], blocks);
    ids.set(blocks.subarray(0, count));
    chain.hashBlocks(ids.subarray(0, count), 0, keys);
    const nowUs = trace.arrivalUs[r];
    const sequence = manager.open(keys.words, count, nowUs);
    const { matched } = sequence;
    manager.allocate(sequence, matched, count, nowUs);
    manager.seal(sequence, matched, count, keys.words, matched * 4, trace.blockTokens, nowUs);
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      manager.complete(job, Outcome.LOADED, nowUs);
    }
    manager.release(sequence, nowUs);
    const over = manager.usage(0).residentBytes - capacity;
    if (over > 0) manager.evict(0, over, nowUs);
    hits += matched;
    lookups += count;
    if ((r & 255) === 0) progress(r / requests);
  }
  const { user, system } = process.cpuUsage(started);
  return { hits, lookups, nsPerBlock: ((user + system) * 1000) / lookups };
}
