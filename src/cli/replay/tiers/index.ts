/**
 * What a replay runs on: sizes, and the driver with the bytes behind it. `real.ts` and `modeled.ts` open such
 * tiers. They are not exported here: one loads a GPU binding, the other the simulator, and only a run needs
 * either.
 */

export type { BlockBytes, BlockPlace } from './blockBytes.ts';
export { maxBlocks, type ReplaySizes, replaySizes, requireHoldable, requireRoom } from './sizes.ts';
export type { OpenTiers, ReplayTiers } from './tiers.ts';
