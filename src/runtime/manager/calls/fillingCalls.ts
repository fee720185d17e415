/**
 * The calls that fill a sequence's block table: it is opened with what is found, the rest is loaded,
 * allocated, copied or computed again, and what was written is sealed. Each is an input of the log.
 */

import { invariant, requireInteger, TierKVError } from '../../errors.ts';
import { DecisionOp, InputOp } from '../../log/decisionSink.ts';
import { Outcome } from '../../transfer/outcome.ts';
import { HBM } from '../core.ts';
import { callOffUnasked } from '../jobs/unasked.ts';
import { Entry, Sequence, type SequenceId } from '../sequences/blockTable/sequence.ts';
import { canBeCopied, copyBlock } from '../sequences/copying.ts';
import { joinUnasked, load as loadBlock } from '../sequences/loading.ts';
import { match as matchBlock } from '../sequences/matching.ts';
import { bytesOfLoneLoad, release as releaseBlock } from '../sequences/releasing.ts';
import { fail } from '../sequences/settling.ts';
import { open as openBlock, seal as sealBlock } from '../sequences/writing.ts';
import { ManagerCalls } from './managerCalls.ts';

export abstract class FillingCalls extends ManagerCalls {
  /**
   * Begins a sequence: matches its leading blocks and pins every one of them, wherever it lies, before
   * anything else may take a slot. Counts hits and misses over `count` blocks. At most `matchLimit` blocks
   * are matched, so that a caller can leave the block of a prompt's last token to be computed again.
   * @param owner whose room its blocks take, below `config.owners`
   * @param room blocks that it will come to have, as far as the caller knows; a hint that saves copies
   */
  open(
    keys: Uint32Array,
    count: number,
    nowUs: number,
    matchLimit: number = count,
    owner = 0,
    room = 0,
  ): Sequence {
    return this.#open(keys, count, nowUs, matchLimit, owner, 0, 0, room) as Sequence;
  }

  /**
   * As `open`, if a table of `units` units of the size class would then fit HBM beside what cannot be
   * evicted.
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
    return this.#open(keys, count, nowUs, matchLimit, owner, units, sizeClass, units);
  }

  #open(
    keys: Uint32Array,
    count: number,
    nowUs: number,
    matchLimit: number,
    owner: number,
    units: number,
    sizeClass: number,
    room: number,
  ): Sequence | null {
    const core = this.core;
    invariant(keys.length >= count * 4, 'four key words a block');
    requireInteger('owner', owner, 0, this.config.owners - 1);
    this.now(nowUs);
    core.sink?.input(
      InputOp.OPEN,
      nowUs,
      [count, matchLimit, owner, units, sizeClass],
      keys.subarray(0, count * 4),
    );
    const matched = this.match(keys, Math.min(count, matchLimit));
    if (units > 0 && !this.canAllocate(units - this.heldAlready(matched), sizeClass, owner)) {
      this.refuse(0, 0, units);
      return null;
    }
    const visit = core.visitOf(count, matched);
    const id = ++core.sequencesOpened as SequenceId;
    const sequence = new Sequence(core, id, visit, owner, core.spares.take(Math.max(count, room)));
    core.sequences.set(sequence.id, sequence);
    sequence.extendTo(matched);
    const before = core.sink === null ? null : Float64Array.from(core.counters.hits);
    for (let i = 0; i < matched; i++) matchBlock(core, sequence, i, this.found[i]);
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
    this.end();
    return sequence;
  }

  /**
   * Starts loading the matched blocks of [from, to) that lie in lower tiers.
   * @returns false, with nothing changed, when they do not fit HBM beside what is held there
   */
  load(sequence: Sequence, nowUs: number, from = 0, to: number = sequence.matched): boolean {
    const core = this.core;
    this.live(sequence);
    this.now(nowUs);
    core.sink?.input(InputOp.LOAD, nowUs, [sequence.id, from, to]);
    return this.#load(sequence, from, to, false);
  }

  /** As `load` of [from, to), the last block first: for who computes the first ones meanwhile. */
  loadFromBack(sequence: Sequence, from: number, to: number, nowUs: number): boolean {
    const core = this.core;
    this.live(sequence);
    this.now(nowUs);
    core.sink?.input(InputOp.LOAD_BACK, nowUs, [sequence.id, from, to]);
    return this.#load(sequence, from, to, true);
  }

