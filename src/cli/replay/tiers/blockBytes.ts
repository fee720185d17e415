/** What holds the bytes of the blocks, where a driver has bytes. */
export interface BlockBytes {
  /**
   * Starts writing the blocks' patterns into their open slots; device work is in order, so sealing may follow
   * at once.
   */
  write(places: readonly BlockPlace[]): void;
  /** Compares the blocks' bytes with their patterns. @returns blocks that differ */
  verify(places: readonly BlockPlace[]): Promise<number>;
}

export interface BlockPlace {
  readonly slot: number;
  readonly generation: number;
  /** The trace's id of the block: the seed of its bytes. */
  readonly id: number;
}
