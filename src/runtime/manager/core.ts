/**
 * The manager's state, and the steps that keep its tables consistent with each other: reserve, publish, hold,
 * unpublish, free. The files beside this one decide which step to take: `residency` (what stays in a tier),
 * `jobs` (how a job goes out and comes back), `blocks`, `loads` and `holds` (what a sequence gets).
 *
 * Two chains say where a content is: its ready replicas, from the fastest tier down, and the jobs that bring
 * it into a tier, at most one a tier. Both are linked by row through the tables of replicas and jobs; -1 ends
 * a chain. A snapshot has every field of `Core` that is a number or an array.
 */

import { invariant } from '../errors.ts';
import type { Visit } from '../eviction/evictionPolicy.ts';
import { makeEvictionPolicy } from '../eviction/registry.ts';
import type { RetentionPolicy } from '../eviction/retention.ts';
import { DecisionOp, type DecisionSink } from '../log/decisionSink.ts';
import { LinkPace } from '../planning/pace.ts';
import type { StateVisitor } from '../snapshot.ts';
import { ContentTable, UseTable } from '../tables/contentTable.ts';
import { Deadlines, type JobId, JobState, JobTable, WaiterTable } from '../tables/jobTable.ts';
import { ReplicaState, ReplicaTable } from '../tables/replicaTable.ts';
import { PageCensus, SlotPool } from '../tables/slotPool.ts';
import type { TableMemory } from '../tables/tableMemory.ts';
import { JobQueue } from '../tier/driver.ts';
import { type Outcome, TOP } from '../tier/tier.ts';
import type { ResolvedConfig } from './config.ts';
import { Counters } from './counters.ts';
import type { ManagerObserver } from './observer.ts';
import { Pace, Taker, WriteBudget } from './offloadPolicies.ts';
import { Openings } from './openings.ts';
import type { OwnerQuotas } from './ownerQuotas.ts';
import { type Sequence, type SequenceId, SpareArrays } from './sequence.ts';

