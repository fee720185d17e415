/**
 * A manager's cached blocks as what a migrator moves: those that nobody holds. Blocks that sequences hold
 * stay where they are. A plan looks at so many slots of a tier, and the next one goes on behind them, so that
 * its cost does not grow with the tiers.
 */

import type { KVManager } from '../manager/kvManager.ts';
import type { Tier } from '../tier/tier.ts';
import type { Priority } from '../transfer/jobTable.ts';
import type { BlockMoves } from './blockMoves.ts';
import type { MigratableBlock, MigrationTier } from './plan.ts';
import type { MigrationPort, MoveEnd } from './port.ts';

const SLOTS_LOOKED_AT = 16_384;

export interface MigratableContent extends MigratableBlock {
  /** Four words. */
  readonly key: Uint32Array;
}

export class CachedMigration implements MigrationPort<MigratableContent> {
  readonly tiers: readonly MigrationTier[];
  readonly #manager: KVManager;
  readonly #cursors: number[];
  readonly #moves: BlockMoves;

  /** @param moves what the manager's listener tells of the ends of moves */
  constructor(manager: KVManager, moves: BlockMoves) {
    this.#manager = manager;
    this.#moves = moves;
    this.tiers = manager.config.tiers.map(({ tier, capacityBytes }) => ({ tier, capacityBytes }));
    this.#cursors = this.tiers.map(() => 0);
  }

  pressure(position: number): number {
    const { residentBytes, capacityBytes } = this.#manager.usage(position);
    return residentBytes / capacityBytes;
  }

  candidates(position: number): readonly MigratableContent[] {
    const { tier } = this.tiers[position];
    const from = this.#cursors[position];
    const { blocks, nextSlot } = this.#manager.cachedBlocks(position, from, SLOTS_LOOKED_AT);
    this.#cursors[position] = nextSlot;
    return blocks.map(
      ({ content, key, sizeBytes, use }): MigratableContent => ({
        blockId: content,
        key,
        tier,
        sizeBytes,
        use,
      }),
    );
  }

  move(
    { key }: MigratableContent,
    to: Tier,
    priority: Priority,
    nowUs: number,
    ended: (end: MoveEnd) => void,
  ): void {
    const position = this.tiers.findIndex(({ tier }) => tier === to);
    this.#moves.move(key, position, priority, nowUs, ended);
  }
}
