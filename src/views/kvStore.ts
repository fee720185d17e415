/**
 * The synchronous stores of the serving simulator and of engines that allocate synchronously: one interface
 * (`KVStore`), HBM alone or over lower tiers, thin over the manager. The names are those of the original design
 * notes.
 */

import { inputError, invariant, requireInteger, type TierKVError } from '../runtime/errors.ts';
import { Granularity, unitSpec } from '../runtime/geometry/box.ts';
import { kvLayout } from '../runtime/geometry/layout.ts';
import { BlockKeys, KeyChain, type KeyElements, type KeySource } from '../runtime/keys/keyChain.ts';
import * as is from '../runtime/kinds.ts';
import type { ManagerConfig } from '../runtime/manager/config.ts';
import type { TierUsage } from '../runtime/manager/lookup.ts';
import { KVManager } from '../runtime/manager/manager.ts';
import type { Sequence } from '../runtime/manager/sequence.ts';
import { checkInputs, type Kinds, optionTable } from '../runtime/options.ts';
import { thrashingRateOf } from '../runtime/outputs.ts';
import type { JobId } from '../runtime/tables/jobTable.ts';
import {
  type EndListener,
  type IssuedJobs,
  JobCarrier,
  JobQueue,
  type TransferDriver,
} from '../runtime/tier/driver.ts';
import { Outcome } from '../runtime/tier/tier.ts';

/**
 * The store of a configuration: `TieredKVCache` if a lower tier has blocks, else `SingleTierKVStore`.
 * @throws TKV_CONFIG with the field that is wrong and the remedy
 */
export function newKVStore(config: KVStoreConfig): SingleTierKVStore | TieredKVCache {
  const resolved = resolveStoreConfig(config);
  return resolved.ddrBlocks + resolved.nvmeBlocks === 0
    ? new SingleTierKVStore(resolved)
    : new TieredKVCache(resolved);
}

// The configuration of `newKVStore`, under the original notes' names, checked before anything is built.

/** Configuration of `newKVStore`: blocks of each tier and the tokens of a block. */
export interface KVStoreConfig {
  /** Blocks in HBM. */
  hbmBlocks: number;
  /** Tokens of a block. Default 16. */
  blockSize?: number;
  /** Blocks in host memory; 0 is off, the default. */
  ddrBlocks?: number;
  /** Blocks on disk; 0 is off, the default. */
  nvmeBlocks?: number;
  /** Share of HBM blocks with content, in use or cached, above which a release offloads. Default 0.9. */
  offloadThreshold?: number;
  /** Tokens per tick that the link to the lower tiers carries. Default 100. */
  transferBandwidth?: number;
  /** Ticks that every transfer takes besides. Default 0. */
  transferBaseLatency?: number;
  /** The link in other units: bytes per second, with the bytes of a block. Instead of `transferBandwidth`. */
  link?: { bandwidthBytesPerS: number; blockBytes: number; baseLatencyUs?: number };
  /** A full lower tier `evict`s for a new block, the default, or `refuse`s it. */
  whenLowerFull?: 'evict' | 'refuse';
  /** A reload fewer ticks than this after the block's own offload counts as thrashing. Default 1000. */
  thrashingWindow?: number;
  /** Source of keys for each tenant. Default: a key chain with a fixed, public key, for simulations only. */
  keys?: (tenant: string) => KeySource;
}

const linkTable = optionTable(
  {
    bandwidthBytesPerS: is.positive(),
    blockBytes: is.integer(1),
    baseLatencyUs: is.optional(is.finite(), 0),
  } satisfies Kinds<NonNullable<KVStoreConfig['link']>>,
  'TKV_CONFIG',
);

const kvStoreConfigTable = optionTable(
  {
    hbmBlocks: is.integer(1),
    blockSize: is.optional(is.integer(1), 16),
    ddrBlocks: is.optional(is.integer(0), 0),
    nvmeBlocks: is.optional(is.integer(0), 0),
    offloadThreshold: is.optional(is.fraction(), 0.9),
    transferBandwidth: is.optional(is.positive(), 100),
    transferBaseLatency: is.optional(is.finite(), 0),
    link: is.optional(linkTable),
    whenLowerFull: is.optional(is.oneOf<'evict' | 'refuse'>(['evict', 'refuse']), 'evict'),
    thrashingWindow: is.optional(is.integer(0), 1000),
    keys: is.optional(is.func()),
  } satisfies Kinds<KVStoreConfig>,
  'TKV_CONFIG',
);

interface ResolvedStoreConfig {
  readonly hbmBlocks: number;
  readonly blockSize: number;
  readonly ddrBlocks: number;
  readonly nvmeBlocks: number;
  readonly offloadThreshold: number;
  readonly whenLowerFull: 'evict' | 'refuse';
  readonly thrashingWindow: number;
  readonly cost: TransferCost;
  readonly keys: (tenant: string) => KeySource;
}

