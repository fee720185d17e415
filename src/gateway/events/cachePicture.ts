/**
 * What one publisher's caches hold, by its events: how many leading blocks of a prompt lie in which medium. Blocks are
 * found by their tokens, so the publisher's hashes may be anything.
 *
 * - A block whose parent is not known yet waits for it, and counts for nothing until then.
 * - A block that is in no medium stays as a link while blocks behind it are there: they can be reached again when it
 *   comes back.
 */

import type { KVBlocksRemoved, KVBlocksStored, KVEventBatch } from './wire.ts';

export interface PictureMatch {
  /** Leading blocks that lie in some medium. */
  readonly blocks: number;
  /** Tokens of them. */
  readonly tokens: number;
  /** Leading blocks that lie in this medium, all of them; by the publisher's name of the medium. */
  readonly byMedium: Readonly<Record<string, number>>;
}

/** What else names a block beside its tokens. */
export interface PictureNames {
  readonly salt?: string | null | undefined;
  readonly loraName?: string | null | undefined;
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

/** Stands for a medium that the publisher does not name: vLLM's first medium was the device alone. */
const MEDIUM_DEFAULT = 'GPU';

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
    const counts: Record<string, number> = {};
    for (const group of this.#groups.values()) group.count(counts);
    return counts;
  }

  /** Stores without token ids: they are left out, since no prompt could find them. */
  get unnamed(): number {
    let unnamed = 0;
    for (const group of this.#groups.values()) unnamed += group.unnamed;
    return unnamed;
  }

  apply({ events }: KVEventBatch): void {
    for (const event of events) {
      if (event.type === 'cleared') {
        this.#groups.clear();
        continue;
      }
      const group = this.#groupOf(event.group);
      if (event.type === 'removed') group.remove(event);
      else {
        this.#blockTokens = event.blockTokens;
        group.store(event);
      }
    }
  }

  /** The leading blocks of a prompt. Where there are layer groups, the blocks that all of them have. */
  match(tokenIds: readonly number[], { salt = null, loraName = null }: PictureNames = {}): PictureMatch {
    let least: { blocks: number; byMedium: Record<string, number> } | undefined;
    for (const group of this.#groups.values()) {
      const found = group.match(tokenIds, rootName(salt, loraName), this.#blockTokens);
      if (least === undefined) least = found;
      else {
        least.blocks = Math.min(least.blocks, found.blocks);
        const media = new Set([...Object.keys(least.byMedium), ...Object.keys(found.byMedium)]);
        for (const medium of media) {
          least.byMedium[medium] = Math.min(least.byMedium[medium] ?? 0, found.byMedium[medium] ?? 0);
        }
      }
    }
    const { blocks, byMedium } = least ?? { blocks: 0, byMedium: {} };
    return { blocks, tokens: blocks * this.#blockTokens, byMedium };
  }

  /**
   * Media of each leading block of a prompt that lies in some medium, in the order of the blocks. Where there are
   * layer groups, of the first one.
   */
  places(
    tokenIds: readonly number[],
    { salt = null, loraName = null }: PictureNames = {},
  ): readonly (readonly string[])[] {
    const group = this.#groups.get(0);
    return group === undefined ? [] : group.places(tokenIds, rootName(salt, loraName), this.#blockTokens);
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

class PictureGroup {
  readonly #roots: Map<string, PictureBlock> = new Map();
  readonly #blocks: Map<string, PictureBlock> = new Map();
  /** Blocks whose parent is not known yet, by its hash. */
  readonly #orphans: Map<string, Set<PictureBlock>> = new Map();
  unnamed = 0;

  store({ hashes, parent, tokenIds, blockTokens, medium, loraName, salt }: KVBlocksStored): void {
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
      const key = tokensKey(tokenIds, i * blockTokens, blockTokens);
      const block = this.#blocks.get(hash) ?? this.#add(hash, before, key, rootName(salt, loraName));
      block.media.add(medium ?? MEDIUM_DEFAULT);
      before = hash;
    });
  }

  remove({ hashes, medium }: KVBlocksRemoved): void {
    for (const hash of hashes) {
      const block = this.#blocks.get(hash);
      if (block === undefined) continue;
      block.media.delete(medium ?? MEDIUM_DEFAULT);
      this.#drop(block);
    }
  }

  match(
    tokenIds: readonly number[],
    root: string,
    blockTokens: number,
  ): { blocks: number; byMedium: Record<string, number> } {
    const byMedium: Record<string, number> = {};
    const places = this.places(tokenIds, root, blockTokens);
    places.forEach((media, block) => {
      for (const medium of media) if ((byMedium[medium] ?? 0) === block) byMedium[medium] = block + 1;
    });
    return { blocks: places.length, byMedium };
  }

  places(tokenIds: readonly number[], root: string, blockTokens: number): string[][] {
    const places: string[][] = [];
    let at = this.#roots.get(root);
    while (at !== undefined && blockTokens > 0 && (places.length + 1) * blockTokens <= tokenIds.length) {
      at = at.children.get(tokensKey(tokenIds, places.length * blockTokens, blockTokens));
      if (at === undefined || at.media.size === 0) break;
      places.push([...at.media]);
    }
    return places;
  }

  count(counts: Record<string, number>): void {
    for (const { media } of this.#blocks.values()) {
      for (const medium of media) counts[medium] = (counts[medium] ?? 0) + 1;
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

/** Tokens as text: two letters a token, shorter than digits. */
function tokensKey(tokenIds: readonly number[], from: number, count: number): string {
  let key = '';
  for (let i = from; i < from + count; i++) {
    key += String.fromCharCode(tokenIds[i] >>> 16, tokenIds[i] & 0xffff);
  }
  return key;
}
