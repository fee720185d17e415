/**
 * The transfer engine: carries out the manager's transfer jobs on real stores. Each job ends exactly once,
 * and its end is reported when it happens, never inside `submit`. The jobs of a link wait in its queue
 * (linkQueue.ts); `BatchMoves`, below, takes a batch across its link.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { Place, Transfer } from '../../runtime/tables/jobTable.ts';
import type { Completion, EndListener, IssuedJobs, TransferDriver } from '../../runtime/tier/driver.ts';
import { linkName, Outcome, type Tier, type TierName, tierName } from '../../runtime/tier/tier.ts';
import {
  corrupt,
  type HostTierStore,
  isHostStore,
  isTopStore,
  loaded,
  refused,
  type StoreItem,
  type StoreResult,
  type TierStore,
  type TopTierStore,
} from '../../runtime/tier/tierStore.ts';
import { hostDigest } from '../host/hostDigest.ts';
import { runningClock } from '../runningClock.ts';
import { type LinkLimits, LinkMeter, LinkQueue, type LinkTraffic } from './linkQueue.ts';
import type { Refusals } from './refusals.ts';
import { moveStaged, type StagedBlock, type StagingSlots } from './stagedBatch.ts';

/** A job that was submitted and has not ended. */
interface JobFlight {
  readonly transfer: Transfer;
  ended: boolean;
}

const MIB = 1024 * 1024;
/**
 * Limits of a tier whose row sets none. Enough bytes to keep a store busy, few enough that an urgent job waits briefly.
 */
const LINK_LIMITS: LinkLimits = { windowBytes: 64 * MIB, batchBytes: 8 * MIB };
/**
 * Links through staging memory have this share of it. Small batches, so that several alternate between reading and
 * writing.
 */
const STAGED_SHARE = 1 / 2;

/** Limits of what may be under way on a link to or from a tier, by tier. Of two tiers the smaller one counts. */
export type TierLinks = { readonly [name in TierName]?: LinkLimits };

export class TransferEngine implements TransferDriver {
  #stores: StoresByTier;
  readonly #moves: BatchMoves<JobFlight>;
  readonly #refusals: Refusals | null;
  readonly #clockMs: () => number;
  readonly #startMs: number;
  readonly #meter: LinkMeter;
  readonly #flights: Set<JobFlight> = new Set();
  /** Queues by link: `linkName` of source and target. */
  readonly #queues: Map<string, LinkQueue<JobFlight>> = new Map();
  readonly #links: TierLinks;
  #listener: EndListener = () => {};
  readonly #watch: () => () => void;
  #unwatch: (() => void) | undefined;

