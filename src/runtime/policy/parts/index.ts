/** What several policies are made of. */

export { Family } from './family.ts';
export { GhostKeys } from './ghostKeys.ts';
export { blocksHeld } from './heldBlocks.ts';
export { RankedPolicy } from './rankedPolicy.ts';
export { RankedReplicas } from './rankedReplicas.ts';
