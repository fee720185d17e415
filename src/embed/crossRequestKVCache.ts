/**
 * Reuse of one request's KV by another. A request's longest cached prefix is found in one pass over its keys and
 * pinned: the request holds each of its blocks until it is released, so none of them is evicted. Where the next block
 * only begins alike, the request gets a copy to go on in. Tenants have keys of their own, so none finds another's
 * blocks, unless a group was declared to share.
 *
 *     tryReuse (match, pin, copy) -> allocate (the rest) -> ready -> compute -> commit (publish) -> release
 *
 * What is published is what the runtime told the request to write (openings.ts), under the tokens that it began with.
 */

import { inputError, requireInteger, TierKVError } from '../runtime/errors.ts';
import {
  BlockKeys,
  elementAt,
  type KeyElements,
  type KeySource,
  keyToHex,
  requireElements,
  wordsPerKey,
} from '../runtime/keys/keyChain.ts';
import * as is from '../runtime/kinds.ts';
import type { KVManager } from '../runtime/manager/manager.ts';
import { Entry, type Sequence } from '../runtime/manager/sequence.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';

/** The part of a prompt that a request can reuse. */
export interface ReuseResult {
  /** Whether anything was found. */
  readonly reused: boolean;
  /** Whole blocks from the front, and one more where a last one was copied. */
  readonly matchedBlocks: number;
  /** Tokens from the front that need not be computed, once the request's loads have ended. */
  readonly matchedTokens: number;
  readonly totalTokens: number;
  readonly reuseRatio: number;
}

interface ReuseStats {
  readonly totalQueries: number;
  /** Queries that found something. */
  readonly cacheHits: number;
  readonly cacheMisses: number;
  readonly totalReusedTokens: number;
  /** 0 before the first query. */
  readonly hitRate: number;
  /** Blocks that a prompt that departs within one can be compared with. */
  readonly indexSize: number;
}

/** Configuration of a `CrossRequestKVCache`. */
export interface ReuseConfig {
  readonly blockTokens: number;
  /** Whether each tenant has keys of its own. Default true. */
  readonly enableTenantIsolation?: boolean;
  /** Name under which a tenant shares: its own, the default, or its group's. */
  readonly domainOf?: (tenantId: string) => string;
  /** The keys of a tenant, or of its group. */
  readonly keysOf: (tenantId: string) => KeySource;
  /** Owner whose room its blocks take. Default: owner 0 for all. */
  readonly ownerOf?: (tenantId: string) => number;
  /** Takes room for an owner by `take`, where it is its turn. Default: it always is. */
  readonly inTurn?: (owner: number, take: () => boolean) => boolean;
  /** Size class of a block. Default 0. */
  readonly sizeClass?: number;
  /** Blocks whose beginnings can be compared with a prompt. Default 65,536. */
  readonly maxSiblings?: number;
  readonly nowUs: () => number;
}

const reuseConfigTable = optionTable(
  {
    blockTokens: is.integer(1),
    enableTenantIsolation: is.optional(is.flag()),
    domainOf: is.optional(is.func()),
    keysOf: is.func(),
    ownerOf: is.optional(is.func()),
    inTurn: is.optional(is.func()),
    sizeClass: is.optional(is.integer(0), 0),
    maxSiblings: is.optional(is.integer(0), 65_536),
    nowUs: is.func(),
  } satisfies Kinds<ReuseConfig>,
  'TKV_CONFIG',
);

interface Reuse {
  readonly sequence: Sequence;
  readonly domain: string;
  readonly source: KeySource;
  readonly keys: BlockKeys;
  /** Its tokens, as far as they are known: keys are made of them. */
  tokens: Uint32Array;
  /** Blocks from the front that the request was given, found or to write. */
  given: number;
}

/** A list that says it has more tokens is a mistake: no machine holds the KV of so long a prompt. */
const TOKENS_MOST = 2 ** 26;

/** Finds prefixes that other requests computed, by tenant. */
export class CrossRequestKVCache {
  readonly #manager: KVManager;
  readonly #config: ReuseConfig;
  readonly #sizeClass: number;
  readonly #requests: Map<string, Reuse> = new Map();
  readonly #siblings: SiblingBlocks;
  #queries = 0;
  #hits = 0;
  #reusedTokens = 0;

  /** @throws TKV_CONFIG with the field at fault */
  constructor(manager: KVManager, config: ReuseConfig) {
    const read = reuseConfigTable.read(config, 'config');
    this.#manager = manager;
    this.#config = config;
    this.#sizeClass = read.sizeClass;
    this.#siblings = new SiblingBlocks(read.maxSiblings);
  }

