/**
 * Blocks that routers were told of, and the order in which they can be told of more. Routers differ in what they do with a block
 * whose parent they do not know, and with the blocks behind one that goes:
 *
 * - llm-d's leaves a block out whose parent it has never heard of. So a block waits until its parent was told.
 * - Dynamo's forgets all that lies behind a block which leaves the device, and takes no block of the device whose
 *   parent is not on the device. So the blocks behind one are told again when it comes back to the first tier.
 *
 * What is told twice changes nothing for others. The blocks that were told are also the state that a router gets
 * which asks for numbers that are gone.
 */

import type { BlockExtra } from '../../../embed/blockBook.ts';
import type { CacheEvent } from '../../../embed/observability.ts';
import { invariant } from '../../../runtime/errors.ts';
import type { WireHash } from './wire.ts';

/** A block as routers know it. */
interface PublishedBlock {
  readonly key: string;
  readonly hash: WireHash;
  readonly parentHash: WireHash | null;
  readonly tokenIds: Uint32Array;
  readonly tenant: string;
  readonly group: number;
  /** Names of the block beside its tokens. */
  readonly extras: readonly BlockExtra[];
}

/** One thing to tell routers. */
export interface Telling {
  readonly type: 'stored' | 'removed';
  /** Position of the tier among the published ones; 0 is the first. */
  readonly tier: number;
  readonly block: PublishedBlock;
}

interface ToldEntry {
  readonly block: PublishedBlock | undefined;
  /** Null for the first of a chain, undefined where it is not known. */
  readonly parent: string | null | undefined;
  /** Bit t: it lies in tier t. */
  tiers: number;
  /** Bit t: routers were told so. */
  told: number;
  readonly children: Set<string>;
}

export class PublishedBlocks {
  readonly #entries: Map<string, ToldEntry> = new Map();
  /** Children of blocks that are not in `#entries`. */
  readonly #waiting: Map<string, Set<string>> = new Map();
  #nameless = 0;
  readonly #tails: boolean;

  /** @param tails whether partial last blocks are told too */
  constructor(tails: boolean) {
    this.#tails = tails;
  }

