/**
 * The transfer engine: carries out the manager's transfer jobs on real stores. Each job ends exactly once,
 * and its end is reported when it happens, never inside `submit`. The jobs of a link wait in its queue
 * (linkQueue.ts); `BatchMoves`, below, takes a batch across its link.
 */

import type { Place, Transfer } from '../../runtime/tables/jobTable.ts';
import type { Completion, EndListener, TransferDriver } from '../../runtime/tier/driver.ts';
import { refused } from '../../runtime/tier/slotLedger.ts';
import { linkName, Outcome, Tier, tierName, tierNames } from '../../runtime/tier/tier.ts';
import type {
  DeviceTierStore,
  HostTierStore,
  StoreItem,
  StoreResult,
  TierStore,
} from '../../runtime/tier/tierStore.ts';
import { runningClock } from '../runningClock.ts';
import { type LinkLimits, LinkMeter, LinkQueue, type LinkTraffic } from './linkQueue.ts';
import { moveStaged, type StagedBlock, type StagingSlots } from './stagedBatch.ts';

/** A job that was submitted and has not ended. */
interface JobFlight {
  readonly transfer: Transfer;
  ended: boolean;
}

const MIB = 1024 * 1024;
/**
 * Links to or from host memory. Enough bytes to keep a store busy, few enough that an urgent job waits
 * briefly.
 */
const directLimits: LinkLimits = { windowBytes: 64 * MIB, batchBytes: 8 * MIB };
/** Links through staging memory. Small batches, so that several alternate between reading and writing. */
const stagedLimits: LinkLimits = { windowBytes: 32 * MIB, batchBytes: 4 * MIB };

export class TransferEngine implements TransferDriver {
  #stores: EngineStores;
  readonly #moves: BatchMoves<JobFlight>;
  readonly #clockMs: () => number;
  readonly #startMs: number;
  readonly #meter: LinkMeter;
  readonly #flights: Set<JobFlight> = new Set();
  /** Index: source tier * number of tiers + target tier. */
  readonly #queues: (LinkQueue<JobFlight> | undefined)[] = [];
  #listener: EndListener = () => {};
  readonly #watch: () => () => void;
  #unwatch: (() => void) | undefined;

  /**
   * @param staging needed for links that do not touch host memory, else null
   * @param watch called when the first job comes under way; the function it returns is called after the last
   */
  constructor(
    stores: EngineStores,
    staging: StagingSlots | null,
    clockMs: () => number = () => runningClock.nowMs(),
    watch: () => () => void = () => runningClock.watch(),
  ) {
    this.#watch = watch;
    this.#stores = stores;
    this.#moves = new BatchMoves(() => this.#stores, staging);
    this.#clockMs = clockMs;
    this.#startMs = clockMs();
    this.#meter = new LinkMeter(clockMs);
  }

  /** Jobs submitted that have not ended. */
  get inFlight(): number {
    return this.#flights.size;
  }

