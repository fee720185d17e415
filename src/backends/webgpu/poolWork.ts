/**
 * Everything that the device does with the bytes of slots. It owns the mapped buffers, the kernels and three
 * lines of work, each made once:
 *
 *     uploads      write, writeBox
 *     readbacks    read, readBox
 *     device       digest, fill, check, clear, copy: in the order in which they are asked for
 *
 * It knows nothing of generations and locks: the caller excludes the calls that the device's queue does not
 * order.
 */

import type { Digest } from '../../runtime/digest.ts';
import { TierKVError } from '../../runtime/errors.ts';
import { Outcome } from '../../runtime/tier/tier.ts';
import {
  corrupt,
  loaded,
  refused,
  type SealResult,
  type SlotPlace,
  type StoreResult,
} from '../../runtime/tier/tierStore.ts';
import { hostDigest } from '../host/hostDigest.ts';
import { BoxTables, choosePath, hardwareRule, openBoxKernels, packedBuffer, softwareRule } from './boxes.ts';
import {
  type BatchKind,
  BufferUsage,
  type LiveDevice,
  type Work,
  type WorkBatch,
  WorkLine,
} from './device.ts';
import { type KernelTable, type SlotKernel, SlotKernels } from './kernels.ts';
import type { Slabs } from './slabs.ts';
import { StagingCopies } from './stagingCopies.ts';
import {
  type BoxPath,
  type BoxPlan,
  type MismatchResult,
  type PatternItem,
  type SlotBuffer,
  type SlotLocation,
  type Verification,
  wholePlan,
} from './types.ts';
import {
  ReadbackBuffers,
  Readbacks,
  StagingLayout,
  type StagingSize,
  UploadBuffers,
  Uploads,
} from './uploads.ts';

interface PoolWorkOptions {
  readonly staging: StagingSize;
  /** Where slots are digested. */
  readonly digests: Verification;
  /** How every box moves. Undefined: chosen by the length and number of its runs. */
  readonly boxPath: BoxPath | undefined;
  /** Threads that copy to and from mapped buffers. Undefined: as many as a measurement finds worthwhile. */
  readonly copyThreads: number | 'measured' | undefined;
}

type End = (result: StoreResult) => void;
type Slot = Pick<SlotPlace, 'slot' | 'sizeClass'>;

/**
 * Uploads under way from which on blocks that come singly, as they do from a disk, wait to share a submit: one is
 * filled by the device while the host prepares the other.
 */
const UPLOADS_AT_ONCE = 2;
/** Most batches of kernel results in flight. */
const RESULT_BUFFERS = 16;

export class PoolWork {
  readonly options: PoolWorkOptions;
  readonly copies: StagingCopies;
  readonly #live: LiveDevice;
  readonly #slabs: Slabs;
  /** The whole slot as a box, by size class. */
  readonly #whole: readonly BoxPlan[];
  readonly #choosePath: (plan: BoxPlan, items: number) => BoxPath;
  readonly #upLine: WorkLine;
  readonly #downLine: WorkLine;
  readonly #deviceLine: WorkLine;
  readonly #uploads: Uploads;
  /** Uploads of boxes through kernels. */
  readonly #scatters: Uploads;
  readonly #readbacks: Readbacks;
  /** Readbacks of slots that the host digests, on the device's line. */
  readonly #digestReadbacks: Readbacks;
  readonly #digests: KernelRuns;
  readonly #fills: KernelRuns;
  readonly #checks: KernelRuns;
  readonly #commands: SlotCommands;
  readonly #owned: readonly { destroy(): void | Promise<void> }[];

  /**
   * @throws TKV_DEVICE if the device does not compile the kernels, or has too little memory for the buffers
   */
  static async open(
    live: LiveDevice,
    slabs: Slabs,
    label: string,
    options: PoolWorkOptions,
  ): Promise<PoolWork> {
    const { staging } = options;
    const [slotKernels, boxKernels] = await Promise.all([
      SlotKernels.open(live, slabs.buffers, label),
      openBoxKernels(live, slabs.buffers, label),
    ]);
    live.device.pushErrorScope('out-of-memory');
    const packed = packedBuffer(live, label, staging.bytes);
    const gather = new BoxTables(boxKernels.gather, packed);
    const scatter = new BoxTables(boxKernels.scatter, packed);
    const buffers = {
      in: new UploadBuffers(live, staging, label),
      out: new ReadbackBuffers(live, staging, label),
    };
    const work = new PoolWork(live, slabs, label, options, slotKernels, gather, scatter, buffers);
    const shortage = await live.popOwnScope().catch(() => null); // the loss of the device is reported elsewhere
    if (shortage === null) {
      await work.copies.choose(staging.bytes, options.copyThreads, (way, use) =>
        buffers[way].withRanges(use),
      );
      return work;
    }
    await work.destroy();
    throw new TierKVError(
      'TKV_DEVICE',
      `The device has no memory for ${staging.count} staging buffers of ${staging.bytes} bytes in each ` +
        `direction (${shortage.message}). Lower stagingBytes or stagingBuffers, or the capacity of the pool.`,
      { field: 'stagingBytes' },
    );
  }

