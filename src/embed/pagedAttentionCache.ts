/**
 * K and V of a block on the device. There they lie by turns, `[layer][head][K, V][token][headDim]`; callers
 * have each in an array of its own, `[layer][head][token][headDim]`.
 */

import { configError, inputError, requireInteger } from '../runtime/errors.ts';
import { requireKVLayout, requirePairedLayout } from '../runtime/geometry/layout.ts';
import { Entry, type KVLayout, type Sequence, TierKVError } from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { SHARED_OWNER } from '../runtime/manager/ownerQuotas.ts';
import { checkInputs } from '../runtime/options.ts';

import { eachBlock, writeBytes } from './blockBytes.ts';
import {
  contextKind,
  type DeviceBlockTable,
  placesIn,
  type RequestContext,
  requireDevice,
  settledOnDevice,
} from './context.ts';

/** K and V of one block of a paged cache. */
export interface CacheBlockData {
  readonly blockIndex: number;
  /** `[layer][head][token][headDim]`, as bytes of the layout's element type. */
  readonly keyCache: Uint8Array;
  /** The same shape. */
  readonly valueCache: Uint8Array;
  /** Leading tokens that are valid. */
  readonly tokenCount: number;
}

/**
 * A block keeps its number until it is released, wherever it lies. The implementation moves its bytes; `Data` is the
 * result of a read and `Stored` of a write: promises where bytes are really moved.
 */
export interface IPagedAttentionCache<Data, Stored> {
  /** Bytes of one block. */
  readonly blockBytes: number;
  /**
   * Numbers of `count` new blocks, in the order in which a request should use them; an empty array if not all fit.
   * @param goesOn they continue a request that has blocks: where requests have turns, it needs none
   */
  allocateBlock(count?: number, goesOn?: boolean): readonly number[];
  /** Lets the blocks `index` to `index + count - 1` go. @throws TKV_UNKNOWN_ID for one that is not taken */
  releaseBlock(index: number, count?: number): void;
  getFreeBlockCount(): number;
  getTotalBlockCount(): number;
  getBlockData(index: number): Data;
  storeBlockData(index: number, data: Omit<CacheBlockData, 'blockIndex'>): Stored;
  /** In microseconds. */
  nowUs(): number;
  /** Where blocks lie; absent if they cannot be moved, so that there is nothing to compact. */
  readonly placement?: BlockPlacement;
}

/** Blocks lie on large pages. A page is free for other uses when nothing is left on it. */
export interface BlockPlacement {
  readonly blocksPerPage: number;
  /** Taken blocks that can be moved now. */
  movableBlocks(): Iterable<number>;
  pageOf(index: number): number;
  /** Taken places on the page, including those of other caches. */
  takenOn(page: number): number;
  /** Free places on pages that are in use. */
  freeOnUsedPages(): number;
  /** The used page that the next block would go to, or -1. */
  nextPage(): number;
  /** Share of the places on pages in use that is taken; 1 where none is in use. */
  utilization(): number;
  /** Starts to move the block to the next place. Its number stays. @returns whether that could be started */
  move(index: number): boolean;
}

interface BlockHalves {
  readonly keyCache: Uint8Array;
  readonly valueCache: Uint8Array;
}

function apart(block: Uint8Array, planeBytes: number): BlockHalves {
  const keyCache = new Uint8Array(block.length / 2);
  const valueCache = new Uint8Array(block.length / 2);
  for (let at = 0; at < keyCache.length; at += planeBytes) {
    keyCache.set(block.subarray(2 * at, 2 * at + planeBytes), at);
    valueCache.set(block.subarray(2 * at + planeBytes, 2 * at + 2 * planeBytes), at);
  }
  return { keyCache, valueCache };
}

function together({ keyCache, valueCache }: BlockHalves, planeBytes: number): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(2 * keyCache.length);
  for (let at = 0; at < keyCache.length; at += planeBytes) {
    block.set(keyCache.subarray(at, at + planeBytes), 2 * at);
    block.set(valueCache.subarray(at, at + planeBytes), 2 * at + planeBytes);
  }
  return block;
}

// Where the blocks of a paged cache lie in HBM, and how they are moved: by a copy of a block onto itself.

class EntryPlacement implements BlockPlacement {
  readonly blocksPerPage: number;
  readonly #context: RequestContext;
  readonly #table: Sequence;
  readonly #sizeClass: number;

  constructor(context: RequestContext, table: Sequence, sizeClass: number) {
    this.#context = context;
    this.#table = table;
    this.#sizeClass = sizeClass;
    this.blocksPerPage = context.manager.inspect.pool(0).shape.slotsPerPage[sizeClass];
  }

