/**
 * What can be asked of a manager: its books, and what a chain of keys would find. Nothing here changes or
 * counts anything.
 */

import type { Digest } from '../../digest.ts';
import { invariant } from '../../errors.ts';
import type { DecisionSink } from '../../log/decisionSink.ts';
import type { LoadEstimate } from '../../planning/loadOrRecompute.ts';
import type { SlotPool } from '../../pool/slotPool.ts';
import type { StateVisitor } from '../../snapshot/index.ts';
import type { Tier } from '../../tier/tier.ts';
import type { JobId } from '../../transfer/jobTable.ts';
import type { Transfer } from '../../transfer/transfer.ts';
import { type ManagerConfig, type ResolvedConfig, resolveConfig } from '../config.ts';
import { Core, HBM } from '../core.ts';
import { LoadedBlock, OpenBlock, type ReadableBlock, SealingBlock } from '../sequences/handles.ts';
import { Entry, type Sequence, type SequenceId } from '../sequences/sequence.ts';
import { visitCore } from '../tables/coreState.ts';
import type { Counters } from '../tables/counters.ts';
import { type CachedBlocks, cachedBlocks } from './cachedBlocks.ts';
import { describeTransfer } from './describe.ts';
import { dump, type ManagerDump } from './dump.ts';
import { checkIntegrity } from './integrity.ts';
import { loadEstimate } from './loadEstimate.ts';
import { lookup, type Match, matchLength, matchLengths } from './lookup.ts';
import { type BlockPlace, placeOf } from './place.ts';
import { type TierUsage, tierUsage } from './usage.ts';

/** What can be asked of a tier's slots and pages. */
export type PoolView = Pick<
  SlotPool,
  'shape' | 'takenSlots' | 'uncutPages' | 'pageOf' | 'takenOn' | 'freeOnCutPages' | 'pageToTake'
>;

export abstract class ManagerViews {
  readonly config: ResolvedConfig;

  protected readonly core: Core;

  /** Contents of the leading blocks that the last match found. */
  protected found: Int32Array = new Int32Array(64);

  /** @throws TKV_CONFIG with the field at fault */
  constructor(config: ManagerConfig, sink: DecisionSink | null = null) {
    this.config = resolveConfig(config);
    this.core = new Core(this.config, sink, config.tableMemory);
  }

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