  private constructor(
    live: LiveDevice,
    slabs: Slabs,
    label: string,
    options: PoolWorkOptions,
    kernels: SlotKernels,
    gather: BoxTables,
    scatter: BoxTables,
    { in: up, out: down }: { readonly in: UploadBuffers; readonly out: ReadbackBuffers },
  ) {
    const { staging, boxPath } = options;
    this.options = options;
    this.#live = live;
    this.#slabs = slabs;
    this.#whole = slabs.shape.slotBytes.map(wholePlan);
    const rule = live.adapter.software ? softwareRule : hardwareRule;
    this.#choosePath = (plan, items) => boxPath ?? choosePath(rule, plan, items);
    this.#upLine = new WorkLine(live, label, UPLOADS_AT_ONCE);
    this.#downLine = new WorkLine(live, label);
    this.#deviceLine = new WorkLine(live, label);
    const layout = (tables?: BoxTables): StagingLayout =>
      new StagingLayout(slabs.buffers, staging.bytes, tables);
    const resultSize = { bytes: kernels.resultBytesMax, count: RESULT_BUFFERS };
    const results = new ReadbackBuffers(live, resultSize, `${label}.results`);
    const copies = new StagingCopies(live);
    this.copies = copies;
    this.#uploads = new Uploads(live, up, copies, layout, false);
    this.#scatters = new Uploads(live, up, copies, () => layout(scatter), true);
    this.#readbacks = new Readbacks(live, down, copies, layout(gather));
    this.#digestReadbacks = new Readbacks(live, down, copies, layout());
    this.#digests = new KernelRuns(live, kernels, 'digest', results);
    this.#fills = new KernelRuns(live, kernels, 'fill', results);
    this.#checks = new KernelRuns(live, kernels, 'check', results);
    this.#commands = new SlotCommands(live, label, staging.bytes);
    const tables = [this.#digests.table, this.#fills.table, this.#checks.table];
    this.#owned = [up, down, results, copies, gather, scatter, gather.packed, this.#commands, ...tables];
  }

  /** @param digest the digest that the bytes must have on the device; undefined: not checked */
  write(slot: Slot, bytes: Uint8Array, digest: Digest | undefined, end: End): void {
    const judge = ({ outcome, reason, digest: found }: SealResult): void => {
      if (outcome !== Outcome.LOADED) end({ outcome, reason });
      else if (found.lo === digest?.lo && found.hi === digest.hi) end(loaded);
      else end(corrupt(`slot ${slot.slot} received other bytes than its digest says`));
    };
    const upload = this.#uploads.upload({
      plan: this.#whole[slot.sizeClass],
      location: this.#slabs.locate(slot.slot, slot.sizeClass),
      path: 'copies',
      bytes,
      sent: () => {
        if (digest !== undefined) this.digest(slot, judge);
      },
      end: (result) => {
        if (digest === undefined || result.outcome !== Outcome.LOADED) end(result);
      },
    });
    this.#upLine.push(upload);
  }

  /** @param items number of boxes in the call, assumed to be alike */
  writeBox(slot: Slot, plan: BoxPlan, bytes: Uint8Array, items: number, end: End): void {
    const location = this.#slabs.locate(slot.slot, slot.sizeClass);
    const path = this.#choosePath(plan, items);
    const uploads = path === 'kernel' ? this.#scatters : this.#uploads;
    this.#upLine.push(uploads.upload({ plan, location, path, bytes, end }));
  }

  read(slot: Slot, bytes: Uint8Array, end: End): void {
    this.#read(slot, this.#whole[slot.sizeClass], 'copies', bytes, end);
  }

  readBox(slot: Slot, plan: BoxPlan, bytes: Uint8Array, items: number, end: End): void {
    this.#read(slot, plan, this.#choosePath(plan, items), bytes, end);
  }

  /**
   * The digest of a slot that the device's user has written. It is refused if the device reports an error
   * before the digest is known, since the work that wrote the slot may have failed.
   */
  seal(slot: Slot, end: (result: SealResult) => void): void {
    const { count } = this.#live.deviceErrors;
    this.digest(slot, (result) => {
      const errors = this.#live.deviceErrors;
      if (result.outcome !== Outcome.LOADED || errors.count === count) end(result);
      else end({ ...refused(`the device reported an error: ${errors.last}`), digest: { lo: 0, hi: 0 } });
    });
  }

  /** The digest of the slot after all work that was submitted so far. */
  digest(slot: Slot, end: (result: SealResult) => void): void {
    const refuse = (refusal: StoreResult): void => end({ ...refusal, digest: { lo: 0, hi: 0 } });
    if (this.options.digests === 'kernel') {
      this.#run(this.#digests, slot, 0, 0, (lo, hi) => end({ ...loaded, digest: { lo, hi } }), refuse);
      return;
    }
    let lo = 0;
    let hi = 0;
    const readback = this.#digestReadbacks.readback({
      plan: this.#whole[slot.sizeClass],
      location: this.#slabs.locate(slot.slot, slot.sizeClass),
      path: 'copies',
      to: (landed, from) => {
        const part = hostDigest(landed, from / 4);
        lo = (lo + part.lo) >>> 0;
        hi = (hi + part.hi) >>> 0;
      },
      end: (failure) => (failure === undefined ? end({ ...loaded, digest: { lo, hi } }) : refuse(failure)),
    });
    this.#deviceLine.push(readback);
  }

  fill(item: PatternItem, end: End): void {
    this.#run(this.#fills, item, item.seedLo, item.seedHi, () => end(loaded), end);
  }

  check(item: PatternItem, end: (result: MismatchResult) => void): void {
    const refuse = (refusal: StoreResult): void => end({ ...refusal, mismatchedWords: 0 });
    const found = (mismatchedWords: number): void => end({ ...loaded, mismatchedWords });
    this.#run(this.#checks, item, item.seedLo, item.seedHi, found, refuse);
  }

  clear({ slot, sizeClass }: Slot, end: End): void {
    this.#deviceLine.push(this.#commands.clear(this.#slabs.bufferOf(slot, sizeClass), end));
  }

  copy(from: Slot, to: Slot, end: End): void {
    const source = this.#slabs.bufferOf(from.slot, from.sizeClass);
    const target = this.#slabs.bufferOf(to.slot, to.sizeClass);
    this.#deviceLine.push(this.#commands.copy(source, target, end));
  }

  /** Frees everything. No work may be under way. */
  async destroy(): Promise<void> {
    await Promise.all(this.#owned.map((one) => one.destroy()));
  }

  #read({ slot, sizeClass }: Slot, plan: BoxPlan, path: BoxPath, bytes: Uint8Array, end: End): void {
    const readback = this.#readbacks.readback({
      plan,
      path,
      location: this.#slabs.locate(slot, sizeClass),
      to: bytes,
      end: (failure) => end(failure ?? loaded),
    });
    this.#downLine.push(readback);
  }

  #run(
    runs: KernelRuns,
    { slot, sizeClass }: Slot,
    seedLo: number,
    seedHi: number,
    end: (first: number, second: number) => void,
    refuse: End,
  ): void {
    const location = this.#slabs.locate(slot, sizeClass);
    const bytes = this.#slabs.shape.slotBytes[sizeClass];
    this.#deviceLine.push(runs.run({ location, bytes, seedLo, seedHi, end, refuse }));
  }
}

