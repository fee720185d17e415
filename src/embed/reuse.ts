/**
 * Tenants' parts of the cache: the reuse of KV within a tenant or its group, and quotas of the tiers. Both are the
 * manager's; here tenants get their keys and owners, and tables their places on the device.
 */

import { configError, described, nearestName, requireInteger } from '../runtime/errors.ts';
import {
  BlockKeys,
  type KeyElements,
  type KVManager,
  type RequestExtras,
  type Sequence,
  type TierName,
  tierName,
  wordsPerKey,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import {
  type DeviceBlockTable,
  placesIn,
  type RequestContext,
  readableBlocks,
  requireDevice,
  settledOnDevice,
  tokensToFind,
} from './context.ts';
import { CrossRequestKVCache } from './crossRequestKVCache.ts';
import type { TenantChains } from './tenancy.ts';

export interface CrossRequestOptions {
  /** Whether each tenant has keys of its own. Default true. */
  readonly enableTenantIsolation?: boolean;
}

const crossRequestOptionsTable = optionTable({
  enableTenantIsolation: is.optional(is.flag(), true),
} satisfies Kinds<CrossRequestOptions>);

/** @throws TKV_CONFIG for a runtime with layer groups */
export function crossRequestCache(
  context: RequestContext,
  options: CrossRequestOptions,
): CrossRequestKVCache {
  const { enableTenantIsolation } = crossRequestOptionsTable.read(options);
  const { manager, blockTokens, chains, owners, sharing, units, nowUs, admission } = context;
  if (units.groups.length > 1) {
    throw configError('layerGroups', 'are several, and reuse takes one', 'Open without them, or use begin.');
  }
  return new CrossRequestKVCache(manager, {
    blockTokens,
    enableTenantIsolation,
    domainOf: (tenant) => sharing.domainOf(tenant),
    keysOf: (tenant) => (enableTenantIsolation ? chains.of(tenant) : chains.ofDomain(tenant))[0],
    ownerOf: (tenant) => (enableTenantIsolation ? owners.of(tenant) : owners.ofDomain(tenant)),
    inTurn: (owner, take) => admission.takeAtOnce(owner, take),
    sizeClass: units.sizeClass[0],
    nowUs,
  });
}

/**
 * The table's blocks have their places, on a device that is there: from now on its owner writes the open ones.
 * @throws TKV_DEVICE when no device is to be had, TKV_STATE when the runtime closes
 */
export async function ready(context: RequestContext, table: Sequence): Promise<void> {
  const { manager, loop, blockTokens } = context;
  manager.requireOwn(table);
  await settledOnDevice(context, () => (table.pending === 0 ? undefined : loop.settled(table)));
  manager.openings.tell(table, 0, table.length, blockTokens, table.length * blockTokens);
}

export function placesOf(context: RequestContext, table: Sequence): DeviceBlockTable {
  const { manager } = context;
  manager.requireOwn(table);
  requireDevice(context);
  return placesIn(context, readableBlocks(manager, table, table.length).blocks);
}

export function setQuota(
  { manager, owners, nowUs }: RequestContext,
  tenant: string,
  tier: TierName,
  bytes: number | null,
): void {
  const names = manager.inspect.tiers.map((each) => tierName(each));
  if (bytes !== null) requireInteger('bytes', bytes, 0);
  const position = names.indexOf(tier);
  if (position === -1) {
    const near = typeof tier === 'string' ? nearestName(tier, names) : undefined;
    const remedy = near === undefined ? `Name one of ${names.join(', ')}.` : `Did you mean '${near}'?`;
    throw configError('tier', `is ${described(tier)}, which this runtime does not have`, remedy);
  }
  manager.setQuota(owners.of(tenant), position, bytes, nowUs());
}

// Prompts that wait for their turn, for a scheduler that orders them by what is cached of each. A prompt's
// keys are made once, when it joins, since that costs far more than to look them up. The keys of all prompts
// lie side by side, so that one call of the manager looks all of them up and its waits for memory overlap.

/** A request in a `RequestQueue`. */
export class WaitingRequest {
  /** Tokens as given; they may not change while the request waits. */
  readonly tokens: KeyElements;
  readonly tenant: string;
  /** Tokens from the front that were ready or on their way, in any tier, at the queue's last `lookup`. */
  cachedTokens = 0;

  constructor(tokens: KeyElements, tenant: string) {
    this.tokens = tokens;
    this.tenant = tenant;
  }
}

interface QueueOptions {
  /** The same extras as at `begin`. */
  readonly extras?: RequestExtras | undefined;
}

const queueOptionsTable = optionTable({ extras: is.optional(is.passed()) } satisfies Kinds<QueueOptions>);

/** A request's keys among those of all. */
interface Span {
  first: number;
  readonly count: number;
}

/** Requests that wait in the server, and how much of each prompt is cached at this moment. */
export class RequestQueue {
  readonly #manager: KVManager;
  readonly #chains: TenantChains;
  readonly #blockTokens: number;
  readonly #spans: Map<WaitingRequest, Span> = new Map();
  /** Keys of all requests, and of some that have left. */
  #keys: BlockKeys = new BlockKeys();
  #waitingKeys = 0;

  constructor(manager: KVManager, chains: TenantChains, blockTokens: number) {
    this.#manager = manager;
    this.#chains = chains;
    this.#blockTokens = blockTokens;
  }

  /** Requests that wait. */
  get size(): number {
    return this.#spans.size;
  }

  /** @throws TKV_INPUT naming the invalid token id; the request is not added then */
  add(tokens: KeyElements, tenant: string, options: QueueOptions = {}): WaitingRequest {
    const { extras } = queueOptionsTable.read(options);
    const keys = new BlockKeys();
    this.#chains.of(tenant, extras)[0].hashBlocks(tokens, 0, keys, this.#countTokens(tokens));
    const request = new WaitingRequest(tokens, tenant);
    this.#spans.set(request, { first: this.#keys.length, count: keys.length });
    appendKeys(this.#keys, keys, 0, keys.length);
    this.#waitingKeys += keys.length;
    return request;
  }

  /** The last token is always left to compute. */
  #countTokens(tokens: KeyElements): number {
    const most = tokensToFind({ manager: this.#manager, blockTokens: this.#blockTokens }, tokens);
    return Math.min(Math.max(tokens.length - 1, 0), most);
  }

  /** Removes the request. @returns whether it was there */
  delete(request: WaitingRequest): boolean {
    const span = this.#spans.get(request);
    if (span === undefined) return false;
    this.#spans.delete(request);
    this.#waitingKeys -= span.count;
    if (this.#waitingKeys * 2 < this.#keys.length) this.#compact();
    return true;
  }

  /**
   * Sets the `cachedTokens` of every request to what `begin` would find now: whole blocks, the last token
   * always left to compute; where there are layer groups, by what the first one has. Pins nothing, counts
   * nothing; what is cached may go before the request begins.
   * @returns the requests in the order in which they joined, in an array of the caller's own, to be sorted
   */
  lookup(): WaitingRequest[] {
    const requests = [...this.#spans.keys()];
    const firsts = new Uint32Array(requests.length);
    const counts = new Uint32Array(requests.length);
    const found = new Uint32Array(requests.length);
    let r = 0;
    for (const { first, count } of this.#spans.values()) {
      firsts[r] = first;
      counts[r++] = count;
    }
    this.#manager.matchLengths(this.#keys.words, firsts, counts, found);
    for (r = 0; r < requests.length; r++) requests[r].cachedTokens = found[r] * this.#blockTokens;
    return requests;
  }

  #compact(): void {
    const keys = new BlockKeys(Math.max(this.#waitingKeys, 1));
    for (const span of this.#spans.values()) {
      const { first, count } = span;
      span.first = keys.length;
      appendKeys(keys, this.#keys, first, count);
    }
    this.#keys = keys;
  }
}

function appendKeys(to: BlockKeys, from: BlockKeys, first: number, count: number): void {
  to.reserve(to.length + count);
  for (let i = first; i < first + count; i++) to.append(from.words, i * wordsPerKey);
}