export class Core {
  readonly config: ResolvedConfig;
  readonly tiers: number;
  readonly pools: readonly SlotPool[];
  readonly replicas: ReplicaTable;
  readonly contents: ContentTable;
  readonly policy: RetentionPolicy;
  /** Census of each tier's pages; null where every page holds one slot of the only size class. */
  readonly census: readonly (PageCensus | null)[];
  readonly jobs: JobTable;
  readonly deadlines: Deadlines;
  readonly deferred: DeferredWork = new DeferredWork();
  readonly waiters: WaiterTable = new WaiterTable();
  /** 1 where blocks that become evictable are copied down at once, by tier. */
  readonly copiesEagerly: Uint8Array;
  /** Jobs that wait for a slot, by tier, in order of claim. */
  readonly claims: readonly JobQueue[];
  /** Issued jobs that the driver has not taken yet. */
  readonly outbox: JobQueue = new JobQueue();
  /** Loads into HBM that no sequence asked for, in the order in which they were made (see blocks.ts). */
  readonly speculativeLoads: Set<JobId> = new Set();
  readonly sequences: Map<SequenceId, Sequence> = new Map();
  readonly spares: SpareArrays = new SpareArrays();
  /** Sequences without a pending block since this call; the listener is told at its end. */
  readonly settled: Sequence[] = [];
  /** Transfers between tiers that ended in this call; the listener is told at its end. */
  readonly moved: { readonly key: Uint32Array; readonly tier: number; readonly outcome: Outcome }[] = [];
  /** How often contents are used; null unless the configuration asks for it. */
  readonly use: UseTable | null;
  /** Sequences opened so far, as the eviction policy counts uses. */
  visits = 0;
  /** Bytes that count against a tier's capacity, replicas and jobs on their way in. */
  readonly residentBytes: Float64Array;
  /** Bytes of these that can be evicted now. */
  readonly cachedBytes: Float64Array;
  /** Bytes of these whose replicas sequences hold. */
  readonly heldBytes: Float64Array;
  /** Bytes of replicas that are on their way down and keep their slot until they have arrived. */
  readonly leavingBytes: Float64Array;
  /** Resident bytes by owner, then tier. */
  readonly ownedBytes: Float64Array;
  readonly capacityBytes: Float64Array;
  /** Null while no owner has a quota. */
  quotas: OwnerQuotas | null = null;
  /** Time that a tier's blocks take on their way down, by tier. */
  readonly paces: readonly Pace[];
  /** Time that loads from a tier to HBM take, by tier. The entry of HBM itself is unused. */
  readonly links: readonly LinkPace[];
  /** Whether each tier takes blocks from above. The entry of HBM itself is unused. */
  readonly takers: readonly Taker[];
  /** Write budgets by tier, null where writes are not bounded. */
  readonly writeBudgets: readonly (WriteBudget | null)[];
  readonly counters: Counters;
  readonly openings: Openings;
  readonly sink: DecisionSink | null;
  listener: ManagerListener = {};
  /** Null while there is nothing that watches. */
  observer: ManagerObserver | null = null;
  nowUs = 0;
  /** Microseconds that the engine computed before `computesSinceUs`, which is -1 while it does not compute. */
  computeUs = 0;
  computesSinceUs = -1;
  sequencesOpened = 0;
  /** Numbers of tokens that sealed or adopted blocks have had: one where every block was full. */
  readonly tokenCounts: number[] = [];
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
    this.takers = config.tiers.map(() => new Taker());
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
    for (const _ of config.tiers) {
      this.deferred.fresh.push([]);
      this.deferred.unsent.push(new Set());
    }
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
    this.openings = new Openings(this, this.replicas, (replica) => this.sizeClassOf(replica, TOP));
  }

  // Where a content is.

  /** A ready replica of the content in the tier, or -1. */
  readyIn(content: number, tier: number): number {
    const { alias, base } = this.replicas;
    for (let at = this.contents.replica[content]; at !== -1; at = alias[at]) {
      if (at >= base[tier]) return at < base[tier + 1] ? at : -1;
    }
    return -1;
  }

  /** The fastest ready replica in tiers `from` and below, or -1. */
  fastestReady(content: number, from: number): number {
    const { alias, base } = this.replicas;
    let at = this.contents.replica[content];
    while (at !== -1 && at < base[from]) at = alias[at];
    return at;
  }

  /** The job that brings the content into the tier, or -1. */
  incomingTo(content: number, tier: number): number {
    const { jobs } = this;
    let row = this.contents.incoming[content];
    while (row !== -1 && jobs.targetTier[row] !== tier) row = jobs.nextIncoming[row];
    return row;
  }

  /** From here on the job is the one that brings the content into its target tier. */
  addIncoming(content: number, row: number): void {
    this.jobs.nextIncoming[row] = this.contents.incoming[content];
    this.contents.incoming[content] = row;
    this.contents.addCopy(content);
  }

  /** The job no longer brings the content, if it did. */
  removeIncoming(content: number, row: number): void {
    const { incoming } = this.contents;
    const { nextIncoming } = this.jobs;
    if (incoming[content] === row) {
      incoming[content] = nextIncoming[row];
    } else {
      let before = incoming[content];
      while (before !== -1 && nextIncoming[before] !== row) before = nextIncoming[before];
      if (before === -1) return;
      nextIncoming[before] = nextIncoming[row];
    }
    nextIncoming[row] = -1;
    this.contents.removeCopy(content);
  }

  // A replica from its slot to its readers, and back.

  /** A RESERVED replica of the class in the tier, or -1 when no slot is free. */
  reserve(tier: number, sizeClass: number, owner: number): number {
    const slot = this.pools[tier].take(sizeClass);
    if (slot === -1) return -1;
    this.census[tier]?.took(slot);
    const replica = this.replicas.base[tier] + slot;
    this.replicas.reach(replica);
    const { owner: owners } = this.replicas;
    this.replicas.foreign[replica] = owners[replica] === owner && this.#isOneTenant(owner) ? 0 : 1;
    owners[replica] = owner;
    this.replicas.become(replica, ReplicaState.RESERVED);
    this.logReplica(DecisionOp.RESERVE, replica);
    return replica;
  }

  /** Owner 0 has what no tenant is known of, once tenants are told apart. */
  #isOneTenant(owner: number): boolean {
    const { owners, sharedOwner } = this.config;
    return owner !== sharedOwner && (owner !== 0 || owners === 1);
  }

  /**
   * Lookups find the replica from now on: the last step of every way in.
   * @param isAwaited its waiters take it in the same call, so that it need not be evictable before
   */
  publish(replica: number, content: number, isAwaited = false): void {
    const { replicas, contents } = this;
    const tier = replicas.tierOf(replica);
    replicas.become(replica, ReplicaState.READY);
    replicas.content[replica] = content;
    if (this.listener.stored !== undefined) this.#tellStored(replica, content, tier);
    contents.hold(content);
    this.#link(replica, content, tier);
    this.logReplica(DecisionOp.PUBLISH, replica);
    this.observer?.published?.(replica, content, tier);
    if (!isAwaited) this.offerUnheld(replica);
  }

  /** A published replica without a holder may be evicted. */
  offerUnheld(replica: number): void {
    const { replicas } = this;
    const isIdle = replicas.refs[replica] === 0 && replicas.evictable[replica] === 0;
    if (isIdle && replicas.state[replica] === ReplicaState.READY) {
      this.makeEvictable(replica, replicas.tierOf(replica));
    }
  }

  /** Lookups no longer find the replica. Its slot stays taken until readers and holders are gone. */
  unpublish(replica: number): void {
    const { replicas } = this;
    invariant(replicas.state[replica] === ReplicaState.READY, 'only a ready replica can be unpublished');
    const tier = replicas.tierOf(replica);
    if (replicas.evictable[replica] === 1) this.makeUnevictable(replica, tier);
    const content = replicas.content[replica];
    this.observer?.unpublished?.(replica, content, tier);
    this.#unlink(replica);
    replicas.become(replica, ReplicaState.DRAINING);
    if (this.listener.removed !== undefined && this.readyIn(content, tier) === -1) {
      this.listener.removed(tier, this.contents.key(content));
    }
    this.contents.unhold(content);
  }

  /** Frees the slot if nothing needs it any more. @returns whether it did */
  freeIfDrained(replica: number): boolean {
    const { replicas } = this;
    if (replicas.state[replica] !== ReplicaState.DRAINING) return false;
    if (replicas.readers[replica] !== 0 || replicas.refs[replica] !== 0 || replicas.writing[replica] !== 0)
      return false;
    this.giveBack(replica);
    return true;
  }

  giveBack(replica: number): void {
    const tier = this.replicas.tierOf(replica);
    this.setResident(replica, 0);
    this.logReplica(DecisionOp.FREE, replica);
    this.replicas.become(replica, ReplicaState.FREE);
    const slot = this.replicas.slotOf(replica, tier);
    this.census[tier]?.gaveBack(slot);
    this.pools[tier].giveBack(slot);
    this.deferred.slotsFreed(tier);
  }

  /** The replica is a copy of the content from here on. */
  #link(replica: number, content: number, tier: number): void {
    const { replicas, contents } = this;
    const next = contents.replica[content];
    if (next === -1 || replica < replicas.base[replicas.tierOf(next) + 1]) {
      replicas.alias[replica] = next;
      contents.replica[content] = replica;
    } else {
      this.#linkBehind(next, replica, tier);
    }
    contents.addCopy(content);
  }

  /** Links a replica into its content's chain, which is ordered by tier, somewhere behind its head. */
  #linkBehind(head: number, replica: number, tier: number): void {
    const { alias, base } = this.replicas;
    let before = head;
    while (alias[before] !== -1 && alias[before] < base[tier]) before = alias[before];
    alias[replica] = alias[before];
    alias[before] = replica;
  }

  /** The replica stops being a copy of its content. */
  #unlink(replica: number): void {
    const { replicas, contents } = this;
    const content = replicas.content[replica];
    if (contents.replica[content] === replica) {
      contents.replica[content] = replicas.alias[replica];
    } else {
      let before = contents.replica[content];
      while (replicas.alias[before] !== replica) before = replicas.alias[before];
      replicas.alias[before] = replicas.alias[replica];
    }
    replicas.alias[replica] = -1;
    replicas.content[replica] = -1;
    contents.removeCopy(content);
  }

  #tellStored(replica: number, content: number, tier: number): void {
    if (this.readyIn(content, tier) !== -1) return;
    const { contents } = this;
    this.listener.stored?.(tier, {
      key: contents.key(content),
      parent: contents.parentKey(content),
      tokens: contents.tokens[content],
      bytes: this.unitBytes(this.sizeClassOf(replica, tier)),
    });
  }

  // Who holds a replica, and whether it can be evicted.

  /** A sequence holds the replica: it cannot be evicted. */
  hold(replica: number): void {
    const { replicas } = this;
    if (replicas.refs[replica]++ > 0) return;
    const tier = replicas.tierOf(replica);
    if (replicas.evictable[replica] === 1) this.makeUnevictable(replica, tier);
    if (replicas.resident[replica] === 1)
      this.heldBytes[tier] += this.unitBytes(this.sizeClassOf(replica, tier));
  }

  /**
   * A sequence lets the replica go. @returns true when it was the last one; the caller then decides what
   * becomes of the replica
   */
  unhold(replica: number): boolean {
    const { replicas } = this;
    invariant(replicas.refs[replica] > 0, 'a replica is let go as often as it was held');
    if (--replicas.refs[replica] > 0) return false;
    if (replicas.resident[replica] === 1) {
      const tier = replicas.tierOf(replica);
      this.heldBytes[tier] -= this.unitBytes(this.sizeClassOf(replica, tier));
    }
    return true;
  }

  makeEvictable(replica: number, tier: number): void {
    const { replicas } = this;
    const sizeClass = this.sizeClassOf(replica, tier);
    replicas.evictable[replica] = 1;
    if (this.copiesEagerly[tier] === 1) this.deferred.fresh[tier].push(replica);
    this.policy.enter(replica, tier, sizeClass, replicas.content[replica]);
    this.census[tier]?.becameEvictable(replicas.slotOf(replica, tier));
    this.cachedBytes[tier] += this.unitBytes(sizeClass);
    this.quotas?.entered(replica, tier, replicas.owner[replica], this.unitBytes(sizeClass));
  }

  makeUnevictable(replica: number, tier: number): void {
    const { replicas } = this;
    const sizeClass = this.sizeClassOf(replica, tier);
    replicas.evictable[replica] = 0;
    this.policy.leave(replica, tier, sizeClass);
    this.census[tier]?.becameFixed(replicas.slotOf(replica, tier));
    this.cachedBytes[tier] -= this.unitBytes(sizeClass);
    this.quotas?.left(replica, tier, replicas.owner[replica], this.unitBytes(sizeClass));
  }

  /** The sequence uses the content: the eviction policy learns of it. */
  touch(sequence: Sequence, content: number): void {
    this.policy.touch(content, sequence.visit);
    this.use?.used(content, this.nowUs);
    this.listener.used?.(content);
  }

  visitOf(blocks: number, matched: number): Visit {
    const visit = { number: ++this.visits, blocks, matched };
    this.policy.begin?.(visit);
    return visit;
  }

  // Bytes that count against tiers and owners.

  setResident(replica: number, resident: 0 | 1): void {
    if (this.replicas.resident[replica] === resident) return;
    this.replicas.resident[replica] = resident;
    const tier = this.replicas.tierOf(replica);
    const bytes = this.unitBytes(this.sizeClassOf(replica, tier));
    this.#count(tier, this.replicas.owner[replica], resident === 1 ? bytes : -bytes);
    if (this.replicas.refs[replica] > 0) this.heldBytes[tier] += resident === 1 ? bytes : -bytes;
  }

  setJobResident(row: number, resident: 0 | 1): void {
    if (this.jobs.resident[row] === resident) return;
    this.jobs.resident[row] = resident;
    const bytes = this.unitBytes(this.jobs.sizeClass[row]);
    this.#count(this.jobs.targetTier[row], this.jobs.owner[row], resident === 1 ? bytes : -bytes);
  }

  #count(tier: number, owner: number, bytes: number): void {
    this.residentBytes[tier] += bytes;
    this.ownedBytes[owner * this.tiers + tier] += bytes;
    this.quotas?.refresh(owner, tier);
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

  // Ends of jobs, waits and sequences.

  /** The job is over; its waiters are served at the end of the call. */
  end(row: number, outcome: number): void {
    const job = this.jobs.idOf(row);
    this.deferred.ended.push(job);
    if (this.speculativeLoads.size > 0) this.speculativeLoads.delete(job);
    this.jobs.end(row, outcome);
  }

  /** One block of the sequence stopped waiting. */
  stoppedWaiting(sequence: Sequence): void {
    if (--sequence.pending === 0) this.settled.push(sequence);
  }

  /** A block with this number of tokens is sealed or adopted. */
  noteTokens(tokens: number): void {
    if (!this.tokenCounts.includes(tokens)) this.tokenCounts.push(tokens);
  }

  /** An entry of the sequence has lost its bytes. */
  disturb(sequence: Sequence): void {
    sequence.disturbances++;
    this.disturbances++;
  }

  /** The sequence has ended and holds nothing. */
  closed(sequence: Sequence): void {
    this.sequences.delete(sequence.id);
    this.observer?.closed?.(sequence.id);
    this.spares.giveBack(sequence.retire());
  }

  #hasDeadline(job: JobId): boolean {
    if (!this.jobs.isLive(job)) return false;
    const row = this.jobs.rowOf(job);
    return this.jobs.state[row] !== JobState.WAITING && this.jobs.overdue[row] === 0;
  }

  #forgotten(content: number): void {
    this.policy.forgotten(content);
    this.use?.forget(content);
    this.observer?.forgotten?.(content);
  }

  // Time and the decision log.

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
}

