/** Runs the kernels over a case on a device, with everything that is not written yet poisoned with NaN. */

import { BufferUsage, MapMode } from '../../../src/backends/webgpu/device.ts';
import { type AttentionKernel, PagedAttention } from '../../../src/compute/index.ts';
import type { PagedCase } from './pagedCase.ts';

const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = BufferUsage;

export interface RunOptions {
  readonly kernel?: AttentionKernel;
  readonly partialBytesMax?: number;
  /** Lets the kernel write the rows' K and V before they attend, into slabs that hold nothing but NaN. */
  readonly writes?: boolean;
}

export interface CaseRun {
  /** @param rows rows of the case that go, in this order. Default: all. @returns what they attended to */
  run(rows?: readonly number[]): Promise<Float32Array>;
  /** What lies in the slabs now. */
  slabs(): Promise<readonly Uint8Array[]>;
  destroy(): void;
}

export async function openCase(
  device: GPUDevice,
  one: PagedCase,
  { kernel, partialBytesMax, writes = false }: RunOptions = {},
): Promise<CaseRun> {
  const { shape, layout, layer, entries } = one;
  const { qHeads, kvHeads, headDim, window = 0 } = shape;
  const rowsMax = one.sequenceOf.length;
  const stride = (qHeads + 2 * kvHeads) * headDim;
  const filled = (bytes: Uint8Array): GPUBuffer => {
    const buffer = device.createBuffer({ size: bytes.length, usage: STORAGE | COPY_SRC | COPY_DST });
    device.queue.writeBuffer(buffer, 0, bytes);
    return buffer;
  };
  const poison = (buffer: GPUBuffer): void =>
    device.queue.writeBuffer(buffer, 0, new Uint8Array(buffer.size).fill(0xff));
  const slabs = one.slabBytes.map((bytes) => filled(writes ? bytes.slice().fill(0xff) : bytes));
  const source = filled(new Uint8Array(rowsMax * stride * 4));
  const attended = filled(new Uint8Array(rowsMax * qHeads * headDim * 4));
  const attention = await PagedAttention.open({
    device,
    slabs,
    layout,
    qHeads,
    ...(kernel === undefined ? {} : { kernel }),
    window,
    rowsMax,
    entriesMax: entries.length / 2,
    contextTokens: Math.max(...shape.lengths),
    ...(partialBytesMax === undefined ? {} : { partialBytesMax }),
  });
  const bound = attention.bind(source, attended);
  return {
    async run(chosen = one.sequenceOf.map((_, row) => row)) {
      for (const buffer of [source, attended, attention.partials]) poison(buffer);
      chosen.forEach((row, i) => {
        const values = one.qkv.subarray(row * stride, (row + 1) * stride);
        device.queue.writeBuffer(source, i * stride * 4, values);
      });
      const rows = chosen.flatMap((row) => [...one.rows.subarray(4 * row, 4 * row + 4)]);
      attention.setStep({ rows: Uint32Array.from(rows), entries });
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      if (writes) attention.write(pass, layer, bound);
      attention.attend(pass, layer, bound);
      pass.end();
      device.queue.submit([encoder.finish()]);
      const bytes = await bytesOf(device, attended);
      return new Float32Array(bytes.buffer, 0, chosen.length * qHeads * headDim);
    },
    slabs: () => Promise.all(slabs.map((slab) => bytesOf(device, slab))),
    destroy() {
      for (const buffer of [...slabs, source, attended]) buffer.destroy();
      attention[Symbol.dispose]();
    },
  };
}

/** One run over all rows. */
export async function runCase(
  device: GPUDevice,
  one: PagedCase,
  options: RunOptions = {},
): Promise<Float32Array> {
  const opened = await openCase(device, one, options);
  try {
    return await opened.run();
  } finally {
    opened.destroy();
  }
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
