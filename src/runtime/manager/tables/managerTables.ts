/**
 * What the manager keeps: the tables of slots, replicas, contents and jobs, who waits, and the bytes by tier
 * and owner. What is a field here and a number or an array is what a snapshot has.
 */

import { ContentTable } from '../../content/contentTable.ts';
import type { TableMemory } from '../../content/tableMemory.ts';
import type { DecisionOp, DecisionSink } from '../../log/decisionSink.ts';
import { LinkPace } from '../../planning/linkPace.ts';
import { makeEvictionPolicy, type Retaining } from '../../policy/index.ts';
import { PageCensus } from '../../pool/pageCensus.ts';
import { SlotPool } from '../../pool/slotPool.ts';
import { ReplicaTable } from '../../replica/replicaTable.ts';
import { Deadlines } from '../../transfer/deadlines.ts';
import { JobQueue } from '../../transfer/jobQueue.ts';
import { type JobId, JobState, JobTable } from '../../transfer/jobTable.ts';
import type { Outcome } from '../../transfer/outcome.ts';
import { WaiterTable } from '../../transfer/waiterTable.ts';
import { UseTable } from '../../usage/index.ts';
import type { ResolvedConfig } from '../config.ts';
import type { OwnerQuotas } from '../residency/ownerQuotas.ts';
import { Pace } from '../residency/pace.ts';
import { WriteBudget } from '../residency/writeBudget.ts';
import type { Sequence, SequenceId } from '../sequences/blockTable/sequence.ts';
import { SpareArrays } from '../sequences/blockTable/tableArrays.ts';
import { Agenda } from './agenda.ts';
import { Counters } from './counters.ts';
import type { ManagerListener } from './listener.ts';

export abstract class ManagerTables {
  readonly config: ResolvedConfig;
  readonly tiers: number;
  readonly pools: readonly SlotPool[];
  readonly replicas: ReplicaTable;
  readonly contents: ContentTable;
  readonly policy: Retaining;
  /** By tier, null where every page holds one slot of the only size class. */
  readonly census: readonly (PageCensus | null)[];
  readonly jobs: JobTable;
  readonly deadlines: Deadlines;
  readonly agenda: Agenda = new Agenda();
  readonly waiters: WaiterTable = new WaiterTable();
  /** By tier, 1 where blocks that become evictable are copied down at once. */
  readonly copiesEagerly: Uint8Array;
  /** Jobs that wait for a slot, by tier, in order of claim. */
  readonly claims: readonly JobQueue[];
  /** Issued jobs that the driver has not taken yet. */
  readonly outbox: JobQueue = new JobQueue();
  /** Loads into HBM that no sequence asked for, in the order in which they were made. */
  readonly unasked: Set<JobId> = new Set();
  readonly sequences: Map<SequenceId, Sequence> = new Map();
  readonly spares: SpareArrays = new SpareArrays();
  /** Sequences that wait for nothing any more, to be told of at the end of the call. */
  readonly settled: Sequence[] = [];
  /** Transfers between tiers that have ended, to be told of at the end of the call. */
  readonly moved: { readonly key: Uint32Array; readonly tier: number; readonly outcome: Outcome }[] = [];
  /** How often contents are used; null where nobody asks. */
  readonly use: UseTable | null;
  /** Sequences opened so far, as the eviction policy counts uses. */
  visits = 0;
  /** Bytes that count against a tier's capacity, replicas and jobs on their way in. */
  readonly residentBytes: Float64Array;
  /** Of these, bytes that can be evicted now. */
  readonly cachedBytes: Float64Array;
  /** Of these, bytes of replicas that sequences hold. */
  readonly heldBytes: Float64Array;
  /** Bytes of replicas that are on their way down and keep their slot until they have arrived. */
  readonly leavingBytes: Float64Array;
  /** Resident bytes by owner, then tier. */
  readonly ownedBytes: Float64Array;
  readonly capacityBytes: Float64Array;
  /** Null while no owner has a quota. */
  quotas: OwnerQuotas | null = null;
  /** By tier: how long its blocks take on their way down. */
  readonly paces: readonly Pace[];
  /** By tier: how long loads from there to HBM take. That of HBM itself is not used. */
  readonly links: readonly LinkPace[];
  /** By tier, null where writes are not bounded. */
  readonly writeBudgets: readonly (WriteBudget | null)[];
  readonly counters: Counters;
  readonly sink: DecisionSink | null;
  listener: ManagerListener = {};
  nowUs = 0;
  /** Time that was computed, but for what began at `computesSinceUs`, -1 for nothing. */
  computeUs = 0;
  computesSinceUs = -1;
  sequencesOpened = 0;
  /** How often entries have lost their bytes so far, over all sequences. */
  disturbances = 0;

