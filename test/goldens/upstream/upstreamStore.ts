/**
 * A model of upstream's single-tier block store, written from its description (reference commit f90a1e3a):
 * one list of blocks that no request holds, where a block keeps its hash until it is taken again. It exists for
 * comparison only. Each deviation of tierkv is one named repair: with none it does what upstream does, with
 * all of them what tierkv does.
 */

import { createHash } from 'node:crypto';
import { FreeBlocks } from './freeBlocks.ts';

export interface Repairs {
  /** D1: the newest token is always computed, so a fully cached prompt claims its blocks. */
  readonly fullHit: boolean;
  /** D2: a hash names a set of blocks, and a block that is taken deletes its own entry only. */
  readonly duplicates: boolean;
  /** U1: a request that completes does not take a block for its last token, which is never computed. */
  readonly lastToken: boolean;
  /**
   * U2: a request that gives way in the step that was to compute its blocks does not leave them in the cache.
   */
  readonly neverComputed: boolean;
  /** U3: blocks that hold nothing findable are taken before cached ones. */
  readonly emptyFirst: boolean;
  /**
   * U4: a block that a decode fills alone is found like any other. It differs for blocks of one token only.
   */
  readonly decodedBlocks: boolean;
  /**
   * U5: where the first request of the batch gives way itself, the step computes the others and is not empty.
   */
  readonly emptySteps: boolean;
}

export const asUpstream: Repairs = {
  fullHit: false,
  duplicates: false,
  lastToken: false,
  neverComputed: false,
  emptyFirst: false,
  decodedBlocks: false,
  emptySteps: false,
};
export const repaired: Repairs = {
  fullHit: true,
  duplicates: true,
  lastToken: true,
  neverComputed: true,
  emptyFirst: true,
  decodedBlocks: true,
  emptySteps: true,
};

export interface UpstreamState {
  /** Block, references, tokens, and the first digits of its hash. */
  readonly blocks: readonly (readonly [number, number, number, string])[];
  readonly free: readonly number[];
  readonly hash_entries: number;
  readonly hits: number;
  readonly map: Readonly<Record<string, readonly number[]>>;
  readonly misses: number;
  readonly used: number;
}

/** What an allocation is a part of. */
export interface AllocatedFrom {
  readonly prompt: readonly number[];
  readonly start: number;
}

interface Block {
  refs: number;
  tokens: number[];
  hash: string;
}

export class UpstreamStore {
  readonly blockTokens: number;
  readonly owned: Map<string, number[]> = new Map();
  hits = 0;
  misses = 0;
  readonly #repairs: Repairs;
  protected readonly blocks: Block[];
  protected readonly free: FreeBlocks;
  /** Blocks by hash, the last one registered at the end; without repair of D2 there is one. */
  protected readonly byHash: Map<string, number[]> = new Map();

  constructor(blocks: number, blockTokens: number, repairs: Repairs) {
    this.blockTokens = blockTokens;
    this.#repairs = repairs;
    this.blocks = Array.from({ length: blocks }, () => ({ refs: 0, tokens: [], hash: '' }));
    this.free = new FreeBlocks(blocks, (block) => this.blocks[block].hash === '');
  }

  get total(): number {
    return this.blocks.length;
  }

  get used(): number {
    return this.blocks.length - this.free.length;
  }

  get hitRate(): number {
    const lookups = this.hits + this.misses + this.missesBelow;
    return lookups === 0 ? 0 : this.hits / lookups;
  }

  cached(tokens: readonly number[]): number[] {
    const limit = this.#repairs.fullHit ? tokens.length - 1 : tokens.length;
    const found: number[] = [];
    const hashes = chainOf(tokens, this.blockTokens);
    for (let i = 0; (i + 1) * this.blockTokens <= limit; i++) {
      const ids = this.byHash.get(hashes[i]);
      if (ids === undefined) break;
      found.push(ids[ids.length - 1]);
    }
    return found;
  }

