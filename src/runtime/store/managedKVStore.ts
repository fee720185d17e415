/**
 * A `KVStore` on the manager. Every job is carried out at once, in the order in which it was issued, so each
 * call leaves the tiers at rest; what the moves cost is added up as pending latency instead.
 */

import { invariant, requireInteger, TierKVError } from '../errors.ts';
import { BlockKeys, type KeyElements, type KeySource } from '../keys/index.ts';
import type { ManagerConfig } from '../manager/config.ts';
import { KVManager } from '../manager/kvManager.ts';
import type { Sequence } from '../manager/sequences/blockTable/sequence.ts';
import type { TierUsage } from '../manager/views/usage.ts';
import { JobCarrier } from '../transfer/jobCarrier.ts';
import type { ResolvedStoreConfig } from './config.ts';
import { ImmediateDriver } from './immediateDriver.ts';
import type { KVRequest, KVStore } from './kvStore.ts';

/** What the store keeps of an admitted request. */
interface Admitted {
  readonly sequence: Sequence;
  readonly keys: BlockKeys;
  readonly source: KeySource;
  readonly promptTokens: number;
  readonly computedTokens: number;
  storedTokens: number;
}

export class ManagedKVStore implements KVStore {
  /** For inspection: tiers, counters, integrity. */
  readonly manager: KVManager;
  protected readonly config: ResolvedStoreConfig;
  readonly #admitted: Map<string, Admitted> = new Map();
  readonly #sources: Map<string, KeySource> = new Map();
  readonly #driver: ImmediateDriver;
  readonly #probe: BlockKeys = new BlockKeys();
  #nowUs = 0;
  #hits = 0;
  #misses = 0;
  #pendingLatencyUs = 0;

