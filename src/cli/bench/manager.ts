/**
 * What the manager itself costs: allocations, lookups, garbage and memory, on one thread and without a driver. Rates are the
 * median of several rounds; latencies are taken call by call.
 */

import { KVManager, type TableMemory } from '../../runtime/index.ts';
import { CHAIN_BLOCKS, cacheChain, chainKeys } from './chains.ts';
import { benchLookups } from './lookups.ts';
import { liveHeapBytes, median } from './measuring.ts';

export interface ManagerBenchRow {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
  /** Which way is good, for the reader of a table. */
  readonly better: 'more' | 'less';
}

export interface ManagerBenchOptions {
  readonly quick: boolean;
  /** Where the large tables lie, as in the runtime. */
  readonly tableMemory: TableMemory;
  readonly say: (line: string) => void;
}

export function benchManager({ quick, tableMemory, say }: ManagerBenchOptions): ManagerBenchRow[] {
  const rows: ManagerBenchRow[] = [];
  const add = (what: string, value: number, unit: string, better: 'more' | 'less'): void => {
    rows.push({ what, value, unit, better });
    say(what);
  };
  const rounds = quick ? 3 : 7;

  const allocation = new Allocation();
  add(
    'block allocate + free, 64 at a time',
    median(rounds, () => allocation.pairsPerS(64)) / 1e6,
    'M pairs/s',
    'more',
  );
  add(
    'block allocate + free, one at a time',
    median(rounds, () => allocation.pairsPerS(1)) / 1e6,
    'M pairs/s',
    'more',
  );
  add('allocate of one block, p50', allocation.latencyUs(0.5), 'µs', 'less');
  add('allocate of one block, p99.9', allocation.latencyUs(0.999), 'µs', 'less');
  add('evicting allocate of one block, p99.9', new Allocation(true).latencyUs(0.999), 'µs', 'less');
  const operations = quick ? 1_000_000 : 10_000_000;
  add(
    `heap growth over ${operations / 1e6} M operations`,
    allocation.heapGrowthBytes(operations),
    'bytes',
    'less',
  );

  benchLookups(quick ? [1_000_000] : [1_000_000, 10_000_000], rounds, tableMemory, add);
  return rows;
}

/** One sequence that takes and gives back blocks of an HBM that has room for them, or, evicting, of one that is full. */
class Allocation {
  readonly #manager: KVManager;
  readonly #sequence: ReturnType<KVManager['open']>;

  constructor(evicting = false) {
    const blocks = 65_536;
    this.#manager = new KVManager({ unitBytes: [1], hbm: { capacityBytes: blocks } });
    if (evicting)
      for (let c = 0; c < blocks / CHAIN_BLOCKS; c++)
        cacheChain(this.#manager, chainKeys(new Uint32Array(CHAIN_BLOCKS * 4), c));
    this.#sequence = this.#manager.open(new Uint32Array(0), 0, 0);
  }

  pairsPerS(batch: number): number {
    const pairs = 1_000_000;
    const started = performance.now();
    this.#pairs(pairs, batch);
    return (pairs * 1000) / (performance.now() - started);
  }

  latencyUs(quantile: number): number {
    const samples = new Float64Array(200_000);
    this.#pairs(200_000, 1);
    for (let i = 0; i < samples.length; i++) {
      const started = performance.now();
      this.#manager.allocate(this.#sequence, 0, 1, 0);
      samples[i] = performance.now() - started;
      this.#manager.releaseRange(this.#sequence, 0, 1, 0);
    }
    samples.sort();
    return samples[Math.floor(samples.length * quantile)] * 1000;
  }

  heapGrowthBytes(operations: number): number {
    this.#pairs(100_000, 1);
    const before = liveHeapBytes();
    this.#pairs(operations, 1);
    return Math.max(0, liveHeapBytes() - before);
  }

  #pairs(pairs: number, batch: number): void {
    for (let i = 0; i < pairs / batch; i++) {
      this.#manager.allocate(this.#sequence, 0, batch, 0);
      this.#manager.releaseRange(this.#sequence, 0, batch, 0);
    }
  }
}
