/** A request of the scheduler: its tokens, their keys, and the block table that kernels read. */

import { described, inputError } from '../runtime/errors.ts';
import {
  BlockKeys,
  type KeyChain,
  type KeyElements,
  type RequestExtras,
  requireElements,
  type Sequence,
  type ServingRequest,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import { type DeviceBlockTable, notOnTop, placesIn, type RequestContext, readableBlocks } from './context.ts';
import type { RequestWatch } from './observability.ts';
import { requireTokenIds, TokenList } from './tenancy.ts';

/** A request that `KVScheduler.add` takes. */
export interface KVRequest {
  /** Unique among the requests that have not ended. */
  readonly id: string;
  /** The prompt, as the tokenizer gave it. It is copied. */
  readonly tokens: KeyElements;
  /** Who may share this KV: from your own authentication, never from the request's body. */
  readonly tenant: string;
  /** Other facts that determine its KV, such as adapters and images: see `BeginOptions.extras`. Default: none. */
  readonly extras?: RequestExtras | undefined;
  /** Most tokens to generate, from 1 on. */
  readonly maxTokens: number;
  /** Tokens that end the answer, such as the end of text. Default: none. */
  readonly stopTokens?: readonly number[] | undefined;
  /** Lower is more urgent, where the scheduler's rules ask for it. A whole number; default 0. */
  readonly priority?: number | undefined;
}

const kvRequestTable = optionTable({
  id: is.passed(),
  tokens: is.passed(),
  tenant: is.passed(),
  extras: is.optional(is.passed()),
  maxTokens: is.integer(1),
  stopTokens: is.optional(is.passed()),
  priority: is.optional(is.integer(-(2 ** 31), 2 ** 31), 0),
} satisfies Kinds<KVRequest>);

/** A block table of no blocks. */
const emptyTable: DeviceBlockTable = { slabs: [], entries: new Uint32Array(), blocks: 0 };

export class ScheduledRequest implements ServingRequest {
  readonly id: string;
  readonly tenant: string;
  readonly promptTokens: number;
  readonly maxOutputTokens: number;
  readonly priority: number;
  readonly owner: number;
  readonly keys: BlockKeys;
  readonly tokenList: TokenList;
  readonly stopTokens: ReadonlySet<number>;
  /** Number of the step whose token it was given last. */
  sampledIn = 0;
  isAborted = false;
  /** Receives the moments of the request; undefined while it is not watched. */
  watch: RequestWatch | undefined;
  /** Whether `watch` was told that it computes. */
  isFilled = false;
  readonly #chain: KeyChain;
  readonly #blockTokens: number;
  #table: DeviceBlockTable = emptyTable;
  #entries: Uint32Array = new Uint32Array(16);
  /** Inputs of the cached table; it is rebuilt when one changes. */
  #sequence: Sequence | undefined;
  #disturbances = 0;
  #slabs: readonly GPUBuffer[] = [];

  /** @throws TKV_INPUT or TKV_CONFIG naming the field at fault */
  constructor(context: RequestContext, request: KVRequest) {
    const { blockTokens } = context;
    const read = kvRequestTable.readFlat(request, 'request');
    this.id = requireId(request.id);
    requireElements(request.tokens);
    if (request.tokens.length === 0) {
      throw inputError('tokens', 'are empty. Pass at least one token.');
    }
    [this.#chain] = context.chains.of(request.tenant, request.extras);
    this.tenant = request.tenant;
    this.promptTokens = request.tokens.length;
    this.maxOutputTokens = read.maxTokens;
    this.priority = read.priority;
    this.stopTokens = new Set(checkedStops(request.stopTokens));
    this.tokenList = new TokenList(request.tokens);
    this.owner = context.owners.of(request.tenant);
    this.keys = new BlockKeys(Math.ceil(this.promptTokens / blockTokens) + 1);
    this.#blockTokens = blockTokens;
    this.#hashFullBlocks();
  }

  /** Tokens that were sampled so far. */
  get generated(): number {
    return this.tokenList.length - this.promptTokens;
  }

  /** The token that a step has sampled. */
  push(token: number): void {
    this.tokenList.push(token);
    if (this.tokenList.length % this.#blockTokens === 0) this.#hashFullBlocks();
  }

  /** Where the first `blocks` blocks lie, all of which are in the top tier. On a device only new blocks cost. */
  blockTable(context: RequestContext, sequence: Sequence, blocks: number): DeviceBlockTable {
    const { manager } = context;
    if (!context.stores.hasDevice) {
      return placesIn(context, readableBlocks(manager, sequence, blocks).blocks);
    }
    const pool = context.pool();
    const isOther =
      sequence !== this.#sequence ||
      sequence.disturbances !== this.#disturbances ||
      pool.slabs !== this.#slabs;
    if (!isOther && blocks === this.#table.blocks) return this.#table;
    const known = isOther ? 0 : Math.min(this.#table.blocks, blocks);
    if (2 * blocks > this.#entries.length) {
      const grown = new Uint32Array(Math.max(2 * blocks, 2 * this.#entries.length));
      grown.set(this.#entries.subarray(0, 2 * known));
      this.#entries = grown;
    }
    for (let i = known; i < blocks; i++) {
      const place = manager.readableBlock(sequence, i);
      if (place === undefined) throw notOnTop(context, `${i} of ${this.id}`);
      const { slab, offsetBytes } = pool.locate(place.slot, place.sizeClass);
      this.#entries[2 * i] = slab;
      this.#entries[2 * i + 1] = offsetBytes;
    }
    this.#sequence = sequence;
    this.#disturbances = sequence.disturbances;
    this.#slabs = pool.slabs;
    this.#table = { slabs: pool.slabs, entries: this.#entries.subarray(0, 2 * blocks), blocks };
    return this.#table;
  }

  #hashFullBlocks(): void {
    const { words, length } = this.tokenList;
    this.#chain.hashBlocks(words, this.keys.length, this.keys, length);
  }
}

function requireId(id: string): string {
  if (typeof id === 'string' && id !== '') return id;
  throw inputError('id', `is ${described(id)}. Give the request an id that is text.`);
}

function checkedStops(tokens: readonly number[] = []): readonly number[] {
  if (!Array.isArray(tokens)) {
    throw inputError('stopTokens', 'must be an array. Pass token ids.');
  }
  requireTokenIds(tokens, 0, 'stopTokens');
  return tokens;
}
