/** Runs the kernels over a case on a device, with everything that is not written yet poisoned with NaN. */

import { BufferUsage, MapMode } from '../../src/backends/webgpu/device/gpuConstants.ts';
import { PagedAttention } from '../../src/compute/index.ts';
import type { PagedCase } from './pagedCase.ts';

const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = BufferUsage;

export interface RunOptions {
  /** Rows of the case that go, in this order. Default: all. */
  readonly rows?: readonly number[];
  readonly partialBytesMax?: number;
  /** Lets the kernel write the rows' K and V before it attends, into slabs that hold nothing but NaN. */
  readonly writes?: boolean;
}

export interface RunResult {
  readonly attended: Float32Array;
  readonly slabs: readonly Uint8Array[];
}

export async function runCase(
  device: GPUDevice,
  one: PagedCase,
  { rows, partialBytesMax, writes = false }: RunOptions = {},
): Promise<RunResult> {
  const { shape, layout, layer, entries } = one;
  const { qHeads, kvHeads, headDim, window = 0 } = shape;
  const chosen = rows ?? one.sequenceOf.map((_, row) => row);
  const stride = (qHeads + 2 * kvHeads) * headDim;
  const qkv = new Float32Array(chosen.length * stride);
  chosen.forEach((row, i) => {
    qkv.set(one.qkv.subarray(row * stride, (row + 1) * stride), i * stride);
  });
  const filled = (bytes: Uint8Array): GPUBuffer => {
    const buffer = device.createBuffer({ size: bytes.length, usage: STORAGE | COPY_SRC | COPY_DST });
    device.queue.writeBuffer(buffer, 0, bytes);
    return buffer;
  };
  const poisoned = (bytes: number): GPUBuffer => filled(new Uint8Array(bytes).fill(0xff));
  const slabs = one.slabBytes.map((bytes) => (writes ? poisoned(bytes.length) : filled(bytes)));
  const source = filled(new Uint8Array(qkv.buffer));
  const attended = poisoned(chosen.length * qHeads * headDim * 4);
  using attention = await PagedAttention.open({
    device,
    slabs,
    layout,
    qHeads,
    window,
    rowsMax: chosen.length,
    entriesMax: entries.length / 2,
    contextTokens: Math.max(...shape.lengths),
    ...(partialBytesMax === undefined ? {} : { partialBytesMax }),
  });
  const { partials } = attention;
  device.queue.writeBuffer(partials, 0, new Uint8Array(partials.size).fill(0xff));
  const bound = attention.bind(source, attended);
  attention.setStep({
    rows: Uint32Array.from(chosen.flatMap((row) => [...one.rows.subarray(4 * row, 4 * row + 4)])),
    entries,
  });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  if (writes) attention.write(pass, layer, bound);
  attention.attend(pass, layer, bound);
  pass.end();
  device.queue.submit([encoder.finish()]);
  const result = new Float32Array((await bytesOf(device, attended)).buffer);
  const slabBytes = writes ? await Promise.all(slabs.map((slab) => bytesOf(device, slab))) : [];
  for (const buffer of [...slabs, source, attended]) buffer.destroy();
  return { attended: result, slabs: slabBytes };
}

export async function bytesOf(device: GPUDevice, buffer: GPUBuffer): Promise<Uint8Array<ArrayBuffer>> {
  const landing = device.createBuffer({ size: buffer.size, usage: MAP_READ | COPY_DST });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, landing, 0, buffer.size);
  device.queue.submit([encoder.finish()]);
  await landing.mapAsync(MapMode.READ);
  const bytes = new Uint8Array(landing.getMappedRange().slice(0));
  landing.destroy();
  return bytes;
}