// ---- seals, fills and checks: one kernel over the slots of many calls, in one submit
//
// An item ends when the results of its batch have come back; after that the slot may be used again. The items
// of one dispatch run at the same time, so two fills of one slot never share a batch.

export interface KernelItem {
  readonly location: SlotLocation;
  readonly bytes: number;
  readonly seedLo: number;
  readonly seedHi: number;
  /** Ends the item with the kernel's two result words. */
  end(first: number, second: number): void;
  refuse(end: StoreResult): void;
}

export class KernelRuns implements BatchKind<KernelBatch> {
  readonly name: SlotKernel;
  readonly live: LiveDevice;
  readonly kernels: SlotKernels;
  readonly table: KernelTable;
  readonly results: ReadbackBuffers;

  /** @param results buffers that hold the results of a full table */
  constructor(live: LiveDevice, kernels: SlotKernels, name: SlotKernel, results: ReadbackBuffers) {
    this.name = name;
    this.live = live;
    this.kernels = kernels;
    this.table = kernels.table(name);
    this.results = results;
  }

  async open(): Promise<KernelBatch | undefined> {
    const buffer = await this.results.acquire();
    return buffer === undefined ? undefined : new KernelBatch(this, buffer);
  }

  run(item: KernelItem): Work<KernelBatch> {
    return { kind: this, addTo: (batch) => batch.add(item), refuse: (end) => item.refuse(end) };
  }
}

class KernelBatch implements WorkBatch {
  readonly #runs: KernelRuns;
  readonly #buffer: GPUBuffer;
  readonly #items: KernelItem[] = [];
  /** Begin of each slot that this batch fills, as "slab:byte". All are of one size. */
  readonly #filled: Set<string> = new Set();
  #positions: Uint32Array = new Uint32Array(0);