/** @throws TKV_CONFIG with the field that is wrong and the remedy */
function resolveStoreConfig(config: KVStoreConfig): ResolvedStoreConfig {
  const read = kvStoreConfigTable.read(config, 'config');
  const { link, blockSize } = read;
  return {
    hbmBlocks: read.hbmBlocks,
    blockSize,
    ddrBlocks: read.ddrBlocks,
    nvmeBlocks: read.nvmeBlocks,
    offloadThreshold: read.offloadThreshold,
    whenLowerFull: read.whenLowerFull,
    thrashingWindow: read.thrashingWindow,
    cost: transferCost(
      link === undefined
        ? {
            unit: 'tokensPerTick',
            bandwidth: read.transferBandwidth,
            baseLatency: read.transferBaseLatency,
            blockTokens: blockSize,
          }
        : {
            unit: 'bytesPerSecond',
            bandwidth: link.bandwidthBytesPerS,
            baseLatency: link.baseLatencyUs,
            blockBytes: link.blockBytes,
          },
    ),
    keys: config.keys ?? simulationKeys(blockSize),
  };
}

function simulationKeys(blockTokens: number): (tenant: string) => KeySource {
  const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 1, dtype: 'f32', blockTokens });
  const unit = unitSpec(layout, { granularity: Granularity.BLOCK });
  const secretKey = new Uint8Array(32);
  return (tenant) => new KeyChain({ secretKey, tenant, epoch: 0, model: 'simulation', layout, unit });
}

// A driver for a manager without bytes: when `run` returns, every job has ended as loaded. A sealed block has no
// digest.

class ImmediateDriver implements TransferDriver {
  readonly #nowUs: () => number;
  readonly #jobs: JobQueue = new JobQueue();
  #listener: EndListener = () => {};

  constructor(nowUs: () => number) {
    this.#nowUs = nowUs;
  }

  nowUs(): number {
    return this.#nowUs();
  }

  onEnd(listener: EndListener): void {
    this.#listener = listener;
  }

  submit(jobs: IssuedJobs): void {
    for (let job = jobs.nextJob(); job !== 0; job = jobs.nextJob()) this.#jobs.push(job);
  }

  /** Ends jobs in the order in which they were submitted, including jobs that follow from them. */
  run(): void {
    for (let job: JobId = this.#jobs.shift(); job !== 0; job = this.#jobs.shift()) {
      this.#listener({ job, outcome: Outcome.LOADED, digestLo: 0, digestHi: 0, reason: '' });
    }
  }
}

// The interface: blocks for a request's tokens, with cached blocks reused.

export interface StoreRequest {
  readonly id: string;
  /** All token ids known so far: the prompt, then the generated tokens. */
  readonly tokens: KeyElements;
  /** Number of prompt tokens. Default: all tokens known when the request is first allocated. */
  readonly promptTokens?: number;
  /** The tenant, from the program that embeds the store. Tenants share nothing. Default: one tenant. */
  readonly tenant?: string;
}

/** Blocks of the original design notes: allocate, look up, release, and how full the store is. */
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
   * Room for the KV of tokens [startIndex, endIndex) of the request, whose tokens before `startIndex` are stored
   * already or lie in `cachedBlocks`. Cached blocks are pinned first, cached blocks in lower tiers are reloaded, and
   * the transfer is added to the pending latency. The last token is always computed, so a fully cached prompt keeps
   * all but its last block; `computedTokens` says where computing starts.
   *
   * A request that holds blocks and names cached ones, or starts before its stored tokens, begins anew: its blocks
   * are released first.
   * @returns false, with nothing changed, if room is missing or `cachedBlocks` are no longer cached
   * @throws TKV_INPUT for indexes that are not in order or leave a gap
   */
  allocateKVBlocks(
    request: StoreRequest,
    startIndex: number,
    endIndex: number,
    cachedBlocks: readonly number[],
  ): boolean;

  /** Leading tokens of an admitted request that needed no prefill; 0 if the request is unknown. */
  computedTokens(request: StoreRequest): number;

  /**
   * Releases the request's blocks; they stay cached, in HBM and below, until their room is needed. Unknown ids have
   * no effect.
   */
  releaseKVBlocks(request: StoreRequest): void;
  /** Like release, for a running request that is preempted; counted. */
  preemptKVBlocks(request: StoreRequest): void;

  /** Hits / (hits + misses) over blocks of admitted requests; 0 before any. */
  cacheHitRate(): number;
  /** Microseconds of transfers not billed to a step yet. A pure read. */
  pendingTransferLatency(): number;
  /** Returns the pending latency and clears it: each microsecond is billed once. */
  consumePendingTransferLatency(): number;
  /** Result of `thrashingRateOf`. */
  kvThrashingRate(): number;
  preemptionCount(): number;

  /** Tells the store the time, in microseconds (ticks). It never goes back. */
  setClock(nowUs: number): void;
  checkIntegrity(): void;
}

