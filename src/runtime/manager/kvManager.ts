/**
 * The manager: it decides which block lies where, what moves and who may read, and moves nothing itself. Calls go in,
 * each with `nowUs`; transfer jobs come out through `nextJob`; a driver executes them and reports each end through
 * `complete`. Every call returns at once. The same calls in the same order give the same decisions.
 *
 * One request's path:  open -> load (what lower tiers hold) and allocate (the rest) -> write -> seal -> release
 */

import { invariant, requireInteger, TierKVError } from '../errors.ts';
import { DecisionOp, type DecisionSink, InputOp } from '../log/decisionSink.ts';
import type { Tier } from '../tier.ts';
import { type JobId, JobState } from '../transfer/jobTable.ts';
import type { Outcome } from '../transfer/outcome.ts';
import type { Transfer } from '../transfer/transfer.ts';
import { type AdoptedBlock, adopt, adoptionWords } from './adoption.ts';
import { unstick } from './claims.ts';
import { type ManagerConfig, type ResolvedConfig, resolveConfig } from './config.ts';
import { Core, HBM } from './core.ts';
import type { Counters } from './counters.ts';
import { describeTransfer } from './describe.ts';
import { dump, type ManagerDump } from './dump.ts';
import { finish } from './endings.ts';
import { LoadedBlock, OpenBlock } from './handles.ts';
import { checkIntegrity } from './integrity.ts';
import { load as loadBlock, prefetch as prefetchBlock } from './loading.ts';
import { lookup, type Match, matchLength, matchLengths } from './lookup.ts';
import { loseTier, type TierLoss } from './loss.ts';
import { match as matchBlock } from './matching.ts';
import { release as releaseBlock } from './releasing.ts';
import { evict, holdersIn, trimToThreshold } from './residency.ts';
import { Entry, Sequence, type SequenceId } from './sequence.ts';
import { type TierUsage, tierUsage } from './usage.ts';
import { detach } from './withdrawing.ts';
import { open as openBlock, seal as sealBlock } from './writing.ts';

export interface Eviction {
  readonly evicted: number;
  /** Sequences that hold blocks of the tier, when fewer were evicted than asked for. */
  readonly blockers: readonly SequenceId[];
}

export class KVManager {
  readonly config: ResolvedConfig;
  readonly #core: Core;

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

  /** Whether no cached block lacks its prefix, so that lookups need not walk. */
  get prefixesAreWhole(): boolean {
    return this.#core.contents.holes === 0;
  }

