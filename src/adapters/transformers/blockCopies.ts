/// <reference types="@webgpu/types" preserve="true" />

/**
 * Copies between dense KV tensors, [1, head, token, dim], and blocks, [layer][head][K, V][token][dim]. In both, the rows of
 * one head's keys or values lie together for consecutive tokens, so that a block is made of one plain copy for each layer,
 * head and kind. Bytes are never interpreted.
 */

import { BufferUsage, MapMode } from '../../backends/webgpu/device.ts';
import { TierKVError } from '../../runtime/errors.ts';
import type { KVLayout } from '../../runtime/geometry/layout.ts';
import { bufferOf, type EngineTensor } from './engine.ts';
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

/**
 * Copies block `index` between `block` and tensors of `tokens` tokens, run by run: what is contiguous in both is one head of
 * one layer, of K or of V.
 */
export function copyBlock(
  to: 'tensors' | 'block',
  layout: KVLayout,
  block: Uint8Array,
  layers: readonly DenseLayer[],
  tokens: number,
  index: number,
): void {
  const { kvHeads, rowBytes, kvStrideBytes, headStrideBytes, layerStrideBytes, blockTokens } = layout;
  for (const [layer, { key, value }] of layers.entries()) {
    for (let head = 0; head < kvHeads; head++) {
      const tensorAt = (head * tokens + index * blockTokens) * rowBytes;
      let blockAt = layer * layerStrideBytes + head * headStrideBytes;
      for (const tensor of [key, value]) {
        if (to === 'tensors') tensor.set(block.subarray(blockAt, blockAt + kvStrideBytes), tensorAt);
        else block.set(tensor.subarray(tensorAt, tensorAt + kvStrideBytes), blockAt);
        blockAt += kvStrideBytes;
      }
    }
  }
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
    if (tensor.location === 'none') throw wrongEntry(name, 'was disposed of');
    if (tensor.location === 'cpu') bytesOf(name, tensor, tensor.data, layout, tokens);
  }
}

/**
 * The bytes of all tensors of a cache that was checked: views of tensors in host memory, and copies of those on a device.
 * @param device on which buffers of a page lie
 */
export function bytesOfEntries(
  shape: ModelShape,
  layout: KVLayout,
  entries: Readonly<Record<string, EngineTensor>>,
  tokens: number,
  device: GPUDevice | undefined,
): Promise<DenseLayer[]> {
  const read = async (name: string): Promise<Uint8Array> => {
    const tensor = entries[name];
    const buffer = device === undefined ? undefined : bufferOf(tensor);
    if (device !== undefined && buffer !== undefined) {
      return await readBuffer(device, buffer, layout.kvHeads * tokens * layout.rowBytes);
    }
    // an opaque buffer can only be moved: it goes back, since nothing would dispose of it later
    const data = tensor.location === 'cpu' ? tensor.data : await tensor.ort_tensor?.getData(true);
    return bytesOf(name, tensor, data, layout, tokens);
  };
  return Promise.all(
    shape.names.map(async ({ key, value }) => ({ key: await read(key), value: await read(value) })),
  );
}

/** The buffers of all tensors of a cache in order, key and value of each layer; undefined unless all have one. */
export function buffersOfEntries(
  shape: ModelShape,
  entries: Readonly<Record<string, EngineTensor>>,
): GPUBuffer[] | undefined {
  const buffers = shape.names.flatMap(({ key, value }) => [bufferOf(entries[key]), bufferOf(entries[value])]);
  return buffers.every((buffer) => buffer !== undefined) ? buffers : undefined;
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

/** A copy of the first `bytes` bytes of a buffer, which stays as it is. */
export async function readBuffer(device: GPUDevice, buffer: GPUBuffer, bytes: number): Promise<Uint8Array> {
  const landing = device.createBuffer({
    label: 'tierkv.landing',
    size: Math.ceil(bytes / 4) * 4,
    usage: BufferUsage.MAP_READ | BufferUsage.COPY_DST,
  });
  try {
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, landing, 0, landing.size);
    device.queue.submit([encoder.finish()]);
    await landing.mapAsync(MapMode.READ);
    return new Uint8Array(landing.getMappedRange().slice(0, bytes));
  } finally {
    landing.destroy();
  }
}

function wrongEntry(name: string, problem: string): TierKVError {
  return new TierKVError(
    'TKV_INPUT',
    `pastKeyValues['${name}'] ${problem}. Pass the cache object that this model computed.`,
    { field: `pastKeyValues.${name}` },
  );
}