  /** Blocks that lie in some tier and were told. */
  get count(): number {
    let count = 0;
    for (const { told } of this.#entries.values()) if (told !== 0) count++;
    return count;
  }

  /** Blocks that are not told: their tokens are not known, or they are partial and stay untold. */
  get nameless(): number {
    return this.#nameless;
  }

  /** @param tier position among the published tiers */
  stored(event: Extract<CacheEvent, { type: 'stored' }>, tier: number): Telling[] {
    const { key } = event;
    const had = this.#entries.get(key);
    let entry = had;
    if (entry?.block === undefined) {
      entry = this.#made(event, entry);
      this.#entries.set(key, entry);
    }
    if (had === undefined && entry.block === undefined) this.#nameless++;
    if (had !== undefined && had.block === undefined && entry.block !== undefined) this.#nameless--;
    entry.tiers |= 1 << tier;
    const tellings: Telling[] = [];
    if (this.#canTell(entry)) this.#tell(entry, entry.tiers & ~entry.told, tellings);
    return tellings;
  }

  removed(key: string, tier: number): Telling[] {
    const entry = this.#entries.get(key);
    if (entry === undefined) return [];
    const wasTold = (entry.told & (1 << tier)) !== 0;
    entry.tiers &= ~(1 << tier);
    entry.told &= ~(1 << tier);
    if (entry.tiers === 0) this.#drop(key, entry);
    const { block } = entry;
    return wasTold && block !== undefined ? [{ type: 'removed', tier, block }] : [];
  }

  /** All that routers were told and that still holds, each block behind its parent. */
  state(): Telling[] {
    const tellings: Telling[] = [];
    const done = new Set<ToldEntry>();
    const chain: ToldEntry[] = [];
    for (const start of this.#entries.values()) {
      for (
        let at: ToldEntry | undefined = start;
        at !== undefined && !done.has(at);
        at = this.#parentOf(at)
      ) {
        done.add(at);
        chain.push(at);
      }
      for (let entry = chain.pop(); entry !== undefined; entry = chain.pop()) {
        const { told, block } = entry;
        if (block === undefined) continue;
        for (let tier = 0; told >>> tier !== 0; tier++) {
          if ((told & (1 << tier)) !== 0) tellings.push({ type: 'stored', tier, block });
        }
      }
    }
    return tellings;
  }

  clear(): void {
    this.#entries.clear();
    this.#waiting.clear();
    this.#nameless = 0;
  }

  /** For tests. @throws an invariant if a block was told before its parent, or a link is missing */
  checkIntegrity(): void {
    for (const [key, entry] of this.#entries) {
      invariant((entry.told & ~entry.tiers) === 0, 'what was told must be there');
      invariant(entry.tiers !== 0, 'an entry must lie in some tier');
      if (typeof entry.parent !== 'string') continue;
      const siblings = this.#entries.get(entry.parent)?.children ?? this.#waiting.get(entry.parent);
      invariant(siblings?.has(key) === true, 'a parent must know its children');
    }
    for (const key of this.#waiting.keys()) {
      invariant(!this.#entries.has(key), 'children wait for blocks that are not there');
    }
  }

  #made(event: Extract<CacheEvent, { type: 'stored' }>, before: ToldEntry | undefined): ToldEntry {
    const { key, tokens, tokenIds, tenant = '', group = 0, extras = [] } = event;
    const parent = event.parent === undefined ? before?.parent : event.parent;
    const isWanted = this.#tails || event.isTail !== true;
    const isNamed = isWanted && tokenIds?.length === tokens && parent !== undefined;
    const block = isNamed
      ? {
          key,
          hash: hashOf(key),
          parentHash: parent === null ? null : hashOf(parent),
          tokenIds,
          tenant,
          group,
          extras,
        }
      : undefined;
    const children = before?.children ?? this.#waiting.get(key) ?? new Set<string>();
    this.#waiting.delete(key);
    if (typeof parent === 'string') this.#siblings(parent).add(key);
    return { block, parent, tiers: before?.tiers ?? 0, told: before?.told ?? 0, children };
  }

  #siblings(parent: string): Set<string> {
    const known = this.#entries.get(parent)?.children ?? this.#waiting.get(parent);
    if (known !== undefined) return known;
    const siblings = new Set<string>();
    this.#waiting.set(parent, siblings);
    return siblings;
  }

  #parentOf({ parent }: ToldEntry): ToldEntry | undefined {
    return typeof parent === 'string' ? this.#entries.get(parent) : undefined;
  }

  #canTell(entry: ToldEntry): boolean {
    return entry.block !== undefined && (entry.parent === null || (this.#parentOf(entry)?.told ?? 0) !== 0);
  }

  /** Tells of the entry in the tiers named, and of the blocks behind it that can be told by that. */
  #tell(first: ToldEntry, tiers: number, tellings: Telling[]): void {
    const todo: [ToldEntry, number][] = [[first, tiers]];
    for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
      const [entry, newly] = next;
      const { block } = entry;
      if (block === undefined || newly === 0) continue;
      const wasKnown = entry.told !== 0;
      entry.told |= newly;
      for (let tier = 0; newly >>> tier !== 0; tier++) {
        if ((newly & (1 << tier)) !== 0) tellings.push({ type: 'stored', tier, block });
      }
      for (const key of entry.children) {
        const child = this.#entries.get(key);
        if (child === undefined) continue;
        // Children that waited for this block are told; in the first tier also children that were told before.
        const waited = wasKnown ? 0 : child.tiers & ~child.told;
        todo.push([child, waited | (newly & child.tiers & 1)]);
      }
    }
  }

  #drop(key: string, { parent, children, block }: ToldEntry): void {
    this.#entries.delete(key);
    if (block === undefined) this.#nameless--;
    if (children.size > 0) this.#waiting.set(key, children);
    if (typeof parent !== 'string') return;
    const siblings = this.#siblings(parent);
    siblings.delete(key);
    if (siblings.size === 0) this.#waiting.delete(parent);
  }
}

/** The low 64 bits of a key. Never 0, which some routers take for no block. */
function hashOf(key: string): WireHash {
  const low = BigInt(`0x${key.slice(16)}`);
  return low === 0n ? 1n : low;
}
