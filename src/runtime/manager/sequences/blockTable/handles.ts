/**
 * What a block table accepts. A `LoadedBlock` exists only for a block that is READY, an `OpenBlock` only for
 * one that its own sequence writes, and a `SealingBlock` only for one that it has just written: so attending
 * over a block that has not arrived, or was not verified, does not type-check. A handle names (slot,
 * generation); it is good until its sequence releases the block.
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

/** What may be read by the sequence that asks for it. */
export type ReadableBlock = LoadedBlock | OpenBlock | SealingBlock;

/** May be read. Only the manager makes one. */
export class LoadedBlock extends BlockHandle {
  readonly #loaded: true = true;

  static is(block: ReadableBlock): block is LoadedBlock {
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

  static is(block: ReadableBlock): block is OpenBlock {
    return #open in block;
  }
}

/**
 * Was written by its sequence, which alone may read it while its digest is taken. It is not written any more.
 * Only the manager makes one.
 */
export class SealingBlock extends BlockHandle {
  readonly #sealing: true = true;

  static is(block: ReadableBlock): block is SealingBlock {
    return #sealing in block;
  }
}

/**
 * A sequence's blocks in order, for the attention kernel: slots of loaded blocks and of its own that are
 * open or being sealed, and nothing else.
 */
export class BlockTable {
  readonly #blocks: ReadableBlock[] = [];

  get length(): number {
    return this.#blocks.length;
  }

  get blocks(): readonly ReadableBlock[] {
    return this.#blocks;
  }

  append(block: ReadableBlock): this {
    this.#blocks.push(block);
    return this;
  }

  /** Slot of each block, in order. */
  slots(): Uint32Array {
    return Uint32Array.from(this.#blocks, (block) => block.slot);
  }
}
