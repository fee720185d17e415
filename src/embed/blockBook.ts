/**
 * What cached blocks are made of: their token ids, whose they are, and in which tiers they lie. The manager knows
 * blocks by their keys alone, and routers ask by tokens; this book has both, for events and for records on disk.
 *
 * - Chains write blocks down when they hash them, so a block is in the book before the manager stores it.
 * - Blocks of requests with extras (adapters, images) are not written down: their tokens alone do not name them.
 * - A block is struck out when it neither lies in a tier nor is on its way to one, and no request has its key any
 *   more. The keys of a request are held weakly, so that its end need not be told. Sweeps find such blocks; the next
 *   one comes when the book has doubled.
 */

import { type BlockKeys, type KeyElements, keyToHex } from '../runtime/index.ts';

export interface BlockText {
  readonly tokenIds: Uint32Array;
  /** The tenant, or the group that shares; empty where all share. */
  readonly tenant: string;
  /** Layer group, from 0. */
  readonly group: number;
}

/** A block that lies in some tier. */
export interface BookedBlock {
  /** 32 hexadecimal digits. */
  readonly key: string;
  /** Null for the first of a chain, undefined where it is not known. */
  readonly parent: string | null | undefined;
  readonly tokens: number;
  readonly bytes: number;
  /** Bit t: it lies in the tier at position t. */
  readonly tiers: number;
  readonly text: BlockText | undefined;
}

interface Line {
  text: BlockText | undefined;
  parent: string | null | undefined;
  tokens: number;
  bytes: number;
  tiers: number;
  /** Keys of requests that may still store the block; empty while it is cached. */
  holders: WeakRef<BlockKeys>[];
}

/** The key that `keyToHex` wrote. */
export function keyFromHex(hex: string): Uint32Array {
  const bytes = Uint8Array.from({ length: hex.length / 2 }, (_, i) =>
    Number.parseInt(hex.slice(2 * i, 2 * i + 2), 16),
  );
  return new Uint32Array(bytes.buffer);
}

function bookedBlock(key: string, { parent, tokens, bytes, tiers, text }: Line): BookedBlock {
  return { key, parent, tokens, bytes, tiers, text };
}

/** Blocks of the smallest book that is swept. */
const SPARE_BLOCKS = 4096;

export class BlockBook {
  readonly #lines: Map<string, Line> = new Map();
  /** Size at which the next sweep begins. */
  #sweepAt = SPARE_BLOCKS;
  readonly #isOnItsWay: (key: string) => boolean;
  readonly #holders: WeakMap<BlockKeys, WeakRef<BlockKeys>> = new WeakMap();

  /** @param isOnItsWay whether a transfer may still bring the block into a tier */
  constructor(isOnItsWay: (key: string) => boolean) {
    this.#isOnItsWay = isOnItsWay;
  }

  /** Blocks in the book, cached or not. */
  get size(): number {
    return this.#lines.size;
  }

  /** Writes down the blocks that a chain has hashed, from block `from` on. */
  note(
    tenant: string,
    group: number,
    keys: BlockKeys,
    from: number,
    tokens: KeyElements,
    blockTokens: number,
  ): void {
    let holder = this.#holders.get(keys);
    if (holder === undefined) {
      holder = new WeakRef(keys);
      this.#holders.set(keys, holder);
    }
    for (let block = from; block < keys.length; block++) {
      const line = this.#lineOf(keyToHex(keys.words.subarray(block * 4, block * 4 + 4)));
      if (line.tiers === 0) line.holders.push(holder);
      if (line.text !== undefined) continue;
      const tokenIds = new Uint32Array(blockTokens);
      for (let i = 0; i < blockTokens; i++) tokenIds[i] = Number(tokens[block * blockTokens + i]);
      line.text = { tokenIds, tenant, group };
      line.parent ??= block === 0 ? null : keyToHex(keys.words.subarray(block * 4 - 4, block * 4));
    }
    if (this.#lines.size >= this.#sweepAt) this.#sweep();
  }

  /** Writes down what a record on disk says of its block. @returns the block, if it is cached and that was not known */
  restore(key: string, text: BlockText): BookedBlock | undefined {
    const line = this.#lines.get(key);
    if (line === undefined || line.text !== undefined || line.tiers === 0) return undefined;
    line.text = text;
    return bookedBlock(key, line);
  }

  textOf(key: string): BlockText | undefined {
    return this.#lines.get(key)?.text;
  }

  stored(
    position: number,
    key: string,
    parent: string | null | undefined,
    tokens: number,
    bytes: number,
  ): void {
    const line = this.#lineOf(key);
    line.tiers |= 1 << position;
    line.holders = [];
    line.tokens = tokens;
    line.bytes = bytes;
    if (parent !== undefined) line.parent = parent;
  }

  removed(position: number, key: string): void {
    const line = this.#lines.get(key);
    if (line !== undefined) line.tiers &= ~(1 << position);
  }

  /** The cached blocks, each behind its parent. */
  *cached(): Generator<BookedBlock> {
    const told = new Set<string>();
    const chain: string[] = [];
    for (const start of this.#lines.keys()) {
      let at: string | null | undefined = start;
      while (typeof at === 'string' && !told.has(at)) {
        told.add(at);
        chain.push(at);
        at = this.#lines.get(at)?.parent;
      }
      for (let key = chain.pop(); key !== undefined; key = chain.pop()) {
        const line = this.#lines.get(key);
        if (line !== undefined && line.tiers !== 0) yield bookedBlock(key, line);
      }
    }
  }

  #lineOf(key: string): Line {
    let line = this.#lines.get(key);
    if (line === undefined) {
      line = { text: undefined, parent: undefined, tokens: 0, bytes: 0, tiers: 0, holders: [] };
      this.#lines.set(key, line);
    }
    return line;
  }

  #sweep(): void {
    for (const [key, line] of this.#lines) {
      if (line.tiers !== 0) continue;
      line.holders = line.holders.filter((holder) => holder.deref() !== undefined);
      if (line.holders.length === 0 && !this.#isOnItsWay(key)) this.#lines.delete(key);
    }
    this.#sweepAt = 2 * this.#lines.size + SPARE_BLOCKS;
  }
}
