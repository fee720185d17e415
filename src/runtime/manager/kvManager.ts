/**
 * The manager: it decides which block lies where, what moves and who may read, and moves nothing itself. Calls go in,
 * each with `nowUs`; transfer jobs come out through `nextJob`; a driver executes them and reports each end through
 * `complete`. Every call returns at once. The same calls in the same order give the same decisions.
 *
 * One request's path:  open -> load (what lower tiers hold) and allocate (the rest) -> write -> seal -> release
 */

import { invariant, requireInteger, TierKVError } from '../errors.ts';
import { DecisionOp, type DecisionSink, InputOp } from '../log/decisionSink.ts';
import type { Retention } from '../policy/index.ts';
import type { Tier } from '../tier.ts';
import { type JobId, JobState, Priority } from '../transfer/jobTable.ts';
import { Outcome } from '../transfer/outcome.ts';
import type { Transfer } from '../transfer/transfer.ts';
import { type AdoptedBlock, adopt, adoptionWords } from './adoption.ts';
import { type ManagerConfig, type ResolvedConfig, resolveConfig } from './config.ts';
import { Core, HBM } from './core.ts';
import type { Counters } from './counters.ts';
import { drain } from './jobs/drain.ts';
import { finish } from './jobs/endings.ts';
import { detach } from './jobs/withdrawing.ts';
import type { ManagerListener } from './listener.ts';
import { loseTier, type TierLoss } from './loss.ts';
import { type MoveAnswer, move } from './residency/moving.ts';
import { evict, holdersIn } from './residency/residency.ts';
import { canBeCopied, copyBlock } from './sequences/copying.ts';
import { LoadedBlock, OpenBlock } from './sequences/handles.ts';
import { load as loadBlock, prefetch as prefetchBlock } from './sequences/loading.ts';
import { match as matchBlock } from './sequences/matching.ts';
import { release as releaseBlock } from './sequences/releasing.ts';
import { Entry, Sequence, type SequenceId } from './sequences/sequence.ts';
import { fail } from './sequences/settling.ts';
import { open as openBlock, seal as sealBlock } from './sequences/writing.ts';
import { describeTransfer } from './views/describe.ts';
import { dump, type ManagerDump } from './views/dump.ts';
import { checkIntegrity } from './views/integrity.ts';
import { lookup, type Match, matchLength, matchLengths } from './views/lookup.ts';
import { type TierUsage, tierUsage } from './views/usage.ts';

export interface Eviction {
  readonly evicted: number;
  /** Sequences that hold blocks of the tier, when fewer were evicted than asked for. */
  readonly blockers: readonly SequenceId[];
}

export class KVManager {
  readonly config: ResolvedConfig;
  readonly #core: Core;
  /** Contents of the leading blocks that the last match found. */
  #found: Int32Array = new Int32Array(64);

  /** @throws TKV_CONFIG with the field at fault */
  constructor(config: ManagerConfig, sink: DecisionSink | null = null) {
    this.config = resolveConfig(config);
    this.#core = new Core(this.config, sink, config.tableMemory);
  }

  get tiers(): readonly Tier[] {
    return this.config.tiers.map((tier) => tier.tier);
  }

  get counters(): Readonly<Counters> {
    return this.#core.counters;
  }

  /** Jobs that the driver has or will be given: 0 when everything has come to rest. */
  get jobsInFlight(): number {
    return this.#core.jobs.count;
  }

  /** Of these, jobs past their deadline: they may never end, and keep their slots until they do. */
  get jobsOverdue(): number {
    return this.#core.jobs.overdueCount;
  }

  get openSequences(): number {
    return this.#core.sequences.size;
  }

  /** When the next job in flight is past its deadline, in microseconds; Infinity when none has one. `tick` it then. */
  get nextDeadlineUs(): number {
    return this.#core.deadlines.nextUs;
  }

  /** Whether no cached block lacks its prefix, so that lookups need not walk. */
  get prefixesAreWhole(): boolean {
    return this.#core.contents.holes === 0;
  }

  /** Whom the manager tells of jobs, settled sequences and room, in place of whoever was told before. */
  listen(listener: ManagerListener): void {
    this.#core.listener = listener;
  }

