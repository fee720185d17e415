/** What several policies are made of. */

export { GhostKeys } from './ghostKeys.ts';
export { blocksHeld } from './heldBlocks.ts';
export { RankedReplicas } from './rankedReplicas.ts';
