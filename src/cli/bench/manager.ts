/**
 * What the manager itself costs: allocations, lookups, garbage and memory, on one thread and without a driver. Rates are the
 * median of several rounds; latencies are taken call by call.
 */

import v8 from 'node:v8';
import vm from 'node:vm';
import { type JobId, KVManager, Outcome } from '../../runtime/index.ts';

export interface ManagerBenchRow {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
  /** Which way is good, for the reader of a table. */
  readonly better: 'more' | 'less';
}

export interface ManagerBenchOptions {
  readonly quick: boolean;
  readonly say: (line: string) => void;
}

const CHAIN_BLOCKS = 64;

export function benchManager({ quick, say }: ManagerBenchOptions): ManagerBenchRow[] {
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

  const resident = quick ? [1_000_000] : [1_000_000, 10_000_000];
  for (const blocks of resident) {
    const name = `${blocks / 1e6} M blocks`;
    const chains = new Chains(blocks);
    add(`metadata of ${name} in three tiers`, chains.metadataBytes / 1e9, 'GB', 'less');
    add(
      `lookups of cached ${CHAIN_BLOCKS}-block chains, ${name} resident`,
      median(rounds, () => chains.lookupsPerS(1)) / 1e6,
      'M/s',
      'more',
    );
    add(
      `lookups of half cached chains, ${name} resident`,
      median(rounds, () => chains.lookupsPerS(0.5)) / 1e6,
      'M/s',
      'more',
    );
  }
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
    return samples[Math.floor(samples.length * quantile)]! * 1000;
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

/** Many cached chains, spread over three tiers: a tenth of the blocks in HBM, half of them on disk. */
class Chains {
  readonly metadataBytes: number;
  readonly #manager: KVManager;
  readonly #chains: number;
  readonly #keys: Uint32Array = new Uint32Array(CHAIN_BLOCKS * 4);
  #state = 12_345;

  constructor(blocks: number) {
    this.#chains = Math.floor(blocks / CHAIN_BLOCKS);
    collectGarbage();
    const before = process.memoryUsage();
    this.#manager = new KVManager({
      unitBytes: [1],
      hbm: { capacityBytes: Math.ceil(blocks * 0.1) },
      ddr: { capacityBytes: Math.ceil(blocks * 0.4) },
      nvme: { capacityBytes: Math.ceil(blocks * 0.5) },
    });
    for (let c = 0; c < this.#chains; c++) cacheChain(this.#manager, chainKeys(this.#keys, c));
    collectGarbage();
    const after = process.memoryUsage();
    this.metadataBytes = after.arrayBuffers - before.arrayBuffers + (after.heapUsed - before.heapUsed);
  }

  /** @param cached share of each chain that is cached; the rest was never seen */
  lookupsPerS(cached: number): number {
    const lookups = 100_000;
    const fill = (): void => {
      this.#state = (Math.imul(this.#state, 1_103_515_245) + 12_345) >>> 0;
      chainKeys(this.#keys, this.#state % this.#chains);
      for (let i = Math.ceil(CHAIN_BLOCKS * cached); i < CHAIN_BLOCKS; i++)
        this.#keys[i * 4 + 2] = this.#state | 1;
    };
    const startedFill = performance.now();
    for (let i = 0; i < lookups; i++) fill();
    const fillMs = performance.now() - startedFill;
    let found = 0;
    const started = performance.now();
    for (let i = 0; i < lookups; i++) {
      fill();
      found += this.#manager.matchLength(this.#keys, CHAIN_BLOCKS);
    }
    const elapsedMs = performance.now() - started - fillMs;
    if (found !== lookups * Math.ceil(CHAIN_BLOCKS * cached))
      throw new Error('a lookup missed what is cached');
    return (lookups * 1000) / elapsedMs;
  }
}

function chainKeys(keys: Uint32Array, chain: number): Uint32Array {
  for (let i = 0; i < CHAIN_BLOCKS; i++) {
    keys[i * 4] = chain;
    keys[i * 4 + 1] = i;
    keys[i * 4 + 2] = 0;
    keys[i * 4 + 3] = 7;
  }
  return keys;
}

function cacheChain(manager: KVManager, keys: Uint32Array): void {
  const sequence = manager.open(keys, CHAIN_BLOCKS, 0);
  manager.allocate(sequence, 0, CHAIN_BLOCKS, 0);
  endJobs(manager);
  manager.seal(sequence, 0, CHAIN_BLOCKS, keys, 0, 16, 0);
  endJobs(manager);
  manager.release(sequence, 0);
  endJobs(manager);
}

function endJobs(manager: KVManager): void {
  for (let job = manager.nextJob(); job !== 0; job = manager.nextJob())
    manager.complete(job as JobId, Outcome.LOADED, 0);
}

function median(rounds: number, measure: () => number): number {
  const values = Float64Array.from({ length: rounds }, measure).sort();
  return values[values.length >> 1]!;
}

let collect: (() => void) | undefined;

function collectGarbage(): void {
  v8.setFlagsFromString('--expose-gc');
  collect ??= vm.runInNewContext('gc') as () => void;
  collect();
}

function liveHeapBytes(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}
