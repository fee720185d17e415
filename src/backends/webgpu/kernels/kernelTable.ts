/**
 * The items of one dispatch of a kernel over slabs. They are collected in any order and sorted by slab when
 * they are encoded, each slab's from a row on that a dynamic offset can name:
 *
 *     rows     0 .. 2         16 .. 20            (for items of 4 words: 16 rows are 256 bytes)
 *            +---------+----+--------------+--
 *            | slab 0  |    | slab 3       |      dispatch(workgroups, 3)   dispatch(workgroups, 5)
 *            +---------+----+--------------+--
 *
 * Buffers and bind groups are made once and used again. `encode` writes the items through the queue, so the
 * encoder must be submitted before this table is encoded again. Who needs more dispatches in one encoder
 * makes more tables.
 */

import { invariant } from '../../../runtime/errors.ts';
import { BufferUsage } from '../device/gpuConstants.ts';
import { writeWords } from '../device/hostBytes.ts';
import type { CompiledKernel } from './kernelSpec.ts';

/** Dynamic offsets are multiples of this; no device of WebGPU asks for more. */
const OFFSET_WORDS = 64;
const WORKGROUPS_MAX = 65535;

export interface EncodeOptions {
  /** The kernel's own buffers (`SlabKernel.bindOwn`). */
  readonly own?: GPUBindGroup;
  /** Where the results go, from byte 0 on; of `SlabKernel.resultBytesMax` bytes. Default: nowhere. */
  readonly resultsTo?: GPUBuffer;
}

export class KernelTable {
  readonly itemsMax: number;
  readonly #kernel: CompiledKernel;
  readonly #rowsPerOffset: number;
  readonly #items: GPUBuffer;
  readonly #results: GPUBuffer | undefined;
  readonly #groups: readonly GPUBindGroup[];
  readonly #slabOf: Uint32Array;
  readonly #words: Uint32Array;
  readonly #sorted: Uint32Array<ArrayBuffer>;
  /** For each slab: its items, the first of its rows, the workgroups of its largest item. */
  readonly #count: Uint32Array;
  readonly #row: Uint32Array;
  readonly #workgroups: Uint32Array;
  #length = 0;

