/**
 * The runtime for embedders: a manager, the stores under it and the engine between them, behind a few calls.
 *
 *     begin (look up, bring up, make room) -> write the open blocks -> seal -> append or step ... -> release
 *                                                   ^                      | interrupted
 *                                                   +------- recover <-----+
 *
 * A signal ends the waiting of `begin` and `recover`; `cancel` instead of `release` also calls off what is on
 * its way.
 *
 * What fails below is an outcome here. A block that cannot be brought is open, to be computed. When the
 * device is lost, `seal`, `append` and `step` say `interrupted`, and `recover` gives the sequence back on the
 * next device: what other tiers hold is loaded, the rest is open.
 */

import { schedulerConfigNames } from '../runtime/batching/config.ts';
import {
  BlockKeys,
  type CrossRequestKVCache,
  type KeyElements,
  Priority,
  type SchedulerCounters,
  type Sequence,
  TierKVError,
  type TierName,
} from '../runtime/index.ts';
import { optionNames, requireOptions } from '../runtime/options.ts';
import { assembleRuntime, type RuntimeParts } from './assembly.ts';
import type { KVRuntimeConfig } from './config.ts';
import type { DecisionLogFile } from './outputs/decisionLog.ts';
import type { CacheEvents } from './outputs/events.ts';
import { PagedAttentionCache } from './paged/pagedAttentionCache.ts';
import { RequestQueue } from './prompts/requestQueue.ts';
import { type CrossRequestOptions, crossRequestCache, ready, setQuota } from './prompts/tenantReuse.ts';
import { checkedPriority } from './requests/beginOptions.ts';
import { type RequestContext, tokensToFind } from './requests/context.ts';
import type { LookupOptions } from './runtimeViews.ts';
import { KVScheduler, type KVSchedulerConfig } from './scheduling/kvScheduler.ts';
import { SequenceCalls } from './sequenceCalls.ts';
import { saveToFiles } from './stores/warm.ts';

export interface PrefetchOptions extends LookupOptions {
  readonly priority?: number | undefined;
}

export const prefetchOptionsNames: readonly string[] = optionNames<PrefetchOptions>({
  tenant: true,
  extras: true,
  priority: true,
});

export class KVRuntime extends SequenceCalls implements AsyncDisposable {
  readonly #config: KVRuntimeConfig;
  readonly #context: RequestContext;
  readonly #events: CacheEvents;
  readonly #log: DecisionLogFile | null;
  readonly #closing: AbortController;
  #closed: Promise<void> | undefined;
  #scheduler: KVScheduler | undefined;

  private constructor(parts: RuntimeParts) {
    if (!(parts?.closing instanceof AbortController)) {
      throw new TierKVError(
        'TKV_STATE',
        'new KVRuntime() makes no runtime. Use await KVRuntime.open(config).',
      );
    }
    const { config, stores, context, events, log, closing } = parts;
    super(stores, context, events);
    this.#config = config;
    this.#context = context;
    this.#events = events;
    this.#log = log;
    this.#closing = closing;
  }

  /** @throws {TierKVError} naming the field, when a device, the memory or the directory is not to be had */
  static async open(config: KVRuntimeConfig): Promise<KVRuntime> {
    return new KVRuntime(await assembleRuntime(config));
  }