  /** Jobs past their deadline that their stores have not ended. Each keeps its slots until it ends. */
  get overdue(): number {
    const nowUs = this.nowUs();
    let overdue = 0;
    for (const { transfer } of this.#flights) if (transfer.deadlineUs <= nowUs) overdue++;
    return overdue;
  }

  /** Ends jobs that did not begin by their deadline, and frees the window of jobs that did. */
  expire(): void {
    const nowUs = this.nowUs();
    for (const queue of this.#queues) queue?.expire(nowUs);
  }

  /**
   * Puts a new, empty store in place of the one whose device was lost. Jobs under way find no bytes in it.
   */
  replaceDevice(hbm: DeviceTierStore): void {
    this.#stores = { ...this.#stores, hbm };
  }

  nowUs(): number {
    return Math.floor((this.#clockMs() - this.#startMs) * 1000);
  }

  traffic(): Map<string, LinkTraffic> {
    return this.#meter.traffic();
  }

  onEnd(listener: EndListener): void {
    this.#listener = listener;
  }

  submit(transfers: readonly Transfer[]): void {
    const copies: JobFlight[] = [];
    const seals: JobFlight[] = [];
    const queues = new Set<LinkQueue<JobFlight>>();
    if (transfers.length > 0) this.#unwatch ??= this.#watch();
    for (const transfer of transfers) {
      const flight: JobFlight = { transfer, ended: false };
      this.#flights.add(flight);
      const { source, target } = transfer;
      if (source === null) seals.push(flight);
      else if (source.tier === Tier.HBM && target.tier === Tier.HBM) copies.push(flight);
      else {
        const queue = this.#queueOf(source.tier, target.tier);
        queue.push(flight);
        queues.add(queue);
      }
    }
    // Copies go first: a block may be copied and sealed in one call, and the copy is of its unsealed bytes.
    if (copies.length > 0) void this.#carryOut(copies, (batch) => this.#copy(batch));
    if (seals.length > 0) void this.#carryOut(seals, (batch) => this.#seal(batch));
    for (const queue of queues) queue.pump();
  }

  #queueOf(from: Tier, to: Tier): LinkQueue<JobFlight> {
    const at = from * tierNames.length + to;
    let queue = this.#queues[at];
    if (queue === undefined) {
      const staged = from !== Tier.DDR && to !== Tier.DDR;
      queue = new LinkQueue(
        staged ? stagedLimits : directLimits,
        () => this.nowUs(),
        (flights) => this.#carryOut(flights, (batch) => this.#move(linkName(from, to), batch)),
        (flight) => {
          const reason = 'its deadline passed before it began';
          queueMicrotask(() => this.#end(flight, { outcome: Outcome.TIMED_OUT, reason }));
        },
      );
      this.#queues[at] = queue;
    }
    return queue;
  }

  /** Stores must not reject. If one does, the jobs of its batch end as refused instead of hanging. */
  async #carryOut(
    batch: readonly JobFlight[],
    act: (batch: readonly JobFlight[]) => Promise<void>,
  ): Promise<void> {
    try {
      await act(batch);
    } catch (error) {
      const end = refused(`the store failed: ${error instanceof Error ? error.message : String(error)}`);
      for (const flight of batch) this.#end(flight, end);
    }
  }

  #end(flight: JobFlight, { outcome, reason }: StoreResult, digestLo = 0, digestHi = 0): void {
    if (flight.ended) return;
    flight.ended = true;
    this.#flights.delete(flight);
    if (this.#flights.size === 0) {
      this.#unwatch?.();
      this.#unwatch = undefined;
    }
    const end: Completion = { job: flight.transfer.job, outcome, reason, digestLo, digestHi };
    this.#listener(end);
  }

  async #seal(batch: readonly JobFlight[]): Promise<void> {
    const items = batch.map(({ transfer: { target, sizeClass } }) => ({ ...target, sizeClass }));
    const ends = await this.#stores.hbm.seal(items);
    for (const [i, flight] of batch.entries()) {
      this.#end(flight, ends[i], ends[i].digest.lo, ends[i].digest.hi);
    }
  }

  async #copy(batch: readonly JobFlight[]): Promise<void> {
    const ends = await this.#stores.hbm.copy(
      batch.map(({ transfer: { source, target, sizeClass, unsealed } }) => ({
        sizeClass,
        unsealed,
        fromSlot: source!.slot,
        fromGeneration: source!.generation,
        toSlot: target.slot,
        toGeneration: target.generation,
      })),
    );
    for (const [i, flight] of batch.entries()) this.#end(flight, ends[i]);
  }

  async #move(link: string, batch: readonly JobFlight[]): Promise<void> {
    await undefined; // jobs that end at once must not end inside `submit`
    this.#meter.begin(link);
    let bytes = 0;
    const ended = (flight: JobFlight, end: StoreResult): void => {
      if (end.outcome === Outcome.LOADED && !flight.ended) bytes += flight.transfer.bytes;
      this.#end(flight, end);
    };
    try {
      await this.#moves.move(batch, ended);
    } finally {
      this.#meter.end(link, bytes);
    }
  }
}

// ---- how a batch crosses its link
//
// Blocks move directly between the host arena and a store. Between device and file they pass a staging slot.
//
//     HBM <--- rings of mapped buffers ---> DDR arena <--- direct I/O ---> file
//      ^                                                                    ^
//      +------------------------------ staging ----------------------------+

export interface EngineStores {
  readonly hbm: DeviceTierStore;
  readonly ddr?: HostTierStore;
  readonly nvme?: TierStore;
  readonly remote?: TierStore;
}

/** Called once for each job of a batch, when it ends. */
export type MoveEnded<Job> = (job: Job, end: StoreResult) => void;

export class BatchMoves<Job extends { readonly transfer: Transfer }> {
  readonly #stores: () => EngineStores;
  readonly #staging: StagingSlots | null;

