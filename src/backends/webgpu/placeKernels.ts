/**
 * Runs one of the kernels over many places with few commands: one pass, one dispatch for each slab that has places. The
 * places are packed by slab into one storage buffer, each slab's at a row that a dynamic offset can name:
 *
 *     rows     0 .. 2         32 .. 36            (32 rows: 512 bytes of places, 256 bytes of results)
 *            +---------+----+--------------+--
 *            | slab 0  |    | slab 3       |       dispatch(workgroups, 3)   dispatch(workgroups, 5)
 *            +---------+----+--------------+--
 *
 * Buffers and bind groups are made once. The one buffer of places serves all batches, because `encode` writes it through
 * the queue and its caller submits the encoder before anything else is encoded: queue order keeps the batches apart.
 */

import { TierKVError } from '../../runtime/errors.ts';
import { BufferUsage, COMPUTE_STAGE } from './gpuConstants.ts';
import { writeWords } from './hostBytes.ts';
import type { LiveDevice } from './liveDevice.ts';
import type { PlaceList } from './placeList.ts';
import { shaderSource } from './shaders.ts';
import type { Slabs } from './slabs.ts';

export type PlaceKernel = 'digest' | 'fill' | 'check';

/** How the work of a place is spread over the device. */
export interface KernelShape {
  /** Invocations of a workgroup, a power of two. */
  readonly lanes: number;
  /** Vectors of 16 bytes that an invocation walks in a large place. */
  readonly vectorsPerLane: number;
  readonly digest: 'scattered' | 'reduced';
}

/** A CPU pays for every barrier by switching between invocations, and gains nothing from wide workgroups. */
export const softwareShape: KernelShape = { lanes: 16, vectorsPerLane: 64, digest: 'scattered' };
export const hardwareShape: KernelShape = { lanes: 64, vectorsPerLane: 16, digest: 'reduced' };

const ROWS_PER_GROUP = 32;
const PLACE_BYTES = 16;
const RESULT_BYTES = 8;
const WORKGROUPS_MAX = 65535;

export class PlaceKernels {
  /** Most places in one batch. */
  readonly placesMax: number;
  /** Bytes that the results of a batch take at most. */
  readonly resultBytesMax: number;
  readonly #live: LiveDevice;
  readonly #shape: KernelShape;
  readonly #label: string;
  readonly #pipelines: Record<PlaceKernel, GPUComputePipeline>;
  readonly #places: GPUBuffer;
  readonly #results: GPUBuffer;
  readonly #readGroups: readonly GPUBindGroup[];
  readonly #writeGroups: readonly GPUBindGroup[];
  readonly #packedWords: Uint32Array<ArrayBuffer>;
  readonly #packedBytes: Uint8Array<ArrayBuffer>;
  readonly #slabCount: Uint32Array;
  readonly #slabRow: Uint32Array;
  readonly #slabWordsMax: Uint32Array;

