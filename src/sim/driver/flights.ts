/**
 * Transfers on their way over modeled links: how long each takes, and what it was when it is due. Those that
 * are submitted together are added one by one and leave at once, so that a link may carry several as one
 * copy.
 */

import type { StateVisitor } from '../../runtime/snapshot/index.ts';
import { linkName, type Tier } from '../../runtime/tier/tier.ts';
import type { LinkModel } from './linkModel.ts';
import type { Timeline } from './timeline.ts';

/** Where a transfer goes. A seal has no source and takes no time. */
export interface Way {
  readonly from: Tier | null;
  readonly to: Tier;
  readonly bytes: number;
}

export class Flights<T> {
  /** Bytes carried and time busy so far, by link. */
  readonly traffic: Map<string, { bytes: number; busyUs: number }> = new Map();
  readonly #links: LinkModel;
  readonly #timeline: Timeline;
  /** Those under way, by flight number; numbers are used again. */
  readonly #flights: (T | null)[] = [];
  readonly #free: number[] = [];
  /** Those that leave next, with the times of their ends. */
  readonly #leaving: T[] = [];
  readonly #endsUs: number[] = [];
  /** By link: the copy that the next one may join. */
  readonly #copies: Map<string, { bytes: number; members: number[] }> = new Map();

  constructor(links: LinkModel, timeline: Timeline) {
    this.#links = links;
    this.#timeline = timeline;
  }

  get inFlight(): number {
    return this.#flights.length - this.#free.length;
  }

  add(transfer: T, { from, to, bytes }: Way): void {
    const { nowUs } = this.#timeline;
    if (from === null) {
      this.#leaving.push(transfer);
      this.#endsUs.push(nowUs);
      return;
    }
    const name = linkName(from, to);
    const endUs = this.#links.endUs(from, to, bytes, nowUs);
    let traffic = this.traffic.get(name);
    if (traffic === undefined) {
      traffic = { bytes: 0, busyUs: 0 };
      this.traffic.set(name, traffic);
    }
    traffic.bytes += bytes;
    traffic.busyUs += this.#links.transferUs(from, to, bytes);
    this.#leaving.push(transfer);
    this.#endsUs.push(endUs);
    const most = this.#links.batchBytes(from, to);
    if (most > 0) this.#joinCopy(name, bytes, most);
  }

  /** Those that were added leave. */
  depart(): void {
    for (let i = 0; i < this.#leaving.length; i++) {
      const flight = this.#free.pop() ?? this.#flights.length;
      this.#flights[flight] = this.#leaving[i];
      this.#timeline.schedule(this.#endsUs[i], flight);
    }
    this.#leaving.length = 0;
    this.#endsUs.length = 0;
    if (this.#copies.size > 0) this.#copies.clear();
  }

  /** The flight is due. @returns what it was, or null for none */
  land(flight: number): T | null {
    const transfer = this.#flights[flight] ?? null;
    if (transfer === null) return null;
    this.#flights[flight] = null;
    this.#free.push(flight);
    return transfer;
  }

  /** Transfers of one copy end with the last of them. */
  #joinCopy(name: string, bytes: number, most: number): void {
    const last = this.#endsUs.length - 1;
    const copy = this.#copies.get(name);
    if (copy === undefined || copy.bytes + bytes > most) {
      this.#copies.set(name, { bytes, members: [last] });
      return;
    }
    copy.bytes += bytes;
    copy.members.push(last);
    for (const member of copy.members) this.#endsUs[member] = this.#endsUs[last];
  }

  /** The timeline keeps the events of the flights. */
  visitState(visitor: StateVisitor): void {
    this.#links.visitState(visitor);
    visitor.value(
      () => [...this.#flights],
      (saved) => {
        this.#flights.splice(0, this.#flights.length, ...saved);
      },
    );
    visitor.list(this.#free);
    visitor.value(
      () => [...this.traffic].map(([link, sums]) => [link, { ...sums }] as const),
      (saved) => {
        this.traffic.clear();
        for (const [link, sums] of saved) this.traffic.set(link, { ...sums });
      },
    );
  }
}