  *movableBlocks(): Iterable<number> {
    for (let i = 0; i < this.#table.length; i++) if (this.#table.state[i] === Entry.OPEN) yield i;
  }

  pageOf(index: number): number {
    const { manager } = this.#context;
    const place = manager.readableBlock(this.#table, index);
    return place === undefined ? -1 : manager.inspect.pool(0).pageOf(place.slot);
  }

  takenOn(page: number): number {
    return this.#context.manager.inspect.pool(0).takenOn(page);
  }

  freeOnUsedPages(): number {
    return this.#context.manager.inspect.pool(0).freeOnCutPages(this.#sizeClass);
  }

  nextPage(): number {
    return this.#context.manager.inspect.pool(0).pageToTake(this.#sizeClass);
  }

  utilization(): number {
    const { takenSlots, uncutPages, shape } = this.#context.manager.inspect.pool(0);
    const places = (shape.pages - uncutPages) * this.blocksPerPage;
    return places === 0 ? 1 : takenSlots / places;
  }

  move(index: number): boolean {
    const { manager } = this.#context;
    return manager.copy(this.#table, index, this.#table, index, this.#context.nowUs());
  }
}

// Blocks for a continuous batch on a runtime's HBM. All of them are entries of one table of the manager, so a
// block's number is its entry, which stays when the block moves. They are written by kernels or by
// `storeBlockData`, belong to this cache alone, and are never published.

/** The blocks of a runtime by number, with their K and V: read, written, copied and compacted. */
export class PagedAttentionCache
  implements IPagedAttentionCache<Promise<CacheBlockData>, Promise<void>>, Disposable
{
  readonly blockBytes: number;
  readonly placement: BlockPlacement;
  readonly #context: RequestContext;
  readonly #layout: KVLayout;
  readonly #table: Sequence;
  readonly #sizeClass: number;
  /** Entries that were let go, the last one on top. */
  readonly #free: number[] = [];
  /** Stored tokens of each taken block. */
  readonly #tokens: Map<number, number> = new Map();
  #isClosed = false;

  /** @throws TKV_CONFIG for a runtime with layer groups */
  constructor(context: RequestContext, layout: KVLayout) {
    contextKind.read(context, 'context');
    requirePairedLayout(requireKVLayout(layout), 'the paged cache');
    const { manager, units } = context;
    if (units.groups.length > 1) {
      throw configError('layerGroups', 'are several, and a paged cache takes one', 'Open without them.');
    }
    this.#context = context;
    this.#layout = layout;
    this.#sizeClass = units.sizeClass[0];
    this.blockBytes = units.unitBytes[this.#sizeClass];
    // the cache does not know its tenant: each block is wiped when it is taken
    this.#table = manager.open(new Uint32Array(), 0, context.nowUs(), 0, SHARED_OWNER);
    this.placement = new EntryPlacement(context, this.#table, this.#sizeClass);
  }

  /**
   * Numbers of `count` blocks, or none when not all of them fit now, or when requests that wait for room have their turns first.
   * Await `ready` before kernels use them: a block whose place is still read by a transfer comes a little later.
   * @param goesOn they continue a request that has blocks, which needs no turn
   */
  allocateBlock(count = 1, goesOn = false): readonly number[] {
    requireInteger('count', count, 1);
    checkInputs({ goesOn }, { goesOn: is.flag() });
    this.#requireOpen();
    if (goesOn) return this.#takeBlocks(count);
    let blocks: readonly number[] = [];
    this.#context.admission.takeAtOnce(SHARED_OWNER, () => {
      blocks = this.#takeBlocks(count);
      return blocks.length > 0;
    });
    return blocks;
  }

  #takeBlocks(count: number): readonly number[] {
    const { manager } = this.#context;
    if (!manager.canAllocate(count, this.#sizeClass, SHARED_OWNER)) return [];
    const blocks: number[] = [];
    while (blocks.length < count) {
      const index = this.#free.pop() ?? this.#table.length;
      const fits = manager.allocate(this.#table, index, index + 1, this.#context.nowUs(), this.#sizeClass);
      if (fits) this.#tokens.set(index, 0);
      if (fits) blocks.push(index);
      if (fits && this.#table.state[index] !== Entry.FAILED) continue;
      if (!fits) this.#free.push(index);
      for (const block of blocks) this.releaseBlock(block);
      return [];
    }
    return blocks;
  }

  releaseBlock(index: number, count = 1): void {
    checkInputs({ index }, { index: is.number() });
    requireInteger('count', count, 1);
    this.#requireOpen();
    for (let i = index; i < index + count; i++) this.#requireTaken(i);
    for (let i = index + count - 1; i >= index; i--) {
      this.#context.manager.releaseRange(this.#table, i, i + 1, this.#context.nowUs());
      this.#tokens.delete(i);
      this.#free.push(i);
    }
  }

  /** Blocks that could be taken now: free, or used by cached blocks that can be evicted. */
  getFreeBlockCount(): number {
    const { manager } = this.#context;
    const { residentBytes, cachedBytes } = manager.inspect.usage(0);
    const { capacityBytes } = manager.config.tiers[0].shape;
    const fixedBytes = residentBytes - cachedBytes + manager.inspect.protectedBytes(SHARED_OWNER, 0);
    return Math.max(0, Math.floor((capacityBytes - fixedBytes) / this.blockBytes));
  }

  getTotalBlockCount(): number {
    return Math.floor(this.#context.manager.config.tiers[0].shape.capacityBytes / this.blockBytes);
  }

  /**
   * Fulfilled when all these blocks have their place, on a device that is there.
   * @throws TKV_UNKNOWN_ID for a block that is not taken, TKV_STATE for one whose bytes were lost, TKV_DEVICE when no device is
   * to be had
   */
  async ready(blocks: readonly number[]): Promise<void> {
    checkInputs({ blocks }, { blocks: is.list(is.number()) });
    for (const index of blocks) this.#requireTaken(index);
    const isWaiting = (index: number): boolean => this.#table.state[index] === Entry.WAITING;
    await settledOnDevice(this.#context, () =>
      blocks.some(isWaiting) ? this.#context.loop.settled(this.#table) : undefined,
    );
    this.#requirePlaced(blocks);
  }

  /**
   * Slab and offset of the blocks, for kernels. Good until blocks are moved: read it anew after a compaction.
   * @throws TKV_UNKNOWN_ID for a block that is not taken, TKV_STATE for one that is moving or was lost
   */
  blockTable(blocks: readonly number[]): DeviceBlockTable {
    checkInputs({ blocks }, { blocks: is.list(is.number()) });
    this.#requirePlaced(blocks);
    return placesIn(
      this.#context,
      blocks.map((index) => this.#placeOf(index)),
    );
  }

  /** The block's K and V, read from the device. @throws as `ready` */
  async getBlockData(index: number): Promise<CacheBlockData> {
    await this.ready([index]);
    let halves: BlockHalves = { keyCache: new Uint8Array(0), valueCache: new Uint8Array(0) };
    await eachBlock(this.#context, [this.#placeOf(index)], (bytes) => {
      halves = apart(bytes, this.#layout.kvStrideBytes);
    });
    return { blockIndex: index, ...halves, tokenCount: this.#tokens.get(index) ?? 0 };
  }

  /**
   * Writes K and V of the whole block to the device, as they are when it is called.
   * @throws as `ready`, and TKV_INPUT for arrays or a token count that are not those of a block
   */
  async storeBlockData(index: number, data: Omit<CacheBlockData, 'blockIndex'>): Promise<void> {
    const half = this.blockBytes / 2;
    checkInputs({ data }, { data: is.object() });
    requireBytes('keyCache', data.keyCache, half);
    requireBytes('valueCache', data.valueCache, half);
    requireInteger('tokenCount', data.tokenCount, 0, this.#layout.blockTokens);
    const { tokenCount } = data;
    const block = together(data, this.#layout.kvStrideBytes); // before the caller uses its arrays again
    await this.ready([index]);
    writeBytes(this.#context, this.#placeOf(index), block);
    this.#tokens.set(index, tokenCount);
  }

  nowUs(): number {
    return this.#context.nowUs();
  }

  /** Lets all blocks go. */
  [Symbol.dispose](): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#tokens.clear();
    this.#context.manager.release(this.#table, this.#context.nowUs());
  }

  #placeOf(index: number): { readonly slot: number; readonly sizeClass: number } {
    const place = this.#context.manager.readableBlock(this.#table, index);
    if (place !== undefined) return place;
    const why = this.#table.state[index] === Entry.WAITING ? 'is on its way' : 'has lost its bytes';
    const remedy = this.#table.state[index] === Entry.WAITING ? 'Await ready.' : 'Release it.';
    throw new TierKVError('TKV_STATE', `block ${index} ${why}. ${remedy}`, { field: 'index' });
  }

  #requirePlaced(blocks: readonly number[]): void {
    requireDevice(this.#context);
    for (const index of blocks) {
      this.#requireTaken(index);
      this.#placeOf(index);
    }
  }

  #requireTaken(index: number): void {
    if (this.#tokens.has(index)) return;
    throw new TierKVError('TKV_UNKNOWN_ID', `block ${index} is not taken. Allocate blocks first.`, {
      field: 'index',
    });
  }

  #requireOpen(): void {
    if (this.#isClosed) throw new TierKVError('TKV_STATE', 'the paged cache is closed. Make another one.');
  }
}

function requireBytes(field: string, bytes: Uint8Array, length: number): void {
  if (bytes instanceof Uint8Array && bytes.length === length) return;
  throw inputError(field, `is not ${length} bytes. Pass that half of a block.`);
}
