/**
 * What upstream's two stores with lower tiers have in common (reference commit f90a1e3a), written from its
 * description and for comparison only: before every allocation the rest of the prompt is looked for below, and
 * what is found is written into the blocks at the head of the free list (D3: these may be the ones that the
 * caller has matched), for a prompt that is computed as before (D4, D12).
 */

import { type AllocatedFrom, asUpstream, chained, UpstreamStore } from '../upstream/upstreamStore.ts';

export abstract class ReloadingStore extends UpstreamStore {
  /** Allocations that failed, and brought nothing. */
  #failed = 0;

  constructor(blocks: number, blockTokens: number) {
    super(blocks, blockTokens, asUpstream);
  }

  override get missesBelow(): number {
    return this.#failed;
  }

  override allocate(
    id: string,
    tokens: readonly number[],
    cached: readonly number[],
    isPrefill: boolean,
    { prompt, start }: AllocatedFrom = { prompt: [], start: 0 },
  ): boolean {
    const reloaded = this.reload(this.tailOf(id, prompt, cached));
    if (reloaded > 0) {
      const end = start + tokens.length;
      const found = this.cached(prompt);
      const foundTokens = found.length * this.blockTokens;
      if (foundTokens > start) {
        const isFull = foundTokens >= end;
        const last = isFull ? Math.min(Math.ceil(end / this.blockTokens), found.length) : found.length;
        const first = this.owned.has(id) ? Math.ceil(start / this.blockTokens) : 0;
        this.#commit(id, found.slice(first, last));
        return isFull || super.allocate(id, tokens.slice(foundTokens - start), [], isPrefill);
      }
    }
    const ok = super.allocate(id, tokens, cached, isPrefill);
    if (!ok && reloaded === 0) this.#failed++;
    return ok;
  }

  /** Hashes of the prompt's full blocks behind what was matched, or what the request has where that is more. */
  protected tailOf(id: string, prompt: readonly number[], cached: readonly number[]): string[] {
    const own = this.owned.get(id) ?? [];
    const before = own.length > cached.length ? own : cached;
    let hash = before.length === 0 ? '' : this.blocks[before[before.length - 1]].hash;
    const keys: string[] = [];
    for (let end = (before.length + 1) * this.blockTokens; end <= prompt.length; end += this.blockTokens) {
      hash = chained(hash, prompt.slice(end - this.blockTokens, end));
      keys.push(hash);
    }
    return keys;
  }

  /** Brings blocks, in order. @returns how many */
  protected abstract reload(keys: readonly string[]): number;

  /** Writes a block of that hash into the one at the head of the free list, which goes to its end. */
  protected writeFree(hash: string): void {
    const block = this.free.shift() as number;
    this.unregister(block);
    this.blocks[block].tokens = new Array<number>(this.blockTokens).fill(0);
    this.register(block, hash);
    this.free.push(block);
  }

  /** Hashes of the full blocks among the first `most` that the request has. */
  protected hashesOf(id: string, most: number): string[] {
    return (this.owned.get(id) ?? [])
      .slice(0, most)
      .map((block) => this.blocks[block])
      .filter(({ hash, tokens }) => hash !== '' && tokens.length === this.blockTokens)
      .map(({ hash }) => hash);
  }

  #commit(id: string, blocks: readonly number[]): void {
    if (blocks.length === 0) return;
    for (const block of blocks) this.claim(block);
    this.owned.set(id, [...(this.owned.get(id) ?? []), ...blocks]);
  }
}