  protected constructor(config: ResolvedStoreConfig, tiers: ManagerConfig) {
    this.config = config;
    // What these stores promise, tests and upstream's traces included, is least recently used first.
    this.manager = new KVManager({ eviction: { policy: 'lru' }, ...tiers });
    this.#driver = new ImmediateDriver(() => this.#nowUs);
    const carrier = new JobCarrier(this.manager, this.#driver);
    this.manager.listen({ jobsIssued: () => carrier.submit() });
  }

  blockSize(): number {
    return this.config.blockSize;
  }

  totalCapacity(): number {
    return this.config.hbmBlocks;
  }

  usedBlocks(): number {
    return this.manager.usage(0).heldBytes;
  }

  /** The books of a tier, in blocks: position 0 is HBM. */
  tierUsage(position: number): TierUsage {
    return this.manager.usage(position);
  }

  getCachedBlocks(tokens: KeyElements, tenant = ''): number[] {
    this.#sourceOf(tenant).hashBlocks(tokens, 0, this.#probe);
    return this.manager.blockIds(this.#probe.words, this.#probe.length);
  }

  allocateKVBlocks(
    request: KVRequest,
    startIndex: number,
    endIndex: number,
    cachedBlocks: readonly number[],
  ): boolean {
    requireInteger('startIndex', startIndex, 0);
    requireInteger('endIndex', endIndex, startIndex, request.tokens.length);
    const admitted = this.#admitted.get(request.id);
    if (admitted !== undefined && cachedBlocks.length === 0 && startIndex >= admitted.storedTokens) {
      return this.#extend(request, admitted, startIndex, endIndex);
    }
    if (admitted !== undefined) this.releaseKVBlocks(request);
    return this.#admit(request, startIndex, endIndex, cachedBlocks);
  }

  computedTokens(request: KVRequest): number {
    return this.#admitted.get(request.id)?.computedTokens ?? 0;
  }

  releaseKVBlocks(request: KVRequest): void {
    const admitted = this.#take(request);
    if (admitted === undefined) return;
    this.manager.release(admitted.sequence, this.#nowUs);
    this.#driver.run();
  }

  preemptKVBlocks(request: KVRequest): void {
    const admitted = this.#take(request);
    if (admitted === undefined) return;
    this.manager.preempt(admitted.sequence, this.#nowUs);
    this.#driver.run();
  }

  cacheHitRate(): number {
    const lookups = this.#hits + this.#misses;
    return lookups === 0 ? 0 : this.#hits / lookups;
  }

  pendingTransferLatency(): number {
    return this.#pendingLatencyUs;
  }

  consumePendingTransferLatency(): number {
    const latencyUs = this.#pendingLatencyUs;
    this.#pendingLatencyUs = 0;
    return latencyUs;
  }

  kvThrashingRate(): number {
    const offloads = this.manager.counters.offloads;
    return offloads === 0 ? 0 : this.manager.counters.thrashed / offloads;
  }

  preemptionCount(): number {
    return this.manager.counters.preemptions;
  }

  setClock(nowUs: number): void {
    requireInteger('nowUs', nowUs, this.#nowUs);
    this.#nowUs = nowUs;
  }

  checkIntegrity(): void {
    this.manager.checkIntegrity();
    invariant(this.manager.jobsInFlight === 0, 'a store is at rest between calls');
    invariant(this.manager.openSequences === this.#admitted.size, 'each admitted request has one sequence');
  }

  #admit(request: KVRequest, start: number, end: number, cached: readonly number[]): boolean {
    const { blockSize } = this.config;
    if (start > cached.length * blockSize) {
      throw gap('startIndex', start, `${cached.length} cached blocks cover ${cached.length * blockSize}`);
    }
    const source = this.#sourceOf(request.tenant ?? '');
    const keys = new BlockKeys(Math.ceil(end / blockSize) + 1);
    source.hashBlocks(request.tokens, 0, keys, end);
    const ids = this.manager.blockIds(keys.words, Math.min(cached.length, keys.length));
    if (start > 0 && cached.some((id, i) => i < Math.ceil(start / blockSize) && ids[i] !== id)) return false;

    const blocks = Math.ceil(end / blockSize);
    const toCompute = end === 0 ? 0 : Math.floor((end - 1) / blockSize);
    const matched = Math.min(ids.length, cached.length, toCompute, Math.floor(start / blockSize));
    if (!this.manager.canOpen(keys.words, matched, blocks)) return false;

    const before = this.manager.counters.reloads.reduce((sum, n) => sum + n, 0);
    const sequence = this.manager.open(keys.words, keys.length, this.#nowUs, matched);
    this.manager.load(sequence, this.#nowUs);
    this.#driver.run();
    this.manager.allocate(sequence, matched, blocks, this.#nowUs);
    this.#driver.run();
    const reloads = this.manager.counters.reloads.reduce((sum, n) => sum + n, 0) - before;
    this.#pendingLatencyUs += this.config.cost(reloads);
    const promptTokens = request.promptTokens ?? request.tokens.length;
    const admitted = {
      sequence,
      keys,
      source,
      promptTokens,
      computedTokens: matched * blockSize,
      storedTokens: matched * blockSize,
    };
    this.#admitted.set(request.id, admitted);
    this.#hits += matched;
    this.#store(admitted, end);
    return true;
  }

  #extend(request: KVRequest, admitted: Admitted, start: number, end: number): boolean {
    const { sequence, storedTokens, keys, source } = admitted;
    if (start > storedTokens) throw gap('startIndex', start, `${storedTokens} tokens are stored`);
    const blocks = Math.ceil(end / this.config.blockSize);
    if (!this.manager.allocate(sequence, sequence.length, blocks, this.#nowUs)) return false;
    this.#driver.run();
    source.hashBlocks(request.tokens, keys.length, keys, end);
    this.#store(admitted, end);
    return true;
  }

  /**
   * Tokens up to `end` are stored: blocks that are full now are sealed, prompt blocks begun now count as
   * misses.
   */
  #store(admitted: Admitted, end: number): void {
    const { blockSize } = this.config;
    const { sequence, keys, promptTokens } = admitted;
    const begun = (tokens: number): number => Math.ceil(Math.min(tokens, promptTokens) / blockSize);
    this.#misses += Math.max(0, begun(end) - begun(admitted.storedTokens));
    const from = Math.floor(admitted.storedTokens / blockSize);
    const to = Math.floor(end / blockSize);
    if (to > from) this.manager.seal(sequence, from, to, keys.words, from * 4, blockSize, this.#nowUs);
    admitted.storedTokens = Math.max(end, admitted.storedTokens);
    this.#driver.run();
  }

  #take(request: KVRequest): Admitted | undefined {
    const admitted = this.#admitted.get(request.id);
    this.#admitted.delete(request.id);
    return admitted;
  }

  #sourceOf(tenant: string): KeySource {
    let source = this.#sources.get(tenant);
    if (source === undefined) {
      source = this.config.keys(tenant);
      invariant(source.elementsPerKey === this.config.blockSize, 'a key covers a block');
      this.#sources.set(tenant, source);
    }
    return source;
  }
}

function gap(field: string, value: number, why: string): TierKVError {
  return new TierKVError(
    'TKV_INPUT',
    `${field} is ${value}, but ${why}. Allocate tokens in order, without a gap.`,
    {
      field,
    },
  );
}
