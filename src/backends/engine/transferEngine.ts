/**
 * Executes the manager's transfer jobs on real stores. Jobs of a link go in batches, the most urgent first, and so many
 * bytes at once (linkQueue.ts). Blocks that lie in host memory are copied straight between the arena and the other store;
 * a block that goes between device and file passes through a staging slot; its link's batches are small and several of
 * them are under way, so that disk, host and device work at the same time on different blocks; a long block is written
 * while it is read (streamedMove.ts).
 *
 *     HBM <--- rings of mapped buffers ---> DDR arena <--- direct I/O ---> file
 *      ^                                                                    ^
 *      +------------------------------ staging ----------------------------+
 */

import { linkName, Tier, tierNames } from '../../runtime/tier.ts';
import type { Completion, TransferDriver } from '../../runtime/transfer/driver.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import type {
  DeviceTierStore,
  HostTierStore,
  StoreItem,
  StoreResult,
  TierStore,
} from '../../runtime/transfer/tierStore.ts';
import type { Place, Transfer } from '../../runtime/transfer/transfer.ts';
import { CompletionQueue, type Ticket } from './completionQueue.ts';
import { LinkMeter, type LinkTraffic } from './linkMeter.ts';
import { type LinkLimits, LinkQueue } from './linkQueue.ts';
import { stagedMove } from './stagedMove.ts';
import type { StagingSlots } from './stagingSlots.ts';
import { canStream, streamedMove } from './streamedMove.ts';

export interface EngineStores {
  readonly hbm: DeviceTierStore;
  readonly ddr?: HostTierStore;
  readonly nvme?: TierStore;
}

interface Ticketed {
  readonly transfer: Transfer;
  readonly ticket: Ticket;
}

const MIB = 1024 * 1024;
/** Enough to fill the rings of a store, and small enough that an urgent job is not long behind others. */
const directLimits: LinkLimits = { windowBytes: 64 * MIB, batchBytes: 8 * MIB };
/** Batches through staging are what alternates between its two neighbours. */
const stagedLimits: LinkLimits = { windowBytes: 32 * MIB, batchBytes: 2 * MIB };
/** Where the slower neighbour, the disk, comes first, the end of a load is soon over when little of it is left to go on. */
const loadLimits: LinkLimits = { ...stagedLimits, guided: true };

export class TransferEngine implements TransferDriver {
  #stores: EngineStores;
  readonly #staging: StagingSlots | null;
  readonly #clockMs: () => number;
  readonly #startMs: number;
  readonly #ends: CompletionQueue = new CompletionQueue();
  readonly #meter: LinkMeter;
  /** By source, then target. */
  readonly #queues: (LinkQueue<Ticketed> | undefined)[] = [];

  /** @param staging needed when HBM and files are neighbours, or blocks are reloaded from files straight to HBM */
  constructor(
    stores: EngineStores,
    staging: StagingSlots | null,
    clockMs: () => number = () => performance.now(),
  ) {
    this.#stores = stores;
    this.#staging = staging;
    this.#clockMs = clockMs;
    this.#startMs = clockMs();
    this.#meter = new LinkMeter(clockMs);
  }

  get inFlight(): number {
    return this.#ends.waiting;
  }

  /** Jobs past their deadline that their stores have not ended. Each costs its slots until it does. */
  get overdue(): number {
    return this.#ends.overdue;
  }

  /** When the next job is due, in microseconds of `nowUs`; infinity when none is. */
  get nextDeadlineUs(): number {
    return this.#ends.nextDeadlineUs;
  }