  /**
   * @param isPrefill whether full blocks that are taken whole get a hash
   * @param from the prompt and where in the request `tokens` begin
   */
  allocate(
    id: string,
    tokens: readonly number[],
    cached: readonly number[],
    isPrefill: boolean,
    from?: AllocatedFrom,
  ): boolean {
    const own = this.owned.get(id) ?? [];
    const last = own.length === 0 ? undefined : this.blocks[own[own.length - 1]];
    const spare = last === undefined ? 0 : (this.blockTokens - last.tokens.length) % this.blockTokens;
    const need = Math.ceil(Math.max(0, tokens.length - spare) / this.blockTokens);
    const claimed = cached.filter((block) => this.blocks[block].refs === 0).length;
    if (need + claimed > this.free.length) return false;
    if (tokens.length === 0 && !this.#repairs.fullHit) return true;
    if (!this.owned.has(id)) {
      for (const block of cached) this.claim(block);
      own.push(...cached);
      this.owned.set(id, own);
    }
    this.#append(own, tokens, isPrefill, from?.prompt);
    return true;
  }

  release(id: string): void {
    const own = this.owned.get(id) ?? [];
    this.owned.delete(id);
    for (const block of own.reverse()) if (--this.blocks[block].refs === 0) this.free.push(block);
  }

  /** Repair U2: blocks behind the first `tokens` tokens of the request are found no more. */
  unpublishBehind(id: string, tokens: number): void {
    for (const block of (this.owned.get(id) ?? []).slice(Math.floor(tokens / this.blockTokens))) {
      this.unregister(block);
    }
  }

  /** Time goes on. Here and in the following, stores with lower tiers do more. */
  setClock(_nowUs: number): void {}

  /** A step has ended: what these requests hold is copied down, prompts of the given numbers of tokens. */
  mirror(_batch: readonly (readonly [id: string, promptTokens: number])[]): void {}

  /** Requests that wait for lower tiers are looked at. */
  poll(_nowUs: number): void {}

  isDeferred(_id: string): boolean {
    return false;
  }

  /** Microseconds that the next step takes longer, for once. */
  consumeLatency(): number {
    return 0;
  }

  /** Lookups of lower tiers that failed, which the hit rate counts as misses. */
  get missesBelow(): number {
    return 0;
  }

  /** Work of lower tiers that was in vain, in [0, 1]. */
  /** What upstream calls thrashing, and of how many: each kind of tier has a definition of its own. */
  get thrashed(): number {
    return 0;
  }

  get offloads(): number {
    return 0;
  }

  get thrashing(): number {
    return this.offloads === 0 ? 0 : this.thrashed / this.offloads;
  }

  /** The whole state in the form of the operation traces. */
  state(): UpstreamState {
    const blocks = this.blocks
      .map((block, id) => [id, block.refs, block.tokens.length, block.hash.slice(0, 8)] as const)
      .filter(([, , tokens]) => tokens > 0);
    return {
      blocks,
      free: [...this.free],
      hash_entries: this.byHash.size,
      hits: this.hits,
      map: Object.fromEntries([...this.owned].map(([id, own]) => [id, [...own]])),
      misses: this.misses,
      used: this.used,
    };
  }

  protected claim(block: number): void {
    if (this.blocks[block].refs++ === 0) this.free.remove(block);
    this.hits++;
  }

  #append(own: number[], tokens: readonly number[], isPrefill: boolean, prompt?: readonly number[]): void {
    let at = 0;
    while (at < tokens.length) {
      const last = own.length === 0 ? -1 : own[own.length - 1];
      const filled = last === -1 ? this.blockTokens : this.blocks[last].tokens.length;
      const isNew = filled === this.blockTokens;
      const block = isNew ? this.#take() : last;
      const room = this.blockTokens - (isNew ? 0 : filled);
      const part = tokens.slice(at, at + room);
      this.blocks[block].tokens.push(...part);
      if (isNew) own.push(block);
      at += part.length;
      const isHashed = isPrefill || !isNew || this.#repairs.decodedBlocks;
      if (this.blocks[block].tokens.length === this.blockTokens && isHashed) {
        const parent = own.length > 1 ? this.blocks[own[own.length - 2]].hash : '';
        this.register(block, this.#hashOf(own.length - 1, parent, this.blocks[block].tokens, prompt));
      }
    }
  }

  /** The hash of a block of a request; where it is what the prompt says, the one that the prompt is known by. */
  #hashOf(index: number, parent: string, tokens: readonly number[], prompt: readonly number[] = []): string {
    const from = index * this.blockTokens;
    if (from + this.blockTokens <= prompt.length) {
      const hashes = chainOf(prompt, this.blockTokens);
      const isOfPrompt =
        parent === (index === 0 ? '' : hashes[index - 1]) &&
        tokens.every((token, i) => token === prompt[from + i]);
      if (isOfPrompt) return hashes[index];
    }
    return chained(parent, tokens);
  }

  #take(): number {
    const block = (this.#repairs.emptyFirst ? this.free.takeEmpty() : undefined) ?? this.free.shift();
    this.unregister(block);
    this.blocks[block].tokens = [];
    this.blocks[block].refs = 1;
    this.misses++;
    return block;
  }

  protected register(block: number, hash: string): void {
    this.blocks[block].hash = hash;
    const ids = this.#repairs.duplicates ? (this.byHash.get(hash) ?? []) : [];
    ids.push(block);
    this.byHash.set(hash, ids);
  }

  protected unregister(block: number): void {
    const { hash } = this.blocks[block];
    this.blocks[block].hash = '';
    if (hash === '') return;
    this.free.emptied(block);
    const ids = this.byHash.get(hash) ?? [];
    const left = this.#repairs.duplicates ? ids.filter((id) => id !== block) : [];
    if (left.length === 0) this.byHash.delete(hash);
    else this.byHash.set(hash, left);
  }
}

const chains = new WeakMap<readonly number[], Map<number, readonly string[]>>();

/** The hashes of a prompt's full blocks: a request that waits asks for them at each step. */
function chainOf(tokens: readonly number[], blockTokens: number): readonly string[] {
  let bySize = chains.get(tokens);
  if (bySize === undefined) chains.set(tokens, (bySize = new Map()));
  let hashes = bySize.get(blockTokens);
  if (hashes === undefined) {
    const all: string[] = [];
    for (let end = blockTokens; end <= tokens.length; end += blockTokens) {
      all.push(chained(all.at(-1) ?? '', tokens.slice(end - blockTokens, end)));
    }
    bySize.set(blockTokens, (hashes = all));
  }
  return hashes;
}

const known: Map<string, string> = new Map();

/** The hash of a block behind the one of that hash. */
export function chained(parent: string, tokens: readonly number[]): string {
  const text = `${parent}${tokens.join('|')}|`;
  let hash = known.get(text);
  if (hash === undefined) known.set(text, (hash = createHash('sha256').update(text).digest('hex')));
  return hash;
}