/**
 * Work that a step leaves for the end of the call: free slots for jobs that wait, tiers that may be over
 * their capacity, waiters of ended jobs. `drain` (drain.ts) does it, so that no step calls back into the step
 * that caused it.
 */
class DeferredWork {
  /** Jobs whose waiters are to be served, in the order in which they ended. */
  readonly ended: JobQueue = new JobQueue();
  /** Replicas of HBM whose bytes were found wrong while sequences read them. */
  readonly wrong: number[] = [];
  /** Replicas that became evictable, by tier that copies eagerly. */
  readonly fresh: number[][] = [];
  /** Replicas whose copy failed, by tier that copies eagerly. They are fresh again once a copy has arrived. */
  readonly unsent: Set<number>[] = [];
  /** Bit t: slots of tier t came free. */
  freed = 0;
  /** Bit t: tier t may hold more than its capacity. */
  crowded = 0;

  slotsFreed(tier: number): void {
    this.freed |= 1 << tier;
  }

  mayBeCrowded(tier: number): void {
    this.crowded |= 1 << tier;
  }

  get isEmpty(): boolean {
    return (this.freed | this.crowded | this.wrong.length) === 0 && this.ended.size === 0;
  }

  visitState(visitor: StateVisitor): void {
    this.ended.visitState(visitor);
    visitor.list(this.wrong);
    for (const list of this.fresh) visitor.list(list);
    for (const set of this.unsent) {
      visitor.value(
        () => [...set],
        (saved) => {
          set.clear();
          for (const replica of saved) set.add(replica);
        },
      );
    }
    this.freed = visitor.number(this.freed);
    this.crowded = visitor.number(this.crowded);
  }
}

