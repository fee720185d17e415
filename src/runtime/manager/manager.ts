/**
 * The manager: it decides which block lies where, what moves and who may read, and moves nothing itself.
 * Calls go in, each with `nowUs`; transfer jobs come out through `nextJob`; a driver executes them and
 * reports each end through `complete`. Every call returns at once. The same calls in the same order give the
 * same decisions.
 *
 * A request's path: open -> load (what lower tiers hold), allocate (the rest) -> write -> seal -> release
 */

import { requireInteger, TierKVError } from '../errors.ts';
import type { Retention } from '../eviction/evictionPolicy.ts';
import { DecisionOp, type DecisionSink, InputOp } from '../log/decisionSink.ts';
import type { StateVisitor } from '../snapshot.ts';
import { type JobId, JobPriority, type JobRoute, JobState, type Transfer } from '../tables/jobTable.ts';
import { ReplicaState } from '../tables/replicaTable.ts';
import { Outcome, TOP } from '../tier/tier.ts';
import {
  canBeCopied,
  cancelSpeculative,
  copyBlock,
  fail,
  heldAlone,
  joinSpeculative,
  lackingBytes,
  loadBlock,
  type MoveAnswer,
  matchBlock,
  moveContent,
  openBlock,
  prefetchContent,
  sealBlock,
  speculativeBytes,
} from './blocks.ts';
import { type ManagerConfig, type ResolvedConfig, resolveConfig } from './config.ts';
import { Core, type ManagerListener } from './core.ts';
import { drain } from './drain.ts';
import { ManagerInspect } from './inspect.ts';
import { checkIntegrity } from './integrity.ts';
import {
  bytesOfLoneLoad,
  detach,
  finish,
  foundDamaged,
  loadEnded,
  releaseBlock,
  tellOverdue,
} from './jobs.ts';
import {
  type BlockPlace,
  describeRoute,
  describeTransfer,
  lookup,
  type Match,
  matchLength,
  matchLengths,
  notWords,
  placeOf,
  requireKeys,
} from './lookup.ts';
import {
  type AdoptedBlock,
  adopt,
  adoptFound,
  adoptionWords,
  loseTier,
  type SharedBlock,
  type TierLoss,
} from './loss.ts';
import { type ManagerObserver, observersAsOne } from './observer.ts';
import type { Openings } from './openings.ts';
import {
  evict,
  holdersIn,
  keepBlockIn,
  requireQuotaFits,
  type SaveAnswer,
  saveContent,
  sendDown,
  setQuota,
} from './residency.ts';
import {
  Entry,
  LoadedBlock,
  OpenBlock,
  type ReadableBlock,
  requireOwn,
  SealingBlock,
  Sequence,
  type SequenceId,
} from './sequence.ts';
import { visitCore } from './state.ts';

interface Eviction {
  readonly evicted: number;
  /** Sequences that hold blocks of the tier, when fewer were evicted than asked for. */
  readonly blockers: readonly SequenceId[];
}

/** Blocks of a sequence, a bound that no memory comes near: loops over blocks end. */
const BLOCKS_MAX = 2 ** 24;

/** Blocks [from, to) of a sequence; none where `to` is before `from`. @throws TKV_CONFIG naming what must be a block's number */
function requireSpan(from: number, to: number, first = 'from', last = 'to'): void {
  if (
    Number.isInteger(from) &&
    Number.isInteger(to) &&
    from >= 0 &&
    to >= 0 &&
    to <= BLOCKS_MAX &&
    from <= BLOCKS_MAX
  )
    return;
  requireInteger(first, from, 0, BLOCKS_MAX);
  requireInteger(last, to, 0, BLOCKS_MAX);
}

interface TableWish {
  readonly matchLimit: number;
  readonly owner: number;
  /** Blocks of the size class that have to fit HBM; 0 opens whether they fit or not. */
  readonly units: number;
  readonly sizeClass: number;
  /** Blocks that the table is made for. */
  readonly room: number;
}

/**
 * Decides where each block of KV lies, which blocks leave a tier and what is moved. It moves no bytes and reads no
 * clock.
 */
export class KVManager {
  readonly config: ResolvedConfig;
  /** Looks at what the manager holds, where that lies and how full the tiers are. */
  readonly inspect: ManagerInspect;
  readonly #core: Core;
  /** Contents of the leading blocks that the last match found. */
  #found: Int32Array = new Int32Array(64);
  readonly #observers: ManagerObserver[] = [];

