/**
 * The multi-granular pool of the original notes: blocks of a sequence's KV at four granularities, in one manager. A
 * thin view: places, sharing, eviction and moves are the manager's. The pool adds which units make up a block, which
 * sequences hold it, and how often it is used.
 *
 *     allocate -> the units are open in HBM -> written by kernels or by TieredKVStorage.writeBlocks
 *         -> commit (their KV is written: they are sealed) -> shared, moved, read -> deallocate
 *
 * A sealed block that is released stays cached until its room is needed, and can be found by its tokens.
 */

import { BlockMoves, type MigrationPort, type MoveEnd, pressureOf } from '../embed/kvMigrator.ts';
import type { MigrationTier } from '../embed/migrationPlan.ts';
import { invariant } from '../runtime/errors.ts';
import type { KVLayout } from '../runtime/geometry/layout.ts';
import type { KeyElements } from '../runtime/keys/keyChain.ts';
import type { DecisionSink } from '../runtime/log/decisionSink.ts';
import type { ManagerListener } from '../runtime/manager/core.ts';
import type { KVManager } from '../runtime/manager/manager.ts';
import { Entry, type Sequence } from '../runtime/manager/sequence.ts';
import { JobPriority } from '../runtime/tables/jobTable.ts';
import { type Tier, type TierName, tierName } from '../runtime/tier/tier.ts';
import type { BlockRecord, KVBlockDescriptor, PoolUnit, UnitPlace } from './kvBlockDescriptor.ts';
import {
  allocate,
  type CommitOptions,
  commit,
  deallocate,
  fork,
  requireSequence,
  truncate,
} from './poolBlocks.ts';
import type { KVPoolConfig } from './poolConfig.ts';
import {
  type AllocateRequest,
  checkPool,
  type FoundBlock,
  findPrefix,
  PoolState,
  type PrefixOptions,
  unknownId,
} from './poolState.ts';

interface PoolTierUsage {
  readonly tier: Tier;
  /** Units that lie there, or are on their way. */
  readonly numBlocks: number;
  readonly usedBytes: number;
  /** All that the tier holds, room for blocks on their way included: sequences may use it. */
  readonly capacityBytes: number;
  /** Used bytes over capacity, at most 1. */
  readonly utilization: number;
}

/** Counts of a `MultiGranularKVPool` since its start. */
export interface PoolStats {
  readonly totalAllocations: number;
  readonly totalDeallocations: number;
  /** Blocks that have arrived in the tier they were sent to. */
  readonly totalMigrations: number;
  /** Units that were allocated with their tokens and found in the cache. */
  readonly cacheHits: number;
  /** Units that were allocated with their tokens and not found. */
  readonly cacheMisses: number;
  /** Blocks that sequences hold. */
  readonly totalBlocks: number;
  readonly tierUsage: Readonly<Partial<Record<TierName, PoolTierUsage>>>;
}

/** A pool whose units are blocks, tokens, heads or layers, in three tiers. */
export class MultiGranularKVPool implements MigrationPort<KVBlockDescriptor> {
  readonly tiers: readonly MigrationTier[];
  /** A caller that sets its own listener on the manager must pass these calls on; until then the pool listens. */
  readonly listener: ManagerListener;
  readonly #state: PoolState;
  readonly #moves: PoolMoves;

