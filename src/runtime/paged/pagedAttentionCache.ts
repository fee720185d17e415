/** What the cache of a continuous batch is built on: blocks of one size, by number. */

export interface CacheBlockData {
  readonly blockIndex: number;
  /** `[layer][head][token][headDim]`, as bytes of the layout's element type. */
  readonly keyCache: Uint8Array;
  /** The same shape. */
  readonly valueCache: Uint8Array;
  /** Tokens from the front that mean something. */
  readonly tokenCount: number;
}

/**
 * A block keeps its number until it is released, wherever it lies. Its bytes are moved by whoever implements
 * this; `Data` is what a read of them gives, and `Stored` a write: promises where bytes are really moved.
 */
export interface IPagedAttentionCache<Data, Stored> {
  /** Bytes of one block. */
  readonly blockBytes: number;
  /**
   * Numbers of `count` new blocks, in the order in which a request should use them; none when not all fit.
   */
  allocateBlock(count?: number): readonly number[];
  /** Lets the blocks `index` to `index + count - 1` go. @throws TKV_UNKNOWN_ID for one that is not taken */
  releaseBlock(index: number, count?: number): void;
  getFreeBlockCount(): number;
  getTotalBlockCount(): number;
  getBlockData(index: number): Data;
  storeBlockData(index: number, data: Omit<CacheBlockData, 'blockIndex'>): Stored;
  /** In microseconds. */
  nowUs(): number;
  /** Where blocks lie; absent where they cannot be moved, so that there is nothing to compact. */
  readonly placement?: BlockPlacement;
}

/** Blocks lie on large pages. A page is free for other uses when nothing is left on it. */
export interface BlockPlacement {
  readonly blocksPerPage: number;
  /** Taken blocks that can be moved now. */
  movableBlocks(): Iterable<number>;
  pageOf(index: number): number;
  /** Taken places on the page, those included that are not of this cache. */
  takenOn(page: number): number;
  /** Free places on pages that are in use. */
  freeOnUsedPages(): number;
  /** The page in use onto which the next block would come, or -1. */
  nextPage(): number;
  /** Share of the places on pages in use that is taken; 1 where none is in use. */
  utilization(): number;
  /** Starts to move the block to the next place. Its number stays. @returns whether that could be started */
  move(index: number): boolean;
}
