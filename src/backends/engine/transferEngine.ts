/**
 * Executes the manager's transfer jobs on real stores, and reports each end when it happens. Jobs of a link
 * go in batches, the most urgent first, and so many bytes at once (linkQueue.ts); how a batch crosses its
 * link is the matter of batchMoves.ts.
 */

import { refused } from '../../runtime/tier/slotLedger.ts';
import { linkName, Tier, tierNames } from '../../runtime/tier/tier.ts';
import type { DeviceTierStore, StoreResult } from '../../runtime/tier/tierStore.ts';
import type { Completion, EndListener, TransferDriver } from '../../runtime/transfer/driver.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import type { Transfer } from '../../runtime/transfer/transfer.ts';
import { runningClock } from '../runningClock.ts';
import { BatchMoves, type EngineStores } from './batchMoves.ts';
import { LinkMeter, type LinkTraffic } from './linkMeter.ts';
import { type LinkLimits, LinkQueue } from './linkQueue.ts';
import type { StagingSlots } from './stagingSlots.ts';

/** A job in the engine's hands. */
interface Flight {
  readonly transfer: Transfer;
  ended: boolean;
}

const MIB = 1024 * 1024;
/** Enough to keep a store busy, and small enough that an urgent job is not long behind others. */
const directLimits: LinkLimits = { windowBytes: 64 * MIB, batchBytes: 8 * MIB };
/** Several batches alternate between the two neighbours of the staging memory. */
const stagedLimits: LinkLimits = { windowBytes: 32 * MIB, batchBytes: 4 * MIB };

export class TransferEngine implements TransferDriver {
  #stores: EngineStores;
  readonly #moves: BatchMoves<Flight>;
  readonly #clockMs: () => number;
  readonly #startMs: number;
  readonly #meter: LinkMeter;
  readonly #flights: Set<Flight> = new Set();
  /** By source, then target. */
  readonly #queues: (LinkQueue<Flight> | undefined)[] = [];
  #listener: EndListener = () => {};
  readonly #watch: () => () => void;
  #unwatch: (() => void) | undefined;

  /**
   * @param staging needed where blocks move between tiers of which neither is host memory
   * @param watch called when jobs come to be under way, and what it returns when none is any more
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

  /** Of these, jobs past their deadline that their stores have not ended. Each keeps its slots until then. */
  get overdue(): number {
    const nowUs = this.nowUs();
    let overdue = 0;
    for (const { transfer } of this.#flights) if (transfer.deadlineUs <= nowUs) overdue++;
    return overdue;
  }

  /** Jobs whose deadline is over give up their room in their link's window; those not begun end. */
  expire(): void {
    const nowUs = this.nowUs();
    for (const queue of this.#queues) queue?.expire(nowUs);
  }

  /** A new, empty store takes the place of one whose device was lost. Jobs under way find nothing in it. */
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
    const copies: Flight[] = [];
    const seals: Flight[] = [];
    const queues = new Set<LinkQueue<Flight>>();
    if (transfers.length > 0) this.#unwatch ??= this.#watch();
    for (const transfer of transfers) {
      const flight: Flight = { transfer, ended: false };
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
    // Copies first: the copy of a block that is sealed at once is taken of what the sequence has written.
    if (copies.length > 0) void this.#carryOut(copies, (batch) => this.#copy(batch));
    if (seals.length > 0) void this.#carryOut(seals, (batch) => this.#seal(batch));
    for (const queue of queues) queue.pump();
  }

  #queueOf(from: Tier, to: Tier): LinkQueue<Flight> {
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

  /** A store may not reject. One that does all the same costs its own batch, and nobody waits for ever. */
  async #carryOut(batch: readonly Flight[], act: (batch: readonly Flight[]) => Promise<void>): Promise<void> {
    try {
      await act(batch);
    } catch (error) {
      const end = refused(`the store failed: ${error instanceof Error ? error.message : String(error)}`);
      for (const flight of batch) this.#end(flight, end);
    }
  }

  #end(flight: Flight, { outcome, reason }: StoreResult, digestLo = 0, digestHi = 0): void {
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

  async #seal(batch: readonly Flight[]): Promise<void> {
    const items = batch.map(({ transfer: { target, sizeClass } }) => ({ ...target, sizeClass }));
    const ends = await this.#stores.hbm.seal(items);
    for (const [i, flight] of batch.entries()) {
      this.#end(flight, ends[i], ends[i].digest.lo, ends[i].digest.hi);
    }
  }

  async #copy(batch: readonly Flight[]): Promise<void> {
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

  async #move(link: string, batch: readonly Flight[]): Promise<void> {
    await undefined; // what ends at once does not end inside `submit`
    this.#meter.begin(link);
    let bytes = 0;
    const ended = (flight: Flight, end: StoreResult): void => {
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
