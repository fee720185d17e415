/**
 * The content of one publisher's caches, by its events: how many leading blocks of a prompt lie in which medium. Blocks are
 * found by their tokens, so the publisher's hashes may be anything.
 *
 * - A block whose parent is not known yet waits for it, and counts for nothing until then.
 * - A block that is in no medium stays as a link while blocks behind it are there: they can be reached again when it
 *   comes back.
 * - vLLM, which names the kind of its layers, tells of each copy of a block that it makes, and of each that it gives up: the
 *   block lies in a medium until the last copy there is gone. Other publishers tell of a block, perhaps more than once.
 * - Layers with a sliding window need the last blocks of a prefix alone. Their publisher frees those before, and the prefix
 *   can be used all the same. It may also tell of these last blocks alone, with the tokens of all: the ones before are links
 *   without a hash, until it tells of them too.
 */

import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { type KVBlocksRemoved, type KVBlocksStored, type KVEventBatch, MEDIUM_DEFAULT } from './wire.ts';

interface PictureMatch {
  /** Leading blocks that lie in some medium. */
  readonly blocks: number;
  /** Tokens of them, and of a partial block behind them that lies in some medium. */
  readonly tokens: number;
  /** Leading blocks that lie in this medium, all of them; by the publisher's name of the medium. */
  readonly byMedium: Readonly<Record<string, number>>;
}

/** Names of a prompt's blocks beside their tokens. */
interface PictureNames {
  readonly salt?: string | null | undefined;
  readonly loraName?: string | null | undefined;
  /** Extra keys of each leading block, as the publisher writes them: images and the like. Default: no keys. */
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
  /** Copies in each medium. */
  readonly media: Map<string, number>;
  readonly children: Map<string, PictureBlock>;
}

/** The content of a server's cache, by its KV events: how much of a prompt it would find. */
export class CachePicture {
  /** Groups by layer group, then by salt and adapter. */
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
    checkInputs({ batch }, { batch: is.fields({ events: is.list(is.object()) }) });
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

