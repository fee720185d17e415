/**
 * Blocks as tensors of TensorFlow.js and back. Where its WebGPU backend runs on our device, a tensor takes
 * the gathered buffer as it is, without a copy; every other backend (cpu, tensorflow of tfjs-node-gpu) gets
 * the numbers from host memory. The packages are the caller's: what is used of them is declared here.
 */

import { configError } from '../runtime/errors.ts';
import type { BlockRange, BlockTensors } from './blockTensors.ts';

/** What is used of a tensor. */
export interface TfTensor {
  readonly shape: readonly number[];
  readonly dtype: string;
  data(): Promise<ArrayLike<number>>;
  dataToGPU(): { readonly buffer?: GPUBuffer; readonly tensorRef: { dispose(): void } };
  dispose(): void;
}

/** What is used of the module `@tensorflow/tfjs-core`. */
export interface TfCore<T extends TfTensor = TfTensor> {
  tensor(
    values: Float32Array | { readonly buffer: GPUBuffer; readonly zeroCopy: boolean },
    shape: number[],
    dtype: 'float32',
  ): T;
  /** The backend in use; the WebGPU one has the device it runs on. */
  backend(): unknown;
}

/** A tensor and what ends it. */
export interface BlockTensor<T> {
  /** `[tokens, 2, KV heads, headDim]`, float32. */
  readonly tensor: T;
  /** Whether the tensor reads the gathered buffer itself. */
  readonly zeroCopy: boolean;
  /** Disposes of the tensor and of the buffer below it. */
  dispose(): void;
}

export async function blocksToTensor<T extends TfTensor>(
  tf: TfCore<T>,
  blocks: BlockTensors,
  range: BlockRange,
): Promise<BlockTensor<T>> {
  const shape = blocks.shapeOf(range);
  if (!sharesDevice(tf, blocks)) {
    const tensor = tf.tensor(await blocks.read(range), shape, 'float32');
    return { tensor, zeroCopy: false, dispose: () => tensor.dispose() };
  }
  const buffer = blocks.gather(range);
  const tensor = tf.tensor({ buffer, zeroCopy: true }, shape, 'float32');
  const dispose = (): void => {
    tensor.dispose();
    buffer.destroy();
  };
  return { tensor, zeroCopy: true, dispose };
}

/**
 * The range's blocks take what the tensor holds; the tensor stays the caller's.
 * @throws TKV_CONFIG when the tensor is not float32 or has another shape than the range
 */
export async function tensorToBlocks(
  tf: TfCore,
  blocks: BlockTensors,
  range: BlockRange,
  tensor: TfTensor,
): Promise<void> {
  const wanted = blocks.shapeOf(range).join(', ');
  if (tensor.dtype !== 'float32' || tensor.shape.join(', ') !== wanted) {
    const problem = `is ${tensor.dtype} [${tensor.shape.join(', ')}]`;
    throw configError('tensor', problem, `Give float32 [${wanted}]: tokens, K and V, KV heads, headDim.`);
  }
  if (sharesDevice(tf, blocks)) {
    const { buffer, tensorRef } = tensor.dataToGPU();
    if (buffer !== undefined) {
      blocks.scatter(range, buffer);
      tensorRef.dispose();
      return;
    }
    tensorRef.dispose();
  }
  blocks.write(range, Float32Array.from(await tensor.data()));
}

function sharesDevice(tf: TfCore, { device }: BlockTensors): boolean {
  const backend = tf.backend();
  return typeof backend === 'object' && backend !== null && 'device' in backend && backend.device === device;
}
