/** One request's KV in the runtime: which tokens are cached, which blocks are to be computed, and where they lie. */

import type { BlockKeys, KeySource, Sequence } from '../runtime/index.ts';

export class KVSequence {
  /** The manager's block table. */
  readonly table: Sequence;
  readonly tenant: string;
  readonly keys: BlockKeys;
  readonly source: KeySource;
  /** Tokens from the front whose KV was found, or brought back by `recover`: prefill starts here. */
  cachedTokens: number;
  /** Tokens that have room. */
  tokens: number;

  constructor(fields: {
    table: Sequence;
    tenant: string;
    keys: BlockKeys;
    source: KeySource;
    cachedTokens: number;
    tokens: number;
  }) {
    this.table = fields.table;
    this.tenant = fields.tenant;
    this.keys = fields.keys;
    this.source = fields.source;
    this.cachedTokens = fields.cachedTokens;
    this.tokens = fields.tokens;
  }

  get blocks(): number {
    return this.table.length;
  }
}