  /** @throws TKV_CONFIG with the field at fault */
  constructor(config: ManagerConfig, sink: DecisionSink | null = null) {
    this.config = resolveConfig(config);
    this.#core = new Core(this.config, sink, config.tableMemory);
    this.inspect = new ManagerInspect(this.#core);
  }

  // Lookups by key. They change and count nothing.

  /**
   * Finds what a request with these keys would find. Changes nothing, counts nothing. `keys` holds four words a block.
   */
  lookup(keys: Uint32Array, count: number): Match {
    requireKeys(keys, count);
    return lookup(this.#core, keys, count);
  }

  /** Leading blocks of the chain that are ready or on their way: the fast form of `lookup`. */
  matchLength(keys: Uint32Array, count: number): number {
    requireKeys(keys, count);
    return matchLength(this.#core, keys, count);
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
    requests: number = counts?.length,
  ): void {
    if (!(firsts?.length >= requests && counts?.length >= requests && out?.length >= requests)) {
      const [field, value] = Object.entries({ counts, firsts, out }).find(
        ([, words]) => !(words?.length >= requests),
      ) as [string, unknown];
      throw notWords(field, value, 'a word for each request');
    }
    matchLengths(this.#core, keys, firsts, counts, out, requests);
  }

  /**
   * Content numbers of the leading blocks that are ready or on their way. A number is reused once its content
   * is gone.
   */
  blockIds(keys: Uint32Array, count: number): number[] {
    return Array.from(this.#found.subarray(0, this.#match(keys, count)));
  }

  /**
   * Finds the leading blocks that are ready or on their way. @returns how many; `found` has their contents
   */
  #match(keys: Uint32Array, count: number): number {
    const matched = this.matchLength(keys, count);
    if (matched > this.#found.length) this.#found = new Int32Array(matched * 2);
    for (let i = 0; i < matched; i++) {
      this.#found[i] = this.#core.contents.index.find(keys, i * 4);
      // Only keys that are not chained, though the configuration says so, have gaps that the search jumps.
      if (this.#found[i] === -1) return i;
    }
    return matched;
  }

  // Room in HBM: whether a request would fit. These calls change and count nothing.

  /** Whether `count` more units of a size class would fit HBM beside what cannot be evicted. */
  canAllocate(count: number, sizeClass = 0, owner = 0): boolean {
    return this.hasRoomFor(count * this.#core.unitBytes(sizeClass), owner);
  }

  /**
   * Whether `bytes` more of the owner would fit HBM beside what cannot be evicted for it. Speculative loads
   * give way.
   */
  hasRoomFor(bytes: number, owner = 0): boolean {
    const lacking = lackingBytes(this.#core, bytes, owner);
    return lacking === 0 || lacking <= speculativeBytes(this.#core, owner);
  }

  /**
   * Whether a sequence of `units` units, the first `matched` of which are found under `keys`, would fit HBM
   * once those are pinned: the check before `open`, `load` and `allocate` for callers that want all or
   * nothing.
   * @param inPlaceOf a sequence that gives its blocks up for it
   */
  canOpen(
    keys: Uint32Array,
    matched: number,
    units: number,
    sizeClass = 0,
    owner = 0,
    inPlaceOf?: Sequence,
  ): boolean {
    const core = this.#core;
    const found = this.#match(keys, matched);
    const given = inPlaceOf === undefined ? undefined : heldAlone(core, inPlaceOf);
    let bytes = (units - this.#heldAlready(found, given)) * core.unitBytes(sizeClass);
    for (const replica of given ?? []) bytes -= core.unitBytes(core.sizeClassOf(replica, TOP));
    return this.hasRoomFor(bytes, owner);
  }

  /** Bytes of HBM that the sequence of `canOpen` would take beside what is held there already. */
  bytesToOpen(keys: Uint32Array, matched: number, units: number, sizeClass = 0): number {
    const found = this.#match(keys, matched);
    return (units - this.#heldAlready(found)) * this.#core.unitBytes(sizeClass);
  }

  /**
   * Counts the blocks just matched that are in HBM and that sequences hold anyway.
   * @param given up by the one that holds them
   */
  #heldAlready(matched: number, given?: ReadonlySet<number>): number {
    const core = this.#core;
    let held = 0;
    for (let i = 0; i < matched; i++) {
      const ready = core.readyIn(this.#found[i], TOP);
      if (ready !== -1 && core.replicas.refs[ready] > 0 && given?.has(ready) !== true) held++;
    }
    return held;
  }

  // Figures of the tiers, the owners and the links.

  // Blocks of a sequence: what it may read or write now.

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
    return new OpenBlock(slot, generation, sizeClass);
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

  #placeOf(replica: number): { slot: number; generation: number; sizeClass: number } {
    const core = this.#core;
    return {
      slot: core.replicas.slotOf(replica, TOP),
      generation: core.generationOf(replica),
      sizeClass: core.sizeClassOf(replica, TOP),
    };
  }

  /**
   * @throws TKV_INPUT unless this manager opened the table: the numbers of another manager mean other blocks
   */
  requireOwn(sequence: Sequence): void {
    requireOwn(sequence, this.#core);
  }

  // A block table is filled: opened with what is found, the rest loaded, allocated, copied or computed, and
  // sealed once written. From here on to the end of the transfer jobs, each call is an input of the log.

  /**
   * Begins a sequence: matches its leading blocks and pins every one of them, wherever it lies, before
   * anything else may take a slot. Counts hits and misses over `count` blocks. At most `matchLimit` blocks
   * are matched, so that a caller can leave the block of a prompt's last token to be computed again.
   * @param owner whose room its blocks take, below `config.owners`
   * @param room blocks that it is expected to have in the end: the table is made that long at once
   */
  open(
    keys: Uint32Array,
    count: number,
    nowUs: number,
    matchLimit: number = count,
    owner = 0,
    room = 0,
  ): Sequence {
    return this.#open(keys, count, nowUs, { matchLimit, owner, units: 0, sizeClass: 0, room }) as Sequence;
  }

  /**
   * Like `open`, if a table of `units` units of the size class would then fit HBM beside what cannot be evicted.
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
    return this.#open(keys, count, nowUs, { matchLimit, owner, units, sizeClass, room: units });
  }

  /**
   * Like `openIfFits`, and takes the room in the same call: loads of what lower tiers hold begin, and the blocks behind
   * the matched ones are opened up to `units`. Where the loads find no room after all, the table is as `openIfFits`
   * gives it, and `load` and `allocate` try again.
   * @returns null, with nothing changed, when the table would not fit
   */
  admit(
    keys: Uint32Array,
    count: number,
    nowUs: number,
    matchLimit: number,
    units: number,
    sizeClass = 0,
    owner = 0,
  ): Sequence | null {
    requireInteger('sizeClass', sizeClass, 0, this.config.unitBytes.length - 1);
    const wish = { matchLimit, owner, units, sizeClass, room: units };
    const sequence = this.#open(keys, count, nowUs, wish, InputOp.ADMIT);
    if (sequence === null) return null;
    this.#core.observer?.asked?.(InputOp.ADMIT, sequence.id); // what follows is done for it
    if (this.#load(sequence, 0, sequence.length, false)) this.#allocate(sequence, 0, units, sizeClass);
    return sequence;
  }

  #open(
    keys: Uint32Array,
    count: number,
    nowUs: number,
    { matchLimit, owner, units, sizeClass, room }: TableWish,
    op: typeof InputOp.OPEN | typeof InputOp.ADMIT = InputOp.OPEN,
  ): Sequence | null {
    const core = this.#core;
    requireKeys(keys, count);
    requireInteger('owner', owner, 0, this.config.owners - 1);
    if (!(typeof matchLimit === 'number' && matchLimit >= 0)) requireInteger('matchLimit', matchLimit, 0);
    requireSpan(units, room, 'units', 'room');
    this.#now(nowUs, op);
    core.sink?.input(op, nowUs, [count, matchLimit, owner, units, sizeClass], keys.subarray(0, count * 4));
    const matched = this.#match(keys, Math.min(count, matchLimit));
    if (units > 0 && !this.canAllocate(units - this.#heldAlready(matched), sizeClass, owner)) {
      this.#refuse(0, 0, units);
      return null;
    }
    const visit = core.visitOf(count, matched);
    const id = ++core.sequencesOpened as SequenceId;
    const sequence = new Sequence(core, id, visit, owner, core.spares.take(Math.max(count, room)));
    core.sequences.set(sequence.id, sequence);
    sequence.extendTo(matched);
    core.observer?.opened?.(id, owner, keys, count, matched);
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

  /**
   * Starts loading the matched blocks of [from, to) that lie in lower tiers.
   * @returns false, with nothing changed, when they do not fit HBM beside what is held there
   */
  load(sequence: Sequence, nowUs: number, from = 0, to: number = sequence.matched): boolean {
    const core = this.#core;
    this.#live(sequence);
    requireSpan(from, to);
    this.#now(nowUs, InputOp.LOAD, sequence.id);
    core.sink?.input(InputOp.LOAD, nowUs, [sequence.id, from, to]);
    return this.#load(sequence, from, to, false);
  }

  /** Like `load` of [from, to), the last block first: the caller computes the first ones meanwhile. */
  loadFromBack(sequence: Sequence, from: number, to: number, nowUs: number): boolean {
    const core = this.#core;
    this.#live(sequence);
    requireSpan(from, to);
    this.#now(nowUs, InputOp.LOAD_BACK, sequence.id);
    core.sink?.input(InputOp.LOAD_BACK, nowUs, [sequence.id, from, to]);
    return this.#load(sequence, from, to, true);
  }

  #load(sequence: Sequence, from: number, to: number, lastFirst: boolean): boolean {
    const core = this.#core;
    let bytes = 0;
    for (let i = from; i < to; i++) {
      if (sequence.state[i] === Entry.MATCHED)
        bytes += core.unitBytes(core.contents.sizeClass[sequence.content[i]]);
    }
    if (!this.hasRoomFor(bytes, sequence.owner)) return this.#refuse(sequence.id, from, to);
    cancelSpeculative(core, bytes - joinSpeculative(core, sequence, from, to), sequence.owner);
    for (let n = from; n < to; n++) {
      const i = lastFirst ? to - 1 - (n - from) : n;
      if (sequence.state[i] === Entry.MATCHED && !loadBlock(core, sequence, i)) {
        fail(core, sequence, i, Outcome.REFUSED);
      }
    }
    this.#end();
    return true;
  }

  /**
   * Opens private blocks for [from, to), to be computed instead of loaded: their bytes are matched below HBM,
   * on their way, or failed to come. Loads of them without another waiter are cancelled. The blocks are OPEN
   * at once, or WAITING until a slot has drained.
   * @returns false, with nothing changed, when they do not fit HBM beside what is held there
   * @throws TKV_STATE for a block that is in HBM already, or about to be
   */
  recompute(sequence: Sequence, from: number, to: number, nowUs: number, sizeClass = 0): boolean {
    const core = this.#core;
    this.#live(sequence);
    requireSpan(from, to);
    requireInteger('to', to, from, sequence.length);
    requireInteger('sizeClass', sizeClass, 0, this.config.unitBytes.length - 1);
    for (let i = from; i < to; i++) {
      const state = sequence.state[i];
      const isAway = isVacant(sequence, i) || state === Entry.MATCHED || state === Entry.LOADING;
      if (!isAway) throw wrongState(i, 'is in HBM or has its slot. Compute what is not.');
    }
    this.#now(nowUs, InputOp.RECOMPUTE, sequence.id);
    core.sink?.input(InputOp.RECOMPUTE, nowUs, [sequence.id, from, to, sizeClass]);
    let bytes = (to - from) * core.unitBytes(sizeClass);
    for (let i = from; i < to; i++) bytes -= bytesOfLoneLoad(core, sequence, i);
    if (!this.hasRoomFor(bytes, sequence.owner)) return this.#refuse(sequence.id, from, to);
    cancelSpeculative(core, bytes, sequence.owner);
    for (let i = from; i < to; i++) {
      releaseBlock(core, sequence, i, true);
      openBlock(core, sequence, i, sizeClass);
    }
    core.counters.recomputed += to - from;
    core.observer?.recomputed?.(sequence.id, to - from, from);
    this.#end(true);
    return true;
  }

  /**
   * Opens private blocks for [from, to) where the table has none, and in place of failed ones. They are OPEN
   * at once, or WAITING until a slot has drained.
   * @returns false, with nothing changed, when they do not fit HBM beside what is held there
   */
  allocate(sequence: Sequence, from: number, to: number, nowUs: number, sizeClass = 0): boolean {
    const core = this.#core;
    this.#live(sequence);
    requireSpan(from, to);
    requireInteger('sizeClass', sizeClass, 0, this.config.unitBytes.length - 1);
    this.#now(nowUs, InputOp.ALLOCATE, sequence.id);
    core.sink?.input(InputOp.ALLOCATE, nowUs, [sequence.id, from, to, sizeClass]);
    return this.#allocate(sequence, from, to, sizeClass);
  }

  #allocate(sequence: Sequence, from: number, to: number, sizeClass: number): boolean {
    const core = this.#core;
    let units = 0;
    for (let i = from; i < to; i++) if (isVacant(sequence, i)) units++;
    const bytes = units * core.unitBytes(sizeClass);
    if (!this.hasRoomFor(bytes, sequence.owner)) return this.#refuse(sequence.id, from, to);
    cancelSpeculative(core, bytes, sequence.owner);
    sequence.extendTo(to);
    for (let i = from; i < to; i++) if (isVacant(sequence, i)) openBlock(core, sequence, i, sizeClass);
    this.#end();
    return true;
  }

  /**
   * Block `into` of `to`, vacant until now, becomes a private copy of block `at` of `from`: WAITING, then
   * OPEN once its bytes are in place. For forks; where both name the same block, it is replaced by a private
   * copy of itself, for rollbacks into a sealed block. Work that the device was given before is in the copy.
   * @param tokens from the block's front that are the new owner's too, and need not be written again
   * @returns false, with nothing changed, when it does not fit HBM beside what is held there
   * @throws TKV_STATE when the source is not in HBM or the target is not vacant
   */
  copy(from: Sequence, at: number, to: Sequence, into: number, nowUs: number, tokens = 0): boolean {
    const core = this.#core;
    this.#live(from);
    this.#live(to);
    if (!canBeCopied(from, at)) throw wrongState(at, 'is not in HBM. Copy a block that is loaded or open.');
    const unshares = from === to && at === into;
    if (!unshares && (into > to.length || !isVacant(to, into))) {
      throw wrongState(into, 'is not vacant. Copy into the first free block of the sequence.');
    }
    this.#now(nowUs, InputOp.COPY, to.id);
    core.sink?.input(InputOp.COPY, nowUs, [from.id, at, to.id, into]);
    const sizeClass = core.sizeClassOf(from.replica[at], TOP);
    if (!this.canAllocate(1, sizeClass, to.owner)) return this.#refuse(to.id, into, into + 1);
    cancelSpeculative(core, core.unitBytes(sizeClass), to.owner);
    to.extendTo(into + 1);
    if (!copyBlock(core, from, at, to, into, tokens)) fail(core, to, into, Outcome.REFUSED);
    this.#end();
    return true;
  }

  /**
   * The open blocks [from, to) hold their last token: `keys` has their keys from position `at` (in words).
   * The driver takes their digests after a device fence, then they are published.
   * @param tokens tokens of each block
   * @throws TKV_STATE for a block that is not open, or was not written; TKV_DEVICE for one that an error may have hit.
   * Nothing is sealed then
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
    requireSpan(from, to);
    requireInteger('at', at, 0);
    requireKeys(keys, Math.max(0, to - from), at);
    requireInteger('tokens', tokens, 0, BLOCKS_MAX);
    for (let i = from; i < to; i++) {
      if (sequence.state[i] !== Entry.OPEN) {
        throw wrongState(i, 'is not open. Seal a block once, after it was allocated.');
      }
    }
    core.openings.requireWritten(sequence, from, to, tokens);
    this.#now(nowUs, InputOp.SEAL, sequence.id);
    core.sink?.input(
      InputOp.SEAL,
      nowUs,
      [sequence.id, from, to, tokens],
      keys.subarray(at, at + (to - from) * 4),
    );
    if (from < to) core.noteTokens(tokens);
    for (let i = from; i < to; i++) sealBlock(core, sequence, i, keys, at + (i - from) * 4, tokens);
    this.#end();
  }

  // A sequence keeps its blocks, gives them back, or ends.

  /**
   * Holds the sequence's blocks [from, to) in the tier at `position`, where that has them ready: up, they can
   * be read in HBM; down, their copies above without another holder give up their room, and `load` brings
   * them back. Blocks that are written, on their way or not there yet stay as they are.
   * @returns blocks of the range that are held there now
   */
  keepIn(sequence: Sequence, from: number, to: number, position: number, nowUs: number): number {
    const core = this.#core;
    this.#live(sequence);
    requireInteger('position', position, 0, core.tiers - 1);
    this.#now(nowUs, InputOp.KEEP, sequence.id);
    core.sink?.input(InputOp.KEEP, nowUs, [sequence.id, from, to, position]);
    let kept = 0;
    for (let i = from; i < Math.min(to, sequence.length); i++) {
      if (keepBlockIn(core, sequence, i, position)) kept++;
    }
    this.#end(true);
    return kept;
  }

  /**
   * How the caller would like the sequence's blocks to be kept after their release: the blocks that it has
   * and the blocks that it seals from now on. A hint to the eviction policy.
   */
  retain(sequence: Sequence, retention: Retention, nowUs: number): void {
    const core = this.#core;
    this.#live(sequence);
    requireInteger('retention.priority', retention.priority, -100, 100);
    requireInteger('retention.keepUntilUs', retention.keepUntilUs, 0);
    if (retention.keepUntilUs !== 0 && retention.keepUntilUs < Math.max(core.nowUs, nowUs)) {
      const problem = `retention.keepUntilUs is ${retention.keepUntilUs}, and it is ${nowUs} already`;
      const remedy = 'Name a time to come, or 0 for none.';
      throw new TierKVError('TKV_INPUT', `${problem}. ${remedy}`, { field: 'retention.keepUntilUs' });
    }
    this.#now(nowUs, InputOp.RETAIN, sequence.id);
    core.sink?.input(InputOp.RETAIN, nowUs, [sequence.id, retention.priority, retention.keepUntilUs]);
    sequence.retention = { ...retention };
    for (let i = 0; i < sequence.length; i++) {
      if (sequence.content[i] !== -1) core.policy.retain?.(sequence.content[i], retention);
    }
  }

  /** Releases blocks [from, to), the last first, so that the tail of a prefix is evicted before its head. */
  releaseRange(sequence: Sequence, from: number, to: number, nowUs: number): void {
    const core = this.#core;
    this.#live(sequence);
    this.#now(nowUs, InputOp.RELEASE, sequence.id);
    core.sink?.input(InputOp.RELEASE, nowUs, [sequence.id, from, to]);
    for (let i = Math.min(to, sequence.length) - 1; i >= from; i--) releaseBlock(core, sequence, i, false);
    this.#end(true);
  }

  /**
   * Like `releaseRange` up to the table's end, and the table is then `length` blocks long: for tokens that are taken
   * back. Loads without another waiter are cancelled.
   */
  truncate(sequence: Sequence, length: number, nowUs: number): void {
    const core = this.#core;
    this.#live(sequence);
    requireInteger('length', length, 0, sequence.length);
    this.#now(nowUs, InputOp.TRUNCATE, sequence.id);
    core.sink?.input(InputOp.TRUNCATE, nowUs, [sequence.id, length]);
    for (let i = sequence.length - 1; i >= length; i--) releaseBlock(core, sequence, i, true);
    sequence.shortenTo(length);
    this.#end(true);
  }

  /** Ends the sequence. What it computed or loaded stays cached; loads in flight go on. */
  release(sequence: Sequence, nowUs: number): void {
    this.#live(sequence);
    this.#now(nowUs, InputOp.RELEASE, sequence.id);
    this.#core.sink?.input(InputOp.RELEASE, nowUs, [sequence.id, 0, -1]);
    this.#close(sequence, false);
  }

  /** Ends the sequence and cancels its loads that have no other waiter. */
  cancel(sequence: Sequence, nowUs: number): void {
    this.#live(sequence);
    this.#now(nowUs, InputOp.CANCEL, sequence.id);
    this.#core.sink?.input(InputOp.CANCEL, nowUs, [sequence.id]);
    this.#close(sequence, true);
  }

  /** Ends the sequence because others need its room: as `release`, and counted as a preemption. */
  preempt(sequence: Sequence, nowUs: number): void {
    this.#live(sequence);
    this.#now(nowUs, InputOp.PREEMPT, sequence.id);
    this.#core.sink?.input(InputOp.PREEMPT, nowUs, [sequence.id]);
    this.#core.counters.preemptions++;
    this.#close(sequence, false);
  }

  /**
   * Like `preempt`, and its room comes free at once: its blocks without another holder are sent to the tier below,
   * where one takes them. Blocks that were not sealed are gone.
   */
  demote(sequence: Sequence, nowUs: number): void {
    const core = this.#core;
    this.#live(sequence);
    this.#now(nowUs, InputOp.DEMOTE, sequence.id);
    core.sink?.input(InputOp.DEMOTE, nowUs, [sequence.id]);
    core.counters.preemptions++;
    const replicas = sequence.replica.slice(0, sequence.length);
    for (let i = sequence.length - 1; i >= 0; i--) releaseBlock(core, sequence, i, false);
    core.closed(sequence);
    sendDown(core, replicas);
    this.#end(true);
  }

  #close(sequence: Sequence, cancel: boolean): void {
    const core = this.#core;
    for (let i = sequence.length - 1; i >= 0; i--) releaseBlock(core, sequence, i, cancel);
    core.closed(sequence);
    this.#end(true);
  }

  // Blocks that no sequence asked for, and quotas of owners.

  /** Loads the leading blocks of the chain speculatively, for no sequence yet. @returns loads started */
  prefetch(
    keys: Uint32Array,
    count: number,
    nowUs: number,
    priority: JobPriority = JobPriority.PREFETCH,
  ): number {
    const core = this.#core;
    requireInteger('priority', priority, JobPriority.DEMAND_LOAD, JobPriority.SCRUB);
    requireKeys(keys, count);
    this.#now(nowUs, InputOp.PREFETCH);
    core.sink?.input(InputOp.PREFETCH, nowUs, [count, priority], keys.subarray(0, count * 4));
    const matched = this.matchLength(keys, count);
    let started = 0;
    for (let i = 0; i < matched && lackingBytes(core, core.unitBytes(0), 0) === 0; i++) {
      const content = core.contents.index.find(keys, i * 4);
      if (content === -1) break; // the room for an earlier block was made at its cost
      if (prefetchContent(core, content, priority)) started++;
    }
    this.#end();
    return started;
  }

  /**
   * Brings one content, whose key is four words, to the tier at `position`, up or down, for no sequence. Up,
   * it is copied. Down, its copies above that no sequence holds give up their room once it has arrived.
   */
  move(key: Uint32Array, position: number, priority: JobPriority, nowUs: number): MoveAnswer {
    const core = this.#core;
    requireInteger('position', position, 0, core.tiers - 1);
    requireInteger('priority', priority, JobPriority.DEMAND_LOAD, JobPriority.SCRUB);
    this.#now(nowUs, InputOp.MOVE);
    core.sink?.input(InputOp.MOVE, nowUs, [position, priority], key.subarray(0, 4));
    const answer = moveContent(core, core.contents.index.find(key, 0), position, priority);
    this.#end();
    return answer;
  }

  /**
   * Copies one content, whose key is four words, to the tier at `position` from wherever it lies above: for no
   * sequence, and no copy gives up its room.
   * @param replaces whether a tier that is full forgets for it, once it has arrived, what its eviction policy names
   */
  save(key: Uint32Array, position: number, replaces: boolean, nowUs: number): SaveAnswer {
    const core = this.#core;
    requireInteger('position', position, 1, core.tiers - 1);
    requireKeys(key, 1);
    this.#now(nowUs, InputOp.SAVE);
    core.sink?.input(InputOp.SAVE, nowUs, [position, replaces ? 1 : 0], key.subarray(0, 4));
    const answer = saveContent(core, core.contents.index.find(key, 0), position, replaces);
    this.#end();
    return answer;
  }

  /**
   * The store of the tier at `position`, below HBM, has found that the place does not hold the bytes that were written there:
   * lookups find the block there no more. @returns whether they did
   */
  damaged(position: number, slot: number, generation: number, nowUs: number): boolean {
    const core = this.#core;
    requireInteger('position', position, 1, core.tiers - 1);
    requireInteger('slot', slot, 0, core.pools[position].shape.slotLimit - 1);
    this.#now(nowUs, InputOp.DAMAGED);
    core.sink?.input(InputOp.DAMAGED, nowUs, [position, slot, generation]);
    const replica = core.replicas.base[position] + slot;
    const isThere = replica < core.replicas.rows && core.generationOf(replica) === generation;
    const isFound = isThere && core.replicas.state[replica] === ReplicaState.READY;
    if (isFound) foundDamaged(core, replica, Outcome.CORRUPT);
    this.#end();
    return isFound;
  }

  /**
   * A lower tier's store holds this block since an earlier run, durable or just verified: lookups find it
   * from now on. Call it before anything else, for the block used longest ago first.
   * @returns false when it stays out: its slot is not free, the tier is full, or it has that content already.
   * The slot's generation counts either way
   */
  adopt(position: number, block: AdoptedBlock, nowUs: number): boolean {
    const core = this.#core;
    requireInteger('position', position, 1, core.tiers - 1);
    const { slot, generation, sizeClass } = block;
    this.#now(nowUs, InputOp.ADOPT);
    core.sink?.input(InputOp.ADOPT, nowUs, [position, slot, generation, sizeClass], adoptionWords(block));
    const adopted = adopt(core, position, block);
    this.#end();
    return adopted;
  }

  /**
   * A lookup has found the block in the store of the tier at `position`, which others write too, or another runtime has
   * sent it, and the caller writes its bytes before anything else happens: it can be matched and loaded from there. A full
   * tier forgets another block for it.
   * @returns its place, or undefined where it stays out: some tier has it or awaits it, or it finds no room
   */
  adoptFound(position: number, block: SharedBlock, nowUs: number): BlockPlace | undefined {
    const core = this.#core;
    requireInteger('position', position, 0, core.tiers - 1);
    this.#now(nowUs, InputOp.FOUND);
    core.sink?.input(InputOp.FOUND, nowUs, [position, block.sizeClass, block.owner], adoptionWords(block));
    const replica = adoptFound(core, position, block);
    const place = replica === -1 ? undefined : placeOf(core, replica);
    this.#end();
    return place;
  }

  /** Evicts up to `count` cached blocks of the tier at `position`, in the order of the eviction policy. */
  evict(position: number, count: number, nowUs: number): Eviction {
    const core = this.#core;
    requireInteger('position', position, 0, core.tiers - 1);
    if (!(typeof count === 'number' && count >= 0)) requireInteger('count', count, 0); // Infinity: all of them
    this.#now(nowUs, InputOp.EVICT);
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
   * Room of the tier at `position` that is the owner's own: while it takes no more there, none of its blocks
   * is evicted for another owner, and what it takes beyond goes first.
   * @param bytes null for no quota
   * @throws TKV_CONFIG when the quotas of the tier would be more than its capacity
   */
  setQuota(owner: number, position: number, bytes: number | null, nowUs: number): void {
    const core = this.#core;
    requireInteger('owner', owner, 0, core.config.owners - 1);
    requireInteger('position', position, 0, core.tiers - 1);
    if (bytes !== null) requireInteger('bytes', bytes, 0);
    requireQuotaFits(core, owner, position, bytes ?? 0);
    this.#now(nowUs, InputOp.QUOTA);
    core.sink?.input(InputOp.QUOTA, nowUs, [owner, position, bytes ?? -1]);
    setQuota(core, owner, position, bytes);
    this.#end(true);
  }

  // Transfer jobs and time: the driver takes jobs and reports their ends.

  /** The next job for the driver, or 0 when none is issued. Includes jobs detached before the driver took them. */
  nextJob(): JobId {
    return this.#core.outbox.shift();
  }

  /** Describes a job to the driver. */
  transfer(job: JobId): Transfer {
    return describeTransfer(this.#core, this.#core.jobs.rowOf(job));
  }

  /** The part of `transfer` that a driver without bytes needs, written into `into`: allocates nothing. */
  route(job: JobId, into: JobRoute): void {
    describeRoute(this.#core, this.#core.jobs.rowOf(job), into);
  }

  /**
   * The driver says how a job ended. `digest*` belong to the end of a SEAL job.
   * @throws TKV_STALE for a job that ended before
   */
  complete(job: JobId, outcome: Outcome, nowUs: number, digestLo = 0, digestHi = 0): void {
    const core = this.#core;
    const row = core.jobs.rowOf(job);
    this.#now(nowUs, InputOp.COMPLETE);
    core.sink?.input(InputOp.COMPLETE, nowUs, [job, outcome, digestLo, digestHi]);
    finish(core, row, outcome, digestLo, digestHi);
    this.#end(true);
  }

  /**
   * Time has passed. Jobs past their deadline are given up: the waiters of one compute its block again, and
   * its slots wait for the driver.
   * @returns jobs given up
   */
  tick(nowUs: number): number {
    const core = this.#core;
    const { jobs } = core;
    this.#now(nowUs, InputOp.TICK);
    core.sink?.input(InputOp.TICK, nowUs, []);
    let givenUp = 0;
    for (let job = core.deadlines.takeDue(nowUs); job !== 0; job = core.deadlines.takeDue(nowUs)) {
      const row = jobs.rowOf(job);
      loadEnded(core, row, false);
      jobs.markOverdue(row);
      tellOverdue(core, row);
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
   * The bytes of the tier at `position` are gone, and another store takes its place, empty. Blocks that
   * sequences held there are MATCHED again where another tier has them (`load` them, also beyond `matched`),
   * and FAILED where none does. Jobs that the driver has still end through `complete`.
   */
  loseTier(position: number, nowUs: number): TierLoss {
    const core = this.#core;
    requireInteger('position', position, 0, core.tiers - 1);
    this.#now(nowUs, InputOp.LOSE);
    core.sink?.input(InputOp.LOSE, nowUs, [position]);
    const loss = loseTier(core, position);
    this.#end(true);
    return loss;
  }

  /**
   * The engine begins or ends to compute: loads that wait for kernels do not count as slow. It changes
   * estimates only, so the log leaves it out.
   */
  computing(isComputing: boolean, nowUs: number): void {
    const core = this.#core;
    this.#now(nowUs, InputOp.TICK);
    core.computeUs = core.computedUs();
    core.computesSinceUs = isComputing ? nowUs : -1;
  }

  // The manager as a whole: its listener, its state between two calls, its audit.

  /** Sets the listener to jobs, settled sequences and room, in place of the one before. */
  listen(listener: ManagerListener): void {
    this.#core.listener = listener;
  }

  /** Tells the observer of every block and job from now on, beside the observers before it. @returns unsubscribe */
  observe(observer: ManagerObserver): () => void {
    this.#observers.push(observer);
    this.#core.observer = observersAsOne(this.#observers);
    return () => {
      const at = this.#observers.indexOf(observer);
      if (at !== -1) this.#observers.splice(at, 1);
      this.#core.observer = observersAsOne(this.#observers);
    };
  }

  /** Record of the open blocks that owners were told to write: the rule by which blocks are sealed. */
  get openings(): Openings {
    return this.#core.openings;
  }

  /** Saves or restores all state between two calls. Listener and log stay as they are. */
  visitState(visitor: StateVisitor): void {
    visitCore(this.#core, visitor);
  }

  checkIntegrity(): void {
    checkIntegrity(this.#core);
  }

  // Steps that every input takes.

  /** @throws TKV_INPUT unless this manager opened the table, TKV_UNKNOWN_ID for one that has ended */
  #live(sequence: Sequence): void {
    this.requireOwn(sequence);
    if (this.#core.sequences.get(sequence.id) !== sequence) {
      throw new TierKVError('TKV_UNKNOWN_ID', `sequence ${sequence.id} has ended. Open a new one.`, {
        field: 'sequence',
      });
    }
  }

  /** @param sequence whose call it is; -1 for calls of no sequence */
  #now(nowUs: number, op: InputOp, sequence = -1): void {
    const core = this.#core;
    if (!(nowUs >= core.nowUs && nowUs < Infinity && typeof nowUs === 'number')) {
      if (typeof nowUs !== 'number' || nowUs === Infinity) requireInteger('nowUs', nowUs, 0);
      const problem = `nowUs went back from ${core.nowUs} to ${nowUs}. Pass a clock that does not.`;
      throw new TierKVError('TKV_INPUT', problem, { field: 'nowUs' });
    }
    core.nowUs = nowUs;
    core.observer?.asked?.(op, sequence);
  }

  /** Ends every input: does the deferred work, then tells the listener what came of it. */
  #end(freesRoom = false): void {
    const core = this.#core;
    drain(core, freesRoom);
    core.openings.wipe();
    const { listener, settled } = core;
    if (freesRoom) listener.roomFreed?.();
    if (listener.settled === undefined) settled.length = 0;
    else if (settled.length > 0) {
      for (const sequence of settled.splice(0)) if (sequence.pending === 0) listener.settled(sequence);
    }
    if (core.moved.length > 0) {
      for (const { key, tier, outcome } of core.moved.splice(0)) listener.moved?.(tier, key, outcome);
    }
    if (core.outbox.size > 0) listener.jobsIssued?.();
  }

  #refuse(sequence: number, from: number, to: number): false {
    this.#core.counters.refusedAllocations++;
    this.#core.log(DecisionOp.REFUSE, sequence, from, to);
    return false;
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