  /**
   * Finds and pins the cached prefix of the tokens, and starts the loads of its blocks below HBM. The last token is
   * always left to compute.
   * @throws TKV_INPUT for a request that has not been released; nothing is counted then
   */
  tryReuse(requestId: string, tokenIds: KeyElements, tenantId = ''): ReuseResult {
    is.name('Name the request.').read(requestId, 'requestId');
    requireElements(tokenIds, 'tokenIds');
    requireInteger('tokenIds.length', tokenIds.length, 0, TOKENS_MOST);
    if (this.#requests.has(requestId)) {
      throw inputError('requestId', `${requestId} is in use. Release it first.`);
    }
    const { blockTokens, ownerOf = () => 0 } = this.#config;
    const manager = this.#manager;
    const tenant = this.#config.enableTenantIsolation === false ? '' : tenantId;
    const source = this.#config.keysOf(tenant);
    const keys = new BlockKeys(Math.ceil(tokenIds.length / blockTokens) + 1);
    source.hashBlocks(tokenIds, 0, keys, tokenIds.length);
    const limit = Math.floor(Math.max(tokenIds.length - 1, 0) / blockTokens);
    const nowUs = this.#config.nowUs();
    const sequence = manager.open(keys.words, keys.length, nowUs, limit, ownerOf(tenant));
    const load = (): boolean => manager.load(sequence, nowUs);
    const takesNone = prefixHeld(sequence) === sequence.length;
    const isLoaded = takesNone ? load() : this.#inTurn(sequence.owner, load);
    if (!isLoaded) manager.releaseRange(sequence, 0, sequence.length, nowUs);
    const held = prefixHeld(sequence);
    const tokens = copyOf(tokenIds);
    const reuse = { sequence, domain: this.#domainOf(tenantId), source, keys, tokens, given: 0 };
    this.#requests.set(requestId, reuse);
    const copied = this.#copySibling(reuse, tokenIds, held);
    const matchedTokens = held * blockTokens + copied;
    this.#queries++;
    this.#reusedTokens += matchedTokens;
    if (matchedTokens > 0) this.#hits++;
    return {
      reused: matchedTokens > 0,
      matchedBlocks: held + (copied > 0 ? 1 : 0),
      matchedTokens,
      totalTokens: tokenIds.length,
      reuseRatio: tokenIds.length === 0 ? 0 : matchedTokens / tokenIds.length,
    };
  }

  /**
   * Opens the blocks that `tokens` tokens need and the request does not have.
   * @returns false, with nothing changed, if they do not fit, or if requests that wait for room have their turns first. A request
   * that has blocks to write goes on without a turn
   * @throws TKV_STATE if a block of the request is gone, with a device or by an error: opened again, it would hold
   * bytes that no kernel wrote
   */
  allocate(requestId: string, tokens: number): boolean {
    requireInteger('tokens', tokens, 0);
    const reuse = this.#of(requestId);
    const { sequence, given } = reuse;
    for (let i = 0; i < given; i++) if (sequence.state[i] === Entry.FAILED) throw gone(i, requestId);
    const blocks = Math.ceil(tokens / this.#config.blockTokens);
    const take = (): boolean =>
      this.#manager.allocate(sequence, 0, blocks, this.#config.nowUs(), this.#sizeClass);
    const fits = given > 0 ? take() : this.#inTurn(sequence.owner, take);
    if (fits) reuse.given = Math.max(given, blocks);
    return fits;
  }

  /** The request's block table: which blocks are loaded, and which are its own to write. */
  sequenceOf(requestId: string): Sequence {
    return this.#of(requestId).sequence;
  }

  /**
   * Publishes the request's full blocks, whose KV is written, so that others find them.
   * @param tokenIds the request's tokens: those of `tryReuse`, and the ones behind them that were computed since
   * @param blocks their indexes; null for all full blocks
   * @param shareable false: they stay the request's own, and go with it
   * @throws TKV_UNKNOWN_ID, TKV_INPUT for another tenant or other tokens than at `tryReuse` and for a block that is not full,
   * TKV_STATE for a block that the request was not told to write, or that is gone, TKV_DEVICE for one that an error of the device
   * may have hit; nothing is published then
   */
  commit(
    requestId: string,
    tokenIds: KeyElements,
    blocks: readonly number[] | null,
    shareable: boolean,
    tenantId = '',
  ): void {
    const reuse = this.#of(requestId);
    requireElements(tokenIds, 'tokenIds');
    if (this.#domainOf(tenantId) !== reuse.domain) {
      throw inputError('tenantId', `must be the tenant of ${requestId}. Commit as you began.`);
    }
    requireSameTokens(reuse, requestId, tokenIds);
    const { blockTokens, nowUs } = this.#config;
    const full = Math.floor(tokenIds.length / blockTokens);
    for (const [i, block] of (blocks ?? []).entries()) requireInteger(`blocks[${i}]`, block, 0, full - 1);
    if (!shareable) return;
    const { sequence, keys, source } = reuse;
    const wanted = blocks ?? Array.from({ length: Math.min(full, sequence.length) }, (_, i) => i);
    for (const i of wanted) requireWritten(this.#manager, sequence, i, blockTokens, requestId);
    source.hashBlocks(tokenIds, Math.min(keys.length, full), keys, tokenIds.length);
    if (tokenIds.length > reuse.tokens.length) reuse.tokens = copyOf(tokenIds);
    for (const i of [...new Set(wanted)].sort((a, b) => a - b)) {
      if (sequence.state[i] !== Entry.OPEN) continue;
      this.#manager.seal(sequence, i, i + 1, keys.words, i * wordsPerKey, blockTokens, nowUs());
      this.#learn(reuse, tokenIds, i);
    }
  }

  /** Releases the request's blocks; published ones stay cached. Unknown ids have no effect. */
  release(requestId: string): void {
    const reuse = this.#requests.get(requestId);
    if (reuse === undefined) return;
    this.#requests.delete(requestId);
    this.#manager.release(reuse.sequence, this.#config.nowUs());
  }

  getStats(): ReuseStats {
    return {
      totalQueries: this.#queries,
      cacheHits: this.#hits,
      cacheMisses: this.#queries - this.#hits,
      totalReusedTokens: this.#reusedTokens,
      hitRate: this.#queries === 0 ? 0 : this.#hits / this.#queries,
      indexSize: this.#siblings.size,
    };
  }

  /** @returns tokens of the first block that is not held, brought by a copy of another block */
  #copySibling({ sequence, domain, keys }: Reuse, tokens: KeyElements, held: number): number {
    const { blockTokens } = this.#config;
    const manager = this.#manager;
    const from = held * blockTokens;
    const most = Math.min(tokens.length - 1 - from, blockTokens);
    const inHbm = (key: Uint32Array): boolean => manager.lookup(key, 1).byTier[0] === 1;
    const sibling = this.#siblings.longest(nameOf(domain, keys, held - 1), tokens, from, most, inHbm);
    if (sibling === null) return 0;
    const nowUs = this.#config.nowUs();
    const other = manager.open(sibling.key, 1, nowUs, 1, sequence.owner);
    const isReady = other.length === 1 && other.state[0] === Entry.READY;
    const isCopied = isReady && manager.copy(other, 0, sequence, held, nowUs, sibling.tokens);
    manager.release(other, nowUs); // a copy under way pins its own source
    return isCopied ? sibling.tokens : 0;
  }

  #learn({ domain, keys }: Reuse, tokens: KeyElements, i: number): void {
    const { blockTokens } = this.#config;
    const own = Uint32Array.from({ length: blockTokens }, (_, t) => elementAt(tokens, i * blockTokens + t));
    const key = keys.words.slice(i * wordsPerKey, (i + 1) * wordsPerKey);
    this.#siblings.add(nameOf(domain, keys, i - 1), nameOf(domain, keys, i), key, own);
  }

  #inTurn(owner: number, take: () => boolean): boolean {
    const { inTurn } = this.#config;
    return inTurn === undefined ? take() : inTurn(owner, take);
  }

