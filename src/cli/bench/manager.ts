/**
 * What the manager itself costs on one thread and without a driver: allocations, lookups, garbage and memory.
 * Rates are medians of several rounds; latencies are taken call by call.
 */

import { KVManager, type TableMemory } from '../../runtime/index.ts';
import { CHAIN_BLOCKS, cacheChain, lookupRows, type ManagerRow } from './lookups.ts';
import { liveMemory, median } from './measuring.ts';

const HBM_BLOCKS = 65_536;

/** @param tableMemory where the large tables lie, as in the runtime */
export function benchManager(quick: boolean, tableMemory: TableMemory): ManagerRow[] {
  const rounds = quick ? 3 : 7;
  const operations = quick ? 1_000_000 : 10_000_000;
  const roomy = allocation(false);
  const evicting = allocation(true);
  return [
    { what: 'block allocate + free, 64 at a time', value: roomy.mPairsPerS(rounds, 64), unit: 'M pairs/s' },
    { what: 'block allocate + free, one at a time', value: roomy.mPairsPerS(rounds, 1), unit: 'M pairs/s' },
    { what: 'allocate of one block, p50', value: roomy.latencyUs(0.5), unit: 'µs' },
    { what: 'allocate of one block, p99.9', value: roomy.latencyUs(0.999), unit: 'µs' },
    { what: 'evicting allocate of one block, p99.9', value: evicting.latencyUs(0.999), unit: 'µs' },
    {
      what: `heap growth over ${operations / 1e6} M operations`,
      value: roomy.heapGrowthBytes(operations),
      unit: 'bytes',
    },
    ...lookupRows(quick ? [1_000_000] : [1_000_000, 10_000_000], rounds, 200, tableMemory),
  ];
}

/**
 * One sequence that takes and gives back blocks of an HBM that has room for them or, evicting, of one that is
 * full.
 */
function allocation(evicting: boolean) {
  const manager = new KVManager({ unitBytes: [1], hbm: { capacityBytes: HBM_BLOCKS } });
  const chains = evicting ? HBM_BLOCKS / CHAIN_BLOCKS : 0;
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
      const rates = Array.from({ length: rounds }, () => {
        const startMs = performance.now();
        run(1_000_000, batch);
        return 1000 / (performance.now() - startMs);
      });
      return median(rates);
    },
    latencyUs(quantile: number): number {
      if (!evicting) run(200_000, 1);
      const samples = Float64Array.from({ length: 200_000 }, () => {
        const startMs = performance.now();
        manager.allocate(sequence, 0, 1, 0);
        const elapsedMs = performance.now() - startMs;
        manager.releaseRange(sequence, 0, 1, 0);
        return elapsedMs * 1000;
      });
      return samples.sort()[Math.floor(samples.length * quantile)];
    },
    heapGrowthBytes(operations: number): number {
      run(100_000, 1);
      const before = liveMemory().heapUsed;
      run(operations, 1);
      return Math.max(0, liveMemory().heapUsed - before);
    },
  };
}
