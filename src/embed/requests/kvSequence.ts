/**
 * One request's KV in the runtime: which tokens are cached, which blocks are to be computed, and where they
 * lie.
 */

import { type BlockKeys, Entry, type KeyChain, type Sequence } from '../../runtime/index.ts';
import type { TokenList } from '../prompts/tokenList.ts';

/** The sequence's blocks of one layer group. */
export interface GroupTable {
  /** The manager's block table. */
  readonly table: Sequence;
  readonly sizeClass: number;
  readonly chain: KeyChain;
  /** Keys of the leading full blocks, as far as they were needed. */
  readonly keys: BlockKeys;
  /** Blocks from the front that were handed over to be sealed, or were found sealed. */
  sealed: number;
  /** `table.disturbances` when the sequence was last whole. */
  disturbances: number;
}

export class KVSequence {
  readonly tenant: string;
  readonly tokens: TokenList;
  /** One for each layer group. */
  readonly groups: readonly GroupTable[];
  /** Tokens from the front whose KV was found, or brought back by `recover`: prefill starts here. */
  cachedTokens = 0;
  /** It was released or cancelled: no call takes it any more. */
  ended = false;
  readonly #blockTokens: number;

  constructor(tenant: string, tokens: TokenList, groups: readonly GroupTable[], blockTokens: number) {
    this.tenant = tenant;
    this.tokens = tokens;
    this.groups = groups;
    this.#blockTokens = blockTokens;
  }

  /** Tokens that have room. */
  get length(): number {
    return this.tokens.length;
  }

  /** Blocks that its tokens take. */
  get blocks(): number {
    return Math.ceil(this.tokens.length / this.#blockTokens);
  }

  /** Blocks that wait for a transfer. */
  get pending(): number {
    return this.groups.reduce((sum, { table }) => sum + table.pending, 0);
  }

  /** Tokens from the front that every group can read now. */
  get readyTokens(): number {
    return Math.min(...this.groups.map(({ table }) => table.readyPrefix())) * this.#blockTokens;
  }

  /** Whether all blocks are in HBM, to be read or written. */
  get isWhole(): boolean {
    const { blocks } = this;
    return this.groups.every(({ table }) => {
      if (table.length < blocks) return false;
      for (let i = 0; i < blocks; i++) {
        if (table.state[i] !== Entry.READY && table.state[i] !== Entry.OPEN) return false;
      }
      return true;
    });
  }
}
