/**
 * What a prefix lookup costs with many blocks resident, one request at a time and a queue of 256 in one call. Keys are
 * computed before the clock starts, for a request's keys are fresh when it is looked up. The manager's tables are timed
 * in two states: as the lookups before left them in the caches, and after other work has taken its caches, which is
 * what a scheduler step finds. The requests are the same at every size but for the number of chains they choose from.
 * Of a chain that is all cached a lookup touches two cache lines: for all chains 2 MB at 1 M blocks, 20 MB at 10 M.
 */

import { KVManager, type TableMemory } from '../../runtime/index.ts';
import { CHAIN_BLOCKS, cacheChain, chainKeys } from './chains.ts';
import { collectGarbage, mediansByTurns } from './measuring.ts';

export type AddRow = (what: string, value: number, unit: string, better: 'more' | 'less') => void;

const QUEUE = 256;
const QUEUES_PER_ROUND = 200;
/** Bytes that the other work touches: several times a core's own caches. */
const OTHER_WORK_BYTES = 16 * 2 ** 20;

interface Workload {
  readonly way: 'one at a time' | `${typeof QUEUE} at a time`;
  readonly partly: boolean;
  readonly afterOtherWork: boolean;
}

const workloads: readonly Workload[] = [false, true].flatMap((afterOtherWork) =>
  [false, true].flatMap((partly) =>
    (['one at a time', `${QUEUE} at a time`] as const).map((way) => ({ way, partly, afterOtherWork })),
  ),
);

/**
 * Rows for each of the sizes and, for each size but the first, how much longer a lookup takes than at the first. The sizes
 * take turns in every round, so that a machine that slows down meanwhile does so for all of them.
 */
export function benchLookups(
  residentBlocks: readonly number[],
  rounds: number,
  tableMemory: TableMemory,
  add: AddRow,
): void {
  const sizes = residentBlocks.map((blocks) => {
    const name = `${blocks / 1e6} M`;
    const chains = new ResidentChains(blocks, tableMemory);
    add(`metadata of ${name} blocks in three tiers`, chains.metadataBytes / 1e9, 'GB', 'less');
    return { name, chains };
  });
  for (const workload of workloads) {
    const what = nameOf(workload);
    const perS = mediansByTurns(
      rounds,
      sizes.map(
        ({ chains }) =>
          () =>
            chains.lookupsPerS(workload),
      ),
    );
    sizes.forEach(({ name }, i) => {
      add(`lookups of ${what}, ${name} blocks resident`, perS[i] / 1e6, 'M/s', 'more');
      if (i > 0)
        add(
          `time of a lookup of ${what}, ${name} blocks against ${sizes[0].name}`,
          perS[0] / perS[i],
          'x',
          'less',
        );
    });
  }
}

function nameOf({ way, partly, afterOtherWork }: Workload): string {
  const chains = `${partly ? 'partly ' : ''}cached ${CHAIN_BLOCKS}-block chains`;
  return `${chains}, ${way}${afterOtherWork ? ', after other work' : ''}`;
}

/** Many cached chains, spread over three tiers: a tenth of the blocks in HBM, half of them on disk. */
class ResidentChains {
  readonly metadataBytes: number;
  readonly #manager: KVManager;
  readonly #chains: number;
  readonly #keys: Uint32Array = new Uint32Array(QUEUE * CHAIN_BLOCKS * 4);
  readonly #keysOf: readonly Uint32Array[] = Array.from({ length: QUEUE }, (_, r) =>
    this.#keys.subarray(r * CHAIN_BLOCKS * 4, (r + 1) * CHAIN_BLOCKS * 4),
  );
  readonly #firsts: Uint32Array = Uint32Array.from({ length: QUEUE }, (_, r) => r * CHAIN_BLOCKS);
  readonly #counts: Uint32Array = new Uint32Array(QUEUE).fill(CHAIN_BLOCKS);
  readonly #expected: Uint32Array = new Uint32Array(QUEUE);
  readonly #found: Uint32Array = new Uint32Array(QUEUE);
  readonly #otherWork: Int32Array = new Int32Array(OTHER_WORK_BYTES / 4);
  #state = 12_345;

  constructor(blocks: number, tableMemory: TableMemory) {
    this.#chains = Math.floor(blocks / CHAIN_BLOCKS);
    collectGarbage();
    let mappedBytes = 0;
    const before = process.memoryUsage();
    this.#manager = new KVManager({
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
    const keys = new Uint32Array(CHAIN_BLOCKS * 4);
    for (let c = 0; c < this.#chains; c++) cacheChain(this.#manager, chainKeys(keys, c));
    collectGarbage();
    const after = process.memoryUsage();
    this.metadataBytes =
      mappedBytes + (after.arrayBuffers - before.arrayBuffers) + (after.heapUsed - before.heapUsed);
  }

  lookupsPerS({ way, partly, afterOtherWork }: Workload): number {
    const manager = this.#manager;
    const found = this.#found;
    let elapsedMs = 0;
    for (let q = 0; q < QUEUES_PER_ROUND; q++) {
      if (afterOtherWork) this.#workElsewhere();
      this.#fillQueue(partly);
      const started = performance.now();
      if (way === 'one at a time') {
        for (let r = 0; r < QUEUE; r++) found[r] = manager.matchLength(this.#keysOf[r], CHAIN_BLOCKS);
      } else {
        manager.matchLengths(this.#keys, this.#firsts, this.#counts, found);
      }
      elapsedMs += performance.now() - started;
      for (let r = 0; r < QUEUE; r++)
        if (found[r] !== this.#expected[r]) throw new Error('a lookup missed what is cached');
    }
    return (QUEUES_PER_ROUND * QUEUE * 1000) / elapsedMs;
  }

  /** Requests for chains at random: all of each is cached, or as many of its blocks as chance says, half in the mean. */
  #fillQueue(partly: boolean): void {
    for (let r = 0; r < QUEUE; r++) {
      const chain = this.#below(this.#chains);
      const cached = partly ? this.#below(CHAIN_BLOCKS + 1) : CHAIN_BLOCKS;
      chainKeys(this.#keys, chain, r * CHAIN_BLOCKS * 4, cached, this.#state | 1);
      this.#expected[r] = cached;
    }
  }

  #workElsewhere(): void {
    const words = this.#otherWork;
    for (let i = 0; i < words.length; i += 16) words[i]++;
  }

  #below(limit: number): number {
    this.#state = (Math.imul(this.#state, 1_103_515_245) + 12_345) >>> 0;
    return Math.floor((this.#state / 2 ** 32) * limit);
  }
}