  constructor(config: ResolvedConfig, sink: DecisionSink | null, memory?: TableMemory) {
    this.config = config;
    this.sink = sink;
    this.tiers = config.tiers.length;
    // tables in memory of their own are whole from the start, so that no call waits for one to grow
    const whole = memory !== undefined;
    this.pools = config.tiers.map((tier) => new SlotPool(tier.shape, whole));
    this.replicas = new ReplicaTable(
      config.tiers.map((tier) => tier.shape.slotLimit),
      whole,
    );
    this.census = this.pools.map((pool) =>
      pool.shape.slotsPerPageMax === 1 && config.unitBytes.length === 1 ? null : new PageCensus(pool),
    );
    this.jobs = new JobTable(config.maxJobs, whole);
    this.paces = config.tiers.map((_, tier) => new Pace(tier, this.jobs));
    this.links = config.tiers.map(() => new LinkPace());
    this.deadlines = new Deadlines((job) => this.#hasDeadline(job));
    const contents = new ContentTable(
      this.replicas.size + config.maxJobs,
      this.tiers,
      memory,
      (content) => this.#forgotten(content),
      whole,
    );
    this.contents = contents;
    this.use = config.useRates === null ? null : new UseTable(this.contents.capacity, config.useRates);
    this.residentBytes = new Float64Array(this.tiers);
    this.policy = makeEvictionPolicy(config.eviction, {
      tiers: this.tiers,
      base: this.replicas.base,
      unitBytes: config.unitBytes,
      capacityBytes: config.tiers.map((tier) => tier.capacityBytes),
      residentBytes: this.residentBytes,
      contents: contents.capacity,
      whole,
      nowUs: () => this.nowUs,
      generationOf: (replica) => this.generationOf(replica),
      parentOf: (content) => this.contents.parentOf(content),
      get keys() {
        return contents.keys;
      },
      get tokens() {
        return contents.tokens;
      },
      get owner() {
        return contents.owner;
      },
    });
    this.copiesEagerly = Uint8Array.from(config.offload, ({ policy }, tier) =>
      policy === 'eager' && tier + 1 < config.tiers.length ? 1 : 0,
    );
    for (const _ of config.tiers) this.agenda.fresh.push([]);
    this.claims = config.tiers.map(() => new JobQueue());
    this.cachedBytes = new Float64Array(this.tiers);
    this.heldBytes = new Float64Array(this.tiers);
    this.leavingBytes = new Float64Array(this.tiers);
    this.ownedBytes = new Float64Array(config.owners * this.tiers);
    this.capacityBytes = Float64Array.from(config.tiers, (tier) => tier.capacityBytes);
    this.writeBudgets = config.tiers.map(({ writeBudget, capacityBytes }) =>
      writeBudget === undefined ? null : new WriteBudget(writeBudget, capacityBytes),
    );
    this.counters = new Counters(this.tiers);
  }

  /** How long the engine has computed so far, in microseconds, as far as the manager was told. */
  computedUs(): number {
    return this.computeUs + (this.computesSinceUs === -1 ? 0 : this.nowUs - this.computesSinceUs);
  }

  log(op: DecisionOp, a: number, b = 0, c = 0, d = 0, e = 0): void {
    this.sink?.decision(op, a, b, c, d, e);
  }

  logReplica(op: DecisionOp, replica: number): void {
    if (this.sink === null) return;
    const tier = this.replicas.tierOf(replica);
    const slot = this.replicas.slotOf(replica, tier);
    this.sink.decision(op, tier, slot, this.pools[tier].generation[slot], 0, 0);
  }

  unitBytes(sizeClass: number): number {
    return this.config.unitBytes[sizeClass];
  }

  sizeClassOf(replica: number, tier: number): number {
    return this.pools[tier].sizeClassOf(this.replicas.slotOf(replica, tier));
  }

  generationOf(replica: number): number {
    const tier = this.replicas.tierOf(replica);
    return this.pools[tier].generation[this.replicas.slotOf(replica, tier)];
  }

  #hasDeadline(job: JobId): boolean {
    if (!this.jobs.isLive(job)) return false;
    const row = this.jobs.rowOf(job);
    return this.jobs.state[row] !== JobState.WAITING && this.jobs.overdue[row] === 0;
  }

  #forgotten(content: number): void {
    this.policy.forgotten(content);
    this.use?.forget(content);
  }
}
