/**
 * What one publisher's caches hold, by its events: how many leading blocks of a prompt lie in which medium. Blocks are
 * found by their tokens, so the publisher's hashes may be anything.
 *
 * - A block whose parent is not known yet waits for it, and counts for nothing until then.
 * - A block that is in no medium stays as a link while blocks behind it are there: they can be reached again when it
 *   comes back.
 */

import { requireShapes } from '../../runtime/options.ts';
import { type KVBlocksRemoved, type KVBlocksStored, type KVEventBatch, MEDIUM_DEFAULT } from './wire.ts';

export interface PictureMatch {
  /** Leading blocks that lie in some medium. */
  readonly blocks: number;
  /** Tokens of them, and of a partial block behind them that lies in some medium. */
  readonly tokens: number;
  /** Leading blocks that lie in this medium, all of them; by the publisher's name of the medium. */
  readonly byMedium: Readonly<Record<string, number>>;
}

/** What else names a block beside its tokens. */
export interface PictureNames {
  readonly salt?: string | null | undefined;
  readonly loraName?: string | null | undefined;
  /** Of each leading block, what else names it: images and the like, as the publisher writes them. Default: nothing. */
  readonly extraKeys?: readonly (readonly unknown[] | null)[] | undefined;
}

interface PictureBlock {
  /** Null for a root. */
  readonly hash: string | null;
  /** Undefined while it is not known. */
  parent: PictureBlock | undefined;
  /** Hash of a parent that is not known yet; null for none. */
  readonly waitsFor: string | null;
  /** Its tokens, as `tokensKey` writes them. */
  readonly key: string;
  readonly media: Set<string>;
  readonly children: Map<string, PictureBlock>;
}

export class CachePicture {
  /** By layer group, then by salt and adapter. */
  readonly #groups: Map<number, PictureGroup> = new Map();
  #blockTokens = 0;

  /** Tokens of a block; 0 before the first is known. */
  get blockTokens(): number {
    return this.#blockTokens;
  }

