/**
 * All that this engine does about KV. Everything else in this folder would be the same with any cache.
 *
 *     add -> plan: which tokens of which requests, and where their blocks lie -> the kernels run
 *              ^                                                                      |
 *              +---------- ended: full blocks can be found by others, and saved <-----+
 *
 * tierkv decides which requests run, which blocks they get, what is found in which tier, and which request gives way
 * when HBM is full. The engine keeps two promises: its kernels write KV into the places of the plan only, and
 * have written all of it when it calls `ended`.
 */

import {
  type KVLayout,
  KVRuntime,
  type KVRuntimeConfig,
  type KVScheduler,
  type KVSchedulerConfig,
  type KVStepOutcome,
  type PlannedRequest,
  type SampledToken,
} from '../../../src/index.ts'; // in your project: 'tierkv'
import type { DecoderStep } from './model/index.ts';

/** A step for the kernels. */
export interface PlannedStep {
  readonly requests: readonly PlannedRequest[];
  /** Ids of requests that begin with this step, or begin again. */
  readonly admitted: readonly string[];
  readonly rows: DecoderStep;
}

export class KvCache {
  readonly kv: KVRuntime;
  readonly scheduler: KVScheduler;
  readonly layout: KVLayout;

  private constructor(kv: KVRuntime, layout: KVLayout, scheduling: KVSchedulerConfig) {
    this.kv = kv;
    this.layout = layout;
    this.scheduler = kv.scheduler(scheduling);
  }

  /** @throws {TierKVError} naming the field, as `KVRuntime.open` and `KVRuntime.scheduler` */
  static async open(config: KVRuntimeConfig, scheduling: KVSchedulerConfig): Promise<KvCache> {
    const kv = await KVRuntime.open(config);
    try {
      return new KvCache(kv, config.layout, scheduling);
    } catch (error) {
      await kv.close();
      throw error;
    }
  }

  /** The next step, or null while there is nothing to compute: all requests wait for blocks on their way. */
  plan(): PlannedStep | null {
    const { requests, tokens, admitted } = this.scheduler.step();
    return tokens === 0 ? null : { requests, admitted, rows: rowsOf(requests, tokens) };
  }

  /** Fulfilled when it is worth planning again. After a loss that is when there is another device. */
  next(): Promise<void> {
    return this.scheduler.next();
  }

  /**
   * The step's kernels are submitted, and each request that samples has its token. An interrupted step is
   * planned again, and its tokens are asked for once more.
   */
  ended(sampled: readonly SampledToken[]): KVStepOutcome {
    return this.scheduler.stepEnded(sampled);
  }

  /**
   * What is cached is saved in the files, and the next start finds it. Where they are full, older blocks go for it.
   * @returns blocks that the files hold
   * @throws TKV_IO when not all was saved, with how much was; everything is closed then too
   */
  async close(saves = true): Promise<number> {
    this.scheduler.close();
    try {
      return saves ? await this.kv.save({ whenFull: 'replace' }) : 0;
    } finally {
      await this.kv.close();
    }
  }
}

/** A row for each token that the step computes, with its position and its sequence's block table. */
function rowsOf(requests: readonly PlannedRequest[], count: number): DecoderStep {
  const tokens = new Uint32Array(count);
  const rows = new Uint32Array(4 * count);
  const blocks = requests.reduce((sum, { blockTable }) => sum + blockTable.blocks, 0);
  const entries = new Uint32Array(2 * blocks);
  const samples: number[] = [];
  let row = 0;
  let entry = 0;
  for (const { tokens: known, start, end, blockTable, samples: isSampling } of requests) {
    entries.set(blockTable.entries, 2 * entry);
    for (let position = start; position < end; position++, row++) {
      tokens[row] = known[position];
      rows.set([position, entry], 4 * row);
    }
    if (isSampling) samples.push(row - 1);
    entry += blockTable.blocks;
  }
  return { tokens, rows, entries, samples: Uint32Array.from(samples) };
}
