/**
 * All that the scheduler asks of the KV manager, in blocks of one size class. The manager decides where
 * blocks lie; the scheduler only decides whose blocks are opened and let go. A change of the manager's calls
 * ends in this file.
 */

import { requireInteger } from '../errors.ts';
import type { BlockKeys } from '../keys/keyChain.ts';
import type { KVManager } from '../manager/manager.ts';
import { Entry, type Sequence } from '../manager/sequence.ts';
import { optionNames, requireOptions } from '../options.ts';
import type { LoadEstimate } from '../planning/loadOrRecompute.ts';

export interface KVPort {
  readonly blockTokens: number;
  readonly blockBytes: number;
  /** Blocks that HBM holds when nothing else is there. */
  readonly capacityBlocks: number;
  /** Whether blocks that leave HBM can go to a lower tier. */
  readonly hasLowerTier: boolean;
  /**
   * How often blocks of sequences have lost their bytes so far, with a device or by a seal that failed. While
   * it stays as it was, so does `disturbances` of every sequence.
   */
  readonly disturbances: number;
  /**
   * Leading blocks under the first `count` keys that are ready or on their way, in any tier. Changes nothing.
   */
  matchLength(keys: BlockKeys, count: number): number;
  /**
   * Whether a sequence of `blocks` blocks, the first `matched` of which are found under `keys`, would fit
   * HBM.
   */
  canOpen(keys: BlockKeys, matched: number, blocks: number, owner?: number): boolean;
  /** Whether `blocks` more blocks would fit HBM beside what cannot be evicted. */
  canAllocate(blocks: number): boolean;
  /** Whether blocks that a request of `other` lets go are room for `owner`: quotas may say no. */
  mayTakeFrom(other: number, owner: number): boolean;
  /**
   * Matches and pins at most `matchLimit` of the `count` leading blocks, in the owner's name (default 0).
   * @param room blocks that the sequence will come to have, as far as is known
   */
  open(
    keys: BlockKeys,
    count: number,
    matchLimit: number,
    nowUs: number,
    owner?: number,
    room?: number,
  ): Sequence;
  /** Starts to bring the matched blocks to HBM that lie below it. False when they do not fit. */
  load(sequence: Sequence, nowUs: number): boolean;
  /** The same for the blocks [from, to), the last first. */
  loadFromBack(sequence: Sequence, from: number, to: number, nowUs: number): boolean;
  /** How long loads of these blocks would take; undefined when none is below HBM or on its way. */
  loadEstimate(sequence: Sequence, from: number, to: number, nowUs: number): LoadEstimate | undefined;
  /**
   * Opens the blocks [from, to), which are below HBM, on their way or failed to come, to be computed instead.
   * False, with nothing changed, when they do not fit.
   */
  recompute(sequence: Sequence, from: number, to: number, nowUs: number): boolean;
  /**
   * Opens the blocks [from, to) that the sequence does not have. False, with nothing changed, when they do
   * not fit.
   */
  allocate(sequence: Sequence, from: number, to: number, nowUs: number): boolean;
  /** The blocks [from, to) hold their last token, and may be published under their keys. */
  seal(sequence: Sequence, from: number, to: number, keys: BlockKeys, nowUs: number): void;
  /** Lets the blocks from `from` on go. */
  truncate(sequence: Sequence, from: number, nowUs: number): void;
  /** Ends the sequence; what it published stays cached. */
  release(sequence: Sequence, nowUs: number): void;
  /** As `release`, and calls off the loads that nobody else waits for. */
  cancel(sequence: Sequence, nowUs: number): void;
  /**
   * As `release`, for a running request that gives way; counted. With `offload` its room is made by moving
   * its blocks down, as far as nobody else holds them.
   */
  preempt(sequence: Sequence, offload: boolean, nowUs: number): void;
  /** The engine begins to compute a step, or has ended it. */
  computing(isComputing: boolean, nowUs: number): void;
  /** Whether blocks of the sequence are still on their way, or wait for a slot. */
  isUnsettled(sequence: Sequence): boolean;
  /** Leading blocks that are in place: all before the first that failed or is missing. */
  placedBlocks(sequence: Sequence): number;
}

export interface ManagerPortConfig {
  blockTokens: number;
  /** Size class of a block in the manager's `unitBytes`. Default 0. */
  sizeClass?: number;
  /**
   * Called after each call that may have made jobs. A driver whose jobs end at once, as a simulator's that
   * bills transfers to the step, carries them out here. Default: nothing; jobs end when their driver says so.
   */
  afterCall?: (nowUs: number) => void;
}

const managerPortConfigNames: readonly string[] = optionNames<ManagerPortConfig>({
  blockTokens: true,
  sizeClass: true,
  afterCall: true,
});

const HBM = 0;

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
    requireOptions(config, managerPortConfigNames, 'config', 'TKV_CONFIG');
    const { unitBytes, tiers } = manager.config;
    this.#manager = manager;
    this.blockTokens = requireInteger('blockTokens', config.blockTokens, 1);
    this.#sizeClass = requireInteger('sizeClass', config.sizeClass ?? 0, 0, unitBytes.length - 1);
    this.#afterCall = config.afterCall ?? null;
    this.blockBytes = unitBytes[this.#sizeClass];
    this.capacityBlocks = Math.floor(tiers[HBM].capacityBytes / this.blockBytes);
    this.hasLowerTier = tiers.length > 1;
  }

  get disturbances(): number {
    return this.#manager.disturbances;
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
    return this.#manager.mayTakeFrom(other, owner, HBM);
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
    return this.#manager.loadEstimate(sequence, from, to, nowUs);
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
