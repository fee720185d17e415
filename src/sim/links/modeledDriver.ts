/**
 * A transfer driver without bytes: modeled tiers remember what lies where, a link model says how long each
 * transfer takes, and each end is an event on virtual time. For the jobs of a real run it reports what the
 * real driver would.
 */

import type { Digest } from '../../runtime/digest.ts';
import { requireFinite, requireFraction, requirePositive } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import type { ResolvedConfig } from '../../runtime/manager/config.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { StateVisitor } from '../../runtime/snapshot.ts';
import type { Place, Transfer } from '../../runtime/tables/jobTable.ts';
import type { Completion, EndListener, IssuedJobs, TransferDriver } from '../../runtime/tier/driver.ts';
import { linkName, Outcome, type Tier } from '../../runtime/tier/tier.ts';
import type { StoreItem, StoreResult } from '../../runtime/tier/tierStore.ts';
import { VirtualClock } from '../kernel/clock.ts';
import { EventQueue } from '../kernel/eventQueue.ts';
import { ModeledTier } from './modeledTier.ts';
import type { SharedServer } from './sharedServer.ts';

// Transfers under way: how long each takes, and which transfer is due. Transfers that are submitted
// together are added one by one and leave at once, so that a link may carry several as one copy.

/** Where a transfer goes. A seal has no source and takes no time. */
interface Way {
  readonly from: Tier | null;
  readonly to: Tier;
  readonly bytes: number;
}

export class Flights<T> {
  /** Bytes carried and time busy so far, by link. */
  readonly traffic: Map<string, { bytes: number; busyUs: number }> = new Map();
  readonly #links: LinkModel;
  readonly #timeline: Timeline;
  /** Transfers under way, by flight number; numbers are used again. */
  readonly #flights: (T | null)[] = [];
  readonly #free: number[] = [];
  /** Transfers that leave next, with the times of their ends. */
  readonly #leaving: T[] = [];
  readonly #endsUs: number[] = [];
  /** The copy that the next one may join, by link. */
  readonly #copies: Map<string, { bytes: number; members: number[] }> = new Map();

  constructor(links: LinkModel, timeline: Timeline) {
    this.#links = links;
    this.#timeline = timeline;
  }