  /** Blocks that lie in some medium, by medium. */
  get blocks(): Readonly<Record<string, number>> {
    const counts = new Map<string, number>();
    for (const group of this.#groups.values()) group.count(counts);
    return Object.fromEntries(counts);
  }

  /** Stores without token ids: they are left out, since no prompt could find them. */
  get unnamed(): number {
    let unnamed = 0;
    for (const group of this.#groups.values()) unnamed += group.unnamed;
    return unnamed;
  }

  apply(batch: KVEventBatch): void {
    requireShapes({ batch }, { batch: { events: ['object'] } });
    const { events } = batch;
    for (const event of events) {
      if (event.type === 'cleared') {
        const { medium } = event;
        if (medium === null) {
          this.#groups.clear();
          this.#blockTokens = 0;
        } else for (const group of this.#groups.values()) group.clear(medium);
        continue;
      }
      const group = this.#groupOf(event.group);
      if (event.type === 'removed') group.remove(event);
      else {
        // a partial last block has fewer tokens than the others
        this.#blockTokens = Math.max(this.#blockTokens, event.blockTokens);
        group.store(event);
      }
    }
  }

  /** The leading blocks of a prompt. Where there are layer groups, the blocks that all of them have. */
  match(tokenIds: readonly number[], names: PictureNames = {}): PictureMatch {
    let least: GroupMatch | undefined;
    for (const group of this.#groups.values()) {
      const found = group.match(tokenIds, names, this.#blockTokens);
      if (least === undefined) least = found;
      else {
        least.blocks = Math.min(least.blocks, found.blocks);
        least.tokens = Math.min(least.tokens, found.tokens);
        for (const medium of [...least.byMedium.keys(), ...found.byMedium.keys()]) {
          const both = Math.min(least.byMedium.get(medium) ?? 0, found.byMedium.get(medium) ?? 0);
          least.byMedium.set(medium, both);
        }
      }
    }
    if (least === undefined) return { blocks: 0, tokens: 0, byMedium: {} };
    return { ...least, byMedium: Object.fromEntries(least.byMedium) };
  }

  /**
   * Media of each leading block of a prompt that lies in some medium, in the order of the blocks. Where there are
   * layer groups, of the first one.
   */
  places(tokenIds: readonly number[], names: PictureNames = {}): readonly (readonly string[])[] {
    return this.#groups.get(0)?.walk(tokenIds, names, this.#blockTokens).places ?? [];
  }

  #groupOf(group: number | null): PictureGroup {
    const number = group ?? 0;
    let found = this.#groups.get(number);
    if (found === undefined) {
      found = new PictureGroup();
      this.#groups.set(number, found);
    }
    return found;
  }
}

interface GroupMatch {
  blocks: number;
  tokens: number;
  byMedium: Map<string, number>;
}

class PictureGroup {
  readonly #roots: Map<string, PictureBlock> = new Map();
  readonly #blocks: Map<string, PictureBlock> = new Map();
  /** Blocks whose parent is not known yet, by its hash. */
  readonly #orphans: Map<string, Set<PictureBlock>> = new Map();
  unnamed = 0;

  store(event: KVBlocksStored): void {
    const { hashes, parent, tokenIds, blockTokens, medium, loraName, salt, extraKeys } = event;
    if (tokenIds.length < hashes.length * blockTokens) {
      // A block that is known needs no tokens to be in one more medium.
      for (const hash of hashes) {
        const known = this.#blocks.get(hash);
        if (known === undefined) this.unnamed++;
        else known.media.add(medium ?? MEDIUM_DEFAULT);
      }
      return;
    }
    let before = parent;
    hashes.forEach((hash, i) => {
      const more = moreKey(extraKeys?.[i], salt, loraName);
      const key = tokensKey(tokenIds, i * blockTokens, blockTokens, more);
      const block = this.#blocks.get(hash) ?? this.#add(hash, before, key, rootName(salt, loraName));
      block.media.add(medium ?? MEDIUM_DEFAULT);
      before = hash;
    });
  }

  /** Nothing lies in a medium any more. */
  clear(medium: string): void {
    for (const block of [...this.#blocks.values()]) {
      if (block.media.delete(medium)) this.#drop(block);
    }
  }

  remove({ hashes, medium }: KVBlocksRemoved): void {
    for (const hash of hashes) {
      const block = this.#blocks.get(hash);
      if (block === undefined) continue;
      block.media.delete(medium ?? MEDIUM_DEFAULT);
      this.#drop(block);
    }
  }

  match(tokenIds: readonly number[], names: PictureNames, blockTokens: number): GroupMatch {
    const byMedium = new Map<string, number>();
    const { places, tailTokens } = this.walk(tokenIds, names, blockTokens);
    places.forEach((media, block) => {
      for (const medium of media) if ((byMedium.get(medium) ?? 0) === block) byMedium.set(medium, block + 1);
    });
    return { blocks: places.length, tokens: places.length * blockTokens + tailTokens, byMedium };
  }

  /** Media of each leading block, and tokens of the longest partial block behind them. */
  walk(
    tokenIds: readonly number[],
    { salt = null, loraName = null, extraKeys }: PictureNames,
    blockTokens: number,
  ): { readonly places: string[][]; readonly tailTokens: number } {
    const places: string[][] = [];
    let at = this.#roots.get(rootName(salt, loraName));
    if (at === undefined || blockTokens === 0) return { places, tailTokens: 0 };
    for (;;) {
      const from = places.length * blockTokens;
      const more = moreKey(extraKeys?.[places.length], salt, loraName);
      const isFull = from + blockTokens <= tokenIds.length;
      const next: PictureBlock | undefined = isFull
        ? at.children.get(tokensKey(tokenIds, from, blockTokens, more))
        : undefined;
      if (next === undefined || next.media.size === 0) {
        return { places, tailTokens: tailAt(at, tokenIds.slice(from, from + blockTokens), more) };
      }
      places.push([...next.media]);
      at = next;
    }
  }

  count(counts: Map<string, number>): void {
    for (const { media } of this.#blocks.values()) {
      for (const medium of media) counts.set(medium, (counts.get(medium) ?? 0) + 1);
    }
  }

  #add(hash: string, parentHash: string | null, key: string, root: string): PictureBlock {
    const parent = parentHash === null ? this.#root(root) : this.#blocks.get(parentHash);
    const waitsFor = parent === undefined ? parentHash : null;
    const block: PictureBlock = { hash, parent, waitsFor, key, media: new Set(), children: new Map() };
    this.#blocks.set(hash, block);
    if (waitsFor !== null) {
      const waiting = this.#orphans.get(waitsFor);
      if (waiting === undefined) this.#orphans.set(waitsFor, new Set([block]));
      else waiting.add(block);
    }
    parent?.children.set(key, block);
    for (const orphan of this.#orphans.get(hash) ?? []) {
      orphan.parent = block;
      block.children.set(orphan.key, orphan);
    }
    this.#orphans.delete(hash);
    return block;
  }

  #root(name: string): PictureBlock {
    let root = this.#roots.get(name);
    if (root === undefined) {
      root = {
        hash: null,
        parent: undefined,
        waitsFor: null,
        key: '',
        media: new Set(),
        children: new Map(),
      };
      this.#roots.set(name, root);
    }
    return root;
  }

  /** Takes out a block that nothing needs, and what was kept for its sake. */
  #drop(block: PictureBlock): void {
    let at: PictureBlock | undefined = block;
    while (at !== undefined && at.hash !== null && at.media.size === 0 && at.children.size === 0) {
      this.#blocks.delete(at.hash);
      const { parent }: PictureBlock = at;
      if (parent?.children.get(at.key) === at) parent.children.delete(at.key);
      if (at.waitsFor !== null) this.#forgetOrphan(at, at.waitsFor);
      at = parent;
    }
  }

  #forgetOrphan(block: PictureBlock, waitsFor: string): void {
    const waiting = this.#orphans.get(waitsFor);
    waiting?.delete(block);
    if (waiting?.size === 0) this.#orphans.delete(waitsFor);
  }
}

