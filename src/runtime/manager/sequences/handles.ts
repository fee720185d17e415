/**
 * What a block table accepts. A `LoadedBlock` exists only for a block that is READY, and an `OpenBlock` only
 * for one that its own sequence writes: so attending over a block that has not arrived, or was not verified,
 * does not type-check. A handle names (slot, generation); it is good until its sequence releases the block.
 */

class BlockHandle {
  readonly slot: number;
  readonly generation: number;
  readonly sizeClass: number;

  constructor(slot: number, generation: number, sizeClass: number) {
    this.slot = slot;
    this.generation = generation;
    this.sizeClass = sizeClass;
  }
}

/** May be read. Only the manager makes one. */
export class LoadedBlock extends BlockHandle {
  readonly #loaded: true = true;

  static is(block: LoadedBlock | OpenBlock): block is LoadedBlock {
    return #loaded in block;
  }
}

/**
 * May be written by the sequence that opened it, and read by that sequence alone. Only the manager makes one.
 */
export class OpenBlock extends BlockHandle {
  readonly #open: true = true;
  /** Whether bytes of another owner may lie in the slot: clear it before its owner can read it. */
  readonly foreign: boolean;

  constructor(slot: number, generation: number, sizeClass: number, foreign: boolean) {
    super(slot, generation, sizeClass);
    this.foreign = foreign;
  }

  static is(block: LoadedBlock | OpenBlock): block is OpenBlock {
    return #open in block;
  }
}

/**
 * A sequence's blocks in order, for the attention kernel: slots of loaded and own open blocks, and nothing
 * else.
 */
export class BlockTable {
  readonly #blocks: (LoadedBlock | OpenBlock)[] = [];

  get length(): number {
    return this.#blocks.length;
  }

  get blocks(): readonly (LoadedBlock | OpenBlock)[] {
    return this.#blocks;
  }

  append(block: LoadedBlock | OpenBlock): this {
    this.#blocks.push(block);
    return this;
  }

  /** Slot of each block, in order. */
  slots(): Uint32Array {
    return Uint32Array.from(this.#blocks, (block) => block.slot);
  }
}
