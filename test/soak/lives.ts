/**
 * A runtime that is closed and opened again on the same files, and what all its lives together did. Its tiers
 * are so small that an hour's blocks pass through them many times over.
 */

import { KVRuntime } from '../../src/index.ts';
import { type KVLayout, kvLayout } from '../../src/runtime/index.ts';
import { testAdapter } from '../adapter.ts';

export const layout: KVLayout = kvLayout({
  layers: 2,
  kvHeads: 2,
  headDim: 64,
  dtype: 'f16',
  blockTokens: 16,
});

export const model = 'soak@1';
export const secretKey: Uint8Array = new Uint8Array(32).fill(11);

/** Blocks of each tier. HBM takes the longest request of the trace and a few others. */
const HBM_BLOCKS = 512;
const DDR_BLOCKS = 1024;
const NVME_BLOCKS = 4096;

export interface Totals {
  hitBlocks: number;
  missedBlocks: number;
  evicted: number;
  /** Reloads that failed; without faults, only reloads that a lost device or a cancelled request ended. */
  loadsFailed: number;
  demotionsFailed: number;
  /** Blocks that went with a lost device and were nowhere else. */
  lost: number;
  adopted: number;
  /** Sealed blocks that differ from the first copy of the same content. */
  diverged: number;
  /** Link -> blocks that it carried whole. */
  readonly moved: Map<string, number>;
}

export class Lives implements AsyncDisposable {
  readonly totals: Totals = {
    hitBlocks: 0,
    missedBlocks: 0,
    evicted: 0,
    loadsFailed: 0,
    demotionsFailed: 0,
    lost: 0,
    adopted: 0,
    diverged: 0,
    moved: new Map(),
  };
  readonly #dir: string;
  #kv: KVRuntime | undefined;
  /** Runtimes opened so far, devices lost so far in runtimes that are closed. */
  opened = 0;
  #lossesBefore = 0;

  constructor(dir: string) {
    this.#dir = dir;
  }

  get kv(): KVRuntime {
    if (this.#kv === undefined) throw new Error('no runtime is open');
    return this.#kv;
  }

  get devicesLost(): number {
    return this.#lossesBefore + (this.#kv?.devicesLost ?? 0);
  }

  async open(wait: 'spin' | 'sleep' = 'spin'): Promise<KVRuntime> {
    this.#kv = await KVRuntime.open({
      layout,
      model,
      secretKey,
      hbmBytes: HBM_BLOCKS * layout.blockBytes,
      ddrBytes: DDR_BLOCKS * layout.blockBytes,
      nvme: { dir: this.#dir, bytes: NVME_BLOCKS * layout.blockBytes, restart: 'warm' },
      adapter: testAdapter,
      wait,
    });
    this.opened++;
    return this.#kv;
  }

  async close(): Promise<void> {
    const kv = this.#kv;
    if (kv === undefined) return;
    this.#kv = undefined;
    await kv[Symbol.asyncDispose]();
    this.#add(kv);
    this.#lossesBefore += kv.devicesLost;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #add({
    manager: {
      inspect: { counters },
    },
    stores: { engine },
  }: KVRuntime): void {
    const { totals } = this;
    const sum = (values: Float64Array): number => values.reduce((all, value) => all + value, 0);
    totals.hitBlocks += counters.hitBlocks;
    totals.missedBlocks += counters.misses;
    totals.evicted += sum(counters.evictions);
    totals.loadsFailed += sum(counters.loadsFailed);
    totals.demotionsFailed += counters.demotionsFailed;
    totals.lost += counters.lost;
    totals.adopted += counters.adopted;
    totals.diverged += counters.diverged;
    for (const [link, { bytes }] of engine.traffic()) {
      totals.moved.set(link, (totals.moved.get(link) ?? 0) + bytes / layout.blockBytes);
    }
  }
}