  /** Made by `SlabKernel.table`. */
  constructor(kernel: CompiledKernel, itemsMax: number) {
    invariant(itemsMax >= 1 && itemsMax <= WORKGROUPS_MAX, 'a table has 1 to 65535 items');
    this.#kernel = kernel;
    this.itemsMax = itemsMax;
    const { itemWords, resultWords } = kernel.spec;
    const slabs = kernel.slabs.length;
    this.#rowsPerOffset = rowsPerOffset(kernel);
    const rowsMax = itemsMax + this.#rowsPerOffset * slabs;
    // A binding has one size whatever its dynamic offset, so there is room for a whole table behind the last
    // row.
    const rows = rowsMax + itemsMax;
    const { device } = kernel.live;
    this.#items = device.createBuffer({
      label: `${kernel.label}.items`,
      size: rows * itemWords * 4,
      usage: BufferUsage.STORAGE | BufferUsage.COPY_DST,
    });
    if (resultWords > 0) {
      this.#results = device.createBuffer({
        label: `${kernel.label}.results`,
        size: rows * resultWords * 4,
        usage: BufferUsage.STORAGE | BufferUsage.COPY_SRC | BufferUsage.COPY_DST,
      });
    }
    this.#groups = kernel.slabs.map((slab) => this.#bind(slab));
    this.#slabOf = new Uint32Array(itemsMax);
    this.#words = new Uint32Array(itemsMax * itemWords);
    this.#sorted = new Uint32Array(rowsMax * itemWords);
    this.#count = new Uint32Array(slabs);
    this.#row = new Uint32Array(slabs);
    this.#workgroups = new Uint32Array(slabs);
  }

  get length(): number {
    return this.#length;
  }

  get full(): boolean {
    return this.#length === this.itemsMax;
  }

  /**
   * @param slab index of the slab in which the item lies
   * @param workgroups that are to work on it, 1 or more
   * @param words `itemWords` of them
   */
  add(slab: number, workgroups: number, ...words: readonly number[]): void {
    const { itemWords } = this.#kernel.spec;
    invariant(!this.full && words.length === itemWords, 'an item fits into its table');
    const index = this.#length++;
    this.#slabOf[index] = slab;
    this.#words.set(words, index * itemWords);
    this.#count[slab]++;
    this.#workgroups[slab] = Math.max(this.#workgroups[slab], Math.min(WORKGROUPS_MAX, workgroups));
  }

  /**
   * Encodes the kernel over all items, one dispatch a slab, and empties the table.
   *
   * @returns for each item in the order of `add`, the index of the first word of its results in `resultsTo`
   */
  encode(encoder: GPUCommandEncoder, { own, resultsTo }: EncodeOptions = {}): Uint32Array {
    const positions = new Uint32Array(this.#length);
    if (this.#length === 0) return positions;
    const { live, label, pipeline, spec, slabs } = this.#kernel;
    const rows = this.#sort(positions);
    const sorted = new Uint8Array(this.#sorted.buffer, 0, rows * spec.itemWords * 4);
    writeWords(live.device.queue, this.#items, sorted, 0);
    const resultBytes = rows * spec.resultWords * 4;
    if (this.#results !== undefined) encoder.clearBuffer(this.#results, 0, resultBytes);
    const pass = encoder.beginComputePass({ label });
    pass.setPipeline(pipeline);
    if (own !== undefined) pass.setBindGroup(1, own);
    for (let slab = 0; slab < slabs.length; slab++) {
      if (this.#count[slab] === 0) continue;
      const offsets = [this.#row[slab] * spec.itemWords * 4, this.#row[slab] * spec.resultWords * 4];
      pass.setBindGroup(0, this.#groups[slab], spec.resultWords > 0 ? offsets : offsets.slice(0, 1));
      pass.dispatchWorkgroups(this.#workgroups[slab], this.#count[slab]);
    }
    pass.end();
    if (this.#results !== undefined && resultsTo !== undefined) {
      encoder.copyBufferToBuffer(this.#results, 0, resultsTo, 0, resultBytes);
    }
    this.#length = 0;
    this.#count.fill(0);
    this.#workgroups.fill(0);
    return positions;
  }

  destroy(): void {
    this.#items.destroy();
    this.#results?.destroy();
  }

  /** Puts the items in rows by slab. @returns how many rows that takes */
  #sort(positions: Uint32Array): number {
    const { itemWords, resultWords } = this.#kernel.spec;
    let rows = 0;
    this.#count.forEach((count, slab) => {
      this.#row[slab] = rows;
      rows += Math.ceil(count / this.#rowsPerOffset) * this.#rowsPerOffset;
    });
    const next = this.#row.slice();
    for (let index = 0; index < this.#length; index++) {
      const row = next[this.#slabOf[index]]++;
      positions[index] = row * resultWords;
      for (let word = 0; word < itemWords; word++) {
        this.#sorted[row * itemWords + word] = this.#words[index * itemWords + word];
      }
    }
    return rows;
  }

  #bind(slab: GPUBuffer): GPUBindGroup {
    const { live, layout, spec } = this.#kernel;
    const entries: GPUBindGroupEntry[] = [
      { binding: 0, resource: { buffer: slab } },
      { binding: 1, resource: { buffer: this.#items, size: this.itemsMax * spec.itemWords * 4 } },
    ];
    if (this.#results !== undefined) {
      const size = this.itemsMax * spec.resultWords * 4;
      entries.push({ binding: 2, resource: { buffer: this.#results, size } });
    }
    return live.device.createBindGroup({ label: `${slab.label}.${spec.name}`, layout, entries });
  }
}

export function resultBytesMax(kernel: CompiledKernel, itemsMax: number): number {
  return (itemsMax + rowsPerOffset(kernel) * kernel.slabs.length) * kernel.spec.resultWords * 4;
}

/** Rows between two that dynamic offsets can name, of items and of results alike. */
function rowsPerOffset({ spec }: CompiledKernel): number {
  return Math.max(rowsTo(spec.itemWords), rowsTo(spec.resultWords));
}

/** Rows of `words` words between two multiples of 256 bytes: a power of two, so the larger serves both. */
function rowsTo(words: number): number {
  let rows = 1;
  while ((rows * words) % OFFSET_WORDS !== 0) rows *= 2;
  return rows;
}