  /**
   * The leading blocks of a prompt. Where there are layer groups, the blocks that all of them can go on from: all blocks of
   * one that attends to all tokens, and the last ones of one with a window.
   */
  match(tokenIds: readonly number[], names: PictureNames = {}): PictureMatch {
    const groups = [...this.#groups.values()];
    const chains = groups.map((group) => group.chain(tokenIds, names, this.#blockTokens));
    const most = Math.max(0, ...chains.map(({ media }) => media.length));
    const usable = (lies: (media: readonly string[]) => boolean): number => {
      let blocks = most;
      // a shorter prefix may need a block that a longer one does not: go down until all groups agree
      for (let last = -1; last !== blocks; ) {
        last = blocks;
        for (const [i, { media }] of chains.entries()) {
          const needed = groups[i].blocksNeeded(this.#blockTokens);
          blocks = longest(media, blocks, needed, lies);
        }
      }
      return blocks;
    };
    const blocks = usable((media) => media.length > 0);
    const media_ = new Set(chains.flatMap(({ media }) => media.flat()));
    const byMedium = [...media_].map((name) => [name, usable((media) => media.includes(name))] as const);
    const tails = chains.map(({ tailAt: tail }) => tail(blocks));
    return {
      blocks,
      tokens: blocks * this.#blockTokens + (tails.length === 0 ? 0 : Math.min(...tails)),
      byMedium: Object.fromEntries(byMedium.filter(([, found]) => found > 0)),
    };
  }

  /**
   * Media of each leading block of a prompt that lies in some medium, in the order of the blocks. Where there are
   * layer groups, of the first one.
   */
  places(tokenIds: readonly number[], names: PictureNames = {}): readonly (readonly string[])[] {
    return this.#groups.get(0)?.places(tokenIds, names, this.#blockTokens) ?? [];
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

/** The part of a prompt that a group holds. */
interface GroupChain {
  /** Media of each leading block, empty for one that is a link alone, as far as the chain is known. */
  readonly media: readonly (readonly string[])[];
  /** Tokens of the longest partial block behind a number of blocks. */
  readonly tailAt: (blocks: number) => number;
}

/** The longest prefix of at most `most` blocks whose last ones lie somewhere. @param needed last blocks; Infinity for all */
function longest(
  media: readonly (readonly string[])[],
  most: number,
  needed: number,
  lies: (media: readonly string[]) => boolean,
): number {
  let best = 0;
  let run = 0;
  for (let block = 0; block < Math.min(most, media.length); block++) {
    run = lies(media[block]) ? run + 1 : 0;
    if (run >= Math.min(needed, block + 1)) best = block + 1;
    else if (needed === Infinity) break;
  }
  return best;
}

function addCopy(block: PictureBlock, { medium, layers }: KVBlocksStored): void {
  const name = medium ?? MEDIUM_DEFAULT;
  const copies = block.media.get(name) ?? 0;
  block.media.set(name, layers === null ? Math.max(1, copies) : copies + 1);
}

/** Begins the name of a block whose hash is not told; no hash begins so. */
const LINK = ' link ';

function isLink({ hash }: PictureBlock): boolean {
  return hash?.startsWith(LINK) === true;
}

class PictureGroup {
  readonly #roots: Map<string, PictureBlock> = new Map();
  readonly #blocks: Map<string, PictureBlock> = new Map();
  /** Blocks whose parent is not known yet, by its hash. */
  readonly #orphans: Map<string, Set<PictureBlock>> = new Map();
  /** Tokens that its layers attend to; Infinity for all. */
  #window = Infinity;
  unnamed = 0;
  #links = 0;

  /** Last blocks of a prefix that must lie somewhere for the next token; Infinity for all. */
  blocksNeeded(blockTokens: number): number {
    return Math.ceil((this.#window - 1) / Math.max(1, blockTokens));
  }

  store(event: KVBlocksStored): void {
    if (event.window !== undefined && event.window !== null && event.window > 0) this.#window = event.window;
    const { hashes, parent, tokenIds, blockTokens, loraName, salt, extraKeys } = event;
    if (tokenIds.length < hashes.length * blockTokens) {
      // A block that is known needs no tokens to be in one more medium.
      for (const hash of hashes) {
        const known = this.#blocks.get(hash);
        if (known === undefined) this.unnamed++;
        else addCopy(known, event);
      }
      return;
    }
    const root = rootName(salt, loraName);
    const all = Math.floor(tokenIds.length / blockTokens);
    // the way to a block that is known is known
    const untold = this.#blocks.has(hashes[0]) ? 0 : all - hashes.length;
    // extra keys are of the blocks that have a hash, or of all
    const extrasFrom = extraKeys?.length === hashes.length ? all - hashes.length : 0;
    let before = parent;
    for (let i = all - hashes.length - untold; i < all; i++) {
      const more = moreKey(extraKeys?.[i - extrasFrom], salt, loraName);
      const key = tokensKey(tokenIds, i * blockTokens, blockTokens, more);
      const hash = hashes[i - all + hashes.length];
      if (hash === undefined) {
        before = this.#linkTo(before, key, root);
        continue;
      }
      addCopy(this.#blocks.get(hash) ?? this.#add(hash, before, key, root), event);
      before = hash;
    }
    // links that lead to nothing are of no use
    if (hashes.length === 0 && before !== null) this.#drop(this.#blocks.get(before));
  }

  /** @returns the hash of the block with these tokens behind another one, or a name for it where it is not told */
  #linkTo(parentHash: string | null, key: string, root: string): string {
    const parent = parentHash === null ? this.#root(root) : this.#blocks.get(parentHash);
    const waiting = parentHash === null ? [] : [...(this.#orphans.get(parentHash) ?? [])];
    const known = parent?.children.get(key) ?? waiting.find((orphan) => orphan.key === key);
    if (typeof known?.hash === 'string') return known.hash;
    const name = `${LINK}${this.#links++}`;
    this.#add(name, parentHash, key, root);
    return name;
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
      const name = medium ?? MEDIUM_DEFAULT;
      const copies = block.media.get(name) ?? 0;
      if (copies > 1) block.media.set(name, copies - 1);
      else block.media.delete(name);
      this.#drop(block);
    }
  }

  /** Media of each leading block that lies in some medium. */
  places(tokenIds: readonly number[], names: PictureNames, blockTokens: number): string[][] {
    const { media } = this.chain(tokenIds, names, blockTokens);
    const end = media.findIndex((each) => each.length === 0);
    return (end === -1 ? media : media.slice(0, end)).map((each) => [...each]);
  }

  chain(
    tokenIds: readonly number[],
    { salt = null, loraName = null, extraKeys }: PictureNames,
    blockTokens: number,
  ): GroupChain {
    const root = this.#roots.get(rootName(salt, loraName));
    if (root === undefined || blockTokens === 0) return { media: [], tailAt: () => 0 };
    const nodes = [root];
    const moreAt = (block: number): string => moreKey(extraKeys?.[block], salt, loraName);
    for (let from = 0; from + blockTokens <= tokenIds.length; from += blockTokens) {
      const key = tokensKey(tokenIds, from, blockTokens, moreAt(nodes.length - 1));
      const next = nodes[nodes.length - 1].children.get(key);
      if (next === undefined) break;
      nodes.push(next);
    }
    return {
      media: nodes.slice(1).map((node) => [...node.media.keys()]),
      tailAt: (blocks) => {
        const from = blocks * blockTokens;
        const node = nodes.at(blocks);
        return node === undefined
          ? 0
          : tailAt(node, tokenIds.slice(from, from + blockTokens), moreAt(blocks));
      },
    };
  }

  count(counts: Map<string, number>): void {
    for (const { media } of this.#blocks.values()) {
      for (const medium of media.keys()) counts.set(medium, (counts.get(medium) ?? 0) + 1);
    }
  }

  #add(hash: string, parentHash: string | null, key: string, root: string): PictureBlock {
    const parent = parentHash === null ? this.#root(root) : this.#blocks.get(parentHash);
    const waitsFor = parent === undefined ? parentHash : null;
    const block: PictureBlock = { hash, parent, waitsFor, key, media: new Map(), children: new Map() };
    this.#blocks.set(hash, block);
    if (waitsFor !== null) {
      const waiting = this.#orphans.get(waitsFor);
      if (waiting === undefined) this.#orphans.set(waitsFor, new Set([block]));
      else waiting.add(block);
    }
    if (parent !== undefined) this.#attach(parent, block);
    for (const orphan of this.#orphans.get(hash) ?? []) this.#attach(block, orphan);
    this.#orphans.delete(hash);
    return block;
  }

  /** Puts a block behind another one. Where a link stands for the same tokens, what is behind the link goes to the block. */
  #attach(parent: PictureBlock, block: PictureBlock): void {
    const there = parent.children.get(block.key);
    block.parent = parent;
    parent.children.set(block.key, block);
    if (there === undefined || there === block || (!isLink(there) && !isLink(block))) return;
    const [link, real] = isLink(there) ? [there, block] : [block, there];
    parent.children.set(real.key, real);
    this.#blocks.delete(String(link.hash));
    for (const child of link.children.values()) this.#attach(real, child);
  }

  #root(name: string): PictureBlock {
    let root = this.#roots.get(name);
    if (root === undefined) {
      root = {
        hash: null,
        parent: undefined,
        waitsFor: null,
        key: '',
        media: new Map(),
        children: new Map(),
      };
      this.#roots.set(name, root);
    }
    return root;
  }

  /** Takes out a block that nothing needs, and what was kept for its sake. */
  #drop(block: PictureBlock | undefined): void {
    let at = block;
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

/** Names of a block beside tokens, salt and adapter, as one text; empty without any. */
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
