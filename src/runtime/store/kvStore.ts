/**
 * The store interface of the serving simulator and of engines that allocate synchronously: blocks for a
 * request's tokens, with whatever is cached reused. It is a thin view on the manager; the names are those of
 * the original design notes.
 */

import type { KeyElements } from '../keys/index.ts';

export interface KVRequest {
  readonly id: string;
  /** All token ids known so far, the prompt first, then what was generated. */
  readonly tokens: KeyElements;
  /** How many of them are the prompt. Default: all that are known when the request is first allocated. */
  readonly promptTokens?: number;
  /** Whose KV this is, from whoever embeds the store. Tenants share nothing. Default: one tenant. */
  readonly tenant?: string;
}

export interface KVStore {
  /** Tokens of a block. */
  blockSize(): number;
  /** HBM blocks. Lower tiers are overflow and invisible here. */
  totalCapacity(): number;
  /** HBM blocks that requests hold. */
  usedBlocks(): number;

  /** Ids of the longest cached prefix in whole blocks, in any tier. Changes nothing and counts nothing. */
  getCachedBlocks(tokens: KeyElements, tenant?: string): number[];

  /**
   * Room for the KV of tokens [startIndex, endIndex) of the request, whose tokens before `startIndex` are
   * stored already or are those of `cachedBlocks`. Cached blocks are pinned first, those in lower tiers are
   * reloaded, and the transfer is added to the pending latency. The last token is always computed, so a fully
   * cached prompt keeps all but its last block; `computedTokens` says where the computing has to start.
   *
   * A request that holds blocks and names cached ones, or starts before what it has stored, begins anew: what
   * it held is released first.
   * @returns false, with nothing changed, when there is no room or `cachedBlocks` are not cached any more
   * @throws TKV_INPUT for indexes that are not in order or leave a gap
   */
  allocateKVBlocks(
    request: KVRequest,
    startIndex: number,
    endIndex: number,
    cachedBlocks: readonly number[],
  ): boolean;

  /**
   * Tokens from the front of an admitted request that needed no prefill when it was admitted; 0 if it is
   * unknown.
   */
  computedTokens(request: KVRequest): number;

  /**
   * What the request computed stays cached, in HBM and below, until something needs the room. Unknown ids: no
   * effect.
   */
  releaseKVBlocks(request: KVRequest): void;
  /** As release, for a running request that makes way for another; counted. */
  preemptKVBlocks(request: KVRequest): void;

  /** Hits / (hits + misses) over blocks of admitted requests; 0 before any. */
  cacheHitRate(): number;
  /** Microseconds of transfers not billed to a step yet. A pure read. */
  pendingTransferLatency(): number;
  /** The same, and clears it: each microsecond is billed once. */
  consumePendingTransferLatency(): number;
  /** Reloads within the thrashing window of the block's own offload, over offloads; 0 before any. */
  kvThrashingRate(): number;
  preemptionCount(): number;

  /** Tells the store the time, in microseconds (ticks). It never goes back. */
  setClock(nowUs: number): void;
  checkIntegrity(): void;
}