  /**
   * @param staging needed for links that do not touch host memory, else null
   * @param watch called when the first job comes under way; the function it returns is called after the last
   * @param links of tiers whose links are not as usual
   * @param refusals told how each block's way into or out of a tier ended
   */
  constructor(
    stores: StoresByTier,
    staging: StagingSlots | null,
    clockMs: () => number = () => runningClock.nowMs(),
    watch: () => () => void = () => runningClock.watch(),
    links: TierLinks = {},
    refusals: Refusals | null = null,
  ) {
    checkInputs(
      { stores, clockMs, watch, links },
      {
        stores: is.object(),
        clockMs: is.optional(is.func()),
        watch: is.optional(is.func()),
        links: is.optional(is.object()),
      },
    );
    this.#links = links;
    this.#watch = watch;
    this.#stores = stores;
    this.#moves = new BatchMoves(() => this.#stores, staging);
    this.#refusals = refusals;
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
    for (const queue of this.#queues.values()) queue.expire(nowUs);
  }

  /**
   * Puts a new, empty store in place of a tier's lost one. Jobs under way find no bytes in it.
   */
  replaceStore(tier: TierName, store: TierStore): void {
    this.#stores = { ...this.#stores, [tier]: store };
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

  submit(jobs: IssuedJobs): void {
    const copies: JobFlight[] = [];
    const seals: JobFlight[] = [];
    const queues = new Set<LinkQueue<JobFlight>>();
    for (let job = jobs.nextJob(); job !== 0; job = jobs.nextJob()) {
      this.#unwatch ??= this.#watch();
      const transfer = jobs.transfer(job);
      const flight: JobFlight = { transfer, ended: false };
      this.#flights.add(flight);
      const { source, target } = transfer;
      if (source === null) seals.push(flight);
      else if (source.tier === target.tier) copies.push(flight);
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
    const link = linkName(from, to);
    let queue = this.#queues.get(link);
    if (queue === undefined) {
      queue = new LinkQueue(
        this.#limitsOf(from, to),
        () => this.nowUs(),
        (flights) => this.#carryOut(flights, (batch) => this.#move(link, batch)),
        (flight) => {
          const reason = 'its deadline passed before it began';
          queueMicrotask(() => this.#end(flight, { outcome: Outcome.TIMED_OUT, reason }));
        },
      );
      this.#queues.set(link, queue);
    }
    return queue;
  }

  #limitsOf(from: Tier, to: Tier): LinkLimits {
    const ends = [from, to].map(tierName);
    const limits = ends.map((name) => this.#links[name] ?? LINK_LIMITS);
    const isStaged = ends.every((name) => {
      const store = this.#stores[name];
      return store === undefined || !isHostStore(store);
    });
    const share = isStaged ? STAGED_SHARE : 1;
    return {
      windowBytes: share * Math.min(...limits.map(({ windowBytes }) => windowBytes)),
      batchBytes: share * Math.min(...limits.map(({ batchBytes }) => batchBytes)),
    };
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
    const ends = await this.#topOf(batch).seal(items);
    for (const [i, flight] of batch.entries()) {
      this.#end(flight, ends[i], ends[i].digest.lo, ends[i].digest.hi);
    }
  }

  async #copy(batch: readonly JobFlight[]): Promise<void> {
    const ends = await this.#topOf(batch).copy(
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

  /** The store in which jobs of one tier are carried out: a manager has them for its top tier only. */
  #topOf(batch: readonly JobFlight[]): TopTierStore {
    const { tier } = batch[0].transfer.target;
    const store = storeOf(this.#stores, tier);
    if (!isTopStore(store)) throw new Error(`the ${tierName(tier)} store cannot be the top tier`);
    return store;
  }

  async #move(link: string, batch: readonly JobFlight[]): Promise<void> {
    await undefined; // jobs that end at once must not end inside `submit`
    this.#meter.begin(link);
    let bytes = 0;
    const ended: MoveEnded<JobFlight> = (flight, end, at) => {
      if (at === 'target') this.#refusals?.ended(tierName(flight.transfer.target.tier), 'write', end);
      else this.#refusals?.ended(tierName(flight.transfer.source!.tier), 'read', end);
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
// Blocks move directly between host memory and a store. Where neither end is host memory they pass a staging slot.
//
//     device <--- rings of mapped buffers ---> host arena <--- direct I/O ---> file
//      ^                                                                       ^
//      +------------------------------ staging -------------------------------+

/** Stores by the name of their tier. */
export type StoresByTier = { readonly [name in TierName]?: TierStore | undefined };

/** Called once for each job of a batch, when it ends. @param at the tier whose store said so */
type MoveEnded<Job> = (job: Job, end: StoreResult, at: 'source' | 'target') => void;

class BatchMoves<Job extends { readonly transfer: Transfer }> {
  readonly #stores: () => StoresByTier;
  readonly #staging: StagingSlots | null;

  /** @param stores called at each move, since a device can be replaced */
  constructor(stores: () => StoresByTier, staging: StagingSlots | null) {
    this.#stores = stores;
    this.#staging = staging;
  }

  /** @param batch jobs of one link */
  move(batch: readonly Job[], ended: MoveEnded<Job>): Promise<void> {
    const source = this.#store(batch[0].transfer.source!.tier);
    const target = this.#store(batch[0].transfer.target.tier);
    if (isHostStore(source)) {
      if (!isHostStore(target)) return this.#fromHost(source, target, batch, ended);
      this.#withinHost(source, target, batch, ended);
      return Promise.resolve();
    }
    if (isHostStore(target)) return this.#toHost(source, target, batch, ended);
    return this.#staged(source, target, batch, ended);
  }

  /** Between two tiers of host memory. */
  #withinHost(from: HostTierStore, to: HostTierStore, batch: readonly Job[], ended: MoveEnded<Job>): void {
    for (const job of this.#readable(from, batch, ended)) {
      const { source, target, sizeClass } = job.transfer;
      const view = to.view(target.slot, sizeClass);
      view.set(from.view(source!.slot, sizeClass));
      ended(job, arrivedInHost(job.transfer, to, view), 'target');
    }
  }

  async #fromHost(
    from: HostTierStore,
    to: TierStore,
    batch: readonly Job[],
    ended: MoveEnded<Job>,
  ): Promise<void> {
    const good = this.#readable(from, batch, ended);
    const items = good.map(({ transfer }) =>
      itemOf(transfer, transfer.target, from.view(transfer.source!.slot, transfer.sizeClass)),
    );
    await to.write(items, (i, end) => ended(good[i], end, 'target'));
  }

  async #toHost(
    from: TierStore,
    to: HostTierStore,
    batch: readonly Job[],
    ended: MoveEnded<Job>,
  ): Promise<void> {
    const checkedLater = to.verifies.onWrite;
    const items = batch.map(({ transfer }) => ({
      ...itemOf(transfer, transfer.source!, to.view(transfer.target.slot, transfer.sizeClass)),
      checkedLater,
    }));
    await from.read(items, (i, end) => {
      const { transfer } = batch[i];
      const arrived = end.outcome === Outcome.LOADED ? arrivedInHost(transfer, to, items[i].bytes) : end;
      ended(batch[i], arrived, 'source');
    });
  }

  async #staged(
    source: TierStore,
    target: TierStore,
    batch: readonly Job[],
    ended: MoveEnded<Job>,
  ): Promise<void> {
    const checkedLater = target.verifies.onWrite;
    const blocks = batch.map((job): StagedBlock => {
      const { transfer } = job;
      return {
        bytes: transfer.bytes,
        from: (view) => ({ ...itemOf(transfer, transfer.source!, view), checkedLater }),
        to: (view) => itemOf(transfer, transfer.target, view),
        ended: (end, at) => ended(job, end, at),
      };
    });
    if (this.#staging === null) {
      throw new Error(`${linkName(source.tier, target.tier)} needs staging memory`);
    }
    await moveStaged(this.#staging, source, target, blocks);
  }

  /** The jobs whose source slot holds the expected generation. The other jobs end here. */
  #readable(store: HostTierStore, batch: readonly Job[], ended: MoveEnded<Job>): Job[] {
    return batch.filter((job) => {
      const { source } = job.transfer;
      const found = store.generationOf(source!.slot);
      if (found === source!.generation) return true;
      ended(job, staleBytes(source!, found), 'source');
      return false;
    });
  }

  #store(tier: Tier): TierStore {
    return storeOf(this.#stores(), tier);
  }
}

function storeOf(stores: StoresByTier, tier: Tier): TierStore {
  const store = stores[tierName(tier)];
  if (store === undefined) throw new Error(`the engine has no ${tierName(tier) ?? `tier ${tier}`} store`);
  return store;
}

/** The end of a block whose bytes are in host memory. Where sequences read them in place, they are compared now. */
function arrivedInHost({ target, digest }: Transfer, to: HostTierStore, bytes: Uint8Array): StoreResult {
  if (to.verifies.onWrite) {
    const found = hostDigest(bytes);
    if (found.lo !== digest.lo || found.hi !== digest.hi) {
      return corrupt(`slot ${target.slot} was sent other bytes than its digest says`);
    }
  }
  to.markWritten(target.slot, target.generation);
  return loaded;
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
    readBack: transfer.readBack,
    bytes,
  };
}
