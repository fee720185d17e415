/**
 * A model of upstream's single-tier block store, written from its description (reference commit f90a1e3a): a doubly used list of
 * blocks, where a released block keeps its hash until it is taken again. It exists for comparison only. Each deviation of
 * tierkv is one named repair: with none it does what upstream does, with all of them what tierkv does.
 */

export interface Repairs {
  /** D1: the newest token is always computed, so a fully cached prompt claims its blocks. */
  readonly fullHit: boolean;
  /** D2: a hash names a set of blocks, and a block that is taken deletes its own entry only. */
  readonly duplicates: boolean;
  /** U1: a request that completes does not take a block for its last token, which is never computed. */
  readonly lastToken: boolean;
  /** U2: a request that gives way in the step that was to compute its blocks does not leave them in the cache. */
  readonly neverComputed: boolean;
  /** U3: blocks that hold nothing findable are taken before cached ones. */
  readonly emptyFirst: boolean;
}

export const asUpstream: Repairs = {
  fullHit: false,
  duplicates: false,
  lastToken: false,
  neverComputed: false,
  emptyFirst: false,
};
export const repaired: Repairs = {
  fullHit: true,
  duplicates: true,
  lastToken: true,
  neverComputed: true,
  emptyFirst: true,
};

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
  readonly #blocks: Block[];
  readonly #free: number[];
  /** Blocks by hash, the last one registered at the end; without repair of D2 there is one. */
  readonly #byHash: Map<string, number[]> = new Map();

  constructor(blocks: number, blockTokens: number, repairs: Repairs) {
    this.blockTokens = blockTokens;
    this.#repairs = repairs;
    this.#blocks = Array.from({ length: blocks }, () => ({ refs: 0, tokens: [], hash: '' }));
    this.#free = Array.from({ length: blocks }, (_, i) => i);
  }

  get total(): number {
    return this.#blocks.length;
  }

  get used(): number {
    return this.#blocks.length - this.#free.length;
  }

  get hitRate(): number {
    return this.hits + this.misses === 0 ? 0 : this.hits / (this.hits + this.misses);
  }

  cached(tokens: readonly number[]): number[] {
    const limit = this.#repairs.fullHit ? tokens.length - 1 : tokens.length;
    const found: number[] = [];
    let hash = '';
    for (let end = this.blockTokens; end <= limit; end += this.blockTokens) {
      hash = chained(hash, tokens.slice(end - this.blockTokens, end));
      const ids = this.#byHash.get(hash);
      if (ids === undefined) break;
      found.push(ids[ids.length - 1]);
    }
    return found;
  }

  /** @param isPrefill whether full blocks that are taken whole get a hash */
  allocate(id: string, tokens: readonly number[], cached: readonly number[], isPrefill: boolean): boolean {
    const own = this.owned.get(id) ?? [];
    const last = own.length === 0 ? undefined : this.#blocks[own[own.length - 1]];
    const spare = last === undefined ? 0 : (this.blockTokens - last.tokens.length) % this.blockTokens;
    const need = Math.ceil(Math.max(0, tokens.length - spare) / this.blockTokens);
    const claimed = cached.filter((block) => this.#blocks[block].refs === 0).length;
    if (need + claimed > this.#free.length) return false;
    if (tokens.length === 0) return true;
    if (!this.owned.has(id)) {
      for (const block of cached) this.#claim(block);
      own.push(...cached);
      this.owned.set(id, own);
    }
    this.#append(own, tokens, isPrefill);
    return true;
  }

  release(id: string): void {
    const own = this.owned.get(id) ?? [];
    this.owned.delete(id);
    for (const block of own.reverse()) if (--this.#blocks[block].refs === 0) this.#free.push(block);
  }

  /** Repair U2: blocks behind the first `tokens` tokens of the request are found no more. */
  unpublishBehind(id: string, tokens: number): void {
    for (const block of (this.owned.get(id) ?? []).slice(Math.floor(tokens / this.blockTokens))) {
      this.#unregister(block);
    }
  }

  #claim(block: number): void {
    if (this.#blocks[block].refs++ === 0) this.#free.splice(this.#free.indexOf(block), 1);
    this.hits++;
  }

  #append(own: number[], tokens: readonly number[], isPrefill: boolean): void {
    let at = 0;
    while (at < tokens.length) {
      const last = own.length === 0 ? -1 : own[own.length - 1];
      const filled = last === -1 ? this.blockTokens : this.#blocks[last].tokens.length;
      const isNew = filled === this.blockTokens;
      const block = isNew ? this.#take() : last;
      const room = this.blockTokens - (isNew ? 0 : filled);
      const part = tokens.slice(at, at + room);
      this.#blocks[block].tokens.push(...part);
      if (isNew) own.push(block);
      at += part.length;
      if (this.#blocks[block].tokens.length === this.blockTokens && (isPrefill || !isNew)) {
        const parent = own.length > 1 ? this.#blocks[own[own.length - 2]].hash : '';
        this.#register(block, chained(parent, this.#blocks[block].tokens));
      }
    }
  }

  #take(): number {
    const empty = this.#repairs.emptyFirst ? this.#free.findIndex((id) => this.#blocks[id].hash === '') : -1;
    const [block] = this.#free.splice(Math.max(empty, 0), 1);
    this.#unregister(block);
    this.#blocks[block].tokens = [];
    this.#blocks[block].refs = 1;
    this.misses++;
    return block;
  }

  #register(block: number, hash: string): void {
    this.#blocks[block].hash = hash;
    const ids = this.#repairs.duplicates ? (this.#byHash.get(hash) ?? []) : [];
    ids.push(block);
    this.#byHash.set(hash, ids);
  }

  #unregister(block: number): void {
    const { hash } = this.#blocks[block];
    this.#blocks[block].hash = '';
    if (hash === '') return;
    const ids = this.#byHash.get(hash) ?? [];
    const left = this.#repairs.duplicates ? ids.filter((id) => id !== block) : [];
    if (left.length === 0) this.#byHash.delete(hash);
    else this.#byHash.set(hash, left);
  }
}

/** Any one-to-one name of a prefix does for a hash. */
function chained(parent: string, tokens: readonly number[]): string {
  return `${parent}${tokens.join('|')}|`;
}
