/**
 * The snapshots that policies read. Reported signals are read again when a decision needs them and the last
 * report is as old as the interval; until the first report they are 0. Counts that the router keeps itself
 * are always fresh.
 */

import { invariant } from '../../../runtime/errors.ts';
import type { InstanceProbe, InstanceReport, InstanceSnapshot, ObservedTier } from '../instances.ts';
import type { PlainState, Stateful } from '../policy.ts';

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

interface Entry {
  readonly probe: InstanceProbe;
  readonly snapshot: Mutable<InstanceSnapshot>;
  routable: boolean;
  /** `changes` of the probe at the last report; -1 before, and where it does not say. */
  changes: number;
  /** Counters of the last report, for rates. */
  offloadedBlocks: number;
  reloadedBlocks: number;
}

export class SignalBoard implements Stateful {
  readonly #intervalUs: number;
  readonly #entries = new Map<number, Entry>();
  /** In order of their numbers. */
  #routable: InstanceSnapshot[] = [];
  /** No report of a routable instance is due before this. */
  #dueUs = -Infinity;
  /** Reports read so far, and changes of the list. */
  #reports = 0;
  readonly #report: InstanceReport = {
    queueDepth: 0,
    batchSize: 0,
    maxBatch: 0,
    preemptions: 0,
    usedBlocks: [],
    freeBlocks: [],
    hitBlocks: 0,
    lookupBlocks: 0,
    offloadedBlocks: 0,
    reloadedBlocks: 0,
    recentTtftUs: 0,
    recentTpotUs: 0,
    adapters: [],
  };

  /** @param intervalUs 0 to read at every decision */
  constructor(intervalUs: number) {
    this.#intervalUs = intervalUs;
  }

  add(probe: InstanceProbe): void {
    invariant(!this.#entries.has(probe.instance), 'an instance number is used once');
    const tiers = probe.capacityBlocks.map(() => noTier);
    this.#entries.set(probe.instance, {
      probe,
      routable: false,
      changes: -1,
      offloadedBlocks: 0,
      reloadedBlocks: 0,
      snapshot: {
        instance: probe.instance,
        id: probe.id,
        role: probe.role,
        model: probe.model,
        configId: probe.configId,
        queueDepth: 0,
        batchSize: 0,
        preemptions: 0,
        kv: { tiers, cacheHitRate: 0, offloadRate: 0, reloadRate: 0 },
        recentTtftUs: 0,
        recentTpotUs: 0,
        availableCapacity: 0,
        adapters: [],
        reportedUs: 0,
        inFlight: 0,
        inFlightTokens: 0,
      },
    });
  }

  remove(instance: number): void {
    this.#entries.delete(instance);
    this.#list();
  }

  setRoutable(instance: number, routable: boolean): void {
    this.#entry(instance).routable = routable;
    this.#list();
  }

  /** The routable instances with what is due read again. */
  routable(nowUs: number): readonly InstanceSnapshot[] {
    if (nowUs < this.#dueUs) return this.#routable;
    this.#dueUs = Infinity;
    for (const snapshot of this.#routable) {
      if (nowUs - snapshot.reportedUs >= this.#intervalUs) this.#read(this.#entry(snapshot.instance), nowUs);
      this.#dueUs = Math.min(this.#dueUs, snapshot.reportedUs + this.#intervalUs);
    }
    return this.#routable;
  }

  /** As long as it is the same, so are the reported signals of the same instances. */
  get reports(): number {
    return this.#reports;
  }

  /** Undefined for an instance that was removed. */
  find(instance: number): InstanceSnapshot | undefined {
    return this.#entries.get(instance)?.snapshot;
  }

  /** Requests and uncached prompt tokens that came to the instance, or left it with negative numbers. */
  inFlight(instance: number, requests: number, tokens: number): void {
    const snapshot = this.#entries.get(instance)?.snapshot;
    if (snapshot === undefined) return;
    snapshot.inFlight += requests;
    snapshot.inFlightTokens += tokens;
    invariant(snapshot.inFlight >= 0, () => `instance ${instance} ended more requests than it was sent`);
  }

  #entry(instance: number): Entry {
    const entry = this.#entries.get(instance);
    invariant(entry !== undefined, () => `there is no instance ${instance}`);
    return entry;
  }

  #list(): void {
    this.#routable = [...this.#entries.values()]
      .filter(({ routable }) => routable)
      .map(({ snapshot }) => snapshot)
      .sort((a, b) => a.instance - b.instance);
    this.#dueUs = -Infinity;
  }

  #read(entry: Entry, nowUs: number): void {
    const { probe, snapshot } = entry;
    const changes = probe.changes?.() ?? -1;
    if (changes !== -1 && changes === entry.changes && isStill(snapshot)) {
      // everything is as it was reported before
      snapshot.reportedUs = nowUs;
      return;
    }
    entry.changes = changes;
    this.#reports++;
    const report = this.#report;
    probe.report(report);
    const elapsedUs = nowUs - snapshot.reportedUs;
    const perSecond = (blocks: number): number => (elapsedUs > 0 ? (blocks * 1e6) / elapsedUs : 0);
    snapshot.queueDepth = report.queueDepth;
    snapshot.batchSize = report.batchSize;
    snapshot.preemptions = report.preemptions;
    snapshot.recentTtftUs = report.recentTtftUs;
    snapshot.recentTpotUs = report.recentTpotUs;
    snapshot.availableCapacity = Math.max(0, report.maxBatch - report.batchSize);
    snapshot.adapters = report.adapters;
    snapshot.kv = {
      tiers: probe.capacityBlocks.map((capacityBlocks, tier): ObservedTier => {
        const usedBlocks = report.usedBlocks[tier];
        const utilization = capacityBlocks > 0 ? usedBlocks / capacityBlocks : 0;
        return { capacityBlocks, usedBlocks, freeBlocks: report.freeBlocks[tier], utilization };
      }),
      cacheHitRate: report.lookupBlocks > 0 ? report.hitBlocks / report.lookupBlocks : 0,
      offloadRate: perSecond(report.offloadedBlocks - entry.offloadedBlocks),
      reloadRate: perSecond(report.reloadedBlocks - entry.reloadedBlocks),
    };
    entry.offloadedBlocks = report.offloadedBlocks;
    entry.reloadedBlocks = report.reloadedBlocks;
    snapshot.reportedUs = nowUs;
  }

  snapshot(): PlainState {
    return [...this.#entries.values()].map(({ snapshot, routable, offloadedBlocks, reloadedBlocks }) => ({
      // interfaces have no index signature; the fields are plain data
      snapshot: structuredClone(snapshot) as unknown as PlainState,
      routable,
      offloadedBlocks,
      reloadedBlocks,
    }));
  }

  /** The instances themselves are added before; only what is known of them is restored. */
  restore(state: PlainState): void {
    // the state is what `snapshot` made
    type Saved = Omit<Entry, 'probe' | 'changes'>;
    for (const saved of state as unknown as readonly Saved[]) {
      const entry = this.#entry(saved.snapshot.instance);
      Object.assign(entry.snapshot, structuredClone(saved.snapshot));
      entry.routable = saved.routable;
      entry.changes = -1;
      entry.offloadedBlocks = saved.offloadedBlocks;
      entry.reloadedBlocks = saved.reloadedBlocks;
    }
    this.#list();
  }
}

/** Whether a report of an instance to which nothing happened would say the same again. */
function isStill({ kv }: InstanceSnapshot): boolean {
  return kv.offloadRate === 0 && kv.reloadRate === 0;
}

const noTier: ObservedTier = { capacityBlocks: 0, usedBlocks: 0, freeBlocks: 0, utilization: 0 };
