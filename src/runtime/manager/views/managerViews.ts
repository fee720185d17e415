/**
 * What can be asked of a manager: its books by tier and owner, which blocks of a sequence may be read, and
 * all of its state. Nothing here changes or counts anything.
 */

import { TierKVError } from '../../errors.ts';
import { described } from '../../options.ts';
import type { LoadEstimate } from '../../planning/loadOrRecompute.ts';
import type { SlotPool } from '../../pool/slotPool.ts';
import type { StateVisitor } from '../../snapshot/index.ts';
import type { Tier } from '../../tier/tier.ts';
import type { JobId } from '../../transfer/jobTable.ts';
import type { Transfer } from '../../transfer/transfer.ts';
import { HBM } from '../core.ts';
import { LoadedBlock, OpenBlock, type ReadableBlock, SealingBlock } from '../sequences/blockTable/handles.ts';
import { Entry, Sequence, type SequenceId } from '../sequences/blockTable/sequence.ts';
import { visitCore } from '../tables/coreState.ts';
import type { Counters } from '../tables/counters.ts';
import { type CachedBlocks, cachedBlocks } from './cachedBlocks.ts';
import { describeRoute, describeTransfer, type JobRoute } from './describe.ts';
import { dump, type ManagerDump } from './dump.ts';
import { checkIntegrity } from './integrity.ts';
import { loadEstimate } from './loadEstimate.ts';
import { LookupViews } from './lookupViews.ts';
import { type BlockPlace, placeOf } from './place.ts';
import { type TierUsage, tierUsage } from './usage.ts';

/** What can be asked of a tier's slots and pages. */
export type PoolView = Pick<
  SlotPool,
  'shape' | 'takenSlots' | 'uncutPages' | 'pageOf' | 'takenOn' | 'freeOnCutPages' | 'pageToTake'
>;

export abstract class ManagerViews extends LookupViews {
  get tiers(): readonly Tier[] {
    return this.config.tiers.map((tier) => tier.tier);
  }

  get counters(): Readonly<Counters> {
    return this.core.counters;
  }

  /** Jobs that the driver has or will be given: 0 when everything has come to rest. */
  get jobsInFlight(): number {
    return this.core.jobs.count;
  }

  /** Of these, jobs past their deadline: they may never end, and keep their slots until they do. */
  get jobsOverdue(): number {
    return this.core.jobs.overdueCount;
  }

  get openSequences(): number {
    return this.core.sequences.size;
  }

  /**
   * How often blocks of sequences have lost their bytes so far: a load or a seal that failed, a tier that was
   * lost. While it stays as it was, so does `disturbances` of every sequence.
   */
  get disturbances(): number {
    return this.core.disturbances;
  }

  /**
   * When the next job in flight is past its deadline, in microseconds; Infinity when none has one. `tick` it
   * then.
   */
  get nextDeadlineUs(): number {
    return this.core.deadlines.nextUs;
  }

  usage(position: number): TierUsage {
    return tierUsage(this.core, position);
  }

  /** The owner's quota of the tier at `position`, null where it has none. */
  quotaBytes(owner: number, position: number): number | null {
    return this.core.quotas?.quotaBytes(owner, position) ?? null;
  }

  /** Cached bytes of the tier at `position` that may not be evicted for this owner: quotas of others. */
  protectedBytes(owner: number, position: number): number {
    return this.core.quotas?.protectedFrom(owner, position) ?? 0;
  }

  /** Whether cached blocks of `other` in the tier at `position` may be evicted for `owner`. */
  mayTakeFrom(other: number, owner: number, position: number): boolean {
    return this.core.quotas?.mayTakeFrom(other, owner, position) ?? true;
  }

  /** The slots of the tier at `position`, to be looked at. */
  pool(position: number): PoolView {
    return this.core.pools[position];
  }

  /** The time of the last call, in microseconds. */
  get nowUs(): number {
    return this.core.nowUs;
  }

  /**
   * Blocks of the tier at `position` that nobody holds and no faster tier has, among `slots` slots from
   * `fromSlot` on, round the end: what may be moved away from there.
   */
  cachedBlocks(position: number, fromSlot = 0, slots: number = Number.MAX_SAFE_INTEGER): CachedBlocks {
    return cachedBlocks(this.core, position, fromSlot, slots);
  }

