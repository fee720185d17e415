/**
 * Moves bytes between host and device through mapped buffers: uploads of slots and boxes, readbacks, the
 * mapped buffers themselves, and their layout. A batch is one mapped buffer and one submit. The host works on
 * one buffer while the device works on others. An item larger than a buffer takes several.
 */

import { invariant } from '../../runtime/errors.ts';
import { loaded, refused, type StoreResult } from '../../runtime/tier/tierStore.ts';
import type { HostMove } from '../host/copyThreads.ts';
import { turnFor } from '../runningClock.ts';
import { type BoxTables, runOffsetBytes, VECTOR_BYTES } from './boxes.ts';
import {
  type BatchKind,
  BufferUsage,
  BYTES_TAKEN_AWAY,
  type LiveDevice,
  MapMode,
  type Work,
  type WorkBatch,
} from './device.ts';
import type { StagingCopies } from './stagingCopies.ts';
import type { BoxPath, BoxPlan, SlotLocation } from './types.ts';

interface UploadItem {
  readonly plan: BoxPlan;
  readonly location: SlotLocation;
  readonly path: BoxPath;
  readonly bytes: Uint8Array;
  /** Called when all bytes are submitted: later submits find them in the slot. */
  sent?(): void;
  /** Called when all bytes are in the slot, or the upload has failed. */
  end(result: StoreResult): void;
}

export class Uploads implements BatchKind<UploadBatch> {
  readonly name = 'upload';
  readonly live: LiveDevice;
  readonly buffers: UploadBuffers;
  readonly isAlone: boolean;
  readonly copies: StagingCopies;
  readonly layout: () => StagingLayout;

  /** @param layout a new layout for each batch @param isAlone whether the layouts share tables of kernels */
  constructor(
    live: LiveDevice,
    buffers: UploadBuffers,
    copies: StagingCopies,
    layout: () => StagingLayout,
    isAlone: boolean,
  ) {
    this.live = live;
    this.buffers = buffers;
    this.copies = copies;
    this.layout = layout;
    this.isAlone = isAlone;
  }

  async open(): Promise<UploadBatch | undefined> {
    const buffer = await this.buffers.acquire();
    await turnFor(this.buffers.size.bytes);
    if (this.live.isDestroyed) await this.live.lost;
    return buffer === undefined || this.live.loss !== undefined ? undefined : new UploadBatch(this, buffer);
  }

  upload(item: UploadItem): Work<UploadBatch> {
    const upload: Upload = { item, copied: 0, pending: item.plan.boxBytes };
    return { kind: this, addTo: (batch) => batch.add(upload), refuse: (end) => item.end(end) };
  }
}

interface Upload {
  readonly item: UploadItem;
  /** Bytes copied into mapped buffers so far. */
  copied: number;
  /** Bytes that have not arrived yet, as far as is known. */
  pending: number;
}

class UploadBatch implements WorkBatch {
  readonly #uploads: Uploads;
  readonly #buffer: GPUBuffer;
  readonly #bytes: Uint8Array;
  readonly #layout: StagingLayout;
  /** Bytes that are still to be copied into the buffer, from memory that threads may read. */
  readonly #moves: HostMove[] = [];
  #isWhole = true;
  readonly #parts: { readonly upload: Upload; readonly bytes: number }[] = [];
  /** Items whose last bytes are in this batch. */
  readonly #complete: UploadItem[] = [];
  /**
   * Items whose memory was detached. They end with this batch, which is submitted after all of their bytes.
   */
  readonly #cut: UploadItem[] = [];

  constructor(uploads: Uploads, buffer: GPUBuffer) {
    this.#uploads = uploads;
    this.#buffer = buffer;
    this.#bytes = uploads.buffers.bytesOf(buffer);
    this.#layout = uploads.layout();
  }

  get full(): boolean {
    return this.#layout.full;
  }