  #load(sequence: Sequence, from: number, to: number, lastFirst: boolean): boolean {
    const core = this.core;
    let bytes = 0;
    for (let i = from; i < to; i++) {
      if (sequence.state[i] === Entry.MATCHED)
        bytes += core.unitBytes(core.contents.sizeClass[sequence.content[i]]);
    }
    if (!this.hasRoomFor(bytes, sequence.owner)) return this.refuse(sequence.id, from, to);
    callOffUnasked(core, bytes - joinUnasked(core, sequence, from, to), sequence.owner);
    for (let n = from; n < to; n++) {
      const i = lastFirst ? to - 1 - (n - from) : n;
      if (sequence.state[i] === Entry.MATCHED && !loadBlock(core, sequence, i)) {
        fail(core, sequence, i, Outcome.REFUSED);
      }
    }
    this.end();
    return true;
  }

  /**
   * Opens private blocks for [from, to), whose bytes are matched below, on their way, or failed to come: they
   * are computed instead. Loads of them that nobody else waits for are called off. They are OPEN at once, or
   * WAITING until a slot has drained.
   * @returns false, with nothing changed, when they do not fit HBM beside what is held there
   * @throws TKV_STATE for a block that is in HBM already, or about to be
   */
  recompute(sequence: Sequence, from: number, to: number, nowUs: number, sizeClass = 0): boolean {
    const core = this.core;
    this.live(sequence);
    requireInteger('to', to, from, sequence.length);
    requireInteger('sizeClass', sizeClass, 0, this.config.unitBytes.length - 1);
    for (let i = from; i < to; i++) {
      const state = sequence.state[i];
      const isAway = isVacant(sequence, i) || state === Entry.MATCHED || state === Entry.LOADING;
      if (!isAway) throw wrongState(i, 'is in HBM or has its slot. Compute what is not.');
    }
    this.now(nowUs);
    core.sink?.input(InputOp.RECOMPUTE, nowUs, [sequence.id, from, to, sizeClass]);
    let bytes = (to - from) * core.unitBytes(sizeClass);
    for (let i = from; i < to; i++) bytes -= bytesOfLoneLoad(core, sequence, i);
    if (!this.hasRoomFor(bytes, sequence.owner)) return this.refuse(sequence.id, from, to);
    callOffUnasked(core, bytes, sequence.owner);
    for (let i = from; i < to; i++) {
      releaseBlock(core, sequence, i, true);
      openBlock(core, sequence, i, sizeClass);
    }
    core.counters.recomputed += to - from;
    this.end(true);
    return true;
  }

  /**
   * Opens private blocks for [from, to) where the table has none, and in place of failed ones. They are OPEN
   * at once, or WAITING until a slot has drained.
   * @returns false, with nothing changed, when they do not fit HBM beside what is held there
   */
  allocate(sequence: Sequence, from: number, to: number, nowUs: number, sizeClass = 0): boolean {
    const core = this.core;
    this.live(sequence);
    requireInteger('sizeClass', sizeClass, 0, this.config.unitBytes.length - 1);
    this.now(nowUs);
    core.sink?.input(InputOp.ALLOCATE, nowUs, [sequence.id, from, to, sizeClass]);
    let units = 0;
    for (let i = from; i < to; i++) if (isVacant(sequence, i)) units++;
    const bytes = units * core.unitBytes(sizeClass);
    if (!this.hasRoomFor(bytes, sequence.owner)) return this.refuse(sequence.id, from, to);
    callOffUnasked(core, bytes, sequence.owner);
    sequence.extendTo(to);
    for (let i = from; i < to; i++) if (isVacant(sequence, i)) openBlock(core, sequence, i, sizeClass);
    this.end();
    return true;
  }

  /**
   * Block `into` of `to`, vacant until now, becomes a private copy of block `at` of `from`: WAITING, then
   * OPEN once its bytes are in place. For forks; where both name the same block, it is replaced by a private
   * copy of itself, for rollbacks into a sealed block. Work that the device was given before is in the copy.
   * @returns false, with nothing changed, when it does not fit HBM beside what is held there
   * @throws TKV_STATE when the source is not in HBM or the target is not vacant
   */
  copy(from: Sequence, at: number, to: Sequence, into: number, nowUs: number): boolean {
    const core = this.core;
    this.live(from);
    this.live(to);
    if (!canBeCopied(from, at)) throw wrongState(at, 'is not in HBM. Copy a block that is loaded or open.');
    const unshares = from === to && at === into;
    if (!unshares && (into > to.length || !isVacant(to, into))) {
      throw wrongState(into, 'is not vacant. Copy into the first free block of the sequence.');
    }
    this.now(nowUs);
    core.sink?.input(InputOp.COPY, nowUs, [from.id, at, to.id, into]);
    const sizeClass = core.sizeClassOf(from.replica[at], HBM);
    if (!this.canAllocate(1, sizeClass, to.owner)) return this.refuse(to.id, into, into + 1);
    callOffUnasked(core, core.unitBytes(sizeClass), to.owner);
    to.extendTo(into + 1);
    if (!copyBlock(core, from, at, to, into)) fail(core, to, into, Outcome.REFUSED);
    this.end();
    return true;
  }

  /**
   * The open blocks [from, to) hold their last token: `keys` has their keys from position `at` (in words).
   * The driver takes their digests after a device fence, then they are published.
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
    const core = this.core;
    this.live(sequence);
    for (let i = from; i < to; i++) {
      if (sequence.state[i] !== Entry.OPEN) {
        throw wrongState(i, 'is not open. Seal a block once, after it was allocated.');
      }
    }
    this.now(nowUs);
    core.sink?.input(
      InputOp.SEAL,
      nowUs,
      [sequence.id, from, to, tokens],
      keys.subarray(at, at + (to - from) * 4),
    );
    for (let i = from; i < to; i++) sealBlock(core, sequence, i, keys, at + (i - from) * 4, tokens);
    this.end();
  }

  /** The open block's slot was cleared: nothing of another owner lies in it. */
  cleared(sequence: Sequence, i: number): void {
    this.requireOwn(sequence);
    if (sequence.state[i] === Entry.OPEN) this.core.replicas.foreign[sequence.replica[i]] = 0;
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