  private constructor(
    live: LiveDevice,
    slabs: Slabs,
    label: string,
    placesMax: number,
    shape: KernelShape,
    layouts: { read: GPUBindGroupLayout; write: GPUBindGroupLayout },
    pipelines: Record<PlaceKernel, GPUComputePipeline>,
  ) {
    this.#live = live;
    this.#shape = shape;
    this.#label = label;
    this.#pipelines = pipelines;
    this.placesMax = placesMax;
    const { device } = live;
    const slabCount = slabs.buffers.length;
    const rowsMax = placesMax + ROWS_PER_GROUP * slabCount;
    this.resultBytesMax = rowsMax * RESULT_BYTES;
    // A binding has one size whatever its dynamic offset, so there is room for a whole batch behind the last row.
    const rows = rowsMax + placesMax;
    this.#places = device.createBuffer({
      label: `${label}.places`,
      size: rows * PLACE_BYTES,
      usage: BufferUsage.STORAGE | BufferUsage.COPY_DST,
    });
    this.#results = device.createBuffer({
      label: `${label}.results`,
      size: rows * RESULT_BYTES,
      usage: BufferUsage.STORAGE | BufferUsage.COPY_SRC | BufferUsage.COPY_DST,
    });
    const bind = (layout: GPUBindGroupLayout, buffer: GPUBuffer): GPUBindGroup =>
      device.createBindGroup({
        label: `${buffer.label}.places`,
        layout,
        entries: [
          { binding: 0, resource: { buffer } },
          { binding: 1, resource: { buffer: this.#places, size: placesMax * PLACE_BYTES } },
          { binding: 2, resource: { buffer: this.#results, size: placesMax * RESULT_BYTES } },
        ],
      });
    this.#readGroups = slabs.buffers.map((buffer) => bind(layouts.read, buffer));
    this.#writeGroups = slabs.buffers.map((buffer) => bind(layouts.write, buffer));
    this.#packedWords = new Uint32Array((rowsMax * PLACE_BYTES) / 4);
    this.#packedBytes = new Uint8Array(this.#packedWords.buffer);
    this.#slabCount = new Uint32Array(slabCount);
    this.#slabRow = new Uint32Array(slabCount);
    this.#slabWordsMax = new Uint32Array(slabCount);
  }

  /** @throws TKV_DEVICE when the device does not compile the kernels */
  static async open(
    live: LiveDevice,
    slabs: Slabs,
    label: string,
    placesMax: number,
    shape: KernelShape = live.adapter.software ? softwareShape : hardwareShape,
  ): Promise<PlaceKernels> {
    const layouts = {
      read: bindGroupLayout(live.device, `${label}.read`, 'read-only-storage'),
      write: bindGroupLayout(live.device, `${label}.write`, 'storage'),
    };
    try {
      const [digest, fill, check] = await Promise.all([
        compile(live.device, label, 'digest', layouts.read, shape.digest, shape.lanes),
        compile(live.device, label, 'fill', layouts.write, 'scattered', shape.lanes),
        compile(live.device, label, 'check', layouts.read, 'scattered', shape.lanes),
      ]);
      return new PlaceKernels(live, slabs, label, placesMax, shape, layouts, { digest, fill, check });
    } catch (cause) {
      const why = live.lostReason || (cause instanceof Error ? cause.message : String(cause));
      throw new TierKVError(
        'TKV_DEVICE',
        `The kernels do not compile on ${live.adapter.name} (${why}). Choose another adapter with TIERKV_ADAPTER.`,
        { field: 'TIERKV_ADAPTER', cause },
      );
    }
  }

  /**
   * Encodes `kernel` over the places and a copy of the results into `readback`; returns the bytes copied. The caller
   * submits the encoder before it encodes another batch.
   */
  encode(encoder: GPUCommandEncoder, kernel: PlaceKernel, list: PlaceList, readback: GPUBuffer): number {
    const rows = this.#pack(list);
    writeWords(this.#live.device.queue, this.#places, this.#packedBytes.subarray(0, rows * PLACE_BYTES), 0);
    if (kernel !== 'fill') encoder.clearBuffer(this.#results, 0, rows * RESULT_BYTES);
    const pass = encoder.beginComputePass({ label: `${this.#label}.${kernel}` });
    pass.setPipeline(this.#pipelines[kernel]);
    const groups = kernel === 'fill' ? this.#writeGroups : this.#readGroups;
    for (let slab = 0; slab < groups.length; slab++) {
      const places = this.#slabCount[slab];
      if (places === 0) continue;
      const row = this.#slabRow[slab];
      pass.setBindGroup(0, groups[slab], [row * PLACE_BYTES, row * RESULT_BYTES]);
      pass.dispatchWorkgroups(this.#workgroups(this.#slabWordsMax[slab]), places);
    }
    pass.end();
    encoder.copyBufferToBuffer(this.#results, 0, readback, 0, rows * RESULT_BYTES);
    return rows * RESULT_BYTES;
  }

  destroy(): void {
    this.#places.destroy();
    this.#results.destroy();
  }

  #workgroups(words: number): number {
    const vectors = Math.ceil(words / 4) + 1;
    const { lanes, vectorsPerLane } = this.#shape;
    return Math.min(WORKGROUPS_MAX, Math.ceil(vectors / (lanes * vectorsPerLane)));
  }

  /** Sorts the places by slab into rows; returns how many rows that takes. */
  #pack(list: PlaceList): number {
    const counts = this.#slabCount.fill(0);
    const next = this.#slabRow;
    const wordsMax = this.#slabWordsMax.fill(0);
    for (let i = 0; i < list.count; i++) {
      const slab = list.slab[i];
      counts[slab] += 1;
      wordsMax[slab] = Math.max(wordsMax[slab], list.wordCount[i]);
    }
    let rows = 0;
    for (let slab = 0; slab < counts.length; slab++) {
      next[slab] = rows;
      rows += Math.ceil(counts[slab] / ROWS_PER_GROUP) * ROWS_PER_GROUP;
    }
    for (let i = 0; i < list.count; i++) {
      const row = next[list.slab[i]]++;
      list.row[i] = row;
      const word = (row * PLACE_BYTES) / 4;
      this.#packedWords[word] = list.wordOffset[i];
      this.#packedWords[word + 1] = list.wordCount[i];
      this.#packedWords[word + 2] = list.seedLo[i];
      this.#packedWords[word + 3] = list.seedHi[i];
    }
    for (let slab = 0; slab < counts.length; slab++) next[slab] -= counts[slab];
    return rows;
  }
}

function bindGroupLayout(
  device: GPUDevice,
  label: string,
  slab: 'read-only-storage' | 'storage',
): GPUBindGroupLayout {
  return device.createBindGroupLayout({
    label,
    entries: [
      { binding: 0, visibility: COMPUTE_STAGE, buffer: { type: slab } },
      {
        binding: 1,
        visibility: COMPUTE_STAGE,
        buffer: { type: 'read-only-storage', hasDynamicOffset: true },
      },
      { binding: 2, visibility: COMPUTE_STAGE, buffer: { type: 'storage', hasDynamicOffset: true } },
    ],
  });
}

function compile(
  device: GPUDevice,
  label: string,
  kernel: PlaceKernel,
  layout: GPUBindGroupLayout,
  entryPoint: string,
  lanes: number,
): Promise<GPUComputePipeline> {
  return device.createComputePipelineAsync({
    label: `${label}.${kernel}`,
    layout: device.createPipelineLayout({ label: `${label}.${kernel}`, bindGroupLayouts: [layout] }),
    compute: {
      module: device.createShaderModule({ label: `${label}.${kernel}`, code: shaderSource(kernel) }),
      entryPoint,
      constants: { lanes },
    },
  });
}
