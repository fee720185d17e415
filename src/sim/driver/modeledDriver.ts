/**
 * Executes transfer jobs without bytes: modeled tiers remember what lies where, a link model says how long it
 * takes, and each end is an event on virtual time. Given the jobs of a real run it reports what the real
 * driver would, only sooner.
 */

import type { Digest } from '../../runtime/digest.ts';
import type { ResolvedConfig } from '../../runtime/manager/config.ts';
import type { StateVisitor } from '../../runtime/snapshot/index.ts';
import { linkName, type Tier } from '../../runtime/tier/tier.ts';
import type { StoreItem, StoreResult } from '../../runtime/tier/tierStore.ts';
import type { Completion, EndListener, TransferDriver } from '../../runtime/transfer/driver.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import type { Place, Transfer } from '../../runtime/transfer/transfer.ts';
import { ModeledTier } from '../tier/modeledTier.ts';
import type { LinkModel } from './linkModel.ts';
import type { Timeline } from './timeline.ts';

const noBytes = new Uint8Array(0);

export class ModeledDriver implements TransferDriver {
  readonly tiers: ReadonlyMap<Tier, ModeledTier>;
  /** Bytes carried and time busy so far, by link. */
  readonly traffic: Map<string, { bytes: number; busyUs: number }> = new Map();
  readonly #links: LinkModel;
  readonly #timeline: Timeline;
  /** Jobs under way, by flight number; numbers are used again. */
  readonly #flights: (Transfer | null)[] = [];
  readonly #freeFlights: number[] = [];
  #listener: EndListener = () => {};

  /** @param timeline calls `end` with each flight that was scheduled on it, when it is due */
  constructor(config: ResolvedConfig, links: LinkModel, timeline: Timeline) {
    this.tiers = new Map(config.tiers.map(({ tier, shape }) => [tier, new ModeledTier(tier, shape)]));
    this.#links = links;
    this.#timeline = timeline;
  }

  get inFlight(): number {
    return this.#flights.length - this.#freeFlights.length;
  }

  nowUs(): number {
    return this.#timeline.nowUs;
  }

  onEnd(listener: EndListener): void {
    this.#listener = listener;
  }

  submit(transfers: readonly Transfer[]): void {
    const ends = transfers.map((transfer) => this.#endUs(transfer));
    this.#endTogether(transfers, ends);
    transfers.forEach((transfer, i) => {
      const flight = this.#freeFlights.pop() ?? this.#flights.length;
      this.#flights[flight] = transfer;
      this.#timeline.schedule(ends[i], flight);
    });
  }

  /** The flight is due: its bytes are where they were to go, if they were there. */
  end(flight: number): void {
    const transfer = this.#flights[flight];
    if (transfer === null || transfer === undefined) return;
    this.#flights[flight] = null;
    this.#freeFlights.push(flight);
    this.#listener(this.endAtOnce(transfer));
  }

  /** Carries a transfer out that takes no time and was not submitted. @returns how it ended */
  endAtOnce(transfer: Transfer): Completion {
    const { outcome, reason } = this.#carryOut(transfer);
    const digest = transfer.kind === 'seal' ? modeledDigest(transfer.key) : { lo: 0, hi: 0 };
    return { job: transfer.job, outcome, reason, digestLo: digest.lo, digestHi: digest.hi };
  }

  #carryOut(transfer: Transfer): StoreResult {
    const { source, target } = transfer;
    if (source !== null && transfer.unsealed !== true) {
      const read = this.#tier(source).readItem(itemAt(transfer, source));
      if (read.outcome !== Outcome.LOADED) return read;
    }
    return this.#tier(target).writeItem(itemAt(transfer, target));
  }

  /** Transfers of one copy end with the last of them. */
  #endTogether(transfers: readonly Transfer[], ends: number[]): void {
    const copies: Map<string, { bytes: number; members: number[] }> = new Map();
    for (const [i, { source, target, bytes }] of transfers.entries()) {
      if (source === null) continue;
      const most = this.#links.batchBytes(source.tier, target.tier);
      if (most === 0) continue;
      const name = linkName(source.tier, target.tier);
      const copy = copies.get(name);
      if (copy === undefined || copy.bytes + bytes > most) {
        copies.set(name, { bytes, members: [i] });
        continue;
      }
      copy.bytes += bytes;
      copy.members.push(i);
      for (const member of copy.members) ends[member] = ends[i];
    }
  }

  #tier({ tier }: Place): ModeledTier {
    return this.tiers.get(tier) as ModeledTier;
  }

  #endUs(transfer: Transfer): number {
    const nowUs = this.#timeline.nowUs;
    if (transfer.source === null) return nowUs;
    const { source, target, bytes } = transfer;
    const endUs = this.#links.endUs(source.tier, target.tier, bytes, nowUs);
    const name = linkName(source.tier, target.tier);
    const traffic = this.traffic.get(name) ?? { bytes: 0, busyUs: 0 };
    this.traffic.set(name, traffic);
    traffic.bytes += bytes;
    traffic.busyUs += this.#links.transferUs(source.tier, target.tier, bytes);
    return endUs;
  }

  /** The timeline keeps the events of the flights. */
  visitState(visitor: StateVisitor): void {
    for (const tier of this.tiers.values()) tier.visitState(visitor);
    this.#links.visitState(visitor);
    visitor.value(
      () => [...this.#flights],
      (saved) => {
        this.#flights.splice(0, this.#flights.length, ...saved);
      },
    );
    visitor.list(this.#freeFlights);
    visitor.value(
      () => [...this.traffic].map(([link, sums]) => [link, { ...sums }] as const),
      (saved) => {
        this.traffic.clear();
        for (const [link, sums] of saved) this.traffic.set(link, { ...sums });
      },
    );
  }
}

/** The digest that a modeled block has: a name for its key, since there are no bytes. */
export function modeledDigest(key: Uint32Array): Digest {
  return { lo: (key[0] ^ key[2]) >>> 0, hi: (key[1] ^ key[3]) >>> 0 };
}

/** What is copied has no key yet, so whichever bytes do. */
function itemAt(transfer: Transfer, place: Place): StoreItem {
  return {
    slot: place.slot,
    sizeClass: transfer.sizeClass,
    generation: place.generation,
    key: transfer.key,
    digest: transfer.kind === 'seal' ? modeledDigest(transfer.key) : transfer.digest,
    bytes: noBytes,
  };
}