  usage(position: number): TierUsage {
    return tierUsage(this.#core, position);
  }

  /** Bytes that an owner's blocks take of the tier at `position`, those on their way in included. */
  ownedBytes(owner: number, position: number): number {
    return this.#core.ownedBytes[owner * this.#core.tiers + position];
  }

  /** What a request with these keys would find. Changes nothing, counts nothing. `keys` holds four words a block. */
  lookup(keys: Uint32Array, count: number): Match {
    return lookup(this.#core, keys, count);
  }

  /** Leading blocks of the chain that are ready or on their way: the fast form of `lookup`. */
  matchLength(keys: Uint32Array, count: number): number {
    return matchLength(this.#core, keys, count);
  }

  /**
   * `out[r] = matchLength` of each of `requests` chains: for a scheduler or router that looks at its whole queue. Chain r
   * has `counts[r]` blocks, and their keys lie in `keys` from block `firsts[r]` on, four words a block; chains may overlap
   * and be empty. One chain's lookup is a few memory accesses that wait for each other, and with many blocks resident that
   * wait is most of it; here the chains take each of the ceil(log2(blocks)) + 2 steps together and wait together. The
   * more blocks are resident and the more chains are asked for, the more it gains. Changes nothing, counts nothing.
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
    matchLengths(this.#core, keys, firsts, counts, out, requests);
  }

  /**
   * Begins a sequence: matches its leading blocks and pins every one of them, wherever it lies, before anything else may
   * take a slot. Counts hits and misses over `count` blocks. At most `matchLimit` blocks are matched, so that a caller
   * can leave the block of a prompt's last token to be computed again.
   * @param owner whose room its blocks take, below `config.owners`
   */
  open(keys: Uint32Array, count: number, nowUs: number, matchLimit: number = count, owner = 0): Sequence {
    return this.#open(keys, count, nowUs, matchLimit, owner, 0, 0) as Sequence;
  }

  /**
   * As `open`, if a table of `units` units of the size class would then fit HBM beside what cannot be evicted.
   * @returns null, with nothing changed, when it would not
   */
  openIfFits(
    keys: Uint32Array,
    count: number,
    nowUs: number,
    matchLimit: number,
    units: number,
    sizeClass = 0,
    owner = 0,
  ): Sequence | null {
    return this.#open(keys, count, nowUs, matchLimit, owner, units, sizeClass);
  }

  #open(
    keys: Uint32Array,
    count: number,
    nowUs: number,
    matchLimit: number,
    owner: number,
    units: number,
    sizeClass: number,
  ): Sequence | null {
    const core = this.#core;
    invariant(keys.length >= count * 4, 'four key words a block');
    requireInteger('owner', owner, 0, this.config.owners - 1);
    this.#now(nowUs);
    core.sink?.input(
      InputOp.OPEN,
      nowUs,
      [count, matchLimit, owner, units, sizeClass],
      keys.subarray(0, count * 4),
    );
    const matched = this.#match(keys, Math.min(count, matchLimit));
    if (units > 0 && !this.canAllocate(units - this.#heldAlready(matched), sizeClass)) {
      this.#refuse(0, 0, units);
      return null;
    }
    const visit = core.visitOf(count, matched);
    const sequence = new Sequence(++core.sequencesOpened as SequenceId, visit, owner);
    core.sequences.set(sequence.id, sequence);
    sequence.extendTo(matched);
    const before = core.sink === null ? null : Float64Array.from(core.counters.hits);
    for (let i = 0; i < matched; i++) matchBlock(core, sequence, i, this.#found[i]);
    core.counters.misses += count - matched;
    if (before !== null) {
      const hits = core.counters.hits;
      core.log(
        DecisionOp.MATCH,
        sequence.id,
        count,
        matched,
        hits[0] - before[0],
        (hits[1] ?? 0) - (before[1] ?? 0),
      );
    }
    this.#end();
    return sequence;
  }

  /** Finds the leading blocks that are ready or on their way. @returns how many; `#found` has their contents */
  #match(keys: Uint32Array, count: number): number {
    const matched = this.matchLength(keys, count);
    if (matched > this.#found.length) this.#found = new Int32Array(matched * 2);
    for (let i = 0; i < matched; i++) this.#found[i] = this.#core.contents.find(keys, i * 4);
    return matched;
  }

  /** Of the blocks just matched, those in HBM that other sequences hold anyway. */
  #heldAlready(matched: number): number {
    const core = this.#core;
    let held = 0;
    for (let i = 0; i < matched; i++) {
      const ready = core.readyIn(this.#found[i], HBM);
      if (ready !== -1 && core.replicas.refs[ready] > 0) held++;
    }
    return held;
  }

  /** Whether `count` more units of a size class would fit HBM beside what cannot be evicted. */
  canAllocate(count: number, sizeClass = 0): boolean {
    return this.hasRoomFor(count * this.#core.unitBytes(sizeClass));
  }

  /** Content numbers of the leading blocks that are ready or on their way. A number is reused once its content is gone. */
  blockIds(keys: Uint32Array, count: number): number[] {
    return Array.from(this.#found.subarray(0, this.#match(keys, count)));
  }

  /**
   * Whether a sequence of `units` units, the first `matched` of which are found under `keys`, would fit HBM once those
   * are pinned: the check before `open`, `load` and `allocate` for callers that want all or nothing.
   */
  canOpen(keys: Uint32Array, matched: number, units: number, sizeClass = 0): boolean {
    const found = this.#match(keys, matched);
    return this.canAllocate(units - this.#heldAlready(found), sizeClass);
  }

  /** Bytes that such a sequence would take of HBM beside what is held there already. */
  bytesToOpen(keys: Uint32Array, matched: number, units: number, sizeClass = 0): number {
    const found = this.#match(keys, matched);
    return (units - this.#heldAlready(found)) * this.#core.unitBytes(sizeClass);
  }

  /** Whether so many bytes more would fit HBM beside what cannot be evicted. */
  hasRoomFor(bytes: number): boolean {
    const core = this.#core;
    const fixed = core.residentBytes[HBM] - core.cachedBytes[HBM];
    return fixed + bytes <= core.pools[HBM].shape.capacityBytes;
  }

  /**
   * Starts loading the matched blocks of [from, to) that lie in lower tiers.
   * @returns false, with nothing changed, when they do not fit HBM beside what is held there
   */
  load(sequence: Sequence, nowUs: number, from = 0, to: number = sequence.matched): boolean {
    const core = this.#core;
    this.#live(sequence);
    this.#now(nowUs);
    core.sink?.input(InputOp.LOAD, nowUs, [sequence.id, from, to]);
    let bytes = 0;
    for (let i = from; i < to; i++) {
      if (sequence.state[i] === Entry.MATCHED)
        bytes += core.unitBytes(core.contents.sizeClass[sequence.content[i]]);
    }
    if (!this.hasRoomFor(bytes)) return this.#refuse(sequence.id, from, to);
    for (let i = from; i < to; i++) {
      if (sequence.state[i] === Entry.MATCHED && !loadBlock(core, sequence, i)) {
        fail(core, sequence, i, Outcome.REFUSED);
      }
    }
    this.#end();
    return true;
  }

  /**
   * Opens private blocks for [from, to) where the table has none, and in place of failed ones. They are OPEN at once, or
   * WAITING until a slot has drained.
   * @returns false, with nothing changed, when they do not fit HBM beside what is held there
   */
  allocate(sequence: Sequence, from: number, to: number, nowUs: number, sizeClass = 0): boolean {
    const core = this.#core;
    this.#live(sequence);
    requireInteger('sizeClass', sizeClass, 0, this.config.unitBytes.length - 1);
    this.#now(nowUs);
    core.sink?.input(InputOp.ALLOCATE, nowUs, [sequence.id, from, to, sizeClass]);
    let units = 0;
    for (let i = from; i < to; i++) if (isVacant(sequence, i)) units++;
    if (!this.canAllocate(units, sizeClass)) return this.#refuse(sequence.id, from, to);
    sequence.extendTo(to);
    for (let i = from; i < to; i++) if (isVacant(sequence, i)) openBlock(core, sequence, i, sizeClass);
    this.#end();
    return true;
  }

  /**
   * Block `into` of `to`, vacant until now, becomes a private copy of block `at` of `from`: WAITING, then OPEN once its bytes
   * are in place. For forks; where both name the same block, it is replaced by a private copy of itself, for rollbacks into a
   * sealed block. Work that the device was given before is in the copy.
   * @returns false, with nothing changed, when it does not fit HBM beside what is held there
   * @throws TKV_STATE when the source is not in HBM or the target is not vacant
   */
  copy(from: Sequence, at: number, to: Sequence, into: number, nowUs: number): boolean {
    const core = this.#core;
    this.#live(from);
    this.#live(to);
    if (!canBeCopied(from, at)) throw wrongState(at, 'is not in HBM. Copy a block that is loaded or open.');
    const unshares = from === to && at === into;
    if (!unshares && (into > to.length || !isVacant(to, into))) {
      throw wrongState(into, 'is not vacant. Copy into the first free block of the sequence.');
    }
    this.#now(nowUs);
    core.sink?.input(InputOp.COPY, nowUs, [from.id, at, to.id, into]);
    const sizeClass = core.sizeClassOf(from.replica[at], HBM);
    if (!this.canAllocate(1, sizeClass)) return this.#refuse(to.id, into, into + 1);
    to.extendTo(into + 1);
    if (!copyBlock(core, from, at, to, into)) fail(core, to, into, Outcome.REFUSED);
    this.#end();
    return true;
  }

  /**
   * The open blocks [from, to) hold their last token: `keys` has their keys from position `at` (in words). The driver
   * takes their digests after a device fence, then they are published.
   * @param tokens tokens of each block
   */
  seal(
    sequence: Sequence,
    from: number,
    to: number,
    keys: Uint32Array,
    at: number,
    tokens: number,
    nowUs: number,
  ): void {
    const core = this.#core;
    this.#live(sequence);
    for (let i = from; i < to; i++) {
      if (sequence.state[i] !== Entry.OPEN) {
        throw wrongState(i, 'is not open. Seal a block once, after it was allocated.');
      }
    }
    this.#now(nowUs);
    core.sink?.input(
      InputOp.SEAL,
      nowUs,
      [sequence.id, from, to, tokens],
      keys.subarray(at, at + (to - from) * 4),
    );
    for (let i = from; i < to; i++) sealBlock(core, sequence, i, keys, at + (i - from) * 4, tokens);
    this.#end();
  }

  /** Lets blocks [from, to) go, the last first, so that the tail of a prefix is evicted before its head. */
  releaseRange(sequence: Sequence, from: number, to: number, nowUs: number): void {
    const core = this.#core;
    this.#live(sequence);
    this.#now(nowUs);
    core.sink?.input(InputOp.RELEASE, nowUs, [sequence.id, from, to]);
    for (let i = Math.min(to, sequence.length) - 1; i >= from; i--) releaseBlock(core, sequence, i, false);
    this.#end(true);
  }

  /**
   * As `releaseRange` up to the table's end, which it then has no more: for tokens that are taken back. Loads that nobody else
   * waits for are called off.
   */
  truncate(sequence: Sequence, length: number, nowUs: number): void {
    const core = this.#core;
    this.#live(sequence);
    requireInteger('length', length, 0, sequence.length);
    this.#now(nowUs);
    core.sink?.input(InputOp.TRUNCATE, nowUs, [sequence.id, length]);
    for (let i = sequence.length - 1; i >= length; i--) releaseBlock(core, sequence, i, true);
    sequence.shortenTo(length);
    this.#end(true);
  }

  /** Ends the sequence. What it computed or loaded stays cached; loads in flight go on. */
  release(sequence: Sequence, nowUs: number): void {
    this.#live(sequence);
    this.#now(nowUs);
    this.#core.sink?.input(InputOp.RELEASE, nowUs, [sequence.id, 0, -1]);
    this.#close(sequence, false);
  }

  /** Ends the sequence and calls off the loads that nobody else waits for. */
  cancel(sequence: Sequence, nowUs: number): void {
    this.#live(sequence);
    this.#now(nowUs);
    this.#core.sink?.input(InputOp.CANCEL, nowUs, [sequence.id]);
    this.#close(sequence, true);
  }

  /** Ends the sequence because others need its room: as `release`, and counted. */
  preempt(sequence: Sequence, nowUs: number): void {
    this.#live(sequence);
    this.#now(nowUs);
    this.#core.sink?.input(InputOp.PREEMPT, nowUs, [sequence.id]);
    this.#core.counters.preemptions++;
    this.#close(sequence, false);
  }

  /**
   * How the caller would like the sequence's blocks to be kept, those it has and those it seals from now on, once it has let them
   * go. A hint: the eviction policy makes of it what it can.
   */
  retain(sequence: Sequence, retention: Retention, nowUs: number): void {
    const core = this.#core;
    this.#live(sequence);
    requireInteger('retention.priority', retention.priority, -100, 100);
    requireInteger('retention.keepUntilUs', retention.keepUntilUs, 0);
    this.#now(nowUs);
    core.sink?.input(InputOp.RETAIN, nowUs, [sequence.id, retention.priority, retention.keepUntilUs]);
    sequence.retention = { ...retention };
    for (let i = 0; i < sequence.length; i++) {
      if (sequence.content[i] !== -1) core.policy.retain?.(sequence.content[i], retention);
    }
  }

  /** Brings the leading blocks of the chain to HBM for nobody in particular. @returns loads started */
  prefetch(keys: Uint32Array, count: number, nowUs: number): number {
    const core = this.#core;
    this.#now(nowUs);
    core.sink?.input(InputOp.PREFETCH, nowUs, [count], keys.subarray(0, count * 4));
    const matched = this.matchLength(keys, count);
    let started = 0;
    for (let i = 0; i < matched && this.canAllocate(1); i++) {
      const content = core.contents.find(keys, i * 4);
      if (content === -1) break; // the room for an earlier block was made at its cost
      if (prefetchBlock(core, content)) started++;
    }
    this.#end();
    return started;
  }

  /**
   * Brings one content, whose key is four words, to the tier at `position`, up or down, for nobody in particular. Up, it is
   * copied. Down, its copies above that nobody holds give up their room.
   */
  move(key: Uint32Array, position: number, priority: Priority, nowUs: number): MoveAnswer {
    const core = this.#core;
    requireInteger('position', position, 0, core.tiers - 1);
    requireInteger('priority', priority, Priority.DEMAND_LOAD, Priority.SCRUB);
    this.#now(nowUs);
    core.sink?.input(InputOp.MOVE, nowUs, [position, priority], key.subarray(0, 4));
    const answer = move(core, core.contents.find(key, 0), position, priority);
    this.#end();
    return answer;
  }

  /**
   * A lower tier's store holds this block since an earlier run, durable or just verified: lookups find it from now on. Call
   * it before anything else, for the block used longest ago first.
   * @returns false when it stays out: its slot is not free, the tier is full, or it has that content already. The slot's
   * generation counts either way
   */
  adopt(position: number, block: AdoptedBlock, nowUs: number): boolean {
    const core = this.#core;
    requireInteger('position', position, 1, core.tiers - 1);
    const { slot, generation, sizeClass } = block;
    this.#now(nowUs);
    core.sink?.input(InputOp.ADOPT, nowUs, [position, slot, generation, sizeClass], adoptionWords(block));
    const adopted = adopt(core, position, block);
    this.#end();
    return adopted;
  }

  /** Evicts up to `count` cached blocks of the tier at `position`, in the order of the eviction policy. */
  evict(position: number, count: number, nowUs: number): Eviction {
    const core = this.#core;
    requireInteger('position', position, 0, core.tiers - 1);
    this.#now(nowUs);
    core.sink?.input(InputOp.EVICT, nowUs, [position, count]);
    let evicted = 0;
    for (; evicted < count; evicted++) {
      const victim = core.policy.victim(position);
      if (victim === -1) break;
      evict(core, victim, position, true);
    }
    this.#end();
    return { evicted, blockers: evicted < count ? holdersIn(core, position) : [] };
  }

  /**
   * The driver says how a job ended. `digest*` belong to the end of a SEAL job.
   * @throws TKV_STALE for a job that ended before
   */
  complete(job: JobId, outcome: Outcome, nowUs: number, digestLo = 0, digestHi = 0): void {
    const core = this.#core;
    const row = core.jobs.rowOf(job);
    this.#now(nowUs);
    core.sink?.input(InputOp.COMPLETE, nowUs, [job, outcome, digestLo, digestHi]);
    finish(core, row, outcome, digestLo, digestHi);
    this.#end(true);
  }

  /**
   * Time has passed. Jobs whose deadline is over are given up: whoever waits for one computes its block again, and its slots
   * wait for the driver.
   * @returns jobs given up
   */
  tick(nowUs: number): number {
    const core = this.#core;
    const { jobs } = core;
    this.#now(nowUs);
    core.sink?.input(InputOp.TICK, nowUs, []);
    let givenUp = 0;
    for (let job = core.deadlines.takeDue(nowUs); job !== 0; job = core.deadlines.takeDue(nowUs)) {
      const row = jobs.rowOf(job);
      jobs.markOverdue(row);
      if (jobs.state[row] === JobState.DETACHED) continue;
      detach(core, row, Outcome.TIMED_OUT);
      givenUp++;
    }
    this.#end(true);
    return givenUp;
  }

  /** Gives an issued job another deadline than the configured one, in microseconds of the manager's time. */
  setDeadline(job: JobId, deadlineUs: number): void {
    const core = this.#core;
    const row = core.jobs.rowOf(job);
    requireInteger('deadlineUs', deadlineUs, 0);
    core.sink?.input(InputOp.DEADLINE, core.nowUs, [job, deadlineUs]);
    core.jobs.deadlineUs[row] = deadlineUs;
    core.deadlines.add(job, deadlineUs);
  }

  /**
   * The bytes of the tier at `position` are gone, and another store takes its place, empty. Blocks that sequences held
   * there are MATCHED again where another tier has them (`load` them, also beyond `matched`), and FAILED where none does.
   * Jobs that the driver has still end through `complete`.
   */
  loseTier(position: number, nowUs: number): TierLoss {
    const core = this.#core;
    requireInteger('position', position, 0, core.tiers - 1);
    this.#now(nowUs);
    core.sink?.input(InputOp.LOSE, nowUs, [position]);
    const loss = loseTier(core, position);
    this.#end(true);
    return loss;
  }

  /** The next job for the driver, or 0 when there is none now. Jobs detached before the driver took them are included. */
  nextJob(): JobId {
    return this.#core.outbox.shift();
  }

  /** What a job asks of the driver. */
  transfer(job: JobId): Transfer {
    return describeTransfer(this.#core, this.#core.jobs.rowOf(job));
  }

  checkIntegrity(): void {
    checkIntegrity(this.#core);
  }

  /** The whole state as plain data, for debuggers and model checkers. Walks everything. */
  dump(): ManagerDump {
    return dump(this.#core);
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
    return new OpenBlock(slot, generation, sizeClass, this.#core.replicas.foreign[sequence.replica[i]] === 1);
  }

  /** The open block's slot was cleared: nothing of another owner lies in it. */
  cleared(sequence: Sequence, i: number): void {
    if (sequence.state[i] === Entry.OPEN) this.#core.replicas.foreign[sequence.replica[i]] = 0;
  }

  #placeOf(replica: number): { slot: number; generation: number; sizeClass: number } {
    const core = this.#core;
    return {
      slot: core.replicas.slotOf(replica, HBM),
      generation: core.generationOf(replica),
      sizeClass: core.sizeClassOf(replica, HBM),
    };
  }

  #close(sequence: Sequence, cancel: boolean): void {
    const core = this.#core;
    for (let i = sequence.length - 1; i >= 0; i--) releaseBlock(core, sequence, i, cancel);
    core.sequences.delete(sequence.id);
    this.#end(true);
  }

  #refuse(sequence: number, from: number, to: number): false {
    this.#core.counters.refusedAllocations++;
    this.#core.log(DecisionOp.REFUSE, sequence, from, to);
    return false;
  }

  #live(sequence: Sequence): void {
    if (this.#core.sequences.get(sequence.id) !== sequence) {
      throw new TierKVError('TKV_UNKNOWN_ID', `sequence ${sequence.id} has ended. Open a new one.`, {
        field: 'sequence',
      });
    }
  }

  #now(nowUs: number): void {
    const core = this.#core;
    if (!(nowUs >= core.nowUs)) {
      const problem = `nowUs went back from ${core.nowUs} to ${nowUs}. Pass a clock that does not.`;
      throw new TierKVError('TKV_INPUT', problem, { field: 'nowUs' });
    }
    core.nowUs = nowUs;
  }

  /** The end of every input: what it left to do is done, and then the listener is told what came of it. */
  #end(freesRoom = false): void {
    const core = this.#core;
    drain(core, freesRoom);
    const { listener, settled } = core;
    if (freesRoom) listener.roomFreed?.();
    if (settled.length > 0) {
      for (const sequence of settled.splice(0)) if (sequence.pending === 0) listener.settled?.(sequence);
    }
    if (core.outbox.size > 0) listener.jobsIssued?.();
  }
}

function isVacant(sequence: Sequence, i: number): boolean {
  if (i >= sequence.length) return true;
  const state = sequence.state[i];
  return state === Entry.NONE || state === Entry.FAILED;
}

function wrongState(block: number, problem: string): TierKVError {
  return new TierKVError('TKV_STATE', `block ${block} ${problem}`, { field: 'block' });
}
