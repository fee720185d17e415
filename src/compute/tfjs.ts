/**
 * Blocks as tensors of TensorFlow.js, and back. If its WebGPU backend runs on our device, a tensor uses the
 * gathered buffer without a copy. Every other backend (cpu, tensorflow of tfjs-node-gpu) gets the numbers
 * from host memory. The caller passes in the packages; the parts of them that are used are declared here.
 */

import { configError } from '../runtime/errors.ts';
import * as is from '../runtime/kinds.ts';
import { checkInputs } from '../runtime/options.ts';
import type { BlockRange, BlockTensors } from './blockTensors.ts';

/** Shapes that callers must pass, by the names of parameters. */
const inputs = {
  tf: is.fields({ tensor: is.func() }),
  blocks: is.fields({ shapeOf: is.func() }),
  range: is.fields({ layer: is.number(), entries: is.bytes() }),
  tensor: is.fields({ data: is.func() }),
};

/** The parts of a tensor that are used. */
interface TfTensor {
  readonly shape: readonly number[];
  readonly dtype: string;
  data(): Promise<ArrayLike<number>>;
  dataToGPU(): { readonly buffer?: GPUBuffer; readonly tensorRef: { dispose(): void } };
  dispose(): void;
}

/** The parts of the module `@tensorflow/tfjs-core` that are used. */
export interface TfCore<T extends TfTensor = TfTensor> {
  tensor(
    values: Float32Array | { readonly buffer: GPUBuffer; readonly zeroCopy: boolean },
    shape: number[],
    dtype: 'float32',
  ): T;
  /** The backend in use; the WebGPU backend has the device on which it runs. */
  backend(): unknown;
}

/** A tensor, and the call that frees it. */
export interface BlockTensor<T> {
  /** `[tokens, 2, KV heads, headDim]`, float32. */
  readonly tensor: T;
  /** Whether the tensor uses the gathered buffer without a copy. */
  readonly zeroCopy: boolean;
  /** Disposes of the tensor and its buffer. */
  dispose(): void;
}

/** Reads a range of blocks as a tensor of TensorFlow.js, on the same device. */
export async function blocksToTensor<T extends TfTensor>(
  tf: TfCore<T>,
  blocks: BlockTensors,
  range: BlockRange,
): Promise<BlockTensor<T>> {
  checkInputs({ tf, blocks, range }, inputs);
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
 * Writes the tensor into the range's blocks. The caller keeps the tensor.
 * @throws TKV_CONFIG if the tensor is not float32 or has another shape than the range
 */
export async function tensorToBlocks(
  tf: TfCore,
  blocks: BlockTensors,
  range: BlockRange,
  tensor: TfTensor,
): Promise<void> {
  checkInputs({ tf, blocks, range, tensor }, inputs);
  const wanted = blocks.shapeOf(range).join(', ');
  if (tensor.dtype !== 'float32' || tensor.shape.join(', ') !== wanted) {
    const problem = `is ${tensor.dtype} [${tensor.shape.join(', ')}]`;
    throw configError('tensor', problem, `Give float32 [${wanted}]: tokens, K and V, KV heads, headDim.`);
  }
  const lying = sharesDevice(tf, blocks) ? onDevice(tensor) : undefined;
  try {
    if (lying?.buffer !== undefined) blocks.scatter(range, lying.buffer);
    else blocks.write(range, Float32Array.from(await tensor.data()));
  } finally {
    lying?.tensorRef.dispose();
  }
}

/** The tensor on its device; undefined where its numbers still lie in host memory, which the backend says by an error. */
function onDevice(tensor: TfTensor): ReturnType<TfTensor['dataToGPU']> | undefined {
  try {
    return tensor.dataToGPU();
  } catch {
    return undefined; // should the device be at fault, reading the numbers says so
  }
}

function sharesDevice(tf: TfCore, { device }: BlockTensors): boolean {
  const backend = tf.backend();
  return typeof backend === 'object' && backend !== null && 'device' in backend && backend.device === device;
}