  usage(position: number): TierUsage {
    return tierUsage(this.#core, position);
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
   */
  open(keys: Uint32Array, count: number, nowUs: number, matchLimit: number = count): Sequence {
    const core = this.#core;
    invariant(keys.length >= count * 4, 'four key words a block');
    this.#input(InputOp.OPEN, nowUs, count, matchLimit, 0, 0, keys.subarray(0, count * 4));
    const matched = this.matchLength(keys, Math.min(count, matchLimit));
    const sequence = new Sequence(++core.sequencesOpened as SequenceId, matched, count);
    core.sequences.set(sequence.id, sequence);
    sequence.extendTo(matched);
    const before = core.sink === null ? null : Float64Array.from(core.counters.hits);
    for (let i = 0; i < matched; i++) matchBlock(core, sequence, i, core.contents.find(keys, i * 4));
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
    unstick(core);
    return sequence;
  }

  /** Whether `count` more units of a size class would fit HBM beside what cannot be evicted. */
  canAllocate(count: number, sizeClass = 0): boolean {
    const core = this.#core;
    const fixed = core.residentBytes[HBM] - core.cachedBytes[HBM];
    return fixed + count * core.unitBytes(sizeClass) <= core.pools[HBM].shape.capacityBytes;
  }

  /** Content numbers of the leading blocks that are ready or on their way. A number is reused once its content is gone. */
  blockIds(keys: Uint32Array, count: number): number[] {
    const matched = this.matchLength(keys, count);
    return Array.from({ length: matched }, (_, i) => this.#core.contents.find(keys, i * 4));
  }

  /**
   * Whether a sequence of `units` units, the first `matched` of which are found under `keys`, would fit HBM once those
   * are pinned: the check before `open`, `load` and `allocate` for callers that want all or nothing.
   */
  canOpen(keys: Uint32Array, matched: number, units: number): boolean {
    const core = this.#core;
    let heldAlready = 0;
    for (let i = 0; i < matched; i++) {
      const ready = core.readyIn(core.contents.find(keys, i * 4), HBM);
      if (ready !== -1 && core.replicas.refs[ready] > 0) heldAlready++;
    }
    return this.canAllocate(units - heldAlready);
  }

  /**
   * Starts loading the matched blocks of [from, to) that lie in lower tiers.
   * @returns false, with nothing changed, when they do not fit HBM beside what is held there
   */
  load(sequence: Sequence, nowUs: number, from = 0, to: number = sequence.matched): boolean {
    const core = this.#core;
    this.#live(sequence);
    this.#input(InputOp.LOAD, nowUs, sequence.id, from, to, 0);
    let units = 0;
    for (let i = from; i < to; i++) if (sequence.state[i] === Entry.MATCHED) units++;
    if (!this.canAllocate(units)) return this.#refuse(sequence, from, to);
    for (let i = from; i < to; i++) if (sequence.state[i] === Entry.MATCHED) loadBlock(core, sequence, i);
    unstick(core);
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
    this.#input(InputOp.ALLOCATE, nowUs, sequence.id, from, to, sizeClass);
    let units = 0;
    for (let i = from; i < to; i++) if (isVacant(sequence, i)) units++;
    if (!this.canAllocate(units, sizeClass)) return this.#refuse(sequence, from, to);
    sequence.extendTo(to);
    for (let i = from; i < to; i++) if (isVacant(sequence, i)) openBlock(core, sequence, i, sizeClass);
    unstick(core);
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
        throw new TierKVError(
          'TKV_STATE',
          `block ${i} is not open. Seal a block once, after it was allocated.`,
        );
      }
    }
    this.#input(InputOp.SEAL, nowUs, sequence.id, from, to, tokens, keys.subarray(at, at + (to - from) * 4));
    for (let i = from; i < to; i++) sealBlock(core, sequence, i, keys, at + (i - from) * 4, tokens);
    unstick(core);
  }

  /** Lets blocks [from, to) go, the last first, so that the tail of a prefix is evicted before its head. */
  releaseRange(sequence: Sequence, from: number, to: number, nowUs: number): void {
    this.#live(sequence);
    this.#input(InputOp.RELEASE, nowUs, sequence.id, from, to, 0);
    for (let i = Math.min(to, sequence.length) - 1; i >= from; i--)
      releaseBlock(this.#core, sequence, i, false);
    trimToThreshold(this.#core);
    unstick(this.#core);
  }

  /** Ends the sequence. What it computed or loaded stays cached; loads in flight go on. */
  release(sequence: Sequence, nowUs: number): void {
    this.#live(sequence);
    this.#input(InputOp.RELEASE, nowUs, sequence.id, 0, -1, 0);
    this.#close(sequence, false);
  }

  /** Ends the sequence and calls off the loads that nobody else waits for. */
  cancel(sequence: Sequence, nowUs: number): void {
    this.#live(sequence);
    this.#input(InputOp.CANCEL, nowUs, sequence.id, 0, 0, 0);
    this.#close(sequence, true);
  }

  /** Ends the sequence because others need its room: as `release`, and counted. */
  preempt(sequence: Sequence, nowUs: number): void {
    this.#live(sequence);
    this.#input(InputOp.PREEMPT, nowUs, sequence.id, 0, 0, 0);
    this.#close(sequence, false);
    this.#core.counters.preemptions++;
  }

  /** Brings the leading blocks of the chain to HBM for nobody in particular. @returns loads started */
  prefetch(keys: Uint32Array, count: number, nowUs: number): number {
    const core = this.#core;
    this.#input(InputOp.PREFETCH, nowUs, count, 0, 0, 0, keys.subarray(0, count * 4));
    const matched = this.matchLength(keys, count);
    let started = 0;
    for (let i = 0; i < matched && this.canAllocate(1); i++) {
      const content = core.contents.find(keys, i * 4);
      if (content === -1) break; // the room for an earlier block was made at its cost
      if (prefetchBlock(core, content)) started++;
    }
    unstick(core);
    return started;
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
    this.#input(InputOp.ADOPT, nowUs, position, slot, generation, sizeClass, adoptionWords(block));
    return adopt(core, position, block);
  }

  /** Evicts up to `count` cached blocks of the tier at `position`, the least recently used first. */
  evict(position: number, count: number, nowUs: number): Eviction {
    const core = this.#core;
    requireInteger('position', position, 0, core.tiers - 1);
    this.#input(InputOp.EVICT, nowUs, position, count, 0, 0);
    let evicted = 0;
    for (; evicted < count; evicted++) {
      const victim = core.replicas.oldest(position);
      if (victim === -1) break;
      evict(core, victim, position);
    }
    unstick(core);
    return { evicted, blockers: evicted < count ? holdersIn(core, position) : [] };
  }

  /**
   * The driver says how a job ended. `digest*` belong to the end of a SEAL job.
   * @throws TKV_STALE for a job that ended before
   */
  complete(job: JobId, outcome: Outcome, nowUs: number, digestLo = 0, digestHi = 0): void {
    const row = this.#core.jobs.rowOf(job);
    this.#input(InputOp.COMPLETE, nowUs, job, outcome, digestLo, digestHi);
    finish(this.#core, row, outcome, digestLo, digestHi);
    trimToThreshold(this.#core);
    unstick(this.#core);
  }

  /**
   * Detaches jobs whose deadline has passed: whoever waits computes again, the slots wait for the driver.
   * @returns jobs detached
   */
  expire(nowUs: number, outcome: Outcome): number {
    const { jobs } = this.#core;
    this.#input(InputOp.EXPIRE, nowUs, outcome, 0, 0, 0);
    let expired = 0;
    for (let row = 0; row < jobs.capacity; row++) {
      const state = jobs.state[row];
      if (state !== JobState.ISSUED && state !== JobState.DETACHED) continue;
      if (!(jobs.deadlineUs[row] <= nowUs)) continue;
      jobs.markOverdue(row);
      if (state === JobState.DETACHED) continue;
      detach(this.#core, row, outcome);
      expired++;
    }
    unstick(this.#core);
    return expired;
  }

  /**
   * The bytes of the tier at `position` are gone, and another store takes its place, empty. Blocks that sequences held
   * there are MATCHED again where another tier has them (`load` them, also beyond `matched`), and FAILED where none does.
   * Jobs that the driver has still end through `complete`.
   */
  loseTier(position: number, nowUs: number): TierLoss {
    const core = this.#core;
    requireInteger('position', position, 0, core.tiers - 1);
    this.#input(InputOp.LOSE, nowUs, position, 0, 0, 0);
    const loss = loseTier(core, position);
    unstick(core);
    return loss;
  }

  /** Gives an issued job a deadline, in microseconds of the manager's time. */
  setDeadline(job: JobId, deadlineUs: number): void {
    const row = this.#core.jobs.rowOf(job);
    this.#input(InputOp.DEADLINE, this.#core.nowUs, job, deadlineUs, 0, 0);
    this.#core.jobs.deadlineUs[row] = deadlineUs;
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
    return new OpenBlock(slot, generation, sizeClass);
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
    trimToThreshold(this.#core);
    unstick(core);
  }

  #refuse(sequence: Sequence, from: number, to: number): false {
    this.#core.counters.refusedAllocations++;
    this.#core.log(DecisionOp.REFUSE, sequence.id, from, to);
    return false;
  }

  #live(sequence: Sequence): void {
    if (this.#core.sequences.get(sequence.id) !== sequence) {
      throw new TierKVError('TKV_UNKNOWN_ID', `sequence ${sequence.id} has ended. Open a new one.`, {
        field: 'sequence',
      });
    }
  }

  #input(op: InputOp, nowUs: number, a: number, b: number, c: number, d: number, keys?: Uint32Array): void {
    const core = this.#core;
    if (!(nowUs >= core.nowUs)) {
      throw new TierKVError(
        'TKV_INPUT',
        `nowUs went back from ${core.nowUs} to ${nowUs}. Pass a clock that does not.`,
        {
          field: 'nowUs',
        },
      );
    }
    core.nowUs = nowUs;
    core.sink?.input(op, nowUs, a, b, c, d, keys);
  }
}

function isVacant(sequence: Sequence, i: number): boolean {
  if (i >= sequence.length) return true;
  const state = sequence.state[i];
  return state === Entry.NONE || state === Entry.FAILED;
}
