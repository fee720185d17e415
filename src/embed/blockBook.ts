/**
 * Facts of cached blocks: their token ids, extras that name them, tenants, and the tiers in which they lie.
 * The manager knows blocks by their keys alone, and routers ask by tokens; this book has both, for events and for
 * records on disk.
 *
 * - Chains write blocks down when they hash them, so a block is in the book before the manager stores it.
 * - A block is struck out when it neither lies in a tier nor is on its way to one, and no request has its key any
 *   more. The keys of a request are held weakly, so that its end need not be told. Sweeps find such blocks; the next
 *   one comes when the book has doubled.
 */

import { type BlockKeys, type KeyElements, keyToHex, type RequestExtras } from '../runtime/index.ts';
import { blake2sOf } from '../runtime/keys/blake2s.ts';

/** An extra of a request that names a block beside its tokens. */
export interface BlockExtra {
  readonly name: string;
  /**
   * The value as it was given, if it is text of at most 128 characters or 32 bytes, these in hexadecimal digits; else
   * its BLAKE2s-256.
   */
  readonly value: string;
  /** The first token from which on it holds, counted from the block's first one: below 0 where that lies before the block. */
  readonly offset: number;
}

export interface BlockText {
  readonly tokenIds: Uint32Array;
  /** The tenant, or the group that shares; empty where all share. */
  readonly tenant: string;
  /** Layer group, from 0. */
  readonly group: number;
  /** Extras that name the block beside its tokens, in the order of `offset` and name; absent without any. */
  readonly extras?: readonly BlockExtra[];
  /** The block is the beginning of one: the last of its prompt, with fewer tokens than a block has. */
  readonly isTail?: true;
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

const EXTRA_TEXT_MAX = 128;
const DIGEST_BYTES = 32;

/** The extras of a request as events and records tell them, for its first block. */
export function blockExtras(extras: RequestExtras): readonly BlockExtra[] {
  const list = Object.entries(extras).map(([name, extra]) => {
    const isPlain = typeof extra === 'string' || extra instanceof Uint8Array;
    const { value, fromToken = 0 } = isPlain ? { value: extra } : extra;
    return { name, value: shortValue(value), offset: fromToken };
  });
  return list.sort((a, b) => a.offset - b.offset || (a.name < b.name ? -1 : 1));
}

function shortValue(value: string | Uint8Array): string {
  if (typeof value === 'string' && value.length <= EXTRA_TEXT_MAX) return value;
  const bytes = typeof value === 'string' ? new TextEncoder().encode(value) : value;
  const short = typeof value !== 'string' && bytes.length === DIGEST_BYTES ? bytes : blake2sOf(bytes);
  return Array.from(short, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** The extras of a request that hold for the block which begins at a token. */
function extrasOf(all: readonly BlockExtra[], first: number, blockTokens: number): Pick<BlockText, 'extras'> {
  const extras = all
    .filter(({ offset }) => offset < first + blockTokens)
    .map((extra) => ({ ...extra, offset: extra.offset - first }));
  return extras.length === 0 ? {} : { extras };
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

/** Whose blocks a chain makes keys of. */
interface BookedChain {
  readonly tenant: string;
  readonly group: number;
  /** Extras as `blockExtras` gives them. */
  readonly extras: readonly BlockExtra[];
  readonly blockTokens: number;
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
  note(chain: BookedChain, keys: BlockKeys, from: number, tokens: KeyElements): void {
    for (let block = from; block < keys.length; block++) {
      const key = keys.words.subarray(block * 4, block * 4 + 4);
      this.#write(chain, keys, key, block, chain.blockTokens, tokens);
    }
    if (this.#lines.size >= this.#sweepAt) this.#sweep();
  }

  /** Writes down a partial last block of `count` tokens that is about to be stored. */
  noteTail(
    chain: BookedChain,
    keys: BlockKeys,
    key: Uint32Array,
    block: number,
    count: number,
    tokens: KeyElements,
  ): void {
    this.#write(chain, keys, key, block, count, tokens);
  }

  #write(
    { tenant, group, extras, blockTokens }: BookedChain,
    keys: BlockKeys,
    key: Uint32Array,
    block: number,
    count: number,
    tokens: KeyElements,
  ): void {
    const line = this.#lineOf(keyToHex(key));
    if (line.tiers === 0) line.holders.push(this.#holderOf(keys));
    if (line.text !== undefined) return;
    const first = block * blockTokens;
    const tokenIds = new Uint32Array(count);
    for (let i = 0; i < count; i++) tokenIds[i] = Number(tokens[first + i]);
    line.text = {
      tokenIds,
      tenant,
      group,
      // an extra enters the block of its first token, wherever in the block that is
      ...extrasOf(extras, first, blockTokens),
      ...(count < blockTokens ? { isTail: true } : {}),
    };
    line.parent ??= block === 0 ? null : keyToHex(keys.words.subarray(block * 4 - 4, block * 4));
  }

  #holderOf(keys: BlockKeys): WeakRef<BlockKeys> {
    let holder = this.#holders.get(keys);
    if (holder === undefined) {
      holder = new WeakRef(keys);
      this.#holders.set(keys, holder);
    }
    return holder;
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