  /** @param notBeforeUs when it ends at the soonest, whatever its link says */
  add(transfer: T, { from, to, bytes }: Way, notBeforeUs: number = 0): void {
    const { nowUs } = this.#timeline;
    if (from === null) {
      this.#leaving.push(transfer);
      this.#endsUs.push(nowUs);
      return;
    }
    const name = linkName(from, to);
    const endUs = Math.max(notBeforeUs, this.#links.endUs(from, to, bytes, nowUs));
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

  /** Adds what goes over no link: an answer that ends at that time. */
  await(transfer: T, endUs: number): void {
    this.#leaving.push(transfer);
    this.#endsUs.push(endUs);
  }

  /** Lets the added transfers leave. */
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

// How long a link takes. In each direction transfers go one after the other, each for a base time plus its bytes
// over the bandwidth. Between its last byte and the moment at which its end is known lies a delay, in which the
// link already carries the next transfer. While both directions are busy, each has a share of its bandwidth.

/** How long transfers take on a modeled link. */
export interface LinkProfile {
  /** Time that each transfer takes of the link, beside its bytes. */
  readonly baseLatencyUs: number;
  readonly bandwidthBytesPerS: number;
  /** Additional time of a transfer that travels alone. Default 0. */
  readonly delayUs?: number;
  /**
   * Share of its own bandwidth that a direction has while the opposite one is busy, above 0 and at most 1.
   * Default 1.
   */
  readonly bothWaysShare?: number;
  /**
   * Transfers that are submitted at once go as copies of at most this many bytes, and each copy's end
   * together. Default 0: each ends by itself.
   */
  readonly batchBytes?: number;
}

/** Profiles by direction, under names such as `hbmToDdr`. */
export type LinkProfiles = { readonly [link: string]: LinkProfile };

export class LinkModel {
  readonly #profiles: LinkProfiles;
  readonly #fallback: LinkProfile;
  readonly #freeAtUs: Map<string, number> = new Map();

  /**
   * @throws TKV_CONFIG for a bandwidth that is not positive and finite, or a latency or share out of its
   * range
   */
  constructor(profiles: LinkProfiles, fallback: LinkProfile) {
    for (const [name, profile] of Object.entries({ ...profiles, fallback })) {
      requirePositive(`links.${name}.bandwidthBytesPerS`, profile.bandwidthBytesPerS);
      requireFinite(`links.${name}.baseLatencyUs`, profile.baseLatencyUs);
      requireFinite(`links.${name}.delayUs`, profile.delayUs ?? 0);
      const share = profile.bothWaysShare ?? 1;
      requirePositive(`links.${name}.bothWaysShare`, requireFraction(`links.${name}.bothWaysShare`, share));
      requireFinite(`links.${name}.batchBytes`, profile.batchBytes ?? 0);
    }
    this.#profiles = profiles;
    this.#fallback = fallback;
  }

  /** How long the link is busy with a transfer while nothing comes the other way, in integer microseconds. */
  transferUs(from: Tier, to: Tier, bytes: number): number {
    return busyUs(this.#profileOf(linkName(from, to)), bytes, 1);
  }

  /** When the end of a transfer that is ready at `nowUs` is known, in integer microseconds. */
  endUs(from: Tier, to: Tier, bytes: number, nowUs: number): number {
    const name = linkName(from, to);
    const profile = this.#profileOf(name);
    const start = Math.max(nowUs, this.#freeAtUs.get(name) ?? 0);
    const contended = (this.#freeAtUs.get(linkName(to, from)) ?? 0) > start;
    const end = start + busyUs(profile, bytes, contended ? (profile.bothWaysShare ?? 1) : 1);
    this.#freeAtUs.set(name, end);
    return end + Math.ceil(profile.delayUs ?? 0);
  }

  /** Bytes of transfers that end together when they are submitted at once; 0 where each ends by itself. */
  batchBytes(from: Tier, to: Tier): number {
    return this.#profileOf(linkName(from, to)).batchBytes ?? 0;
  }

  /** When the link of that name has carried what it was given, 0 before the first. */
  freeAtUs(name: string): number {
    return this.#freeAtUs.get(name) ?? 0;
  }

  #profileOf(name: string): LinkProfile {
    return this.#profiles[name] ?? this.#fallback;
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => [...this.#freeAtUs],
      (saved) => {
        this.#freeAtUs.clear();
        for (const [link, freeAtUs] of saved) this.#freeAtUs.set(link, freeAtUs);
      },
    );
  }
}

function busyUs({ baseLatencyUs, bandwidthBytesPerS }: LinkProfile, bytes: number, share: number): number {
  return Math.ceil(baseLatencyUs + (bytes * 1e6) / (bandwidthBytesPerS * share));
}

// Executes transfer jobs without bytes: modeled tiers remember what lies where, a link model says how long it
// takes, and each end is an event on virtual time. Given the jobs of a real run it reports what the real
// driver would, only sooner.

const noBytes = new Uint8Array(0);

/** The tier of a modeled driver whose blocks lie on a server that others use too. */
export interface ModeledShare {
  readonly tier: Tier;
  readonly server: SharedServer;
  /** Blocks of another space are other blocks. */
  readonly space: string;
}

export class ModeledDriver implements TransferDriver {
  readonly tiers: ReadonlyMap<Tier, ModeledTier>;
  readonly #share: ModeledShare | null;
  /** Reads of what the server had forgotten, which are under way. */
  readonly #missing: Set<Transfer> = new Set();
  readonly #flights: Flights<Transfer>;
  readonly #timeline: Timeline;
  #listener: EndListener = () => {};

  /** @param timeline calls `end` with each flight that was scheduled on it, when it is due */
  constructor(
    config: ResolvedConfig,
    links: LinkModel,
    timeline: Timeline,
    share: ModeledShare | null = null,
  ) {
    checkInputs(
      { config, links, timeline },
      {
        config: is.fields({ moveOnReload: is.flag(), refuseWhenFull: is.flag() }),
        links: is.fields({ transferUs: is.func() }),
        timeline: is.fields({ schedule: is.func() }),
      },
    );
    this.#share = share;
    this.tiers = new Map(config.tiers.map(({ tier, shape }) => [tier, new ModeledTier(tier, shape)]));
    this.#flights = new Flights(links, timeline);
    this.#timeline = timeline;
  }

  /** Bytes carried and time busy so far, by link. */
  get traffic(): Flights<Transfer>['traffic'] {
    return this.#flights.traffic;
  }

  nowUs(): number {
    return this.#timeline.nowUs;
  }

  onEnd(listener: EndListener): void {
    this.#listener = listener;
  }

  submit(jobs: IssuedJobs): void {
    for (let job = jobs.nextJob(); job !== 0; job = jobs.nextJob()) this.#send(jobs.transfer(job));
    this.#flights.depart();
  }

  /** A block of the shared tier lies in that place from now on: a lookup has found it there. */
  believe(place: Pick<StoreItem, 'slot' | 'generation'>, key: Uint32Array): void {
    const tier = this.#share === null ? undefined : this.tiers.get(this.#share.tier);
    const { slot, generation } = place;
    tier?.writeItem({ slot, generation, sizeClass: 0, key, digest: modeledDigest(key), bytes: noBytes });
  }

  #send(transfer: Transfer): void {
    const { source, target, bytes, key } = transfer;
    const way = { from: source?.tier ?? null, to: target.tier, bytes };
    const share = this.#share;
    const isRead = share !== null && source?.tier === share.tier;
    if (share === null || (!isRead && target.tier !== share.tier)) {
      this.#flights.add(transfer, way);
      return;
    }
    const { server, space } = share;
    const { nowUs } = this.#timeline;
    const endUs = isRead
      ? server.readEndUs(space, key, 0, bytes, nowUs)
      : server.writeEndUs(space, key, 0, bytes, nowUs);
    if (endUs !== undefined) {
      this.#flights.add(transfer, way, endUs);
      return;
    }
    if (isRead) this.#missing.add(transfer);
    this.#flights.await(transfer, nowUs + Math.ceil(server.config.lookupUs));
  }

  /** The flight is due: its bytes are where they were to go, if they were there. */
  end(flight: number): void {
    const transfer = this.#flights.land(flight);
    if (transfer !== null) this.#listener(this.#ended(transfer));
  }

  #ended(transfer: Transfer): Completion {
    const isMissing = this.#missing.delete(transfer);
    const { outcome, reason } = isMissing ? forgotten : this.#carryOut(transfer);
    const { key, target, bytes } = transfer;
    if (outcome === Outcome.LOADED && target.tier === this.#share?.tier) {
      this.#share.server.store(this.#share.space, key, 0, bytes);
    }
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

  #tier({ tier }: Place): ModeledTier {
    return this.tiers.get(tier) as ModeledTier;
  }
}

const forgotten: StoreResult = { outcome: Outcome.MISSING, reason: 'the server has forgotten it' };

/** The digest that a modeled block has: a name for its key, since there are no bytes. */
export function modeledDigest(key: Uint32Array): Digest {
  return { lo: (key[0] ^ key[2]) >>> 0, hi: (key[1] ^ key[3]) >>> 0 };
}

/** A transfer as an item of a store. A copied block has no key yet, so any bytes do. */
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

// Where modeled transfers wait for their end. A simulation has one for everything that happens in it;
// `TransferTimeline` is the smallest: the event kernel with one kind of event.

export interface Timeline {
  /** Integer microseconds. */
  readonly nowUs: number;
  /** Calls back with `flight` at `timeUs`, which is not before `nowUs`. */
  schedule(timeUs: number, flight: number): void;
}

export class TransferTimeline implements Timeline {
  readonly #clock: VirtualClock = new VirtualClock();
  readonly #events: EventQueue = new EventQueue([0]);
  #end: (flight: number) => void = () => {};

  get nowUs(): number {
    return this.#clock.nowUs;
  }

  /** Ends that are still to come. */
  get pending(): number {
    return this.#events.size;
  }

  /** Who is told of each end. */
  onDue(end: (flight: number) => void): void {
    this.#end = end;
  }

  schedule(timeUs: number, flight: number): void {
    this.#events.schedule(timeUs, 0, flight);
  }

  /** Moves to the next end and reports it. @returns false when nothing is under way */
  step(): boolean {
    if (!this.#events.pop()) return false;
    this.#clock.advanceTo(this.#events.timeUs);
    this.#end(this.#events.a);
    return true;
  }

  /** Reports what is due up to `timeUs`, and moves there: for example to a request's arrival. */
  advanceTo(timeUs: number): void {
    while (this.#events.nextTimeUs <= timeUs) this.step();
    if (timeUs > this.#clock.nowUs) this.#clock.advanceTo(timeUs);
  }
}
