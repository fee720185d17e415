/**
 * Copies between dense KV tensors, [1, head, token, dim], and blocks, [layer][head][K, V][token][dim]. In both, the rows of
 * one head's keys or values lie together for consecutive tokens, so that a block is made of one plain copy for each layer,
 * head and kind. Bytes are never interpreted.
 */

import { TierKVError } from '../../runtime/errors.ts';
import type { KVLayout } from '../../runtime/geometry/layout.ts';
import type { EngineTensor } from './engine.ts';
import type { ModelShape } from './modelShape.ts';

/** The bytes of a layer's keys and values in tensors of `tokens` tokens. */
export interface DenseLayer {
  readonly key: Uint8Array;
  readonly value: Uint8Array;
}

export function denseLayers(layout: KVLayout, tokens: number): DenseLayer[] {
  const bytes = layout.kvHeads * tokens * layout.rowBytes;
  return Array.from({ length: layout.layers }, () => ({
    key: new Uint8Array(bytes),
    value: new Uint8Array(bytes),
  }));
}

/** A run of bytes that is contiguous in a block and in a tensor: one head of one layer, of K or of V. */
type CopyRun = (tensor: Uint8Array, tensorAt: number, blockAt: number, bytes: number) => void;

/** Visits the runs of block `index` beside tensors of `tokens` tokens. */
function eachRun(
  layout: KVLayout,
  layers: readonly DenseLayer[],
  tokens: number,
  index: number,
  copy: CopyRun,
): void {
  const { kvHeads, rowBytes, kvStrideBytes, headStrideBytes, layerStrideBytes, blockTokens } = layout;
  for (const [layer, { key, value }] of layers.entries()) {
    for (let head = 0; head < kvHeads; head++) {
      const blockAt = layer * layerStrideBytes + head * headStrideBytes;
      const tensorAt = (head * tokens + index * blockTokens) * rowBytes;
      copy(key, tensorAt, blockAt, kvStrideBytes);
      copy(value, tensorAt, blockAt + kvStrideBytes, kvStrideBytes);
    }
  }
}

/** Block `index` of `block` into tensors of `tokens` tokens. */
export function copyBlockOut(
  layout: KVLayout,
  block: Uint8Array,
  layers: readonly DenseLayer[],
  tokens: number,
  index: number,
): void {
  eachRun(layout, layers, tokens, index, (tensor, tensorAt, blockAt, bytes) =>
    tensor.set(block.subarray(blockAt, blockAt + bytes), tensorAt),
  );
}

/** Tokens of block `index` out of tensors of `tokens` tokens into `block`. */
export function copyBlockIn(
  layout: KVLayout,
  block: Uint8Array,
  layers: readonly DenseLayer[],
  tokens: number,
  index: number,
): void {
  eachRun(layout, layers, tokens, index, (tensor, tensorAt, blockAt, bytes) =>
    block.set(tensor.subarray(tensorAt, tensorAt + bytes), blockAt),
  );
}

/**
 * That a cache object holds exactly the KV tensors of a model for `tokens` tokens.
 * @throws TKV_INPUT naming the tensor that is missing, of other dims or type, or whose buffer is detached
 */
export function requireEntries(
  shape: ModelShape,
  layout: KVLayout,
  entries: Readonly<Record<string, EngineTensor>>,
  tokens: number,
): void {
  const names = shape.names.flatMap(({ key, value }) => [key, value]);
  const other = Object.keys(entries).find((name) => !names.includes(name));
  if (other !== undefined) throw wrongEntry(other, 'is not a tensor of this model');
  const dims = [1, shape.kvHeads, tokens, shape.headDim];
  for (const name of names) {
    const tensor: EngineTensor | undefined = entries[name];
    if (tensor === undefined) throw wrongEntry(name, 'is missing');
    if (tensor.type !== shape.tensorType) {
      throw wrongEntry(name, `is of type ${tensor.type}, and the model has ${shape.tensorType}`);
    }
    if (tensor.dims.length !== 4 || dims.some((size, i) => tensor.dims[i] !== size)) {
      throw wrongEntry(name, `is [${tensor.dims.join(', ')}], and must be [${dims.join(', ')}]`);
    }
    if (tensor.location === 'cpu') bytesOf(name, tensor, tensor.data, layout, tokens);
  }
}

/** The bytes of all tensors of a cache that was checked, which are views where the tensors lie in host memory. */
export async function bytesOfEntries(
  shape: ModelShape,
  layout: KVLayout,
  entries: Readonly<Record<string, EngineTensor>>,
  tokens: number,
): Promise<DenseLayer[]> {
  const layers: DenseLayer[] = [];
  const read = async (name: string): Promise<Uint8Array> => {
    const tensor = entries[name];
    const data = tensor.location === 'cpu' ? tensor.data : await tensor.ort_tensor?.getData();
    return bytesOf(name, tensor, data, layout, tokens);
  };
  for (const { key, value } of shape.names) {
    layers.push({ key: await read(key), value: await read(value) });
  }
  return layers;
}

function bytesOf(
  name: string,
  tensor: EngineTensor,
  data: unknown,
  layout: KVLayout,
  tokens: number,
): Uint8Array {
  if (!ArrayBuffer.isView(data)) throw wrongEntry(name, `has no data (it lies in ${tensor.location})`);
  if ((data.buffer as ArrayBuffer).detached) throw wrongEntry(name, 'has a detached buffer');
  const bytes = layout.kvHeads * tokens * layout.rowBytes;
  if (data.byteLength !== bytes) {
    throw wrongEntry(name, `has ${data.byteLength} bytes, and must have ${bytes}`);
  }
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

function wrongEntry(name: string, problem: string): TierKVError {
  return new TierKVError(
    'TKV_INPUT',
    `pastKeyValues['${name}'] ${problem}. Pass the cache object that this model computed.`,
    { field: `pastKeyValues.${name}` },
  );
}
