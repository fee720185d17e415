/**
 * The manager's state, and the small steps on it from which everything else is made: reserve, attach,
 * publish, hold, unpublish, free. Each step keeps the tables consistent with each other. What to do with them
 * is decided in the rooms beside this file: `residency` (who stays), `jobs` (how a job goes out and comes
 * back), `sequences` (what a sequence gets).
 */

import { ContentTable } from '../content/contentTable.ts';
import type { TableMemory } from '../content/tableMemory.ts';
import { invariant } from '../errors.ts';
import { DecisionOp, type DecisionSink } from '../log/decisionSink.ts';
import { LinkPace } from '../planning/linkPace.ts';
import { makeEvictionPolicy, type Retaining, type Visit } from '../policy/index.ts';
import { PageCensus } from '../pool/pageCensus.ts';
import { SlotPool } from '../pool/slotPool.ts';
import { ReplicaTable } from '../replica/replicaTable.ts';
import { State } from '../replica/state.ts';
import { Deadlines } from '../transfer/deadlines.ts';
import { JobQueue } from '../transfer/jobQueue.ts';
import { type JobId, JobState, JobTable } from '../transfer/jobTable.ts';
import type { Outcome } from '../transfer/outcome.ts';
import { WaiterTable } from '../transfer/waiterTable.ts';
import { UseTable } from '../usage/index.ts';
import { Agenda } from './agenda.ts';
import type { ResolvedConfig } from './config.ts';
import { Counters } from './counters.ts';
import type { ManagerListener } from './listener.ts';
import type { OwnerQuotas } from './residency/ownerQuotas.ts';
import { Pace } from './residency/pace.ts';
import { WriteBudget } from './residency/writeBudget.ts';
import type { Sequence, SequenceId } from './sequences/sequence.ts';
import { SpareArrays } from './sequences/tableArrays.ts';

export const HBM = 0;