  #domainOf(tenantId: string): string {
    const { enableTenantIsolation = true, domainOf = (id: string) => id } = this.#config;
    return enableTenantIsolation ? domainOf(tenantId) : '';
  }

  #of(requestId: string): Reuse {
    const reuse = this.#requests.get(requestId);
    if (reuse !== undefined) return reuse;
    throw new TierKVError(
      'TKV_UNKNOWN_ID',
      `requestId ${String(requestId)} is not known. Call tryReuse first.`,
      { field: 'requestId' },
    );
  }
}

function copyOf(tokens: KeyElements): Uint32Array {
  return Uint32Array.from({ length: tokens.length }, (_, i) => elementAt(tokens, i));
}

/** Keys are made of the tokens once: under other tokens, others would find what was computed for these. */
function requireSameTokens({ tokens }: Reuse, requestId: string, given: KeyElements): void {
  const count = Math.min(tokens.length, given.length);
  for (let i = 0; i < count; i++) {
    const token = elementAt(given, i);
    if (token === tokens[i]) continue;
    throw inputError(
      `tokenIds[${i}]`,
      `is ${String(token)}, and ${requestId} has ${tokens[i]} there since tryReuse. Commit the tokens that it began with, ` +
        'and the tokens that were computed behind them.',
    );
  }
}

