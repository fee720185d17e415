/**
 * The router's own knowledge: tenants, the whole traffic, windows of history, and two views of where KV lies. The
 * observed view is right but old; the shadow is predicted from what the router saw. Nothing reconciles the two: a
 * policy takes the one it wants, and their difference is counted.
 */

import { invariant } from '../../runtime/errors.ts';
import type { Stateful, StateVisitor } from '../../runtime/snapshot.ts';
import type { InstanceProbe, InstanceReport, InstanceSnapshot, ObservedTier, RequestView } from './policy.ts';

export interface TenantState {
  readonly tenantId: string;
  /** SLO class of its last request. */
  readonly sloClass: string;
  /** Requests that arrived since the start. */
  readonly requestCount: number;
  /** Requests that were routed and have not ended. */
  readonly activeRequests: number;
  readonly admitted: number;
  readonly rejected: number;
  /** Arrivals a second over the window. */
  readonly recentRate: number;
  /** Whether the rate of the last tenth of the window is a multiple of the whole window's. */
  readonly burstDetected: boolean;
  /** Generated tokens of completed requests. */
  readonly outputTokens: number;
}

export interface GlobalRouterMetrics {
  /** Requests routed and not ended. */
  readonly inFlight: number;
  /** Requests that arrived and were not routed, rejected or put out: delayed, or in the gateway's queue. */
  readonly pending: number;
  /** Completions a second over the window. */
  readonly throughput: number;
  /** Arrivals a second over the window. */
  readonly requestRate: number;
}

/** One point of history: what happened in `[startUs, startUs + widthUs)`. */
export interface HistoryPoint {
  readonly startUs: number;
  readonly arrivals: number;
  readonly admitted: number;
  readonly rejected: number;
  readonly completions: number;
  readonly promptTokens: number;
}

/** Where the leading blocks of a prompt lie on one instance. */
export interface PrefixPlace {
  /** Leading blocks found in any tier, each in the fastest that holds it. */
  readonly blocks: number;
  /** Number of these blocks by tier, HBM first. */
  readonly byTier: readonly number[];
}

/** A view of which blocks instances hold, by whatever means it knows. */
export interface PrefixView {
  /** Leading blocks of the prompt that the instance holds in HBM. */
  topBlocks(request: RequestView, instance: number): number;
  /** The same in any tier. */
  place(request: RequestView, instance: number): PrefixPlace;
}

/** The router's prediction of an instance's cache. */
export interface ShadowView extends PrefixView {
  readonly model: ShadowName;
  /** Predicted share of the tier that is in use. */
  utilization(instance: number, tier: number): number;
  /** Blocks that the shadow believes to be there. */
  blocks(instance: number, tier: number): number;
  /** Keys, as hexadecimal digits, that it expects to be evicted next from the tier, the next one first. */
  evictionQueue(instance: number, tier: number, most: number): readonly string[];
}

export const shadowNames = ['none', 'approximate', 'events', 'speculative'] as const;
export type ShadowName = (typeof shadowNames)[number];

export interface RouterState {
  readonly nowUs: number;
  /** A tenant that has not been seen is all zeros. */
  tenant(tenantId: string): TenantState;
  readonly tenants: readonly TenantState[];
  readonly global: GlobalRouterMetrics;
  /** Complete windows, the newest last. */
  readonly history: readonly HistoryPoint[];
  /** Where KV lies as instances told it, as old as the cache signal. */
  readonly observedKv: PrefixView;
  /** Null where no shadow is kept. */
  readonly shadowKv: ShadowView | null;
}

// Events counted over a window that slides in tenths: ten whole cells and the one under way. The rate is over
// the time that the cells cover, so it needs no correction at the start of a run.

const CELLS = 10;

class RateWindow {
  readonly #cellUs: number;
  /** Counts of the last `CELLS + 1` cells; cell n lies at n mod (CELLS + 1). */
  readonly #counts: Float64Array = new Float64Array(CELLS + 1);
  /** Cell under way. */
  #cell = 0;

  constructor(windowUs: number) {
    this.#cellUs = Math.max(1, Math.ceil(windowUs / CELLS));
  }

  add(nowUs: number, count: number = 1): void {
    this.#advance(nowUs);
    this.#counts[this.#cell % (CELLS + 1)] += count;
  }