export class Core {
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
    this.pools = config.tiers.map((tier) => new SlotPool(tier.shape));
    this.replicas = new ReplicaTable(config.tiers.map((tier) => tier.shape.slotLimit));
    this.census = this.pools.map((pool) =>
      pool.shape.slotsPerPageMax === 1 && config.unitBytes.length === 1 ? null : new PageCensus(pool),
    );
    this.jobs = new JobTable(config.maxJobs);
    this.paces = config.tiers.map((_, tier) => new Pace(tier, this.jobs));
    this.links = config.tiers.map(() => new LinkPace());
    this.deadlines = new Deadlines((job) => this.#hasDeadline(job));
    this.contents = new ContentTable(this.replicas.size + config.maxJobs, this.tiers, memory, (content) =>
      this.#forgotten(content),
    );
    this.use = config.useRates === null ? null : new UseTable(this.contents.capacity, config.useRates);
    this.residentBytes = new Float64Array(this.tiers);
    this.policy = makeEvictionPolicy(config.eviction, {
      tiers: this.tiers,
      base: this.replicas.base,
      unitBytes: config.unitBytes,
      capacityBytes: config.tiers.map((tier) => tier.capacityBytes),
      residentBytes: this.residentBytes,
      contents: this.contents.capacity,
      nowUs: () => this.nowUs,
      generationOf: (replica) => this.generationOf(replica),
      parentOf: (content) => this.contents.parentOf(content),
      keys: this.contents.keys,
      tokens: this.contents.tokens,
      owner: this.contents.owner,
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

  /** A RESERVED replica of the class in the tier, or -1 when no slot is free. */
  reserve(tier: number, sizeClass: number, owner: number): number {
    const slot = this.pools[tier].take(sizeClass);
    if (slot === -1) return -1;
    this.census[tier]?.took(slot);
    const replica = this.replicas.base[tier] + slot;
    const { owner: owners } = this.replicas;
    this.replicas.foreign[replica] = owners[replica] === owner && owner !== this.config.sharedOwner ? 0 : 1;
    owners[replica] = owner;
    this.replicas.become(replica, State.RESERVED);
    this.logReplica(DecisionOp.RESERVE, replica);
    return replica;
  }

  /** From here on lookups find the replica: the last step of every way in. */
  publish(replica: number, content: number): void {
    const { replicas, contents } = this;
    const tier = replicas.tierOf(replica);
    replicas.become(replica, State.READY);
    replicas.content[replica] = content;
    if (this.listener.stored !== undefined) this.#tellStored(replica, content, tier);
    const next = contents.replica[content];
    if (next === -1 || replica < replicas.base[replicas.tierOf(next) + 1]) {
      replicas.alias[replica] = next;
      contents.replica[content] = replica;
    } else {
      this.#linkBehind(next, replica, tier);
    }
    contents.hold(content);
    contents.addCopy(content);
    this.logReplica(DecisionOp.PUBLISH, replica);
    if (replicas.refs[replica] === 0) this.makeEvictable(replica, tier);
  }

  /** From here on no lookup finds the replica. Its slot stays taken until readers and holders are gone. */
  unpublish(replica: number): void {
    const { replicas } = this;
    invariant(replicas.state[replica] === State.READY, 'only a ready replica can be unpublished');
    const tier = replicas.tierOf(replica);
    if (replicas.evictable[replica] === 1) this.makeUnevictable(replica, tier);
    const content = replicas.content[replica];
    this.#detach(replica);
    replicas.become(replica, State.DRAINING);
    if (this.listener.removed !== undefined && this.readyIn(content, tier) === -1) {
      this.listener.removed(tier, this.contents.key(content));
    }
    this.contents.unhold(content);
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

  /** Links a replica into its content's chain, which is ordered by tier, somewhere behind its head. */
  #linkBehind(head: number, replica: number, tier: number): void {
    const { alias, base } = this.replicas;
    let before = head;
    while (alias[before] !== -1 && alias[before] < base[tier]) before = alias[before];
    alias[replica] = alias[before];
    alias[before] = replica;
  }

  #detach(replica: number): void {
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

  makeEvictable(replica: number, tier: number): void {
    const { replicas } = this;
    const sizeClass = this.sizeClassOf(replica, tier);
    replicas.evictable[replica] = 1;
    if (this.copiesEagerly[tier] === 1) this.agenda.fresh[tier].push(replica);
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

  #forgotten(content: number): void {
    this.policy.forgotten(content);
    this.use?.forget(content);
  }

  visitOf(blocks: number, matched: number): Visit {
    const visit = { number: ++this.visits, blocks, matched };
    this.policy.begin?.(visit);
    return visit;
  }

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
   * A sequence lets the replica go; true when it was the last one. What becomes of the replica is the
   * caller's choice.
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

  /** Lets the slot go if nothing needs it any more; true when it is free. */
  freeIfDrained(replica: number): boolean {
    const { replicas } = this;
    if (replicas.state[replica] !== State.DRAINING) return false;
    if (replicas.readers[replica] !== 0 || replicas.refs[replica] !== 0 || replicas.writing[replica] !== 0)
      return false;
    this.giveBack(replica);
    return true;
  }

  giveBack(replica: number): void {
    const tier = this.replicas.tierOf(replica);
    this.setResident(replica, 0);
    this.logReplica(DecisionOp.FREE, replica);
    this.replicas.become(replica, State.FREE);
    const slot = this.replicas.slotOf(replica, tier);
    this.census[tier]?.gaveBack(slot);
    this.pools[tier].giveBack(slot);
    this.agenda.slotsFreed(tier);
  }

  /** The job is over; its waiters are served at the end of the call. */
  end(row: number, outcome: number): void {
    this.agenda.ended.push(this.jobs.idOf(row));
    this.jobs.end(row, outcome);
  }

  /** The sequence has ended, and holds nothing any more. */
  closed(sequence: Sequence): void {
    this.sequences.delete(sequence.id);
    this.spares.giveBack(sequence.retire());
  }

  /** An entry of the sequence has lost its bytes. */
  disturb(sequence: Sequence): void {
    sequence.disturbances++;
    this.disturbances++;
  }

  /** One block of the sequence waits no more. */
  stoppedWaiting(sequence: Sequence): void {
    if (--sequence.pending === 0) this.settled.push(sequence);
  }

  #hasDeadline(job: JobId): boolean {
    if (!this.jobs.isLive(job)) return false;
    const row = this.jobs.rowOf(job);
    return this.jobs.state[row] !== JobState.WAITING && this.jobs.overdue[row] === 0;
  }

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

  /** The job brings the content no more, if it did. */
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
}
