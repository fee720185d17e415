/**
 * All that the scheduler asks of the KV manager, in blocks of one size class. The manager decides where blocks lie;
 * the scheduler only opens and releases them. A change of the manager's calls ends in this file.
 */

import { requireInteger } from '../errors.ts';
import type { BlockKeys } from '../keys/keyChain.ts';
import * as is from '../kinds.ts';
import type { KVManager } from '../manager/manager.ts';
import { Entry, type Sequence } from '../manager/sequence.ts';
import { checkInputs, type Kinds, optionTable } from '../options.ts';
import type { LoadEstimate } from '../planning/loadOrRecompute.ts';
import { TOP } from '../tier/tier.ts';

export interface KVPort {
  readonly blockTokens: number;
  readonly blockBytes: number;
  /** Blocks that an empty HBM holds, with its landing room, which running requests may use. */
  readonly capacityBlocks: number;
  /** Whether blocks that leave HBM can go to a lower tier. */
  readonly hasLowerTier: boolean;
  /**
   * Losses of blocks of sequences so far, with a device or by a failed seal. While the count is unchanged, so is
   * `disturbances` of every sequence.
   */
  readonly disturbances: number;
  /**
   * Leading blocks under the first `count` keys that are ready or on their way, in any tier. Changes nothing.
   */
  matchLength(keys: BlockKeys, count: number): number;
  /** Whether a sequence of `blocks` blocks would fit HBM, the first `matched` of them found under `keys`. */
  canOpen(keys: BlockKeys, matched: number, blocks: number, owner?: number): boolean;
  /**
   * Whether a request with these keys may join the batch, apart from room for its blocks. While it may not, later ones
   * pass it. Left out where all may.
   */
  mayJoin?(keys: BlockKeys): boolean;
  /** Whether `blocks` more blocks would fit HBM beside what cannot be evicted. */
  canAllocate(blocks: number): boolean;
  /** Whether blocks released by a request of `other` make room for `owner`; a quota may forbid it. */
  mayTakeFrom(other: number, owner: number): boolean;
  /**
   * Matches and pins at most `matchLimit` of the `count` leading blocks, in the owner's name (default 0).
   * @param room blocks that the sequence is expected to grow to
   */
  open(
    keys: BlockKeys,
    count: number,
    matchLimit: number,
    nowUs: number,
    owner?: number,
    room?: number,
  ): Sequence;
  /** Starts to load the matched blocks that lie below HBM. False if they do not fit. */
  load(sequence: Sequence, nowUs: number): boolean;
  /** The same for the blocks [from, to), the last first. */
  loadFromBack(sequence: Sequence, from: number, to: number, nowUs: number): boolean;
  /** How long loads of these blocks would take; undefined when none is below HBM or on its way. */
  loadEstimate(sequence: Sequence, from: number, to: number, nowUs: number): LoadEstimate | undefined;
  /**
   * Opens the blocks [from, to), which are below HBM, on their way or failed to come, so that they are computed
   * instead. False, with nothing changed, if they do not fit.
   */
  recompute(sequence: Sequence, from: number, to: number, nowUs: number): boolean;
  /** Opens the blocks [from, to) that the sequence does not have. False, with nothing changed, if they do not fit. */
  allocate(sequence: Sequence, from: number, to: number, nowUs: number): boolean;
  /** Seals the blocks [from, to), which hold their last token; they may be published under their keys. */
  seal(sequence: Sequence, from: number, to: number, keys: BlockKeys, nowUs: number): void;
  /** Releases the blocks from `from` on. */
  truncate(sequence: Sequence, from: number, nowUs: number): void;
  /** Ends the sequence; what it published stays cached. */
  release(sequence: Sequence, nowUs: number): void;
  /** Like `release`, and cancels loads that no other sequence waits for. */
  cancel(sequence: Sequence, nowUs: number): void;
  /**
   * Like `release`, for a running request that is preempted; counted. With `offload` its blocks move down to make room,
   * except blocks that other sequences hold.
   */
  preempt(sequence: Sequence, offload: boolean, nowUs: number): void;
  /** Tells the manager that the engine begins or ends a step. */
  computing(isComputing: boolean, nowUs: number): void;
  /** Whether blocks of the sequence are still on their way, or wait for a slot. */
  isUnsettled(sequence: Sequence): boolean;
  /** Leading blocks in place: all before the first that failed or is missing. */
  placedBlocks(sequence: Sequence): number;
}

export interface ManagerPortConfig {
  blockTokens: number;
  /** Size class of a block in the manager's `unitBytes`. Default 0. */
  sizeClass?: number;
  /**
   * Called after each call that may have issued jobs. A driver whose jobs end at once, such as a simulator that bills
   * transfers to the step, carries them out here. Default: nothing; jobs end when their driver says so.
   */
  afterCall?: (nowUs: number) => void;
}

const portConfig = optionTable(
  {
    blockTokens: is.integer(1),
    sizeClass: is.optional(is.integer(0), 0),
    afterCall: is.optional(is.func()),
  } satisfies Kinds<ManagerPortConfig>,
  'TKV_CONFIG',
);

