/**
 * The multi-granular pool of the original notes: blocks of a sequence's KV at four granularities, in one
 * manager. A thin view: places, sharing, eviction and moves are the manager's. What the pool adds is which
 * units make up a block, who holds them, and how often they are used.
 *
 *     allocate -> the units are open in HBM -> written by kernels or by TieredKVStorage.writeBlocks
 *         -> commit (their KV is written: they are sealed) -> shared, moved, read -> deallocate
 *
 * What is let go after it was sealed stays cached until its room is needed, and can be found by its tokens.
 */

import { invariant } from '../errors.ts';
import type { KVLayout } from '../geometry/index.ts';
import type { KeyElements } from '../keys/index.ts';
import type { DecisionSink } from '../log/decisionSink.ts';
import type { KVManager } from '../manager/kvManager.ts';
import { Entry, type Sequence } from '../manager/sequences/blockTable/sequence.ts';
import type { ManagerListener } from '../manager/tables/listener.ts';
import type { MigrationPort, MigrationTier, MoveEnd } from '../migration/index.ts';
import { type Tier, type TierName, tierName } from '../tier/tier.ts';
import { Priority } from '../transfer/jobTable.ts';
import type { KVPoolConfig } from './config.ts';
import type { KVBlockDescriptor, PoolUnit, UnitPlace } from './descriptor.ts';
import { type FoundBlock, findPrefix } from './finding.ts';
import { checkPool } from './integrity.ts';
import { type AllocateRequest, type PrefixOptions, unknownId } from './requests.ts';
import { allocate } from './sequences/allocating.ts';
import { deallocate, fork, requireSequence, truncate } from './sequences/branching.ts';
import { type CommitOptions, commit } from './sequences/committing.ts';
import { BlockMoves } from './sequences/moves.ts';
import { PoolState } from './state.ts';

export interface PoolTierUsage {
  readonly tier: Tier;
  /** Units that lie there, or are on their way. */
  readonly numBlocks: number;
  readonly usedBytes: number;
  readonly capacityBytes: number;
  /** Used bytes over capacity. */
  readonly utilization: number;
}

export interface PoolStats {
  readonly totalAllocations: number;
  readonly totalDeallocations: number;
  /** Blocks that have arrived in the tier they were sent to. */
  readonly totalMigrations: number;
  /** Units that were asked for with their tokens, and found. */
  readonly cacheHits: number;
  /** Units that were asked for with their tokens, and not found. */
  readonly cacheMisses: number;
  /** Blocks that sequences hold. */
  readonly totalBlocks: number;
  readonly tierUsage: Readonly<Partial<Record<TierName, PoolTierUsage>>>;
}

export class MultiGranularKVPool implements MigrationPort<KVBlockDescriptor> {
  readonly tiers: readonly MigrationTier[];
  /** What whoever listens to the manager has to hand on; the pool listens itself until then. */
  readonly listener: ManagerListener;
  readonly #state: PoolState;
  readonly #moves: BlockMoves;

  /**
   * @param sink where the manager's decision log goes
   * @throws TKV_CONFIG with the field that is wrong and the remedy
   */
  constructor(config: KVPoolConfig, sink: DecisionSink | null = null) {
    this.#state = new PoolState(config, sink);
    const { manager } = this.#state;
    this.tiers = manager.config.tiers.map(({ tier, capacityBytes }) => ({ tier, capacityBytes }));
    this.#moves = new BlockMoves(manager, () => this.#state.nowUs());
    this.listener = {
      settled: (table) => this.#settled(table),
      moved: (position, key, outcome) => this.#moves.moved(position, key, outcome),
    };
    manager.listen(this.listener);
  }

  /** The one manager: its jobs are for a driver, its books for whoever wants to look. */
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
   * Room for more tokens of a sequence in some layers and heads: BLOCK gives a block for each `blockSize`
   * tokens, TOKEN one for each token, HEAD and LAYER one for all of them. They are to be written in HBM.
   * @returns the blocks that hold these tokens, in order; the first may be one that had room left
   * @throws TKV_INPUT for what is malformed, TKV_CAPACITY for what HBM can never hold, TKV_FULL when there is
   * no room now; nothing is allocated then
   */
  allocate(request: AllocateRequest): KVBlockDescriptor[] {
    return allocate(this.#state, request);
  }

  /**
   * Lets blocks go; others that share them keep them. What was sealed stays cached until its room is needed.
   * @throws TKV_UNKNOWN_ID for one that was let go before; none is let go then
   */
  deallocate(blocks: readonly KVBlockDescriptor[]): void {
    deallocate(this.#state, blocks);
  }

  /**
   * The KV of the sequence's tokens is written, or the work that writes it was given to the device: its full
   * units are sealed. @param tokenIds all tokens of the sequence; left out, nobody else can find the blocks
   * @throws TKV_UNKNOWN_ID, TKV_INPUT for tokens that differ from those told before; nothing is sealed then
   */
  commit(sequenceId: string, tokenIds?: KeyElements, options: CommitOptions = {}): void {
    commit(this.#state, sequenceId, tokenIds, options);
  }

  /** Another sequence with the first tokens of this one. See `branching.ts`. */
  fork(sequenceId: string, forkId: string, requestId: string, tokens: number): KVBlockDescriptor[] {
    return fork(this.#state, sequenceId, forkId, requestId, tokens);
  }

  /** Takes tokens back: the sequence ends after `tokens` of them. */
  truncate(sequenceId: string, tokens: number): void {
    truncate(this.#state, sequenceId, tokens);
  }

  /** The sequence's blocks, in the order in which they were allocated. @throws TKV_UNKNOWN_ID */
  getBlocksBySequence(sequenceId: string): KVBlockDescriptor[] {
    return [...requireSequence(this.#state, sequenceId).descriptors];
  }

  /**
   * The longest cached prefix of these tokens in whole units, found in one pass, wherever it lies. Nothing
   * holds it: allocate with `tokenIds` to share it.
   * @returns nothing where fewer than `minMatchLength` tokens match
   */
  queryByPrefix(tokenIds: KeyElements, minMatchLength = 1, options: PrefixOptions = {}): FoundBlock[] {
    return findPrefix(this.#state, tokenIds, minMatchLength, options);
  }

  /** @throws TKV_INPUT for a tier that the pool has not */
  getTierUsage(tier: Tier): PoolTierUsage {
    const { residentBytes, capacityBytes, slots } = this.manager.usage(this.#state.positionOf('tier', tier));
    const numBlocks = slots.ready + slots.open + slots.filling + slots.reserved;
    const utilization = residentBytes / capacityBytes;
    return { tier, numBlocks, usedBytes: residentBytes, capacityBytes, utilization };
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
    const { residentBytes, capacityBytes } = this.manager.usage(position);
    return residentBytes / capacityBytes;
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
   * Moves all parts of a block to a tier, for all who share it; at the priority of a demand load, up to HBM
   * for this sequence. Parts that cannot be moved stay where they are, and the block is whole all the same.
   * @param ended told once, at the end of the last transfer
   * @throws TKV_UNKNOWN_ID for a block that was let go, TKV_INPUT for a tier that the pool has not
   */
  move(
    block: KVBlockDescriptor,
    to: Tier,
    priority: Priority,
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
      this.move(block, block.preferredTier, Priority.WRITE_THROUGH, this.nowUs, () => {});
    }
  }
}
