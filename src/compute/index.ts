/**
 * The door to kernels over paged blocks: attention, copies, conversion, tensors. docs/reference/compute.md
 * has all.
 *
 *     const attention = await PagedAttention.open({
 *       device, slabs, layout,          // the pool's buffers and the layout of its blocks
 *       qHeads, window, scale,          // from the model
 *       rowsMax, entriesMax, contextTokens,
 *     });
 *     const bound = attention.bind(qkv, attended);
 *     attention.setStep({ rows, entries });
 *     for (let layer = 0; layer < layout.layers; layer++) {
 *       // ... the model's own kernels make qkv
 *       attention.write(pass, layer, bound);
 *       attention.attend(pass, layer, bound);
 *       // ... and read attended
 *     }
 *
 * `rows` are `[row][4]`: position, first entry of the block table, two unused words. `entries` are
 * `[entry][2]`: slab, offset in bytes, as `DeviceBlockTable.entries` has them. `qkv` is
 * `[row][Q heads, K heads, V heads][headDim]` in floats, `attended` is `[row][Q heads][headDim]`.
 */

export {
  BlockConversion,
  type BlockConversionConfig,
  BlockCopies,
  type BlockCopiesConfig,
  type BlockPool,
} from './blocks.ts';
export { BlockTensors, type BlockTensorsConfig } from './blockTensors.ts';
export { type AttentionKernel, attentionKernel, int8Layout, type KernelDevice } from './kernelText.ts';
export { type AttentionConfig, type BoundTensors, NO_TOKEN, PagedAttention } from './pagedAttention.ts';
export { type BlockTensor, blocksToTensor, type TfCore, tensorToBlocks } from './tfjs.ts';