  /** Whether no cached block lacks its prefix, so that lookups need not walk. */
  get prefixesAreWhole(): boolean {
    return this.core.contents.holes === 0;
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
   * What a request with these keys would find. Changes nothing, counts nothing. `keys` holds four words a
   * block.
   */
  lookup(keys: Uint32Array, count: number): Match {
    return lookup(this.core, keys, count);
  }

  /** Leading blocks of the chain that are ready or on their way: the fast form of `lookup`. */
  matchLength(keys: Uint32Array, count: number): number {
    return matchLength(this.core, keys, count);
  }

  /**
   * `out[r] = matchLength` of each of `requests` chains: for a scheduler or router that looks at its whole
   * queue. Chain r has `counts[r]` blocks, and their keys lie in `keys` from block `firsts[r]` on, four words
   * a block; chains may overlap and be empty. One chain's lookup is a few memory accesses that wait for each
   * other, and with many blocks resident that wait is most of it; here the chains take each of the
   * ceil(log2(blocks)) + 2 steps together and wait together. The more blocks are resident and the more chains
   * are asked for, the more it gains. Changes nothing, counts nothing.
   */
  matchLengths(
    keys: Uint32Array,
    firsts: Uint32Array,
    counts: Uint32Array,
    out: Uint32Array,
    requests: number = counts.length,
  ): void {
    invariant(
      firsts.length >= requests && counts.length >= requests && out.length >= requests,
      'a first key, a count and a place for the answer a request',
    );
    matchLengths(this.core, keys, firsts, counts, out, requests);
  }

  /** The key of a block that is there or on its way, by its number. */
  contentKey(content: number): Uint32Array {
    return this.core.contents.key(content);
  }

  /**
   * Content numbers of the leading blocks that are ready or on their way. A number is reused once its content
   * is gone.
   */
  blockIds(keys: Uint32Array, count: number): number[] {
    return Array.from(this.found.subarray(0, this.match(keys, count)));
  }

  /**
   * How long loads of the sequence's blocks [from, to) would take now, by those of the last while; undefined
   * when none is below HBM or on its way.
   */
  loadEstimate(sequence: Sequence, from: number, to: number, nowUs: number): LoadEstimate | undefined {
    return loadEstimate(this.core, sequence, from, to, nowUs);
  }

  /** How long loads from the tier at `position`, below HBM, take now. */
  linkEstimate(position: number, nowUs: number): LoadEstimate {
    return this.core.links[position].estimate(nowUs);
  }

  /** Whether `count` more units of a size class would fit HBM beside what cannot be evicted. */
  canAllocate(count: number, sizeClass = 0, owner = 0): boolean {
    return this.hasRoomFor(count * this.core.unitBytes(sizeClass), owner);
  }

  /** Whether so many bytes more of the owner would fit HBM beside what cannot be evicted for it. */
  hasRoomFor(bytes: number, owner = 0): boolean {
    const core = this.core;
    const kept = core.quotas?.protectedFrom(owner, HBM) ?? 0;
    const fixed = core.residentBytes[HBM] - core.cachedBytes[HBM] + kept;
    return fixed + bytes <= core.pools[HBM].shape.capacityBytes;
  }

  /**
   * Whether a sequence of `units` units, the first `matched` of which are found under `keys`, would fit HBM
   * once those are pinned: the check before `open`, `load` and `allocate` for callers that want all or
   * nothing.
   */
  canOpen(keys: Uint32Array, matched: number, units: number, sizeClass = 0, owner = 0): boolean {
    const found = this.match(keys, matched);
    return this.canAllocate(units - this.heldAlready(found), sizeClass, owner);
  }

  /** Bytes that such a sequence would take of HBM beside what is held there already. */
  bytesToOpen(keys: Uint32Array, matched: number, units: number, sizeClass = 0): number {
    const found = this.match(keys, matched);
    return (units - this.heldAlready(found)) * this.core.unitBytes(sizeClass);
  }

  /** The block, if it may be read now: it is in HBM and its bytes were verified. */
  loadedBlock(sequence: Sequence, i: number): LoadedBlock | undefined {
    if (sequence.state[i] !== Entry.READY) return undefined;
    const { slot, generation, sizeClass } = this.#placeOf(sequence.replica[i]);
    return new LoadedBlock(slot, generation, sizeClass);
  }

  /** The block, if the sequence may write it now. */
  openBlock(sequence: Sequence, i: number): OpenBlock | undefined {
    if (sequence.state[i] !== Entry.OPEN) return undefined;
    const { slot, generation, sizeClass } = this.#placeOf(sequence.replica[i]);
    return new OpenBlock(slot, generation, sizeClass, this.core.replicas.foreign[sequence.replica[i]] === 1);
  }

  /**
   * The block, if the sequence may read it now: it is loaded, or the sequence's own, open or being sealed.
   */
  readableBlock(sequence: Sequence, i: number): ReadableBlock | undefined {
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
    const replica = i < sequence.length ? sequence.replica[i] : -1;
    return replica === -1 ? undefined : placeOf(this.core, replica);
  }

  /** Where the block with this key lies ready, in the fastest tier that has it. Nothing holds it there. */
  locate(key: Uint32Array): BlockPlace | undefined {
    const content = this.core.contents.find(key, 0);
    const replica = content === -1 ? -1 : this.core.fastestReady(content, HBM);
    return replica === -1 ? undefined : placeOf(this.core, replica);
  }

  /** The digest that the block with this key must have; undefined for one that is not known or not sealed. */
  digestOf(key: Uint32Array): Digest | undefined {
    const { contents } = this.core;
    const content = contents.find(key, 0);
    return content === -1 || contents.sealed[content] === 0 ? undefined : contents.digest(content);
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

  /**
   * Finds the leading blocks that are ready or on their way. @returns how many; `#found` has their contents
   */
  protected match(keys: Uint32Array, count: number): number {
    const matched = this.matchLength(keys, count);
    if (matched > this.found.length) this.found = new Int32Array(matched * 2);
    for (let i = 0; i < matched; i++) {
      this.found[i] = this.core.contents.find(keys, i * 4);
      // Only keys that are not chained, though the configuration says so, have gaps that the search jumps.
      if (this.found[i] === -1) return i;
    }
    return matched;
  }

  /** Of the blocks just matched, those in HBM that other sequences hold anyway. */
  protected heldAlready(matched: number): number {
    const core = this.core;
    let held = 0;
    for (let i = 0; i < matched; i++) {
      const ready = core.readyIn(this.found[i], HBM);
      if (ready !== -1 && core.replicas.refs[ready] > 0) held++;
    }
    return held;
  }
}