  /** Events a second over the window that ends at `nowUs`; over what has passed where that is less. */
  rate(nowUs: number): number {
    this.#advance(nowUs);
    let sum = 0;
    for (const count of this.#counts) sum += count;
    const firstUs = Math.max(0, this.#cell - CELLS) * this.#cellUs;
    return perSecond(sum, nowUs - firstUs);
  }

  /** Events a second over the last whole cell and the one under way. */
  recentRate(nowUs: number): number {
    this.#advance(nowUs);
    const firstUs = Math.max(0, this.#cell - 1) * this.#cellUs;
    const last = this.#cell === 0 ? 0 : this.#counts[(this.#cell - 1) % (CELLS + 1)];
    return perSecond(last + this.#counts[this.#cell % (CELLS + 1)], nowUs - firstUs);
  }

  #advance(nowUs: number): void {
    const cell = Math.floor(nowUs / this.#cellUs);
    if (cell <= this.#cell) return;
    const passed = Math.min(cell - this.#cell, CELLS + 1);
    for (let i = 1; i <= passed; i++) this.#counts[(cell - passed + i) % (CELLS + 1)] = 0;
    this.#cell = cell;
  }

  visitState(visitor: StateVisitor): void {
    this.#cell = visitor.number(this.#cell);
    visitor.array(this.#counts);
  }
}

/** A rate needs some time to have passed; before the first millisecond it is taken over one. */
function perSecond(events: number, elapsedUs: number): number {
  return (events * 1e6) / Math.max(elapsedUs, 1000);
}

// The snapshots that policies read. Reported signals are read again when a decision needs them and the last
// report is as old as the interval; until the first report they are 0. Counts that the router keeps itself
// are always fresh.

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

interface SignalEntry {
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
  readonly #entries = new Map<number, SignalEntry>();
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

  /** A number of the reports. While it stays the same, the reported signals of the same instances do too. */
  get reports(): number {
    return this.#reports;
  }

  /** Requests and uncached prompt tokens that came to the instance, or left it with negative numbers. */
  inFlight(instance: number, requests: number, tokens: number): void {
    const snapshot = this.#entries.get(instance)?.snapshot;
    if (snapshot === undefined) return;
    snapshot.inFlight += requests;
    snapshot.inFlightTokens += tokens;
    invariant(snapshot.inFlight >= 0, () => `instance ${instance} ended more requests than it was sent`);
  }

  #entry(instance: number): SignalEntry {
    const entry = this.#entries.get(instance);
    invariant(entry !== undefined, () => `instance ${instance} must be known`);
    return entry;
  }

  #list(): void {
    this.#routable = [...this.#entries.values()]
      .filter(({ routable }) => routable)
      .map(({ snapshot }) => snapshot)
      .sort((a, b) => a.instance - b.instance);
    this.#dueUs = -Infinity;
  }

  #read(entry: SignalEntry, nowUs: number): void {
    const { probe, snapshot } = entry;
    const changes = probe.changes?.() ?? -1;
    const takenUs = probe.takenUs?.() ?? nowUs;
    // nothing has come since it was last read
    if (probe.takenUs !== undefined && changes !== -1 && changes === entry.changes) return;
    if (changes !== -1 && changes === entry.changes && isStill(snapshot)) {
      // everything is as it was reported before
      snapshot.reportedUs = takenUs;
      return;
    }
    entry.changes = changes;
    this.#reports++;
    const report = this.#report;
    probe.report(report);
    const elapsedUs = takenUs - snapshot.reportedUs;
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
    snapshot.reportedUs = takenUs;
  }

  /** When restored: the instances are added before; only what is known of them is brought back. */
  visitState(visitor: StateVisitor): void {
    visitor.value(
      () =>
        [...this.#entries.values()].map(({ snapshot, routable, offloadedBlocks, reloadedBlocks }) => ({
          snapshot: structuredClone(snapshot),
          routable,
          offloadedBlocks,
          reloadedBlocks,
        })),
      (saved) => {
        for (const { snapshot, ...rest } of saved) {
          const entry = this.#entry(snapshot.instance);
          Object.assign(entry.snapshot, structuredClone(snapshot));
          Object.assign(entry, rest, { changes: -1 });
        }
        this.#list();
      },
    );
  }
}

/** Whether a report of an instance to which nothing happened would say the same again. */
function isStill({ kv }: InstanceSnapshot): boolean {
  return kv.offloadRate === 0 && kv.reloadRate === 0;
}

const noTier: ObservedTier = { capacityBlocks: 0, usedBlocks: 0, freeBlocks: 0, utilization: 0 };

// The router's counts for one tenant. A request without a tenant counts for the tenant ''.

interface TenantRow {
  sloClass: string;
  requestCount: number;
  activeRequests: number;
  admitted: number;
  rejected: number;
  outputTokens: number;
  window: RateWindow;
}

/** Fewest arrivals in the last tenth of the window that count as a burst. */
const BURST_ARRIVALS_MIN = 3;

export class TenantTable implements Stateful {
  readonly #windowUs: number;
  readonly #burstFactor: number;
  /** In order of first arrival. */
  readonly #rows = new Map<string, TenantRow>();

  constructor(windowUs: number, burstFactor: number) {
    this.#windowUs = windowUs;
    this.#burstFactor = burstFactor;
  }

  arrived(tenantId: string, sloClass: string, nowUs: number): void {
    const row = this.#row(tenantId);
    row.sloClass = sloClass;
    row.requestCount++;
    row.window.add(nowUs);
  }

  admitted(tenantId: string): void {
    this.#row(tenantId).admitted++;
  }

  rejected(tenantId: string): void {
    this.#row(tenantId).rejected++;
  }

  routed(tenantId: string): void {
    this.#row(tenantId).activeRequests++;
  }

  ended(tenantId: string, outputTokens: number): void {
    const row = this.#row(tenantId);
    row.activeRequests--;
    row.outputTokens += outputTokens;
  }

  state(tenantId: string, nowUs: number): TenantState {
    const row = this.#rows.get(tenantId);
    if (row === undefined) {
      return {
        tenantId,
        sloClass: '',
        requestCount: 0,
        activeRequests: 0,
        admitted: 0,
        rejected: 0,
        recentRate: 0,
        burstDetected: false,
        outputTokens: 0,
      };
    }
    const { window, ...counts } = row;
    const recentRate = window.rate(nowUs);
    const last = window.recentRate(nowUs);
    const arrivals = (last * this.#windowUs) / 1e7;
    const burstDetected = arrivals >= BURST_ARRIVALS_MIN && last > this.#burstFactor * recentRate;
    return { tenantId, ...counts, recentRate, burstDetected };
  }

  all(nowUs: number): TenantState[] {
    return [...this.#rows.keys()].map((tenantId) => this.state(tenantId, nowUs));
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => [...this.#rows].map(([tenantId, { sloClass }]) => ({ tenantId, sloClass })),
      (saved) => {
        this.#rows.clear();
        for (const { tenantId, sloClass } of saved) this.#row(tenantId).sloClass = sloClass;
      },
    );
    for (const row of this.#rows.values()) {
      visitor.fields(row);
      row.window.visitState(visitor);
    }
  }

  #row(tenantId: string): TenantRow {
    let row = this.#rows.get(tenantId);
    if (row === undefined) {
      row = {
        sloClass: '',
        requestCount: 0,
        activeRequests: 0,
        admitted: 0,
        rejected: 0,
        outputTokens: 0,
        window: new RateWindow(this.#windowUs),
      };
      this.#rows.set(tenantId, row);
    }
    return row;
  }
}

//  The traffic in windows of equal width, and what is going on over all.

type Counted = 'arrivals' | 'admitted' | 'rejected' | 'completions' | 'promptTokens';

function emptyPoint(startUs: number): Record<Counted | 'startUs', number> {
  return { startUs, arrivals: 0, admitted: 0, rejected: 0, completions: 0, promptTokens: 0 };
}

export class TrafficHistory implements Stateful {
  readonly #windowUs: number;
  readonly #kept: number;
  readonly #arrivals: RateWindow;
  readonly #completions: RateWindow;
  #points: HistoryPoint[] = [];
  #current: Record<Counted | 'startUs', number> = emptyPoint(0);
  inFlight = 0;
  pending = 0;

  constructor(windowUs: number, kept: number) {
    this.#windowUs = windowUs;
    this.#kept = kept;
    this.#arrivals = new RateWindow(windowUs);
    this.#completions = new RateWindow(windowUs);
  }

  count(what: Counted, nowUs: number, by: number = 1): void {
    this.#advance(nowUs);
    this.#current[what] += by;
    if (what === 'arrivals') this.#arrivals.add(nowUs, by);
    else if (what === 'completions') this.#completions.add(nowUs, by);
  }

  /** Complete windows up to `nowUs`, the newest last; windows in which nothing happened included. */
  points(nowUs: number): readonly HistoryPoint[] {
    this.#advance(nowUs);
    return this.#points;
  }

  global(nowUs: number): GlobalRouterMetrics {
    return {
      inFlight: this.inFlight,
      pending: this.pending,
      throughput: this.#completions.rate(nowUs),
      requestRate: this.#arrivals.rate(nowUs),
    };
  }

  #advance(nowUs: number): void {
    let startUs = this.#current.startUs;
    if (nowUs < startUs + this.#windowUs) return;
    const target = Math.floor(nowUs / this.#windowUs) * this.#windowUs;
    const points = [...this.#points, { ...this.#current }];
    // of a long silence only the windows that are kept are written
    startUs = Math.max(startUs + this.#windowUs, target - this.#kept * this.#windowUs);
    for (; startUs < target; startUs += this.#windowUs) points.push(emptyPoint(startUs));
    this.#points = this.#kept === 0 ? [] : points.slice(-this.#kept);
    this.#current = emptyPoint(target);
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => this.#points.map((point) => ({ ...point })),
      (points) => {
        this.#points = points.map((point) => ({ ...point }));
      },
    );
    visitor.fields(this.#current);
    this.#arrivals.visitState(visitor);
    this.#completions.visitState(visitor);
    this.inFlight = visitor.number(this.inFlight);
    this.pending = visitor.number(this.pending);
  }
}