/** @throws TKV_STATE unless the block can be published, or others find it already */
function requireWritten(
  manager: KVManager,
  sequence: Sequence,
  i: number,
  blockTokens: number,
  requestId: string,
): void {
  const state = i < sequence.length ? sequence.state[i] : Entry.NONE;
  if (state === Entry.FAILED) throw gone(i, requestId);
  if (state === Entry.NONE || state === Entry.WAITING) {
    const problem = state === Entry.NONE ? 'has no room' : 'has no place yet';
    const remedy =
      state === Entry.NONE
        ? 'Allocate it, await ready and write it first.'
        : 'Await ready and write it first.';
    throw new TierKVError('TKV_STATE', `block ${i} of ${requestId} ${problem}. ${remedy}`, {
      field: 'blocks',
    });
  }
  manager.openings.requireWritten(sequence, i, i + 1, blockTokens);
}

function gone(block: number, requestId: string): TierKVError {
  return new TierKVError(
    'TKV_STATE',
    `block ${block} of ${requestId} is gone, with the device or by an error of it. Release the request, and ` +
      'call tryReuse again with all its tokens.',
    { field: 'requestId' },
  );
}

/** Blocks from the front that the sequence holds in HBM, or that are on their way there. */
function prefixHeld(sequence: Sequence): number {
  let held = 0;
  while (held < sequence.length && isHeld(sequence.state[held])) held++;
  return held;
}

function isHeld(state: number): boolean {
  return state === Entry.READY || state === Entry.LOADING;
}

/** Names a block across all tenants; block -1 is the beginning of a prompt. */
function nameOf(domain: string, keys: BlockKeys, block: number): string {
  return block < 0 ? `begin ${domain}` : keyToHex(keys.words, block * wordsPerKey);
}

// Blocks by the block before them, with their tokens, so that a prompt that departs within a block can copy the
// common tokens. It holds at most `maxSiblings` blocks and forgets the oldest.

interface Sibling {
  readonly key: Uint32Array;
  readonly tokens: Uint32Array;
  readonly parent: string;
}

interface LongestSibling {
  readonly key: Uint32Array;
  /** Tokens from the front that are the same. */
  readonly tokens: number;
}

class SiblingBlocks {
  readonly #limit: number;
  /** Blocks by key, in the order in which they came. */
  readonly #blocks: Map<string, Sibling> = new Map();
  readonly #byParent: Map<string, Set<string>> = new Map();

  constructor(limit: number) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#blocks.size;
  }

  /** @param parent name of the block before, in its domain */
  add(parent: string, name: string, key: Uint32Array, tokens: Uint32Array): void {
    if (this.#blocks.has(name)) return;
    this.#blocks.set(name, { key, tokens, parent });
    const siblings = this.#byParent.get(parent);
    if (siblings === undefined) this.#byParent.set(parent, new Set([name]));
    else siblings.add(name);
    if (this.#blocks.size <= this.#limit) return;
    const [first] = this.#blocks.keys();
    this.delete(first);
  }

  delete(name: string): void {
    const block = this.#blocks.get(name);
    if (block === undefined) return;
    this.#blocks.delete(name);
    const siblings = this.#byParent.get(block.parent);
    siblings?.delete(name);
    if (siblings?.size === 0) this.#byParent.delete(block.parent);
  }

  /**
   * The block behind `parent` that shares the most leading tokens with `tokens` from `from` on, at most `most`.
   * @param isUsable whether the block with this key can be copied
   */
  longest(
    parent: string,
    tokens: KeyElements,
    from: number,
    most: number,
    isUsable: (key: Uint32Array) => boolean,
  ): LongestSibling | null {
    let best: LongestSibling | null = null;
    for (const name of this.#byParent.get(parent) ?? []) {
      const sibling = this.#blocks.get(name) as Sibling; // listed as long as it is there
      const limit = Math.min(most, sibling.tokens.length);
      let same = 0;
      while (same < limit && sibling.tokens[same] === elementAt(tokens, from + same)) same++;
      if (same > (best?.tokens ?? 0) && isUsable(sibling.key)) best = { key: sibling.key, tokens: same };
    }
    return best;
  }
}
