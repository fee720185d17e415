/** Hot and cold: which blocks are in use, and moving the others down and these up. */

export { BlockMoves } from './blockMoves.ts';
export { CachedMigration, type MigratableContent } from './cachedMigration.ts';
export {
  type ClassifierOptions,
  HotColdClassifier,
  type Temperature,
  temperatures,
  type Used,
} from './classifier.ts';
export { KVMigrator } from './kvMigrator.ts';
export { checkMigratorOptions, type MigratorOptions } from './options.ts';
export type { MigratableBlock, MigrationPlan, MigrationTier } from './plan.ts';
export type { MigrationPort, MigrationResult, MigrationStats, MoveEnd } from './port.ts';
