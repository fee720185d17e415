/** Blocks into other blocks: copied within a pool, converted between pools. */

export { BlockConversion, type BlockConversionConfig, type BlockPool } from './blockConversion.ts';
export { BlockCopies, type BlockCopiesConfig } from './blockCopies.ts';
export type { BlockPair, BlockPlace } from './blockPairs.ts';
