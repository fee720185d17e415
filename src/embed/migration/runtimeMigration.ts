/**
 * The runtime's migrator: cached blocks go down before a tier is full, and come up again while they are hot.
 */

import {
  type BlockMoves,
  CachedMigration,
  type KVManager,
  KVMigrator,
  type ManagerListener,
  type MigratableContent,
  type MigratorOptions,
} from '../../runtime/index.ts';
import { MigrationLoop } from './migrationLoop.ts';

export interface RuntimeMigration {
  readonly migrator: KVMigrator<MigratableContent>;
  /** What the manager's loop has to tell it. */
  readonly listener: ManagerListener;
  stop(): void;
}

/** Nothing where it is switched off, or where there is no tier to move to. */
export function runtimeMigration(
  options: MigratorOptions | false | undefined,
  manager: KVManager,
  moves: BlockMoves,
  nowUs: () => number,
): RuntimeMigration | null {
  if (options === false || manager.tiers.length === 1) return null;
  const port = new CachedMigration(manager, moves);
  const migrator = new KVMigrator(port, options ?? {});
  const loop = new MigrationLoop(migrator, nowUs);
  return {
    migrator,
    listener: { roomFreed: () => loop.poke() },
    stop: () => loop.stop(),
  };
}
