/**
 * Costs of the manager itself on one thread and without a driver: allocations, lookups, garbage and memory. Rates are
 * medians of several rounds; latencies are taken call by call.
 */

import v8 from 'node:v8';
import vm from 'node:vm';
import { KVManager, Outcome, type TableMemory, tierNames } from '../../runtime/index.ts';

export interface ManagerRow {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
}

const CHAIN_BLOCKS = 64;
const QUEUE = 256;
/** From one chain looked up to the next; a prime, so that all have their turn. */
const CHAIN_STEP = 7919;
const TOP_BLOCKS = 65_536;
/** Pairs before a rate is taken: V8 has compiled the calls for good by then. */
const WARM_UP_PAIRS = 500_000;

/** @param tableMemory where the large tables lie, as in the runtime */
export function benchManager(quick: boolean, tableMemory: TableMemory): ManagerRow[] {
  const rounds = quick ? 3 : 7;
  const mega = quick ? 1 : 10;
  const operations = quick ? 200_000 : 1_000_000;
  const roomy = allocation(false, operations);
  const evicting = allocation(true, operations);
  return [
    { what: 'block allocate + free, 64 at a time', value: roomy.mPairsPerS(rounds, 64), unit: 'M pairs/s' },
    { what: 'block allocate + free, one at a time', value: roomy.mPairsPerS(rounds, 1), unit: 'M pairs/s' },
    { what: 'allocate of one block, p50', value: roomy.latencyUs(0.5), unit: 'µs' },
    { what: 'allocate of one block, p99.9', value: roomy.latencyUs(0.999), unit: 'µs' },
    { what: 'evicting allocate of one block, p99.9', value: evicting.latencyUs(0.999), unit: 'µs' },
    { what: `heap growth over ${mega} M operations`, value: roomy.heapGrowthBytes(mega), unit: 'bytes' },
    ...(quick
      ? lookupRows([200_000], rounds, 50, tableMemory)
      : lookupRows([1_000_000, 10_000_000], rounds, 200, tableMemory)),
  ];
}

/**
 * One sequence that takes and gives back blocks of an HBM that has room or, evicting, is full.
 * @param operations of a round, and at most of the calls that are timed one by one
 */
function allocation(evicting: boolean, operations: number) {
  const manager = new KVManager({ unitBytes: [1], [tierNames[0]]: { capacityBytes: TOP_BLOCKS } });
  const chains = evicting ? TOP_BLOCKS / CHAIN_BLOCKS : 0;
  for (let chain = 0; chain < chains; chain++) cacheChain(manager, chain);
  const sequence = manager.open(new Uint32Array(0), 0, 0);
  const run = (pairs: number, batch: number): void => {
    for (let i = 0; i < pairs / batch; i++) {
      manager.allocate(sequence, 0, batch, 0);
      manager.releaseRange(sequence, 0, batch, 0);
    }
  };
  return {
    mPairsPerS(rounds: number, batch: number): number {
      const rateOfRound = (): number => {
        const startMs = performance.now();
        run(operations, batch);
        return operations / 1000 / (performance.now() - startMs);
      };
      run(WARM_UP_PAIRS, batch);
      return median(Array.from({ length: rounds }, rateOfRound));
    },
    latencyUs(quantile: number): number {
      if (!evicting) run(WARM_UP_PAIRS, 1);
      const samples = Float64Array.from({ length: 200_000 }, () => {
        const startMs = performance.now();
        manager.allocate(sequence, 0, 1, 0);
        const elapsedMs = performance.now() - startMs;
        manager.releaseRange(sequence, 0, 1, 0);
        return elapsedMs * 1000;
      });
      return samples.sort()[Math.floor(samples.length * quantile)];
    },
    heapGrowthBytes(mega: number): number {
      run(100_000, 1);
      const before = liveMemory().heapUsed;
      run(mega * 1e6, 1);
      return Math.max(0, liveMemory().heapUsed - before);
    },
  };
}

/** Puts a chain of 64 blocks into the cache, under keys that no other chain has. */
function cacheChain(manager: KVManager, chain: number): void {
  const keys = new Uint32Array(CHAIN_BLOCKS * 4);
  writeChain(keys, chain);
  const endJobs = (): void => {
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      manager.complete(job, Outcome.LOADED, 0);
    }
  };
  const sequence = manager.open(keys, CHAIN_BLOCKS, 0);
  manager.allocate(sequence, 0, CHAIN_BLOCKS, 0);
  endJobs();
  manager.seal(sequence, 0, CHAIN_BLOCKS, keys, 0, 16, 0);
  endJobs();
  manager.release(sequence, 0);
  endJobs();
}

function writeChain(keys: Uint32Array, chain: number): void {
  for (let block = 0; block < CHAIN_BLOCKS; block++) keys.set([chain, block, 0, 7], block * 4);
}