  /** @param stores called at each move, since a device can be replaced */
  constructor(stores: () => EngineStores, staging: StagingSlots | null) {
    this.#stores = stores;
    this.#staging = staging;
  }

  /** @param batch jobs of one link */
  move(batch: readonly Job[], ended: MoveEnded<Job>): Promise<void> {
    const source = batch[0].transfer.source!.tier;
    const target = batch[0].transfer.target.tier;
    if (source !== Tier.DDR && target !== Tier.DDR) return this.#staged(source, target, batch, ended);
    if (source !== Tier.DDR) return this.#toHost(source, batch, ended);
    if (target !== Tier.DDR) return this.#fromHost(target, batch, ended);
    this.#withinHost(batch, ended);
    return Promise.resolve();
  }

  #withinHost(batch: readonly Job[], ended: MoveEnded<Job>): void {
    const ddr = this.#host();
    for (const job of this.#readable(ddr, batch, ended)) {
      const { source, target, sizeClass } = job.transfer;
      ddr.view(target.slot, sizeClass).set(ddr.view(source!.slot, sizeClass));
      ddr.markWritten(target.slot, target.generation);
      ended(job, { outcome: Outcome.LOADED, reason: '' });
    }
  }

  async #fromHost(to: Tier, batch: readonly Job[], ended: MoveEnded<Job>): Promise<void> {
    const ddr = this.#host();
    const good = this.#readable(ddr, batch, ended);
    const items = good.map(({ transfer }) =>
      itemOf(transfer, transfer.target, ddr.view(transfer.source!.slot, transfer.sizeClass)),
    );
    await this.#store(to).write(items, (i, end) => ended(good[i], end));
  }

  async #toHost(from: Tier, batch: readonly Job[], ended: MoveEnded<Job>): Promise<void> {
    const ddr = this.#host();
    const items = batch.map(({ transfer }) =>
      itemOf(transfer, transfer.source!, ddr.view(transfer.target.slot, transfer.sizeClass)),
    );
    await this.#store(from).read(items, (i, end) => {
      const { slot, generation } = batch[i].transfer.target;
      if (end.outcome === Outcome.LOADED) ddr.markWritten(slot, generation);
      ended(batch[i], end);
    });
  }

  async #staged(from: Tier, to: Tier, batch: readonly Job[], ended: MoveEnded<Job>): Promise<void> {
    const [source, target] = [this.#store(from), this.#store(to)];
    const checkedLater = target.verifies.onWrite;
    const blocks = batch.map((job): StagedBlock => {
      const { transfer } = job;
      return {
        bytes: transfer.bytes,
        from: (view) => ({ ...itemOf(transfer, transfer.source!, view), checkedLater }),
        to: (view) => itemOf(transfer, transfer.target, view),
        ended: (end) => ended(job, end),
      };
    });
    if (this.#staging === null) throw new Error(`${linkName(from, to)} needs staging memory`);
    await moveStaged(this.#staging, source, target, blocks);
  }

  /** The jobs whose source slot holds the expected generation. The other jobs end here. */
  #readable(ddr: HostTierStore, batch: readonly Job[], ended: MoveEnded<Job>): Job[] {
    return batch.filter((job) => {
      const { source } = job.transfer;
      const found = ddr.generationOf(source!.slot);
      if (found === source!.generation) return true;
      ended(job, staleBytes(source!, found));
      return false;
    });
  }

  #host(): HostTierStore {
    return this.#store(Tier.DDR) as HostTierStore;
  }

  #store(tier: Tier): TierStore {
    const { hbm, ddr, nvme, remote } = this.#stores();
    const store = [hbm, ddr, nvme, remote][tier];
    if (store === undefined) throw new Error(`the engine has no ${tierName(tier) ?? `tier ${tier}`} store`);
    return store;
  }
}

function staleBytes(place: Place, found: number): StoreResult {
  if (found === 0) return { outcome: Outcome.MISSING, reason: `slot ${place.slot} holds no bytes` };
  const reason = `slot ${place.slot} holds generation ${found}, not ${place.generation}`;
  return { outcome: found > place.generation ? Outcome.REFUSED : Outcome.CORRUPT, reason };
}

function itemOf(transfer: Transfer, place: Place, bytes: Uint8Array): StoreItem {
  return {
    slot: place.slot,
    generation: place.generation,
    sizeClass: transfer.sizeClass,
    key: transfer.key,
    digest: transfer.digest,
    tokens: transfer.tokens,
    parent: transfer.parent,
    bytes,
  };
}