  /**
   * Brings what lower tiers hold of these tokens up to HBM, for a request that is expected.
   * @param options.priority 0 (default): behind the loads that requests wait for. Below 0: with them.
   * Above 0: behind what leaves HBM too
   * @returns loads started
   */
  prefetch(tokens: KeyElements, options: PrefetchOptions): number {
    const { tenant, extras, priority = 0 } = requireOptions(options, prefetchOptionsNames);
    const urgency = urgencyOf(priority);
    let started = 0;
    for (const chain of this.#context.chains.of(tenant, extras)) {
      const keys = new BlockKeys();
      chain.hashBlocks(tokens, 0, keys, tokensToFind(this.#context, tokens));
      started += this.manager.prefetch(keys.words, keys.length, this.nowUs(), urgency);
    }
    return started;
  }

  /** A new, empty queue for prompts that wait: how much of each is cached is one call for all of them. */
  requestQueue(): RequestQueue {
    return new RequestQueue(this.manager, this.#context.chains, this.#config.layout.blockTokens);
  }

  /**
   * Continuous batching on this runtime: which requests run in each step, with how many tokens, in which
   * blocks. There is one at a time.
   * @throws TKV_CONFIG for a setting that is wrong or that a runtime cannot keep, TKV_STATE while another one
   * is open
   */
  scheduler(config: KVSchedulerConfig = {}): KVScheduler {
    requireOptions(config, schedulerConfigNames, 'config', 'TKV_CONFIG');
    if (this.#scheduler !== undefined && !this.#scheduler.isClosed) {
      throw new TierKVError('TKV_STATE', 'the runtime has a scheduler. Close it before you open another.');
    }
    this.#scheduler = new KVScheduler(this.#context, config, this.#log?.sink ?? null);
    return this.#scheduler;
  }

  /**
   * Room of a tier that is the tenant's own, or its group's: while it takes no more there, none of its blocks
   * is evicted for others, and what it takes beyond goes first.
   * @param bytes null for no quota, as at the beginning
   * @throws TKV_CONFIG for a tier that is not there, or quotas over its capacity
   */
  setQuota(tenant: string, tier: TierName, bytes: number | null): void {
    setQuota(this.#context, tenant, tier, bytes);
  }

  /** KV of one request for another one, in tables of the manager. Await `ready` before kernels use them. */
  crossRequestCache(options: CrossRequestOptions = {}): CrossRequestKVCache {
    return crossRequestCache(this.#context, options);
  }

  /**
   * Fulfilled when no block of the table waits for a transfer; slots of other tenants are cleared by then.
   */
  async ready(table: Sequence): Promise<void> {
    return ready(this.#context, table);
  }

  /**
   * Private blocks by number, for a batch that keeps its own tables. Dispose of it before the runtime closes.
   * @throws TKV_CONFIG for a runtime with layer groups
   */
  pagedCache(): PagedAttentionCache {
    return new PagedAttentionCache(this.#context, this.#config.layout);
  }

  /** Waits until no transfer is in flight, those given up at their deadline apart. */
  idle(): Promise<void> {
    return this.#context.loop.idle();
  }

  /**
   * Sends what is cached in HBM and DDR down to the files and makes it durable, so that the next start finds
   * it: call it before a planned end. Where the files have no room for all, the blocks used last are kept.
   * @returns blocks that the files hold then; 0 without files
   * @throws TKV_IO when the disk refuses to make it durable, or a file of the directory was removed or replaced
   */
  async save(): Promise<number> {
    const { nvme } = this.stores;
    return nvme === undefined ? 0 : saveToFiles(this.#context, nvme);
  }

  /**
   * Closes the runtime: `begin` and `recover` reject with TKV_STATE from now on, also those that wait,
   * transfers under way come to their end or their deadline, and then the stores are closed. Nothing else may
   * be called any more.
   */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  protected schedulerCounters(): Readonly<SchedulerCounters> | undefined {
    return this.#scheduler?.counters;
  }

  async #close(): Promise<void> {
    this.#closing.abort(new TierKVError('TKV_STATE', 'the runtime is closed. Open another one.'));
    this.#scheduler?.close();
    this.#context.migration?.stop();
    await this.#context.keeper.close();
    await this.idle();
    await this.stores[Symbol.asyncDispose]();
    this.#events.close();
    this.#log?.close();
  }
}

function urgencyOf(priority: number): Priority {
  const checked = checkedPriority(priority);
  if (checked === 0) return Priority.PREFETCH;
  return checked < 0 ? Priority.DEMAND_LOAD : Priority.SCRUB;
}