/**
 * News of the manager for its driver, at the end of the call in which they came about. A listener may call the manager
 * again, except from `stored`, `removed` and `used`, which come in the middle of a call. The log has no news, only the
 * calls that a listener makes because of them.
 */
export interface ManagerListener {
  /** Jobs wait to be taken by `nextJob`. */
  jobsIssued?(): void;
  /** No block of the sequence waits for a job any more, or the sequence has ended while some did. */
  settled?(sequence: Sequence): void;
  /** A transfer of the block with this key to the tier at `position` has ended. */
  moved?(position: number, key: Uint32Array, outcome: Outcome): void;
  /** Room came free in HBM: a sequence let blocks go, or a job gave its slots back. */
  roomFreed?(): void;
  /** A block can be found in the tier at `position` from now on, where it was not before. */
  stored?(position: number, block: StoredBlock): void;
  /** A sequence uses the block of this number, which `contentKey` names: it was found, or is sealed. */
  used?(content: number): void;
  /** The block with this key can no longer be found in the tier at `position`. */
  removed?(position: number, key: Uint32Array): void;
}

interface StoredBlock {
  /** Four words. */
  readonly key: Uint32Array;
  /** Key of the block before it; zeros for the first of a chain, undefined where it is not known. */
  readonly parent: Uint32Array | undefined;
  readonly tokens: number;
  readonly bytes: number;
}