  /**
   * @param sink where the manager's decision log goes
   * @throws TKV_CONFIG with the field that is wrong and the remedy
   */
  constructor(config: KVPoolConfig, sink: DecisionSink | null = null) {
    this.#state = new PoolState(config, sink);
    const { manager } = this.#state;
    this.tiers = manager.config.tiers.map(({ tier, capacityBytes }) => ({ tier, capacityBytes }));
    const moves = new BlockMoves(manager);
    this.#moves = new PoolMoves(manager, moves, () => this.#state.nowUs());
    this.listener = { settled: (table) => this.#settled(table), ...moves.listener };
    manager.listen(this.listener);
  }

  /** The pool's manager: a driver takes its jobs, and its books can be read. */
  get manager(): KVManager {
    return this.#state.manager;
  }

  get layout(): KVLayout {
    return this.#state.layout;
  }

  get nowUs(): number {
    return this.#state.nowUs();
  }

  /** Tells the pool the time, in integer microseconds. It never goes back. */
  setClock(nowUs: number): void {
    this.#state.setClock(nowUs);
  }

  /**
   * Room for more tokens of a sequence in some layers and heads: BLOCK gives a block for each `blockSize` tokens,
   * TOKEN one for each token, HEAD and LAYER one for all of them. The caller writes them in HBM.
   * @returns the blocks that hold these tokens, in order; the first may be one that had room left
   * @throws TKV_INPUT for a malformed argument, TKV_CAPACITY for a request that HBM can never hold, TKV_FULL if room
   * is missing now; nothing is allocated then
   */
  allocate(request: AllocateRequest): KVBlockDescriptor[] {
    return allocate(this.#state, request);
  }

  /**
   * Releases blocks; other sequences that share them keep them. Sealed blocks stay cached until their room is needed.
   * @throws TKV_UNKNOWN_ID for a block that was released before; none is released then
   */
  deallocate(blocks: readonly KVBlockDescriptor[]): void {
    deallocate(this.#state, blocks);
  }

  /**
   * Call it when the KV of the sequence's tokens is written, or the work that writes it was given to the device: the
   * full units are sealed.
   * @param tokenIds all tokens of the sequence; without them no other sequence can find the blocks
   * @throws TKV_UNKNOWN_ID, TKV_INPUT for tokens that differ from the ones given before; nothing is sealed then
   */
  commit(sequenceId: string, tokenIds?: KeyElements, options: CommitOptions = {}): void {
    commit(this.#state, sequenceId, tokenIds, options);
  }

  /** Another sequence with the first tokens of this one; full units are shared, a partial one is copied. */
  fork(sequenceId: string, forkId: string, requestId: string, tokens: number): KVBlockDescriptor[] {
    return fork(this.#state, sequenceId, forkId, requestId, tokens);
  }

  /** Removes tokens: the sequence ends after `tokens` of them. */
  truncate(sequenceId: string, tokens: number): void {
    truncate(this.#state, sequenceId, tokens);
  }

  /** The sequence's blocks, in the order in which they were allocated. @throws TKV_UNKNOWN_ID */
  getBlocksBySequence(sequenceId: string): KVBlockDescriptor[] {
    return [...requireSequence(this.#state, sequenceId).descriptors];
  }

  /**
   * The longest cached prefix of these tokens in whole units, in any tier, found in one pass. The result holds
   * nothing: allocate with `tokenIds` to share it.
   * @returns an empty array if fewer than `minMatchLength` tokens match
   */
  queryByPrefix(tokenIds: KeyElements, minMatchLength = 1, options: PrefixOptions = {}): FoundBlock[] {
    return findPrefix(this.#state, tokenIds, minMatchLength, options);
  }

  /** @throws TKV_INPUT for a tier that the pool does not have */
  getTierUsage(tier: Tier): PoolTierUsage {
    const { residentBytes, sizeBytes, slots } = this.manager.inspect.usage(
      this.#state.positionOf('tier', tier),
    );
    const numBlocks = slots.ready + slots.open + slots.filling + slots.reserved;
    const utilization = residentBytes / sizeBytes;
    return { tier, numBlocks, usedBytes: residentBytes, capacityBytes: sizeBytes, utilization };
  }

  getStats(): PoolStats {
    const { counts, sequences } = this.#state;
    let totalBlocks = 0;
    for (const { descriptors } of sequences.values()) totalBlocks += descriptors.size;
    return {
      totalAllocations: counts.allocations,
      totalDeallocations: counts.deallocations,
      totalMigrations: this.#moves.arrived,
      cacheHits: counts.hits,
      cacheMisses: counts.misses,
      totalBlocks,
      tierUsage: Object.fromEntries(this.tiers.map(({ tier }) => [tierName(tier), this.getTierUsage(tier)])),
    };
  }

  /** Where a part of a block lies; undefined while it has no place. */
  placeOf(unit: PoolUnit): UnitPlace | undefined {
    return this.#state.placeOf(unit);
  }

  pressure(position: number): number {
    return pressureOf(this.manager, position);
  }

  /** Sealed blocks that sequences hold, each once, whose slowest part lies in the tier. */
  candidates(position: number): KVBlockDescriptor[] {
    const { tier } = this.tiers[position];
    const found = new Map<number, KVBlockDescriptor>();
    for (const { descriptors } of this.#state.sequences.values()) {
      for (const block of descriptors) {
        if (!found.has(block.blockId) && block.isSealed && block.tier === tier)
          found.set(block.blockId, block);
      }
    }
    return [...found.values()];
  }

  /**
   * Moves all parts of a block to a tier, for all its holders; at the priority of a demand load, up to HBM for this
   * sequence. Parts that cannot be moved stay where they are, and the block stays whole.
   * @param ended called once, at the end of the last transfer
   * @throws TKV_UNKNOWN_ID for a block that was released, TKV_INPUT for a tier that the pool does not have
   */
  move(
    block: KVBlockDescriptor,
    to: Tier,
    priority: JobPriority,
    nowUs: number,
    ended: (end: MoveEnd) => void,
  ): void {
    this.requireHeld(block);
    const position = this.#state.positionOf('toTier', to);
    this.#moves.move(block, position, priority, Math.max(nowUs, this.nowUs), ended);
  }

  /** @throws TKV_UNKNOWN_ID for a block that no sequence of this pool holds */
  requireHeld(block: KVBlockDescriptor): void {
    if (this.#state.sequences.get(block.sequenceId)?.descriptors.has(block) === true) return;
    throw unknownId('blockId', block.blockId);
  }

  checkIntegrity(): void {
    checkPool(this.#state);
  }

  #settled(table: Sequence): void {
    this.#moves.settled(table.id);
    const owner = this.#state.tables.get(table.id);
    if (owner === undefined) return;
    invariant(owner.track.table === table, 'a table has one track');
    for (const block of [...owner.sequence.leaving]) {
      if (!block.isSealed || block.units.some((u) => u.track.stateOf(u.unit) === Entry.LOADING)) continue;
      owner.sequence.leaving.delete(block);
      this.move(block, block.preferredTier, JobPriority.WRITE_THROUGH, this.nowUs, () => {});
    }
  }
}

// Moves of a pool's blocks between tiers. A part that goes down is copied first, and held in the tier below only once
// its bytes have arrived there; until then it stays where it was. So a failed move loses nothing, and its source is
// free as soon as the copy has arrived.

type PoolMoveEnded = (success: boolean, reason: string) => void;

class PoolMoves {
  readonly #manager: KVManager;
  readonly #moves: BlockMoves;
  readonly #nowUs: () => number;
  /** Callbacks that wait for a table's loads, by table. */
  readonly #byTable: Map<number, (() => void)[]> = new Map();
  /** Blocks that have arrived where they were sent. */
  arrived = 0;

  /** @param moves gets the ends of moves from the manager's listener */
  constructor(manager: KVManager, moves: BlockMoves, nowUs: () => number) {
    this.#manager = manager;
    this.#moves = moves;
    this.#nowUs = nowUs;
  }

  /** Moves all parts of the block; `ended` is called once, when the last one has ended. */
  move(
    block: KVBlockDescriptor,
    position: number,
    priority: JobPriority,
    nowUs: number,
    ended: (end: MoveEnd) => void,
  ): void {
    const { units, record } = block;
    let left = units.length + 1;
    let reason = '';
    let moved = 0;
    const settle = (success: boolean, why: string): void => {
      if (success) moved++;
      else reason = why;
      if (--left > 0) return;
      const all = moved === units.length + 1;
      if (all) this.arrived++;
      ended({ success: all, reason: all ? '' : reason, nowUs: this.#nowUs() });
    };
    for (const unit of units) this.#moveUnit(unit, record, position, priority, nowUs, settle);
    settle(true, '');
  }

  /** Called by the manager's listener when a table no longer waits for anything. */
  settled(table: number): void {
    const waiting = this.#byTable.get(table);
    if (waiting === undefined) return;
    this.#byTable.delete(table);
    for (const look of waiting) look();
  }

  #moveUnit(
    { track, unit }: PoolUnit,
    record: BlockRecord,
    position: number,
    priority: JobPriority,
    nowUs: number,
    ended: PoolMoveEnded,
  ): void {
    const state = track.stateOf(unit);
    const key = track.keyOf(unit);
    if (key === undefined || (state !== Entry.READY && state !== Entry.MATCHED)) {
      ended(false, state === Entry.FAILED ? 'lost' : 'not sealed yet');
      return;
    }
    if (position === 0 && priority === JobPriority.DEMAND_LOAD) {
      this.#load({ track, unit }, nowUs, ended);
      return;
    }
    if (this.#manager.inspect.place(track.table, unit)?.position === position) {
      ended(true, '');
      return;
    }
    const keep = (): void => {
      for (const holder of [...record.holders]) {
        for (const part of holder.units) {
          if (!sameKey(part.track.keyOf(part.unit), key)) continue;
          this.#manager.keepIn(part.track.table, part.unit, part.unit + 1, position, this.#nowUs());
        }
      }
      const kept = this.#manager.inspect.place(track.table, unit)?.position === position;
      ended(kept, 'it was evicted before it could be held there');
    };
    this.#moves.move(key, position, priority, nowUs, ({ success, reason }) => {
      if (success) keep();
      else ended(false, reason);
    });
  }

  /** Brings a part up to HBM for its sequence. */
  #load({ track, unit }: PoolUnit, nowUs: number, ended: PoolMoveEnded): void {
    if (!this.#manager.load(track.table, nowUs, unit, unit + 1)) {
      ended(false, 'full');
      return;
    }
    const look = (): void => {
      const state = track.stateOf(unit);
      if (state === Entry.LOADING) {
        const waiting = this.#byTable.get(track.table.id);
        if (waiting === undefined) this.#byTable.set(track.table.id, [look]);
        else waiting.push(look);
      } else ended(state === Entry.READY, 'lost');
    };
    look();
  }
}

function sameKey(a: Uint32Array | undefined, b: Uint32Array): boolean {
  return a?.every((word, i) => word === b[i]) === true;
}
