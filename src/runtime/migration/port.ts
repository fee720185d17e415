/** What a migrator works on, and what it says of its moves. */

import type { Tier } from '../tier/tier.ts';
import type { Priority } from '../transfer/jobTable.ts';
import type { MigratableBlock, MigrationTier } from './plan.ts';

/** How one move ended. */
export interface MoveEnd {
  readonly success: boolean;
  /** For people: why not. Empty for a success. */
  readonly reason: string;
  readonly nowUs: number;
}

/** What has blocks in tiers: a manager, or a pool on one. */
export interface MigrationPort<Block extends MigratableBlock = MigratableBlock> {
  /** Fastest first. */
  readonly tiers: readonly MigrationTier[];
  /** Share of the tier at `position` that is in use, from 0 on. */
  pressure(position: number): number;
  /** Blocks of the tier that may be moved, or as many of them as are worth looking at now. */
  candidates(position: number): readonly Block[];
  /** Begins to move the block; `ended` is told once, at the end or at once. */
  move(block: Block, to: Tier, priority: Priority, nowUs: number, ended: (end: MoveEnd) => void): void;
}

export interface MigrationResult {
  readonly success: boolean;
  readonly blockId: number;
  readonly fromTier: Tier;
  readonly toTier: Tier;
  /** From the begin of the move to its end. */
  readonly durationMs: number;
  readonly sizeBytes: number;
  readonly reason: string;
}

export interface MigrationStats {
  /** Moves that arrived. */
  readonly total: number;
  /** Moves that did not. */
  readonly failed: number;
  /** Bytes of those that arrived. */
  readonly bytes: number;
  /** Moves that arrived, by direction, such as `hbmToDdr`. */
  readonly [direction: string]: number;
}
