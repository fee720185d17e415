/** Stands in for the runtime without a device until it is there. */
import { createHash } from 'node:crypto';
import type { KVLayout } from '../../src/index.ts';
import { TierKVError } from '../../src/index.ts';

export class MemoryRuntime {
  readonly layout: KVLayout;
  readonly blocks: Map<string, Uint8Array>;
  closed: boolean = false;
  constructor(layout: KVLayout, kept: Map<string, Uint8Array> = new Map()) {
    this.blocks = kept;
    this.layout = layout;
  }
  #keys(tokens: Uint32Array, o: any, blocks: number): string[] {
    return Array.from({ length: blocks }, (_, i) => {
      const hash = createHash('sha256').update(
        JSON.stringify([o.tenant, o.extras], (_, v) =>
          v instanceof Uint8Array ? Buffer.from(v).toString('hex') : v,
        ),
      );
      return hash
        .update(Uint8Array.from(new Uint8Array(tokens.slice(0, (i + 1) * this.layout.blockTokens).buffer)))
        .digest('hex');
    });
  }
  lookup(tokens: Uint32Array, o: any): any {
    const keys = this.#keys(tokens, o, Math.floor(tokens.length / this.layout.blockTokens));
    const at = keys.findIndex((key) => !this.blocks.has(key));
    const blocks = at === -1 ? keys.length : at;
    return { blocks, byTier: [blocks], pending: 0 };
  }
  async begin(tokens: Uint32Array, o: any): Promise<any> {
    if (this.closed) throw new TierKVError('TKV_STATE', 'the runtime is closed. Open another one.');
    const bt = this.layout.blockTokens;
    const blocks = Math.ceil(tokens.length / bt);
    const keys = this.#keys(tokens, o, Math.floor(tokens.length / bt));
    const found = Math.min(this.lookup(tokens, o).blocks, Math.floor((tokens.length - 1) / bt));
    return {
      cachedTokens: found * bt,
      blocks,
      keys,
      open: new Map(
        Array.from({ length: blocks - found }, (_, i) => [found + i, new Uint8Array(this.layout.blockBytes)]),
      ),
    };
  }
  openBlocks(s: any): any {
    return [...s.open.keys()].map((index: number) => ({ index, group: 0 }));
  }
  read(s: any, index: number): Uint8Array {
    return this.blocks.get(s.keys[index])!;
  }
  write(s: any, index: number, bytes: any): void {
    if (typeof bytes === 'function') bytes(s.open.get(index));
    else s.open.get(index).set(bytes);
  }
  async seal(s: any): Promise<'done'> {
    s.keys.forEach((key: string, i: number) => {
      if (s.open.has(i)) this.blocks.set(key, s.open.get(i));
    });
    return 'done';
  }
  release(): void {}
  async save(): Promise<number> {
    return 0;
  }
  async close(): Promise<void> {
    this.closed = true;
  }
}