  /** Bytes that an owner's blocks take of the tier at `position`, those on their way in included. */
  ownedBytes(owner: number, position: number): number {
    return this.core.ownedBytes[owner * this.core.tiers + position];
  }

  /**
   * How long loads of the sequence's blocks [from, to) would take now, by those of the last while; undefined
   * when none is below HBM or on its way.
   */
  loadEstimate(sequence: Sequence, from: number, to: number, nowUs: number): LoadEstimate | undefined {
    this.requireOwn(sequence);
    return loadEstimate(this.core, sequence, from, to, nowUs);
  }

  /** How long loads from the tier at `position`, below HBM, take now. */
  linkEstimate(position: number, nowUs: number): LoadEstimate {
    return this.core.links[position].estimate(nowUs);
  }

  /** The block, if it may be read now: it is in HBM and its bytes were verified. */
  loadedBlock(sequence: Sequence, i: number): LoadedBlock | undefined {
    this.requireOwn(sequence);
    if (sequence.state[i] !== Entry.READY) return undefined;
    const { slot, generation, sizeClass } = this.#placeOf(sequence.replica[i]);
    return new LoadedBlock(slot, generation, sizeClass);
  }

  /** The block, if the sequence may write it now. */
  openBlock(sequence: Sequence, i: number): OpenBlock | undefined {
    this.requireOwn(sequence);
    if (sequence.state[i] !== Entry.OPEN) return undefined;
    const { slot, generation, sizeClass } = this.#placeOf(sequence.replica[i]);
    return new OpenBlock(slot, generation, sizeClass, this.core.replicas.foreign[sequence.replica[i]] === 1);
  }

  /**
   * The block, if the sequence may read it now: it is loaded, or the sequence's own, open or being sealed.
   */
  readableBlock(sequence: Sequence, i: number): ReadableBlock | undefined {
    this.requireOwn(sequence);
    if (sequence.state[i] !== Entry.SEALING) {
      return this.loadedBlock(sequence, i) ?? this.openBlock(sequence, i);
    }
    const { slot, generation, sizeClass } = this.#placeOf(sequence.replica[i]);
    return new SealingBlock(slot, generation, sizeClass);
  }

  /**
   * Where the bytes of the sequence's block are held, whatever state it is in; undefined while it has no
   * slot.
   */
  place(sequence: Sequence, i: number): BlockPlace | undefined {
    this.requireOwn(sequence);
    const replica = i < sequence.length ? sequence.replica[i] : -1;
    return replica === -1 ? undefined : placeOf(this.core, replica);
  }

  /**
   * @throws TKV_INPUT for what is no table that this manager opened: its numbers would mean other blocks here
   */
  requireOwn(sequence: Sequence): void {
    if (sequence instanceof Sequence && sequence.belongsTo(this.core)) return;
    const problem =
      sequence instanceof Sequence
        ? 'sequence belongs to another manager'
        : `sequence must be what open gave, and it is ${described(sequence)}`;
    throw new TierKVError('TKV_INPUT', `${problem}. Pass a sequence that this manager opened.`, {
      field: 'sequence',
    });
  }

  #placeOf(replica: number): { slot: number; generation: number; sizeClass: number } {
    const core = this.core;
    return {
      slot: core.replicas.slotOf(replica, HBM),
      generation: core.generationOf(replica),
      sizeClass: core.sizeClassOf(replica, HBM),
    };
  }

  /** What a job asks of the driver. */
  transfer(job: JobId): Transfer {
    return describeTransfer(this.core, this.core.jobs.rowOf(job));
  }

  /** The little of `transfer` that a driver without bytes asks for; nothing is made. */
  route(job: JobId, into: JobRoute): void {
    describeRoute(this.core, this.core.jobs.rowOf(job), into);
  }

  /** The open sequence of that id: after `visitState` has brought sequences back. */
  sequence(id: SequenceId): Sequence | undefined {
    return this.core.sequences.get(id);
  }

  /** Everything that changes, between two calls. Who listens, and the log, stay as they are. */
  visitState(visitor: StateVisitor): void {
    visitCore(this.core, visitor);
  }

  checkIntegrity(): void {
    checkIntegrity(this.core);
  }

  /** The whole state as plain data, for debuggers and model checkers. Walks everything. */
  dump(): ManagerDump {
    return dump(this.core);
  }
}
