/**
 * A trace through the manager, one request at a time, as the definition of the traces' hit rates asks: look
 * up the whole prefix, take part with every block of the request, let all go from the last to the first, then
 * trim once to the capacity. HBM has room for the longest request beside its capacity, so that trimming comes
 * last. Lower tiers, where there are any, are exclusive.
 *
 * No bytes move and no time is modeled: every job ends as soon as it is issued. The manager is driven, not
 * the policy alone, so that what decides here is what decides in a server, tiers included; it costs about as
 * much as the cheapest policy does. Time is that of the trace, so a run decides the same wherever it runs.
 *
 * With `held`, HBM has the capacity and no more, and room is made before the request's blocks are computed,
 * as in a server whose running requests share the room with the cache.
 */

import {
  BlockKeys,
  ExternalKeys,
  KVManager,
  type ManagerConfig,
  Outcome,
  type PolicyChoice,
} from '../../../runtime/index.ts';
import { expand, type PrefixTrace } from './chains.ts';

export interface PoolRun {
  readonly hits: number;
  /** Blocks looked up. */
  readonly lookups: number;
  /** Time of this process per block, the manager's part included. */
  readonly nsPerBlock: number;
}

export interface PoolOptions {
  /** Blocks of HBM. */
  readonly capacity: number;
  /** Blocks of DDR and of NVMe; 0, the default, for none. */
  readonly lower?: readonly [ddr: number, nvme: number];
  readonly eviction: PolicyChoice;
  readonly held?: boolean;
  /** Requests to take, from the start of the trace. Default: all. */
  readonly requests?: number;
}

/** One run, some requests at a time, so that a caller can show progress or stop between. */
export class PoolStudy {
  readonly requests: number;
  readonly manager: KVManager;
  readonly #trace: PrefixTrace;
  readonly #capacity: number;
  readonly #chain: ExternalKeys = new ExternalKeys({ tenant: 'study', epoch: 0 });
  readonly #keys: BlockKeys;
  readonly #blocks: Int32Array;
  readonly #ids: Float64Array;
  #next = 0;
  #hits = 0;
  #lookups = 0;
  #cpuUs = 0;

  constructor(trace: PrefixTrace, options: PoolOptions) {
    const { capacity, eviction, held = false, lower = [0, 0] } = options;
    const longest = trace.lengths.reduce((most, length) => Math.max(most, length), 1);
    const tier = (blocks: number) => ({ capacityBytes: blocks, landingBytes: longest });
    const config: ManagerConfig = {
      unitBytes: [1],
      hbm: { capacityBytes: held ? Math.max(capacity, longest) : capacity + longest },
      ...(lower[0] > 0 ? { ddr: tier(lower[0]) } : {}),
      ...(lower[1] > 0 ? { nvme: tier(lower[1]) } : {}),
      lowerCopy: 'move',
      eviction,
      maxJobs: Math.max(16_384, 4 * longest),
    };
    this.requests = Math.min(options.requests ?? Number.POSITIVE_INFINITY, trace.runs.length);
    this.manager = new KVManager(config);
    this.#trace = trace;
    this.#capacity = capacity;
    this.#keys = new BlockKeys(longest);
    this.#blocks = new Int32Array(longest);
    this.#ids = new Float64Array(longest);
  }

  /** Requests served so far. */
  get done(): number {
    return this.#next;
  }

  /** Serves up to so many blocks more, in whole requests. */
  advance(blocks: number): void {
    const started = process.cpuUsage();
    const end = this.#lookups + blocks;
    while (this.#next < this.requests && this.#lookups < end) this.#serve(this.#next++);
    const { user, system } = process.cpuUsage(started);
    this.#cpuUs += user + system;
  }

  result(): PoolRun {
    const lookups = this.#lookups;
    return { hits: this.#hits, lookups, nsPerBlock: lookups === 0 ? 0 : (this.#cpuUs * 1000) / lookups };
  }

  #serve(r: number): void {
    const { manager } = this;
    const { runs, arrivalUs, blockTokens } = this.#trace;
    const count = expand(runs[r], this.#blocks);
    this.#ids.set(this.#blocks.subarray(0, count));
    this.#chain.hashBlocks(this.#ids.subarray(0, count), 0, this.#keys);
    const nowUs = arrivalUs[r];
    const { words } = this.#keys;
    const sequence = manager.open(words, count, nowUs);
    const { matched } = sequence;
    if (manager.config.tiers.length > 1) {
      manager.load(sequence, nowUs, 0, matched);
      this.#endJobs(nowUs);
    }
    manager.allocate(sequence, matched, count, nowUs);
    this.#endJobs(nowUs);
    manager.seal(sequence, matched, count, words, matched * 4, blockTokens, nowUs);
    this.#endJobs(nowUs);
    manager.release(sequence, nowUs);
    const over = manager.usage(0).residentBytes - this.#capacity;
    if (over > 0) manager.evict(0, over, nowUs);
    this.#endJobs(nowUs);
    this.#hits += matched;
    this.#lookups += count;
  }

  #endJobs(nowUs: number): void {
    const { manager } = this;
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      manager.complete(job, Outcome.LOADED, nowUs);
    }
  }
}

/** A whole run at once. */
export function runPool(trace: PrefixTrace, options: PoolOptions): PoolRun {
  const study = new PoolStudy(trace, options);
  study.advance(Number.POSITIVE_INFINITY);
  return study.result();
}