  constructor(runs: KernelRuns, buffer: GPUBuffer) {
    this.#runs = runs;
    this.#buffer = buffer;
  }

  get full(): boolean {
    return this.#runs.table.full;
  }

  add(item: KernelItem): boolean {
    const { kernels, name, table } = this.#runs;
    if (name === 'fill' && !this.#fills(item)) return false;
    kernels.addSlot(table, item.location, item.bytes, item.seedLo, item.seedHi);
    this.#items.push(item);
    return true;
  }

  /** Notes the slot. @returns false if the batch may already fill some of its bytes */
  #fills({ location, bytes }: KernelItem): boolean {
    const place = `${location.slab}:${location.offsetBytes}`;
    const oneSize = this.#items.length === 0 || this.#items[0].bytes === bytes;
    if (!oneSize || this.#filled.has(place)) return false;
    this.#filled.add(place);
    return true;
  }

  encode(encoder: GPUCommandEncoder): void {
    this.#positions = this.#runs.table.encode(encoder, { resultsTo: this.#buffer });
  }

  async finish(errors: Promise<string>): Promise<void> {
    const { live, results } = this.#runs;
    let words = new Uint32Array(0);
    const [landed, error] = await Promise.all([
      results.land(this.#buffer, results.size.bytes, (range) => {
        words = new Uint32Array(range.slice(0));
      }),
      errors,
    ]);
    this.#items.forEach((item, index) => {
      const at = this.#positions[index];
      if (landed && error === '') item.end(words[at], words[at + 1]);
      else item.refuse(landed ? refused(error) : live.refusal());
    });
  }
}

// ---- copies between slots, and clearing of slots: commands without staging memory
//
// WebGPU cannot copy a buffer onto itself, so bytes between slots of one slab go through a scratch buffer.

interface Command {
  encode(encoder: GPUCommandEncoder): void;
  end(result: StoreResult): void;
}

const COMMANDS_MAX = 4096;

class SlotCommands implements BatchKind<CommandBatch> {
  readonly name = 'commands';
  readonly live: LiveDevice;
  readonly #scratch: GPUBuffer;

  constructor(live: LiveDevice, label: string, scratchBytes: number) {
    this.live = live;
    this.#scratch = live.device.createBuffer({
      label: `${label}.scratch`,
      size: scratchBytes,
      usage: BufferUsage.COPY_SRC | BufferUsage.COPY_DST,
    });
  }

  async open(): Promise<CommandBatch | undefined> {
    return this.live.loss === undefined ? new CommandBatch(this.live) : undefined;
  }

  copy(from: SlotBuffer, to: SlotBuffer, end: (result: StoreResult) => void): Work<CommandBatch> {
    return this.#work({ encode: (encoder) => this.#encodeCopy(encoder, from, to), end });
  }

  clear(slot: SlotBuffer, end: (result: StoreResult) => void): Work<CommandBatch> {
    const { buffer, offsetBytes, sizeBytes } = slot;
    return this.#work({ encode: (encoder) => encoder.clearBuffer(buffer, offsetBytes, sizeBytes), end });
  }

  destroy(): void {
    this.#scratch.destroy();
  }

  #work(command: Command): Work<CommandBatch> {
    return { kind: this, addTo: (batch) => batch.add(command), refuse: (end) => command.end(end) };
  }

  #encodeCopy(encoder: GPUCommandEncoder, from: SlotBuffer, to: SlotBuffer): void {
    if (from.buffer !== to.buffer) {
      encoder.copyBufferToBuffer(from.buffer, from.offsetBytes, to.buffer, to.offsetBytes, from.sizeBytes);
      return;
    }
    for (let done = 0; done < from.sizeBytes; ) {
      const bytes = Math.min(from.sizeBytes - done, this.#scratch.size);
      encoder.copyBufferToBuffer(from.buffer, from.offsetBytes + done, this.#scratch, 0, bytes);
      encoder.copyBufferToBuffer(this.#scratch, 0, to.buffer, to.offsetBytes + done, bytes);
      done += bytes;
    }
  }
}

class CommandBatch implements WorkBatch {
  readonly #live: LiveDevice;
  readonly #commands: Command[] = [];

  constructor(live: LiveDevice) {
    this.#live = live;
  }

  get full(): boolean {
    return this.#commands.length === COMMANDS_MAX;
  }

  add(command: Command): boolean {
    this.#commands.push(command);
    return true;
  }

  encode(encoder: GPUCommandEncoder): void {
    for (const command of this.#commands) command.encode(encoder);
  }

  async finish(errors: Promise<string>): Promise<void> {
    const [done, error] = await Promise.all([this.#live.whenDone(), errors]);
    const end = done ? (error === '' ? loaded : refused(error)) : this.#live.refusal();
    for (const command of this.#commands) command.end(end);
  }
}
