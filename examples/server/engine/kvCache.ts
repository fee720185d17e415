/**
 * All that this engine does about KV. Everything else in this folder would be the same with any cache.
 *
 *     add -> plan: which tokens of which requests, and where their blocks lie -> the kernels run
 *              ^                                                                      |
 *              +------------------ ended: full blocks can be found by others <--------+
 *
 * tierkv decides which requests run, which blocks they get, what is found in which tier, and who gives way
 * when HBM is full. The engine keeps three promises: it writes KV into the blocks of the plan only, it has
 * written all of it when it calls `ended`, and it puts the keys of new full blocks in place before that.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type KVLayout, KVRuntime, type KVRuntimeConfig } from '../../../src/index.ts'; // 'tierkv'
import {
  BlockKeys,
  KeyChain,
  ManagerPort,
  Scheduler,
  type SchedulerConfig,
  type ServingRequest,
  type StepOutcome,
  type StepPlan,
} from '../../../src/runtime/index.ts'; // 'tierkv/runtime'
import { DeviceTable } from './deviceTable.ts';
import type { DecoderStep } from './model/index.ts';

/** A request as the cache knows it: its tokens, and what is derived from them. */
export class CachedRequest implements ServingRequest {
  readonly id: string;
  readonly promptTokens: number;
  readonly maxOutputTokens: number;
  readonly priority: number;
  /** Prompt and answer so far. */
  readonly tokens: number[];
  /** Keys of its full blocks. */
  readonly keys: BlockKeys = new BlockKeys();
  /** Where its blocks lie. */
  readonly table: DeviceTable = new DeviceTable();
  readonly #chain: KeyChain | null;

  /** @param chain of its tenant; null: it finds nothing, and nobody finds its blocks */
  constructor(id: string, prompt: readonly number[], most: number, priority: number, chain: KeyChain | null) {
    this.id = id;
    this.promptTokens = prompt.length;
    this.maxOutputTokens = most;
    this.priority = priority;
    this.tokens = [...prompt];
    this.#chain = chain;
    this.#hash();
  }

  push(token: number): void {
    this.tokens.push(token);
    this.#hash();
  }

  #hash(): void {
    const chain = this.#chain;
    const full = chain === null ? 0 : Math.floor(this.tokens.length / chain.elementsPerKey);
    if (full > this.keys.length) chain?.hashBlocks(this.tokens, this.keys.length, this.keys);
  }
}

/** A step for the kernels, and for each request that samples in it, in the order of the logits: who it is. */
export interface PlannedStep<R extends CachedRequest> {
  readonly rows: DecoderStep;
  readonly sampling: readonly R[];
  readonly plan: StepPlan<R>;
}

export class KvCache<R extends CachedRequest = CachedRequest> {
  readonly kv: KVRuntime;
  readonly scheduler: Scheduler<R>;
  readonly #config: KVRuntimeConfig;
  /** For each tenant. Tenants come from the server's keys, so there are not many. */
  readonly #chains: Map<string, KeyChain> = new Map();

  private constructor(kv: KVRuntime, config: KVRuntimeConfig, scheduling: SchedulerConfig) {
    this.kv = kv;
    this.#config = config;
    const { blockTokens } = config.layout;
    this.scheduler = new Scheduler<R>(scheduling, new ManagerPort(kv.manager, { blockTokens }));
  }

  static async open<R extends CachedRequest>(
    config: KVRuntimeConfig,
    scheduling: SchedulerConfig,
  ): Promise<KvCache<R>> {
    return new KvCache<R>(await KVRuntime.open(config), config, scheduling);
  }

  get layout(): KVLayout {
    return this.#config.layout;
  }

  /** What requests of this tenant share. The tenant comes from the server's authentication. */
  chainOf(tenant: string): KeyChain {
    const { secretKey, epoch = 0, model, layout, extras = {} } = this.#config;
    const known = this.#chains.get(tenant);
    const chain = known ?? new KeyChain({ secretKey, tenant, epoch, model, layout, extras });
    if (known === undefined) this.#chains.set(tenant, chain);
    return chain;
  }

  /** The next step, or null while there is nothing to compute: all requests wait for blocks on their way. */
  plan(): PlannedStep<R> | null {
    for (const { id, table } of this.scheduler.runningRequests()) {
      if (table.isDisturbed) this.scheduler.requeue(id, this.kv.nowUs());
    }
    const plan = this.scheduler.step(this.kv.nowUs());
    if (plan.tokens === 0) return null;
    const tokens = new Uint32Array(plan.tokens);
    const rows = new Uint32Array(4 * plan.tokens);
    const entries: number[] = [];
    const samples: number[] = [];
    const sampling: R[] = [];
    let row = 0;
    for (let seat = plan.first(); seat !== -1; seat = plan.next(seat)) {
      const request = plan.request(seat);
      const from = plan.from(seat);
      const end = from + plan.tokensOf(seat);
      const firstEntry = entries.length / 2;
      const blocks = Math.ceil(end / this.layout.blockTokens);
      for (const word of request.table.refresh(this.kv, plan.sequence(seat), blocks)) entries.push(word);
      for (let at = from; at < end; at++, row++) {
        tokens[row] = request.tokens[at];
        rows.set([at, firstEntry], 4 * row);
      }
      if (!plan.samples(seat)) continue;
      samples.push(row - 1);
      sampling.push(request);
    }
    const step = { tokens, rows, entries: Uint32Array.from(entries), samples: Uint32Array.from(samples) };
    return { rows: step, sampling, plan };
  }

  /** The step's kernels have run, and each request that sampled has its token. */
  ended(stopped: readonly R[]): StepOutcome<R> {
    return this.scheduler.stepEnded({ stopped: stopped.map(({ id }) => id) }, this.kv.nowUs());
  }

  /** The device was lost in the step. Waits for another one; requests begin again with their tokens so far. */
  async failed(): Promise<void> {
    this.scheduler.stepFailed(this.kv.nowUs());
    this.kv.release(await this.kv.begin([0], { tenant: 'the engine', wait: true }));
  }

  /** Fulfilled when it is worth planning again while blocks are on their way. */
  async arrival(): Promise<void> {
    await sleep(1);
  }
}