/** Gives a `Scheduler` the blocks of a `KVManager`. */
export class ManagerPort implements KVPort {
  readonly blockTokens: number;
  readonly blockBytes: number;
  readonly capacityBlocks: number;
  readonly hasLowerTier: boolean;
  readonly #manager: KVManager;
  readonly #sizeClass: number;
  readonly #afterCall: ((nowUs: number) => void) | null;

  /** @throws TKV_CONFIG with the field at fault */
  constructor(manager: KVManager, config: ManagerPortConfig) {
    checkInputs({ manager }, { manager: is.fields({ lookup: is.func() }) });
    const { blockTokens, sizeClass, afterCall = null } = portConfig.read(config, 'config');
    const { unitBytes, tiers } = manager.config;
    this.#manager = manager;
    this.blockTokens = blockTokens;
    this.#sizeClass = requireInteger('sizeClass', sizeClass, 0, unitBytes.length - 1);
    this.#afterCall = afterCall;
    this.blockBytes = unitBytes[this.#sizeClass];
    this.capacityBlocks = Math.floor(tiers[TOP].shape.capacityBytes / this.blockBytes);
    this.hasLowerTier = tiers.length > 1;
  }

  get disturbances(): number {
    return this.#manager.inspect.disturbances;
  }

  matchLength(keys: BlockKeys, count: number): number {
    return this.#manager.matchLength(keys.words, count);
  }

  canOpen(keys: BlockKeys, matched: number, blocks: number, owner = 0): boolean {
    return this.#manager.canOpen(keys.words, matched, blocks, this.#sizeClass, owner);
  }

  canAllocate(blocks: number): boolean {
    return this.#manager.canAllocate(blocks, this.#sizeClass);
  }

  mayTakeFrom(other: number, owner: number): boolean {
    return this.#manager.inspect.mayTakeFrom(other, owner, TOP);
  }

  open(keys: BlockKeys, count: number, matchLimit: number, nowUs: number, owner = 0, room = 0): Sequence {
    return this.#manager.open(keys.words, count, nowUs, matchLimit, owner, room);
  }

  load(sequence: Sequence, nowUs: number): boolean {
    const fits = this.#manager.load(sequence, nowUs);
    this.#afterCall?.(nowUs);
    return fits;
  }

  loadFromBack(sequence: Sequence, from: number, to: number, nowUs: number): boolean {
    const fits = this.#manager.loadFromBack(sequence, from, to, nowUs);
    this.#afterCall?.(nowUs);
    return fits;
  }

  loadEstimate(sequence: Sequence, from: number, to: number, nowUs: number): LoadEstimate | undefined {
    return this.#manager.inspect.loadEstimate(sequence, from, to, nowUs);
  }

  recompute(sequence: Sequence, from: number, to: number, nowUs: number): boolean {
    const fits = this.#manager.recompute(sequence, from, to, nowUs, this.#sizeClass);
    this.#afterCall?.(nowUs);
    return fits;
  }

  allocate(sequence: Sequence, from: number, to: number, nowUs: number): boolean {
    const fits = this.#manager.allocate(sequence, from, to, nowUs, this.#sizeClass);
    this.#afterCall?.(nowUs);
    return fits;
  }

  seal(sequence: Sequence, from: number, to: number, keys: BlockKeys, nowUs: number): void {
    this.#manager.seal(sequence, from, to, keys.words, from * 4, this.blockTokens, nowUs);
    this.#afterCall?.(nowUs);
  }

  truncate(sequence: Sequence, from: number, nowUs: number): void {
    this.#manager.releaseRange(sequence, from, sequence.length, nowUs);
    this.#afterCall?.(nowUs);
  }

  release(sequence: Sequence, nowUs: number): void {
    this.#manager.release(sequence, nowUs);
    this.#afterCall?.(nowUs);
  }

  cancel(sequence: Sequence, nowUs: number): void {
    this.#manager.cancel(sequence, nowUs);
    this.#afterCall?.(nowUs);
  }

  preempt(sequence: Sequence, offload: boolean, nowUs: number): void {
    if (offload) this.#manager.demote(sequence, nowUs);
    else this.#manager.preempt(sequence, nowUs);
    this.#afterCall?.(nowUs);
  }

  computing(isComputing: boolean, nowUs: number): void {
    this.#manager.computing(isComputing, nowUs);
  }

  isUnsettled(sequence: Sequence): boolean {
    if (sequence.pending === 0) return false;
    for (let i = sequence.length - 1; i >= 0; i--) {
      if (sequence.state[i] === Entry.LOADING || sequence.state[i] === Entry.WAITING) return true;
    }
    return false;
  }

  placedBlocks(sequence: Sequence): number {
    let placed = 0;
    while (placed < sequence.length && isPlaced(sequence.state[placed])) placed++;
    return placed;
  }
}

function isPlaced(state: number): boolean {
  return state === Entry.OPEN || state === Entry.SEALING || state === Entry.READY;
}