  /** @returns true if all of the item is in buffers, false if this buffer is full */
  add(upload: Upload): boolean {
    const { item } = upload;
    const { plan, location, path, bytes } = item;
    while (upload.copied < plan.boxBytes) {
      if (bytes.byteLength !== plan.boxBytes) {
        this.#cut.push(item);
        return true;
      }
      const from = upload.copied;
      const part = this.full ? undefined : this.#layout.add(plan, location, from, path);
      if (part === undefined) return false;
      const into = this.#bytes.subarray(part.at, part.at + part.bytes);
      const source = bytes.subarray(from, from + part.bytes);
      if (this.#uploads.copies.isSteady(bytes)) this.#moves.push({ into, from: source });
      else into.set(source);
      this.#parts.push({ upload, bytes: part.bytes });
      upload.copied += part.bytes;
    }
    this.#complete.push(item);
    return true;
  }

  fill(): Promise<void> | undefined {
    return this.#uploads.copies.move(this.#moves, 'in')?.then((isWhole) => {
      this.#isWhole = isWhole;
    });
  }

  encode(encoder: GPUCommandEncoder): void {
    this.#buffer.unmap();
    if (this.#isWhole) this.#layout.encodeToSlabs(encoder, this.#buffer);
  }

  async finish(errors: Promise<string>): Promise<void> {
    const { live, buffers } = this.#uploads;
    if (this.#isWhole) for (const item of this.#complete) item.sent?.();
    const [mapped, reported] = await Promise.all([buffers.recycle(this.#buffer), errors]);
    const error = this.#isWhole ? reported : BYTES_TAKEN_AWAY;
    const failure = mapped ? (error === '' ? undefined : refused(error)) : live.refusal();
    for (const { upload, bytes } of this.#parts) {
      upload.pending -= bytes;
      if (failure !== undefined || upload.pending === 0) upload.item.end(failure ?? loaded);
    }
    for (const item of this.#cut) item.end(failure ?? refused(BYTES_TAKEN_AWAY));
  }
}

// ---- readbacks: slots of `read`, slots that the host digests for `seal`, and boxes of `readBoxes`
//
// When a buffer lands its bytes are handed to the items, while the device fills the next buffers.

interface ReadbackItem {
  readonly plan: BoxPlan;
  readonly location: SlotLocation;
  readonly path: BoxPath;
  /** The host's memory that the bytes of the item go to, or a function that takes those from byte `from` on. */
  readonly to: Uint8Array | ((landed: Uint8Array, from: number) => void);
  /** Ends the item: undefined if all bytes were taken, else the failure. */
  end(failure: StoreResult | undefined): void;
}

export class Readbacks implements BatchKind<ReadbackBatch> {
  readonly name = 'readback';
  readonly live: LiveDevice;
  readonly buffers: ReadbackBuffers;
  readonly copies: StagingCopies;
  readonly layout: StagingLayout;

  constructor(live: LiveDevice, buffers: ReadbackBuffers, copies: StagingCopies, layout: StagingLayout) {
    this.live = live;
    this.buffers = buffers;
    this.copies = copies;
    this.layout = layout;
  }

  async open(): Promise<ReadbackBatch | undefined> {
    const buffer = await this.buffers.acquire();
    return buffer === undefined ? undefined : new ReadbackBatch(this, buffer);
  }

  readback(item: ReadbackItem): Work<ReadbackBatch> {
    const readback: Readback = { item, planned: 0, pending: item.plan.boxBytes, taken: true };
    return { kind: this, addTo: (batch) => batch.add(readback), refuse: (end) => item.end(end) };
  }
}

interface Readback {
  readonly item: ReadbackItem;
  /** Bytes that have a place in buffers so far. */
  planned: number;
  /** Bytes that were not handed over yet. */
  pending: number;
  taken: boolean;
}

interface ReadbackPart {
  readonly readback: Readback;
  readonly from: number;
  readonly at: number;
  readonly bytes: number;
}

class ReadbackBatch implements WorkBatch {
  readonly #readbacks: Readbacks;
  readonly #buffer: GPUBuffer;
  readonly #parts: ReadbackPart[] = [];
  #used = 0;

  constructor(readbacks: Readbacks, buffer: GPUBuffer) {
    this.#readbacks = readbacks;
    this.#buffer = buffer;
  }

  get full(): boolean {
    return this.#readbacks.layout.full;
  }

  /** @returns true if all of the item has a place in buffers, false if this buffer is full */
  add(readback: Readback): boolean {
    const { layout } = this.#readbacks;
    const { plan, location, path } = readback.item;
    while (readback.planned < plan.boxBytes) {
      const from = readback.planned;
      const part = this.full ? undefined : layout.add(plan, location, from, path);
      if (part === undefined) return false;
      this.#parts.push({ readback, from, at: part.at, bytes: part.bytes });
      readback.planned += part.bytes;
    }
    return true;
  }

  encode(encoder: GPUCommandEncoder): void {
    this.#used = this.#readbacks.layout.used;
    this.#readbacks.layout.encodeFromSlabs(encoder, this.#buffer);
  }

  async finish(errors: Promise<string>): Promise<void> {
    const { live, buffers } = this.#readbacks;
    let failure: StoreResult | undefined;
    const take = (range: ArrayBuffer, error: string): Promise<void> | undefined => {
      if (error !== '') failure = refused(error);
      return failure === undefined ? this.#take(range) : undefined;
    };
    if (!(await buffers.land(this.#buffer, this.#used, take, errors))) failure = live.refusal();
    for (const { readback, bytes } of this.#parts) {
      const { item, taken } = readback;
      readback.pending -= bytes;
      if (failure !== undefined) item.end(failure);
      else if (readback.pending === 0) item.end(taken ? undefined : refused(BYTES_TAKEN_AWAY));
    }
  }

  /** Hands the landed bytes to their items. @returns undefined where all are handed over */
  #take(range: ArrayBuffer): Promise<void> | undefined {
    const { copies } = this.#readbacks;
    const steady: { readonly readback: Readback; readonly move: HostMove }[] = [];
    for (const { readback, from, at, bytes } of this.#parts) {
      const { to } = readback.item;
      const landed = new Uint8Array(range, at, bytes);
      if (!readback.taken) continue;
      if (typeof to === 'function') to(landed, from);
      else if (to.byteLength < from + bytes) readback.taken = false;
      else if (copies.isSteady(to)) {
        steady.push({ readback, move: { into: to.subarray(from, from + bytes), from: landed } });
      } else to.set(landed, from);
    }
    const moves = steady.map(({ move }) => move);
    return copies.move(moves, 'out')?.then((isWhole) => {
      if (!isWhole) for (const { readback } of steady) readback.taken = false;
    });
  }
}

// ---- mapped buffers: host memory that the GPU reaches directly
//
// Each direction has a fixed number of equal buffers, lent one by one. If none is free `acquire` waits, which
// bounds the bytes in flight. If the device is lost it gives undefined.
//
//     UploadBuffers     acquire --> fill bytesOf() --> unmap() --> submit copies --> recycle(): mapped, free
//                                   (threads may)
//     ReadbackBuffers   acquire --> submit copies --> land(): `use` sees the bytes --> free
//
// Upload memory may be uncached, so it is never read here.
//
// Hazard, views that outlive their buffer: Dawn frees a mapping when the GPUBuffer is garbage-collected, and
// touching a view on it then ends the process (SIGSEGV). So buffers are held strongly until `destroy`, mapped
// ranges are taken in this file only, and no view is used after `unmap`, or outside of `use`. Threads that copy
// (stagingCopies.ts) have ended with a view before its buffer is unmapped or destroyed, also by a loss.

/** Size and number of the mapped buffers of one direction. */
export interface StagingSize {
  readonly bytes: number;
  readonly count: number;
}

class MappedBuffers {
  readonly size: StagingSize;
  protected readonly live: LiveDevice;
  readonly #buffers: readonly GPUBuffer[];
  readonly #free: GPUBuffer[];
  readonly #waiters: ((buffer: GPUBuffer | undefined) => void)[] = [];
  readonly #unsubscribe: () => void;
  #allBack: (() => void) | undefined;
  #closed = false;

  protected constructor(
    live: LiveDevice,
    size: StagingSize,
    label: string,
    usage: GPUBufferUsageFlags,
    mappedAtCreation: boolean,
  ) {
    this.live = live;
    this.size = size;
    this.#buffers = Array.from({ length: size.count }, (_, index) =>
      live.device.createBuffer({ label: `${label}${index}`, size: size.bytes, usage, mappedAtCreation }),
    );
    this.#free = [...this.#buffers];
    this.#unsubscribe = live.onLost(() => this.#close());
  }

  /** A buffer, once one is free; undefined if the device is lost. */
  async acquire(): Promise<GPUBuffer | undefined> {
    if (this.#closed) return undefined;
    const free = this.#free.pop();
    if (free !== undefined) return free;
    return new Promise((resolve) => {
      this.#waiters.push(resolve);
    });
  }

  /** Calls `use` with all buffers, none of which may be lent. */
  protected async whileFree(use: (buffers: readonly GPUBuffer[]) => Promise<void>): Promise<void> {
    const free = this.#free.splice(0);
    invariant(free.length === this.#buffers.length, 'no buffer may be lent');
    await use(free);
    for (const buffer of free) this.release(buffer);
  }

  /** Waits until every buffer is back, unless the device is lost, and frees the memory. */
  async destroy(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#allBack = resolve;
      if (this.#closed || this.#free.length === this.#buffers.length) resolve();
    });
    this.#close();
    for (const buffer of this.#buffers) buffer.destroy();
  }

  protected release(buffer: GPUBuffer): void {
    const next = this.#waiters.shift();
    if (next !== undefined) {
      next(buffer);
      return;
    }
    this.#free.push(buffer);
    if (this.#free.length === this.#buffers.length) this.#allBack?.();
  }

  #close(): void {
    this.#closed = true;
    this.#unsubscribe();
    this.#allBack?.();
    for (const resolve of this.#waiters.splice(0)) resolve(undefined);
  }
}

export class UploadBuffers extends MappedBuffers {
  constructor(live: LiveDevice, size: StagingSize, label: string) {
    super(live, size, `${label}.upload`, BufferUsage.MAP_WRITE | BufferUsage.COPY_SRC, true);
  }

  /** The bytes of a buffer just acquired, to be filled. They are gone after `unmap`. */
  bytesOf(buffer: GPUBuffer): Uint8Array<ArrayBuffer> {
    return new Uint8Array(buffer.getMappedRange());
  }

  /** Calls `use` with the bytes of all buffers. */
  withRanges(use: (ranges: readonly Uint8Array[]) => Promise<void>): Promise<void> {
    return this.whileFree((buffers) => use(buffers.map((buffer) => this.bytesOf(buffer))));
  }

  /**
   * Takes back a buffer whose copies are submitted.
   * @returns true once they are done, false on a lost device
   */
  async recycle(buffer: GPUBuffer): Promise<boolean> {
    const mapped = await this.live.whenMapped(buffer, MapMode.WRITE, this.size.bytes);
    if (mapped) this.release(buffer);
    return mapped;
  }
}

export class ReadbackBuffers extends MappedBuffers {
  constructor(live: LiveDevice, size: StagingSize, label: string) {
    super(live, size, `${label}.readback`, BufferUsage.MAP_READ | BufferUsage.COPY_DST, false);
  }

  /** Calls `use` with the bytes of all buffers, mapped meanwhile; never on a lost device. */
  withRanges(use: (ranges: readonly Uint8Array[]) => Promise<void>): Promise<void> {
    return this.whileFree(async (buffers) => {
      const { live, size } = this;
      const mapped = await Promise.all(
        buffers.map((buffer) => live.whenMapped(buffer, MapMode.READ, size.bytes)),
      );
      if (mapped.includes(false)) return;
      await use(buffers.map((buffer) => new Uint8Array(buffer.getMappedRange())));
      if (live.loss === undefined) for (const buffer of buffers) buffer.unmap();
    });
  }

  /**
   * Calls `use` with the first `bytes` bytes of the buffer once they have arrived, and frees the buffer. The
   * view is gone when `use` returns, or when the promise that it returns is fulfilled.
   * @param errors what the device finds wrong with the commands that fill the buffer; passed on to `use`
   * @returns false if the device is lost, even in the moment of arrival
   */
  async land(
    buffer: GPUBuffer,
    bytes: number,
    use: (landed: ArrayBuffer, error: string) => Promise<void> | undefined | void,
    errors: Promise<string> = Promise.resolve(''),
  ): Promise<boolean> {
    const [mapped, error] = await Promise.all([this.live.whenMapped(buffer, MapMode.READ, bytes), errors]);
    await turnFor(bytes);
    if (!mapped || this.live.loss !== undefined) return false;
    try {
      await use(buffer.getMappedRange(0, bytes), error);
      if (this.live.loss !== undefined) return false;
      buffer.unmap();
    } catch (error) {
      this.live.giveUp(`reading ${buffer.label}`, error);
      return false;
    }
    this.release(buffer);
    return true;
  }
}

// ---- layout of one mapped buffer
//
// Bytes move between mapped buffer and slabs by copies, merged where they are neighbours on both sides. Boxes
// of many short runs move by the gather and scatter kernels, through the packed buffer:
//
//     mapped    | box a (short runs) | box b (short runs) | slot c, whole       |
//     packed    | a                  | b                  |                     |     one copy between both
//     slabs     .. a a .. a a .. b b .. b b .. c c c c c c ..
//
// A whole slot is a box of one run. Boxes of short runs begin at multiples of 16 bytes. The gaps between them
// are copied too, so that neighbours are one copy.

/** Most parts of boxes in one buffer. */
const PARTS_MAX = 4096;

/** A part of a box, and its place in the mapped buffer. */
interface StagedPart {
  readonly at: number;
  readonly bytes: number;
}

export class StagingLayout {
  readonly #buffers: readonly GPUBuffer[];
  readonly #capacity: number;
  readonly #tables: BoxTables | undefined;
  /** Most bytes of the buffer that go through the packed buffer. */
  readonly #packedCapacity: number;
  #copies: CopyRuns = new CopyRuns();
  #used = 0;
  #parts = 0;

  /** @param capacity bytes of a mapped buffer @param tables undefined if no box goes through kernels */
  constructor(slabs: readonly GPUBuffer[], capacity: number, tables?: BoxTables) {
    this.#buffers = tables === undefined ? slabs : [...slabs, tables.packed];
    this.#capacity = capacity;
    this.#tables = tables;
    const packedBytes = tables?.packed.size ?? 0;
    this.#packedCapacity = Math.min(capacity - (capacity % VECTOR_BYTES), packedBytes);
  }

  get used(): number {
    return this.#used;
  }

  get full(): boolean {
    return this.#used === this.#capacity || this.#parts === PARTS_MAX;
  }

  /**
   * Adds what fits of a box from packed byte `from` on.
   * @returns undefined if nothing fits, never when empty
   */
  add(plan: BoxPlan, slot: SlotLocation, from: number, path: BoxPath): StagedPart | undefined {
    const part =
      path === 'kernel' && plan.runBytes <= this.#packedCapacity
        ? this.#addRuns(plan, slot, from / plan.runBytes)
        : this.#addBytes(plan, slot, from);
    if (part !== undefined) this.#parts++;
    return part;
  }

  /** Encodes the moves from the slabs into `mapped`. The layout is empty afterwards. */
  encodeFromSlabs(encoder: GPUCommandEncoder, mapped: GPUBuffer): void {
    this.#tables?.encode(encoder);
    this.#copies.encodeToStaging(encoder, this.#buffers, mapped);
    this.#clear();
  }

  /** Encodes the moves from `mapped` into the slabs. The layout is empty afterwards. */
  encodeToSlabs(encoder: GPUCommandEncoder, mapped: GPUBuffer): void {
    this.#copies.encodeFromStaging(encoder, mapped, this.#buffers);
    this.#tables?.encode(encoder);
    this.#clear();
  }

  #clear(): void {
    this.#copies = new CopyRuns();
    this.#used = 0;
    this.#parts = 0;
  }

  /** Adds whole runs, for the kernels. */
  #addRuns(plan: BoxPlan, slot: SlotLocation, firstRun: number): StagedPart | undefined {
    const at = wholeVectors(this.#used);
    const runsThatFit = Math.floor((this.#packedCapacity - at) / plan.runBytes);
    const runs = Math.min(plan.runs - firstRun, runsThatFit);
    if (runs <= 0 || this.#tables === undefined || this.#tables.full) return undefined;
    this.#tables.add(plan, slot, at, firstRun, runs);
    const bytes = runs * plan.runBytes;
    this.#used = wholeVectors(at + bytes);
    this.#copies.add(this.#buffers.length - 1, at, at, this.#used - at);
    return { at, bytes };
  }

  /** Adds any part of any run, for copies. */
  #addBytes(plan: BoxPlan, slot: SlotLocation, from: number): StagedPart | undefined {
    const at = this.#used;
    const end = Math.min(plan.boxBytes, from + this.#capacity - at);
    if (end <= from) return undefined;
    for (let done = from; done < end; ) {
      const inRun = done % plan.runBytes;
      const bytes = Math.min(plan.runBytes - inRun, end - done);
      const offset = slot.offsetBytes + runOffsetBytes(plan, (done - inRun) / plan.runBytes) + inRun;
      this.#copies.add(slot.slab, offset, at + done - from, bytes);
      done += bytes;
    }
    this.#used = at + end - from;
    return { at, bytes: end - from };
  }
}

function wholeVectors(bytes: number): number {
  return Math.ceil(bytes / VECTOR_BYTES) * VECTOR_BYTES;
}

// ---- copies between mapped buffer and slabs; neighbours on both sides become one command

class CopyRuns {
  readonly #slabs: number[] = [];
  readonly #slabOffsets: number[] = [];
  readonly #stagingOffsets: number[] = [];
  readonly #bytes: number[] = [];

  add(slab: number, slabOffset: number, stagingOffset: number, bytes: number): void {
    const last = this.#slabs.length - 1;
    if (
      last >= 0 &&
      this.#slabs[last] === slab &&
      this.#slabOffsets[last] + this.#bytes[last] === slabOffset &&
      this.#stagingOffsets[last] + this.#bytes[last] === stagingOffset
    ) {
      this.#bytes[last] += bytes;
      return;
    }
    this.#slabs.push(slab);
    this.#slabOffsets.push(slabOffset);
    this.#stagingOffsets.push(stagingOffset);
    this.#bytes.push(bytes);
  }

  encodeFromStaging(encoder: GPUCommandEncoder, staging: GPUBuffer, slabs: readonly GPUBuffer[]): void {
    this.#bytes.forEach((bytes, i) => {
      const slab = slabs[this.#slabs[i]];
      encoder.copyBufferToBuffer(staging, this.#stagingOffsets[i], slab, this.#slabOffsets[i], bytes);
    });
  }

  encodeToStaging(encoder: GPUCommandEncoder, slabs: readonly GPUBuffer[], staging: GPUBuffer): void {
    this.#bytes.forEach((bytes, i) => {
      const slab = slabs[this.#slabs[i]];
      encoder.copyBufferToBuffer(slab, this.#slabOffsets[i], staging, this.#stagingOffsets[i], bytes);
    });
  }
}