// A `KVStore` on the manager. Every job is carried out at once, in order of issue, so each call leaves the tiers at
// rest; the cost of the moves is added up as pending latency.

/** State of an admitted request. */
interface Admitted {
  readonly sequence: Sequence;
  readonly keys: BlockKeys;
  readonly source: KeySource;
  readonly promptTokens: number;
  readonly computedTokens: number;
  storedTokens: number;
}

/** The keys and sizes with which a request is admitted. */
interface StoreAdmission {
  readonly keys: BlockKeys;
  readonly source: KeySource;
  /** Leading blocks that are cached and stay so. */
  readonly matched: number;
  readonly blocks: number;
}

class ManagedKVStore implements KVStore {
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
    checkInputs(
      { config, tiers },
      {
        config: is.fields({ hbmBlocks: is.number(), blockSize: is.number() }),
        tiers: is.fields({ unitBytes: is.array() }),
      },
    );
    this.config = config;
    // LRU is what these stores promise, and what upstream's traces expect.
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
    return this.manager.inspect.usage(0).heldBytes;
  }

  /** The books of a tier, in blocks: position 0 is HBM. */
  tierUsage(position: number): TierUsage {
    return this.manager.inspect.usage(position);
  }

  getCachedBlocks(tokens: KeyElements, tenant = ''): number[] {
    this.#sourceOf(tenant).hashBlocks(tokens, 0, this.#probe);
    return this.manager.blockIds(this.#probe.words, this.#probe.length);
  }

  allocateKVBlocks(
    request: StoreRequest,
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
    const plan = this.#planned(request, startIndex, endIndex, cachedBlocks, admitted?.sequence);
    if (plan === undefined) return false;
    if (admitted !== undefined) this.releaseKVBlocks(request);
    this.#admit(request, endIndex, plan);
    return true;
  }

  computedTokens(request: StoreRequest): number {
    return this.#admitted.get(request.id)?.computedTokens ?? 0;
  }

  releaseKVBlocks(request: StoreRequest): void {
    const admitted = this.#take(request);
    if (admitted === undefined) return;
    this.manager.release(admitted.sequence, this.#nowUs);
    this.#driver.run();
  }

  preemptKVBlocks(request: StoreRequest): void {
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
    return thrashingRateOf(this.manager.inspect.counters);
  }

  preemptionCount(): number {
    return this.manager.inspect.counters.preemptions;
  }

  setClock(nowUs: number): void {
    requireInteger('nowUs', nowUs, this.#nowUs);
    this.#nowUs = nowUs;
  }

  checkIntegrity(): void {
    this.manager.checkIntegrity();
    invariant(this.manager.inspect.jobsInFlight === 0, 'a store is at rest between calls');
    invariant(
      this.manager.inspect.openSequences === this.#admitted.size,
      'each admitted request has one sequence',
    );
  }

  /**
   * Plans an admission; undefined, with nothing changed, where it finds no room or its cached blocks are gone.
   * @param held blocks that the request gives up for it
   */
  #planned(
    request: StoreRequest,
    start: number,
    end: number,
    cached: readonly number[],
    held: Sequence | undefined,
  ): StoreAdmission | undefined {
    const { blockSize } = this.config;
    if (start > cached.length * blockSize) {
      throw gap(start, `${cached.length} cached blocks cover ${cached.length * blockSize}`);
    }
    const source = this.#sourceOf(request.tenant ?? '');
    const keys = new BlockKeys(Math.ceil(end / blockSize) + 1);
    source.hashBlocks(request.tokens, 0, keys, end);
    const ids = this.manager.blockIds(keys.words, Math.min(cached.length, keys.length));
    if (start > 0 && cached.some((id, i) => i < Math.ceil(start / blockSize) && ids[i] !== id))
      return undefined;

    const blocks = Math.ceil(end / blockSize);
    const toCompute = end === 0 ? 0 : Math.floor((end - 1) / blockSize);
    const matched = Math.min(ids.length, cached.length, toCompute, Math.floor(start / blockSize));
    if (!this.manager.canOpen(keys.words, matched, blocks, 0, 0, held)) return undefined;
    return { keys, source, matched, blocks };
  }

  #admit(request: StoreRequest, end: number, { keys, source, matched, blocks }: StoreAdmission): void {
    const { blockSize } = this.config;
    const before = this.manager.inspect.counters.reloads.reduce((sum, n) => sum + n, 0);
    const sequence = this.manager.open(keys.words, keys.length, this.#nowUs, matched);
    this.manager.load(sequence, this.#nowUs);
    this.#driver.run();
    const fits = this.manager.allocate(sequence, matched, blocks, this.#nowUs);
    invariant(fits, 'an admission that was planned has its room');
    this.#driver.run();
    const reloads = this.manager.inspect.counters.reloads.reduce((sum, n) => sum + n, 0) - before;
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
  }

  #extend(request: StoreRequest, admitted: Admitted, start: number, end: number): boolean {
    const { sequence, storedTokens, keys, source } = admitted;
    if (start > storedTokens) throw gap(start, `${storedTokens} tokens are stored`);
    const blocks = Math.ceil(end / this.config.blockSize);
    if (!this.manager.allocate(sequence, sequence.length, blocks, this.#nowUs)) return false;
    this.#driver.run();
    source.hashBlocks(request.tokens, keys.length, keys, end);
    this.#store(admitted, end);
    return true;
  }

  /** Stores tokens up to `end`: blocks that are full now are sealed, prompt blocks begun now count as misses. */
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

  #take(request: StoreRequest): Admitted | undefined {
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

function gap(value: number, why: string): TierKVError {
  return inputError('startIndex', `is ${value}, but ${why}. Allocate tokens in order, without a gap.`);
}

// HBM only: blocks are cached until their room is needed, then dropped.

/** The `KVStore` of a configuration without a lower tier. */
export class SingleTierKVStore extends ManagedKVStore {
  constructor(config: ResolvedStoreConfig) {
    checkInputs({ config }, { config: is.fields({ hbmBlocks: is.number(), blockSize: is.number() }) });
    super(config, {
      unitBytes: [1],
      hbm: { capacityBytes: config.hbmBlocks },
      maxJobs: 4 * config.hbmBlocks + 64,
    });
  }
}

// HBM over host memory and disk. After a release, least recently used cached blocks are offloaded while HBM holds
// more than the threshold; a block found below is reloaded and its tokens need no prefill. A reloaded block keeps its
// lower copy, so offloading it again costs nothing.

/** The `KVStore` of a configuration with lower tiers. */
export class TieredKVCache extends ManagedKVStore {
  constructor(config: ResolvedStoreConfig) {
    checkInputs({ config }, { config: is.fields({ hbmBlocks: is.number(), blockSize: is.number() }) });
    super(config, tiersOf(config));
  }

  /** Blocks that left HBM for a lower tier so far. */
  offloadCount(): number {
    return this.manager.inspect.counters.offloads;
  }

  /** Blocks brought up to HBM so far. */
  reloadCount(): number {
    return this.manager.inspect.counters.reloads.reduce((sum, reloads) => sum + reloads, 0);
  }
}

function tiersOf(config: ResolvedStoreConfig): ManagerConfig {
  const { hbmBlocks, ddrBlocks, nvmeBlocks } = config;
  return {
    unitBytes: [1],
    hbm: { capacityBytes: hbmBlocks },
    ...(ddrBlocks > 0 ? { ddr: { capacityBytes: ddrBlocks } } : {}),
    ...(nvmeBlocks > 0 ? { nvme: { capacityBytes: nvmeBlocks } } : {}),
    offloadThreshold: config.offloadThreshold,
    whenLowerFull: config.whenLowerFull,
    thrashingWindowUs: config.thrashingWindow,
    maxJobs: 4 * (hbmBlocks + Math.min(ddrBlocks, hbmBlocks) + Math.min(nvmeBlocks, hbmBlocks)) + 64,
  };
}

// The cost of bringing blocks up, in whole microseconds (ticks). Two link models: tokens per tick, as in the original
// notes, and bytes per second. Both are `base + ceil(size / bandwidth)` for the blocks of one transfer together.

type LinkUnits =
  | { unit: 'tokensPerTick'; bandwidth: number; baseLatency: number; blockTokens: number }
  | { unit: 'bytesPerSecond'; bandwidth: number; baseLatency: number; blockBytes: number };

/** Microseconds that a transfer of `blocks` blocks takes; 0 for none. */
type TransferCost = (blocks: number) => number;

function transferCost(link: LinkUnits): TransferCost {
  const { bandwidth, baseLatency } = link;
  const perTick = link.unit === 'tokensPerTick' ? bandwidth : bandwidth / 1e6;
  const perBlock = link.unit === 'tokensPerTick' ? link.blockTokens : link.blockBytes;
  return (blocks) => (blocks === 0 ? 0 : baseLatency + Math.ceil((blocks * perBlock) / perTick));
}
