/**
 * Runs gather or scatter over the pieces of a batch: one pass, one dispatch for each slab and form that has pieces. On the
 * other side of the kernels stands one buffer of packed bytes, since a mappable buffer is nothing that a kernel may use:
 *
 *     gather    slabs --kernel--> packed --one copy--> a mappable buffer
 *     scatter   a mappable buffer --one copy--> packed --kernel--> slabs
 *
 * The one packed buffer, and the one table of pieces, serve all batches of both directions: whoever encodes submits the
 * encoder before anything else is encoded, so queue order keeps the batches apart.
 */

import { BufferUsage } from '../gpuConstants.ts';
import { writeWords } from '../hostBytes.ts';
import type { LiveDevice } from '../liveDevice.ts';
import type { Slabs } from '../slabs.ts';
import type { BoxKernel, BoxPrograms } from './boxPrograms.ts';
import { type PieceList, pieceForms, WORDS_PER_PIECE } from './pieceList.ts';

const PIECE_BYTES = WORDS_PER_PIECE * 4;
/** Pieces between two dynamic offsets, which are multiples of 256 bytes. */
const ROWS_PER_GROUP = 256 / PIECE_BYTES;
const WORKGROUPS_MAX = 65535;

export class BoxKernels {
  readonly piecesMax: number;
  /** Packed bytes of a batch at most, a multiple of a vector. */
  readonly packedBytes: number;
  readonly packed: GPUBuffer;
  readonly #live: LiveDevice;
  readonly #label: string;
  readonly #programs: BoxPrograms;
  readonly #table: GPUBuffer;
  readonly #groups: Record<BoxKernel, readonly GPUBindGroup[]>;
  readonly #rowWords: Uint32Array<ArrayBuffer>;
  readonly #rowBytes: Uint8Array<ArrayBuffer>;
  /** By slab and form. */
  readonly #count: Uint32Array;
  readonly #row: Uint32Array;
  readonly #workgroups: Uint32Array;

  constructor(
    live: LiveDevice,
    programs: BoxPrograms,
    slabs: Slabs,
    label: string,
    piecesMax: number,
    packedBytes: number,
  ) {
    this.#live = live;
    this.#label = label;
    this.#programs = programs;
    this.piecesMax = piecesMax;
    this.packedBytes = packedBytes;
    const { device } = live;
    this.packed = device.createBuffer({
      label: `${label}.packed`,
      size: packedBytes,
      usage: BufferUsage.STORAGE | BufferUsage.COPY_SRC | BufferUsage.COPY_DST,
    });
    const dispatches = pieceForms.length * slabs.buffers.length;
    const rowsMax = piecesMax + ROWS_PER_GROUP * dispatches;
    // A binding has one size whatever its dynamic offset, so there is room for a whole batch behind the last row.
    this.#table = device.createBuffer({
      label: `${label}.pieces`,
      size: (rowsMax + piecesMax) * PIECE_BYTES,
      usage: BufferUsage.STORAGE | BufferUsage.COPY_DST,
    });
    const bind = (kernel: BoxKernel): GPUBindGroup[] =>
      slabs.buffers.map((buffer) =>
        device.createBindGroup({
          label: `${buffer.label}.${kernel}`,
          layout: programs.layouts[kernel],
          entries: [
            { binding: 0, resource: { buffer } },
            { binding: 1, resource: { buffer: this.#table, size: piecesMax * PIECE_BYTES } },
            { binding: 2, resource: { buffer: this.packed } },
          ],
        }),
      );
    this.#groups = { gather: bind('gather'), scatter: bind('scatter') };
    this.#rowWords = new Uint32Array(rowsMax * WORDS_PER_PIECE);
    this.#rowBytes = new Uint8Array(this.#rowWords.buffer);
    this.#count = new Uint32Array(dispatches);
    this.#row = new Uint32Array(dispatches);
    this.#workgroups = new Uint32Array(dispatches);
  }

  /** Encodes `kernel` over the pieces. The caller submits the encoder before it encodes another batch. */
  encode(encoder: GPUCommandEncoder, kernel: BoxKernel, list: PieceList): void {
    if (list.count === 0) return;
    const rows = this.#pack(list);
    writeWords(this.#live.device.queue, this.#table, this.#rowBytes.subarray(0, rows * PIECE_BYTES), 0);
    const pass = encoder.beginComputePass({ label: `${this.#label}.${kernel}` });
    for (const [form, pipeline] of this.#programs.pipelines[kernel].entries()) {
      pass.setPipeline(pipeline);
      for (const [slab, group] of this.#groups[kernel].entries()) {
        const dispatch = pieceForms.length * slab + form;
        if (this.#count[dispatch] === 0) continue;
        pass.setBindGroup(0, group, [this.#row[dispatch] * PIECE_BYTES]);
        pass.dispatchWorkgroups(this.#workgroups[dispatch], this.#count[dispatch]);
      }
    }
    pass.end();
  }

  destroy(): void {
    this.#table.destroy();
    this.packed.destroy();
  }

  /** Sorts the pieces by dispatch into rows; returns how many rows that takes. */
  #pack(list: PieceList): number {
    const counts = this.#count.fill(0);
    const workgroups = this.#workgroups.fill(0);
    const next = this.#row;
    for (let i = 0; i < list.count; i++) {
      const dispatch = dispatchOf(list, i);
      counts[dispatch] += 1;
      workgroups[dispatch] = Math.max(workgroups[dispatch], this.#workgroupsOf(list, i));
    }
    let rows = 0;
    for (let dispatch = 0; dispatch < counts.length; dispatch++) {
      next[dispatch] = rows;
      rows += Math.ceil(counts[dispatch] / ROWS_PER_GROUP) * ROWS_PER_GROUP;
    }
    for (let i = 0; i < list.count; i++) {
      const to = next[dispatchOf(list, i)]++ * WORDS_PER_PIECE;
      const from = i * WORDS_PER_PIECE;
      for (let word = 0; word < WORDS_PER_PIECE; word++) this.#rowWords[to + word] = list.rows[from + word];
    }
    for (let dispatch = 0; dispatch < counts.length; dispatch++) next[dispatch] -= counts[dispatch];
    return rows;
  }

  #workgroupsOf(list: PieceList, index: number): number {
    const { lanes, lanesPerRun, unitsPerLane } = this.#programs.shape;
    const runs = list.rows[index * WORDS_PER_PIECE + 3];
    const runUnits = list.rows[index * WORDS_PER_PIECE + 4];
    const sharers = Math.min(lanesPerRun, 2 ** (31 - Math.clz32(runUnits)));
    const runsPerLane = Math.max(1, Math.floor(unitsPerLane / Math.ceil(runUnits / sharers)));
    return Math.min(WORKGROUPS_MAX, Math.ceil(runs / ((lanes / sharers) * runsPerLane)));
  }
}

function dispatchOf(list: PieceList, index: number): number {
  return pieceForms.length * list.slab[index] + list.form[index];
}
