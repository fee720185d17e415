/**
 * What a prefix lookup costs with many blocks resident, one request at a time and a queue of 256 in one call:
 * as the lookups before left the processor's caches, and after other work has taken them, which is what a
 * scheduler step finds. Of a partly cached chain any number of blocks is found, half of them on average.
 */

import { KVManager, Outcome, type TableMemory } from '../../runtime/index.ts';
import { liveMemory, median } from './measuring.ts';

export interface ManagerRow {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
}

export const CHAIN_BLOCKS = 64;
const QUEUE = 256;
/** Bytes that other work touches: several times a core's own caches. */
const OTHER_WORK_BYTES = 16 * 2 ** 20;

/** Puts a chain of 64 blocks into the cache, under keys that no other chain has. */
export function cacheChain(manager: KVManager, chain: number): void {
  const keys = new Uint32Array(CHAIN_BLOCKS * 4);
  writeChain(keys, chain, CHAIN_BLOCKS);
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

/** From block `shared` on the keys are nobody else's. */
function writeChain(keys: Uint32Array, chain: number, shared: number): void {
  for (let block = 0; block < CHAIN_BLOCKS; block++) {
    keys[block * 4] = chain;
    keys[block * 4 + 1] = block;
    keys[block * 4 + 2] = block < shared ? 0 : 1;
    keys[block * 4 + 3] = 7;
  }
}

/**
 * The sizes take turns in every round, so that a machine that slows down meanwhile does so for all of them.
 * @param queues of 256 lookups in a round
 */
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
  for (const otherWork of [new Int32Array(0), new Int32Array(OTHER_WORK_BYTES / 4)]) {
    const after = otherWork.length > 0 ? ', after other work' : '';
    for (const [kind, atOnce] of [
      ['', 1],
      ['', QUEUE],
      ['partly ', 1],
      ['partly ', QUEUE],
    ] as const) {
      const samples = Array.from({ length: rounds }, () =>
        resident.map((chains) => chains.lookupsPerS(atOnce, kind !== '', queues, otherWork)),
      );
      resident.forEach(({ blocks }, i) => {
        const chains = `${kind}cached ${CHAIN_BLOCKS}-block chains`;
        const what = `lookups of ${chains}, ${atOnce} at a time, ${blocks / 1e6} M blocks resident${after}`;
        rows.push({ what, value: median(samples.map((round) => round[i])) / 1e6, unit: 'M/s' });
      });
    }
  }
  return rows;
}

/** Many cached chains, spread over three tiers: a tenth of the blocks in HBM, half of them on disk. */
function residentChains(blocks: number, tableMemory: TableMemory) {
  let mappedBytes = 0;
  const before = liveMemory();
  const manager = new KVManager({
    unitBytes: [1],
    hbm: { capacityBytes: Math.ceil(blocks * 0.1) },
    ddr: { capacityBytes: Math.ceil(blocks * 0.4) },
    nvme: { capacityBytes: Math.ceil(blocks * 0.5) },
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
  const expected = new Uint32Array(QUEUE);
  let state = 12_345;
  const below = (limit: number): number => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0; // the generator of ANSI C's example
    return Math.floor((state / 2 ** 32) * limit);
  };
  const lookupsPerS = (atOnce: number, partly: boolean, queues: number, otherWork: Int32Array): number => {
    let elapsedMs = 0;
    for (let queue = 0; queue < queues; queue++) {
      for (let r = 0; r < QUEUE; r++) {
        expected[r] = partly ? below(CHAIN_BLOCKS + 1) : CHAIN_BLOCKS;
        writeChain(keysOf[r], below(chains), expected[r]);
      }
      for (let i = 0; i < otherWork.length; i += 16) otherWork[i]++;
      const startMs = performance.now();
      if (atOnce > 1) manager.matchLengths(keys, firsts, counts, found);
      else for (let r = 0; r < QUEUE; r++) found[r] = manager.matchLength(keysOf[r], CHAIN_BLOCKS);
      elapsedMs += performance.now() - startMs;
      if (found.some((blocks, r) => blocks !== expected[r]))
        throw new Error('a lookup missed what is cached');
    }
    return (queues * QUEUE * 1000) / elapsedMs;
  };
  return { blocks, bytes, lookupsPerS };
}