/** The sizes take turns, so that a slow moment is slow for all. @param queues of 256 lookups in a round */
export function lookupRows(
  sizes: readonly number[],
  rounds: number,
  queues: number,
  tableMemory: TableMemory,
): ManagerRow[] {
  const resident = sizes.map((blocks) => residentChains(blocks, tableMemory));
  const rows = resident.map(({ blocks, bytes }) => ({
    what: `metadata of one of ${blocks / 1e6} M blocks in three tiers`,
    value: bytes / blocks,
    unit: 'bytes',
  }));
  for (const atOnce of [1, QUEUE]) {
    const samples = Array.from({ length: rounds }, () =>
      resident.map(({ lookupsPerS }) => lookupsPerS(atOnce, queues)),
    );
    resident.forEach(({ blocks }, i) => {
      const chains = `cached ${CHAIN_BLOCKS}-block chains`;
      const what = `lookups of ${chains}, ${atOnce} at a time, ${blocks / 1e6} M blocks resident`;
      rows.push({ what, value: median(samples.map((round) => round[i])) / 1e6, unit: 'M/s' });
    });
  }
  return rows;
}

/** Many cached chains, spread over the three fastest tiers: a tenth of the blocks in the top one, half in the last. */
function residentChains(blocks: number, tableMemory: TableMemory) {
  let mappedBytes = 0;
  const before = liveMemory();
  const manager = new KVManager({
    unitBytes: [1],
    ...Object.fromEntries(
      [0.1, 0.4, 0.5].map((share, i) => [tierNames[i], { capacityBytes: Math.ceil(blocks * share) }]),
    ),
    tableMemory(bytes) {
      const { arrayBuffers } = process.memoryUsage();
      const given = tableMemory(bytes);
      // what the engine did not allocate, it does not count
      mappedBytes += given.byteLength - (process.memoryUsage().arrayBuffers - arrayBuffers);
      return given;
    },
  });
  const chains = Math.floor(blocks / CHAIN_BLOCKS);
  for (let chain = 0; chain < chains; chain++) cacheChain(manager, chain);
  const { arrayBuffers, heapUsed } = liveMemory();
  const bytes = mappedBytes + (arrayBuffers - before.arrayBuffers) + (heapUsed - before.heapUsed);

  const keys = new Uint32Array(QUEUE * CHAIN_BLOCKS * 4);
  const firsts = Uint32Array.from({ length: QUEUE }, (_, r) => r * CHAIN_BLOCKS);
  const counts = new Uint32Array(QUEUE).fill(CHAIN_BLOCKS);
  const found = new Uint32Array(QUEUE);
  const keysOf = Array.from(firsts, (first) => keys.subarray(first * 4, (first + CHAIN_BLOCKS) * 4));
  let chain = 0;
  const lookupsPerS = (atOnce: number, queues: number): number => {
    let elapsedMs = 0;
    for (let queue = 0; queue < queues; queue++) {
      for (const own of keysOf) writeChain(own, (chain += CHAIN_STEP) % chains);
      const startMs = performance.now();
      if (atOnce > 1) manager.matchLengths(keys, firsts, counts, found);
      else for (let r = 0; r < QUEUE; r++) found[r] = manager.matchLength(keysOf[r], CHAIN_BLOCKS);
      elapsedMs += performance.now() - startMs;
      if (found.some((blocks) => blocks !== CHAIN_BLOCKS)) throw new Error('a lookup missed what is cached');
    }
    return (queues * QUEUE * 1000) / elapsedMs;
  };
  return { blocks, bytes, lookupsPerS };
}

//  Tools of the benches: medians, and memory that is really in use.

/** The middle one of the values, or the lower of the two in the middle. */
export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[(values.length - 1) >> 1];
}

/** Full collections until memory is taken as it is. Two or three are usual; each takes some milliseconds. */
const MOST_COLLECTIONS = 10;
/** Less than what a collection itself moves about, and much less than the smallest table. */
const SETTLED_BYTES = 4096;

v8.setFlagsFromString('--expose-gc');
const collect: (options?: { type: 'minor' | 'major' }) => void = vm.runInNewContext('gc');

/** Collects what was left lately. A full collection would throw away idle machine code, too. */
export function collectYoungGarbage(): void {
  collect({ type: 'minor' });
}

/**
 * Bytes that are left when collections free nothing more. A single one is not enough: V8 frees the memory of array buffers
 * on another thread after it, and finalizers let go of more.
 */
function liveMemory(): NodeJS.MemoryUsage {
  let left = process.memoryUsage();
  for (let rounds = 0; rounds < MOST_COLLECTIONS; rounds++) {
    const before = left;
    collect();
    left = process.memoryUsage();
    const freedBytes = before.heapUsed - left.heapUsed + (before.arrayBuffers - left.arrayBuffers);
    if (rounds > 1 && freedBytes < SETTLED_BYTES) break;
  }
  return left;
}
