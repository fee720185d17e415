/** Tensors out of blocks and into them. */

export { type BlockRange, BlockTensors, type BlockTensorsConfig } from './blockTensors.ts';
export { type BlockTensor, blocksToTensor, type TfCore, type TfTensor, tensorToBlocks } from './tfjs.ts';