function rootName(salt: string | null | undefined, loraName: string | null | undefined): string {
  return JSON.stringify([salt ?? null, loraName ?? null]);
}

/** Tokens of the longest partial block behind `at` that the tokens begin with. */
function tailAt(at: PictureBlock, tokenIds: readonly number[], more: string): number {
  for (let tokens = tokenIds.length; tokens > 0; tokens--) {
    const tail = at.children.get(tokensKey(tokenIds, 0, tokens, more));
    if (tail !== undefined && tail.media.size > 0) return tokens;
  }
  return 0;
}

/** What names a block beside tokens, salt and adapter, as text; empty for nothing. */
function moreKey(
  keys: readonly unknown[] | null | undefined,
  salt: string | null,
  loraName: string | null,
): string {
  const isKnown = (key: unknown): boolean =>
    typeof key === 'string' && (key === loraName || (salt !== null && key.endsWith(salt)));
  const more = keys?.filter((key) => !isKnown(key)) ?? [];
  const plain = (_: string, value: unknown): unknown => (typeof value === 'bigint' ? Number(value) : value);
  return more.length === 0 ? '' : JSON.stringify(more, plain);
}

/** Tokens as text, two letters a token, shorter than digits; what else names the block before them. */
function tokensKey(tokenIds: readonly number[], from: number, count: number, more: string): string {
  let key = more === '' ? '' : `${more}\n`;
  for (let i = from; i < from + count; i++) {
    key += String.fromCharCode(tokenIds[i] >>> 16, tokenIds[i] & 0xffff);
  }
  return key;
}