  /** Jobs whose deadline has passed hold up the ends of others no more. */
  passOverdue(): void {
    const nowUs = this.nowUs();
    this.#ends.pass(nowUs);
    for (const queue of this.#queues) queue?.pass(nowUs);
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

  take(): Promise<readonly Completion[]> {
    return this.#ends.take();
  }

  submit(transfers: readonly Transfer[]): void {
    const seals: Ticketed[] = [];
    const pushed = new Set<LinkQueue<Ticketed>>();
    for (const transfer of transfers) {
      const ticketed = { transfer, ticket: this.#ends.ticket(transfer.deadlineUs) };
      if (transfer.source === null) seals.push(ticketed);
      else {
        const queue = this.#queueOf(transfer.source.tier, transfer.target.tier);
        queue.push(ticketed);
        pushed.add(queue);
      }
    }
    if (seals.length > 0) void this.#carryOut('seal', seals, 0);
    for (const queue of pushed) queue.pump();
  }

  #queueOf(from: Tier, to: Tier): LinkQueue<Ticketed> {
    const at = from * tierNames.length + to;
    let queue = this.#queues[at];
    if (queue === undefined) {
      const name = linkName(from, to);
      queue = new LinkQueue(
        limitsOf(from, to),
        () => this.nowUs(),
        (batch, behindBytes) => this.#carryOut(name, batch, behindBytes),
        ({ transfer: { job }, ticket }) => {
          const reason = 'its deadline passed before it began';
          this.#ends.settle(ticket, { job, outcome: Outcome.TIMED_OUT, reason, digestLo: 0, digestHi: 0 });
        },
      );
      this.#queues[at] = queue;
    }
    return queue;
  }

  /** A store may not reject. One that does all the same costs its own batch, and nobody waits for ever. */
  async #carryOut(name: string, batch: readonly Ticketed[], behindBytes: number): Promise<void> {
    try {
      await (name === 'seal' ? this.#seal(batch) : this.#move(name, batch, behindBytes));
    } catch (error) {
      const reason = `the store failed: ${error instanceof Error ? error.message : String(error)}`;
      for (const { transfer, ticket } of batch) {
        const { job } = transfer;
        this.#ends.settle(ticket, { job, outcome: Outcome.REFUSED, reason, digestLo: 0, digestHi: 0 });
      }
    }
  }

  async #seal(batch: readonly Ticketed[]): Promise<void> {
    const ends = await this.#stores.hbm.seal(
      batch.map(({ transfer: { target, sizeClass } }) => ({
        slot: target.slot,
        generation: target.generation,
        sizeClass,
      })),
    );
    batch.forEach(({ transfer, ticket }, i) => {
      const { outcome, reason, digest } = ends[i];
      this.#ends.settle(ticket, {
        job: transfer.job,
        outcome,
        reason,
        digestLo: digest.lo,
        digestHi: digest.hi,
      });
    });
  }

  async #move(link: string, batch: readonly Ticketed[], behindBytes: number): Promise<void> {
    this.#meter.begin(link);
    let bytes = 0;
    const settle = ({ transfer, ticket }: Ticketed, { outcome, reason }: StoreResult): void => {
      if (outcome === Outcome.LOADED) bytes += transfer.bytes;
      this.#ends.settle(ticket, { job: transfer.job, outcome, reason, digestLo: 0, digestHi: 0 });
    };
    const { source, target } = batch[0].transfer;
    try {
      if (source!.tier === Tier.DDR) await this.#fromHost(target.tier, batch, settle);
      else if (target.tier === Tier.DDR) await this.#toHost(source!.tier, batch, settle);
      else await this.#staged(source!.tier, target.tier, batch, behindBytes, settle);
    } finally {
      this.#meter.end(link, bytes);
    }
  }

  async #fromHost(
    to: Tier,
    batch: readonly Ticketed[],
    settle: (one: Ticketed, end: StoreResult) => void,
  ): Promise<void> {
    const ddr = this.#stores.ddr!;
    const good: Ticketed[] = [];
    for (const one of batch) {
      const { source } = one.transfer;
      const lies = ddr.generationOf(source!.slot);
      if (lies === source!.generation) good.push(one);
      else settle(one, staleBytes(source!, lies));
    }
    const items = good.map(({ transfer }) =>
      itemOf(transfer, transfer.target, ddr.view(transfer.source!.slot, transfer.sizeClass)),
    );
    const ends = await this.#store(to).write(items);
    good.forEach((one, i) => {
      settle(one, ends[i]);
    });
  }

  async #toHost(
    from: Tier,
    batch: readonly Ticketed[],
    settle: (one: Ticketed, end: StoreResult) => void,
  ): Promise<void> {
    const ddr = this.#stores.ddr!;
    const items = batch.map(({ transfer }) =>
      itemOf(transfer, transfer.source!, ddr.view(transfer.target.slot, transfer.sizeClass)),
    );
    const ends = await this.#store(from).read(items);
    batch.forEach((one, i) => {
      const { slot, generation } = one.transfer.target;
      if (ends[i].outcome === Outcome.LOADED) ddr.markWritten(slot, generation);
      settle(one, ends[i]);
    });
  }

  async #staged(
    from: Tier,
    to: Tier,
    batch: readonly Ticketed[],
    behindBytes: number,
    settle: (one: Ticketed, end: StoreResult) => void,
  ): Promise<void> {
    const checkedLater = this.#store(to).verifies.onWrite;
    const jobs = batch.map((one) => ({
      bytes: one.transfer.bytes,
      behindBytes: limitsOf(from, to).guided === true ? behindBytes : Number.POSITIVE_INFINITY,
      from: (view: Uint8Array) => ({ ...itemOf(one.transfer, one.transfer.source!, view), checkedLater }),
      to: (view: Uint8Array) => itemOf(one.transfer, one.transfer.target, view),
      settle: (end: StoreResult) => settle(one, end),
    }));
    const stores = [this.#staging!, this.#store(from), this.#store(to)] as const;
    const [first] = jobs;
    if (jobs.length === 1 && canStream(stores[1], stores[2], first)) await streamedMove(...stores, first);
    else await stagedMove(...stores, jobs);
  }

  #store(tier: Tier): TierStore {
    return tier === Tier.HBM ? this.#stores.hbm : tier === Tier.DDR ? this.#stores.ddr! : this.#stores.nvme!;
  }
}

function limitsOf(from: Tier, to: Tier): LinkLimits {
  if (from === Tier.DDR || to === Tier.DDR) return directLimits;
  return from === Tier.NVME ? loadLimits : stagedLimits;
}

function staleBytes(place: Place, lies: number): StoreResult {
  if (lies === 0) return { outcome: Outcome.MISSING, reason: `slot ${place.slot} holds no bytes` };
  const reason = `slot ${place.slot} holds generation ${lies}, not ${place.generation}`;
  return { outcome: lies > place.generation ? Outcome.REFUSED : Outcome.CORRUPT, reason };
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
