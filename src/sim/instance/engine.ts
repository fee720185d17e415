/**
 * The engine as an instance needs it: it takes requests, and forms and settles one step at a time. The one engine of
 * the simulator is `SchedulerEngine`, the real scheduler on the real manager; the interface lets tests put a model of
 * another simulator's engine under the same instance, cluster and metrics.
 */

import type { SchedulerConfig } from '../../runtime/batching/config.ts';
import type { SchedulerCounters } from '../../runtime/batching/core.ts';
import { configError, invariant, requireInteger, requirePositive } from '../../runtime/errors.ts';
import {
  type EvictionChoice,
  type KVManager,
  type ManagerConfig,
  type OffloadChoice,
  tierName,
} from '../../runtime/index.ts';
import type { BlockKeys } from '../../runtime/keys/keyChain.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import type { StateVisitor } from '../../runtime/snapshot.ts';
import type { JobPriority } from '../../runtime/tables/jobTable.ts';
import { type Tier, type TierName, TOP, tierNames } from '../../runtime/tier/tier.ts';
import type { SideBlocks } from '../latency/kvLayout.ts';
import type { BatchSums } from '../latency/latencyModel.ts';
import { type Flights, LinkModel, type LinkProfiles } from '../links/modeledDriver.ts';
import { checkSharedServer, type SharedServer, type SharedServerConfig } from '../links/sharedServer.ts';
import { type AdapterConfig, checkAdapters } from './adapterSlots.ts';
import type { SimRequest } from './simRequest.ts';

/** One step: what it computes, and what comes of it. The engine fills one object again and again. */
export interface EngineStep {
  /** Input of the latency model. */
  readonly sums: BatchSums;
  /** Transfers that the step waits for, in microseconds. */
  readonly transferUs: number;
  /** Requests that joined the batch, in order. */
  readonly admitted: readonly SimRequest[];
  /** Requests that gave way, in order. */
  readonly preempted: readonly SimRequest[];
  /** Decoding requests that the step leaves out. */
  readonly leftOut: readonly SimRequest[];
  /** Requests that the step prefills and whose prompts go to another instance. */
  readonly leaving: readonly SimRequest[];
  /** Tokens of the prompt that are there when the step ends, by index in `leaving`. */
  readonly leavingTokens: readonly number[];
  /** Requests that sample a token at the end of a prefill. */
  readonly started: readonly SimRequest[];
  /** Requests that end with the step, in batch order. */
  readonly finished: readonly SimRequest[];
  /** Tokens generated, by index in `finished`. */
  readonly outputTokens: readonly number[];
  /** Keys of requests whose loads, since the last such step, brought back blocks that had just gone down. */
  readonly thrashedFor: readonly BlockKeys[];
}

/** An engine's report of one of its tiers, in blocks. */
export interface TierReport {
  readonly tier: TierName;
  readonly capacityBlocks: number;
  /** Blocks that requests hold; in lower tiers all that hold anything. */
  readonly usedBlocks: number;
  /** Free or evictable. */
  readonly freeBlocks: number;
  /** Filled share of the tier that instances share, by blocks of all instances. */
  readonly sharedFill?: number;
}

/** Traffic of one tier since the start. */
export interface InstanceTierMetrics {
  readonly tier: TierName;
  readonly capacityBlocks: number;
  /** Blocks that requests found here. */
  readonly hits: number;
  readonly evictions: number;
  /** Bytes that came from the tier above, and that went up to HBM. */
  readonly writtenBytes: number;
  readonly readBytes: number;
}

export interface LinkMetrics {
  readonly link: string;
  readonly bytes: number;
  /** Time in which the link carried something; of several engines, the sum of theirs. */
  readonly busyUs: number;
}

/** An engine's counts of its tiers and links since the start. */
export interface EngineTraffic {
  readonly tiers: readonly InstanceTierMetrics[];
  readonly links: readonly LinkMetrics[];
}

export interface EngineCounters {
  /** Blocks that admitted requests found, by tier from HBM down. */
  readonly hits: readonly number[];
  /** Blocks that were opened to be computed. */
  readonly openedBlocks: number;
  readonly preemptions: number;
  /** Blocks that left HBM and stayed in a lower tier, whether they were sent or lay there already. */
  readonly offloads: number;
  /** Blocks sent from a tier to a lower one, and sent up to HBM. */
  readonly sent: number;
  readonly reloads: number;
  /** Reloads that brought a block back soon after it went down. */
  readonly thrashed: number;
}

/** Told of each block that can be found from now on in the tier at that position, or no more. */
export interface CacheListener {
  /** `key` is read during the call only. */
  stored(tier: number, key: Uint32Array): void;
  removed(tier: number, key: Uint32Array): void;
  moved?(move: BlockMove): void;
}

/** A block that went from one tier of an instance to another. */
export interface BlockMove {
  readonly from: Tier;
  readonly to: Tier;
  readonly bytes: number;
  /** Four words, which are read during the call only. */
  readonly key: Uint32Array;
  /** When the manager asked for it, and when it had arrived: time in which it waited for its link counts. */
  readonly startUs: number;
  readonly endUs: number;
  readonly priority: JobPriority;
  /** Whether it was evicted above; else a copy stayed there. */
  readonly leaves: boolean;
  /** Whether the shared tier had forgotten it, so that nothing came. */
  readonly isMissing: boolean;
}

export interface InstanceEngine {
  readonly capacityBlocks: number;
  readonly blockBytes: number;
  /** Requests outside the batch. */
  readonly waitingCount: number;
  readonly runningCount: number;
  /** Calls so far that may have changed what the engine says of itself. Left out where calls are not counted. */
  readonly changes?: number;
  /** Whether an emptied engine may begin a step while its last one still runs. */
  readonly overlapsLastStep: boolean;
  readonly counters: EngineCounters;
  /** LoRA adapters in its memory; left out where they are not modelled. */
  readonly adapters?: readonly string[];
  /** Loads of adapters so far. */
  readonly adapterLoads?: number;
  /** Reports by tier, HBM first. */
  tiers(): readonly TierReport[];
  traffic(): EngineTraffic;
  /** Leading blocks under these keys that HBM holds. Changes nothing. */
  cachedBlocks(keys: BlockKeys, count: number): number;
  /** Leading blocks under these keys in any tier, by the fastest tier that holds each. Changes nothing. */
  cachedByTier(keys: BlockKeys, count: number): readonly number[];
  watchCache(listener: CacheListener): void;
  /** The request will be added after `slackUs`: loads of its blocks may begin. */
  announce(request: SimRequest, nowUs: number, slackUs: number): void;
  add(request: SimRequest, nowUs: number): void;
  /** Output tokens of a request so far, those of the step that runs among them; 0 for one that is not here. */
  generatedOf(request: SimRequest): number;
  /** Ends a request, wherever it is. */
  abort(request: SimRequest, nowUs: number): void;
  /**
   * Forms the next step and settles it: what it computes is decided when it begins, so what comes of it is
   * too. With `sums.tokens` 0 there is nothing to compute now, and only `preempted` says anything.
   */
  step(nowUs: number): EngineStep;
  /** Keeps the cached blocks of the request's prompt from being evicted until they are let go. */
  hold(request: SimRequest, nowUs: number): void;
  /** Takes room for the request's prompt, whose KV another instance sends. False without room. */
  reserve(request: SimRequest, nowUs: number): boolean;
  /** Leading blocks of a prompt for which room is reserved that were here before. */
  foundOf(request: SimRequest): number;
  /** The KV for which room was reserved is there: it can be found, and stays until the request runs. */
  fill(request: SimRequest, nowUs: number): void;
  /** Ends what `announce`, `hold` or `reserve` began. */
  letGo(request: SimRequest, nowUs: number): void;
  /** A transfer of the modeled driver is due. */
  transferred(flight: number): void;
  /**
   * Everything that changes, between two calls.
   * @param requestOf the request of a row that the engine has
   */
  visitState(visitor: StateVisitor, requestOf: (row: number) => SimRequest): void;
  checkIntegrity(): void;
}

// Configuration of an engine, checked field by field: its KV tiers and the links between them, and how its scheduler
// forms batches.

/** A tier below the top one. */
export interface LowerTier {
  readonly tier: TierName;
  readonly blocks: number;
}

/** Who pays for a block on its way up. */
export type LoadTiming =
  /**
   * The request waits beside the queue until its blocks are there; others run meanwhile. With `prefetch` its
   * loads begin when it arrives, not when it asks to join the batch.
   */
  | { readonly kind: 'deferred'; readonly links: LinkProfiles; readonly prefetch: boolean }
  /** The block is there at once, and the next step takes longer: `baseUs` a load and `usPerBlock` a block. */
  | { readonly kind: 'billed'; readonly baseUs: number; readonly usPerBlock: number };

/** The engine of a simulated instance: blocks, tiers, limits and policies. */
export interface EngineConfig {
  readonly blockTokens: number;
  /** Blocks that a request holds beside those of its tokens, for a model with sliding windows or linear layers. */
  readonly side?: SideBlocks;
  /** LoRA adapters in GPU memory; left out where they are names that cost nothing. */
  readonly adapters?: AdapterConfig;
  /** Bytes of a block on one GPU, which links carry. */
  readonly blockBytes: number;
  readonly topBlocks: number;
  readonly lowerTiers: readonly LowerTier[];
  readonly loads: LoadTiming;
  /** The last tier, where instances share it; loads are then deferred. Default: each its own. */
  readonly shared?: SharedServerConfig;
  /** GPUs over which a block lies: the shared tier takes what each of them has of it. Default 1. */
  readonly ranks?: number;
  /**
   * Microseconds that the engine needs for one prompt token more in a full step: blocks below HBM are loaded when that
   * delays requests no longer than to compute them. Infinity: they always are.
   */
  readonly computeUsPerToken: number;
  /** Half of what a prompt token costs for each token before it, in microseconds: b of a t + b t^2. Default 0. */
  readonly computeUsPerTokenSquared?: number;
  readonly eviction: EvictionChoice;
  /** Share of HBM, in use or cached, above which a release offloads cached blocks. */
  readonly offloadThreshold: number;
  /**
   * When cached blocks go down, of each tier that has one below it, in place of `offloadThreshold`. Not beside a shared tier, which has
   * a rule of its own.
   */
  readonly offload?: OffloadChoice;
  readonly lowerCopy: 'keep' | 'move';
  readonly scheduler: SchedulerConfig;
  /**
   * The manager's whole configuration, where a runtime that has one is to be predicted. Default: of the
   * above.
   */
  readonly manager?: ManagerConfig;
}

/** Room for blocks in flight, taken out of the size of each tier: a share of it, and a most. */
const LANDING_SHARE = 1 / 16;
const LANDING_BLOCKS_MAX = 1024;
/** Most blocks of all tiers: the manager holds some 60 bytes for each. */
const BLOCKS_MAX = 2 ** 24;

const engineTable = optionTable(
  {
    blockTokens: is.integer(1, 2 ** 20),
    blockBytes: is.integer(1),
    topBlocks: is.integer(1, BLOCKS_MAX),
    lowerTiers: is.passed(),
    loads: is.passed(),
    shared: is.optional(is.passed()),
    ranks: is.optional(is.passed()),
    computeUsPerToken: is.passed(),
    computeUsPerTokenSquared: is.optional(is.finite(), 0),
    eviction: is.passed(),
    offloadThreshold: is.passed(),
    offload: is.optional(is.passed()),
    lowerCopy: is.passed(),
    scheduler: is.passed(),
    manager: is.optional(is.passed()),
    side: is.optional(is.passed()),
    adapters: is.optional(is.passed()),
  } satisfies Kinds<EngineConfig>,
  'TKV_CONFIG',
);

const billedTable = optionTable(
  { kind: is.passed(), baseUs: is.finite(), usPerBlock: is.finite() } satisfies Kinds<
    LoadTiming & { kind: 'billed' }
  >,
  'TKV_CONFIG',
);
const deferredTable = optionTable(
  { kind: is.passed(), links: is.passed(), prefetch: is.passed() } satisfies Kinds<
    LoadTiming & { kind: 'deferred' }
  >,
  'TKV_CONFIG',
);

/** @throws TKV_CONFIG with the field at fault, and the nearest name where one is unknown */
export function checkEngineConfig(config: EngineConfig): EngineConfig {
  engineTable.readFlat(config, 'engine');
  let blocks = config.topBlocks;
  for (const { tier, blocks: size } of config.lowerTiers) {
    blocks += requireInteger(`${tier}.blocks`, size, 1, BLOCKS_MAX);
  }
  if (blocks > BLOCKS_MAX) {
    const problem = `is ${config.topBlocks}, and all tiers together hold ${blocks} blocks`;
    throw configError('topBlocks', problem, `Keep them to ${BLOCKS_MAX}, or make blocks larger.`);
  }
  if (blocks * config.blockBytes > Number.MAX_SAFE_INTEGER) {
    throw configError('blockBytes', `is ${config.blockBytes}, too large for ${blocks} blocks`, 'Lower it.');
  }
  if (config.adapters !== undefined) checkAdapters(config.adapters);
  if (config.loads.kind === 'billed') billedTable.read(config.loads, 'loads');
  else {
    deferredTable.read(config.loads, 'loads');
    for (const [name, link] of Object.entries(config.loads.links)) {
      requirePositive(`loads.links.${name}.bandwidthBytesPerS`, link.bandwidthBytesPerS);
    }
  }
  if (config.shared !== undefined) {
    checkSharedServer(config.shared, config.blockBytes * (config.ranks ?? 1));
    if (config.loads.kind === 'billed' || config.lowerTiers.length === 0) {
      const remedy = 'Give it a place behind the other tiers, and loads that requests wait for.';
      throw configError('shared', 'needs a tier of its own and deferred loads', remedy);
    }
  }
  return config;
}

/**
 * A link that takes this many times as long for a block as the engine does to compute it saves the engine a third of
 * its prompts at most, and costs the room in which blocks wait for it: nothing goes down over it.
 */
const LAG_MOST = 2;

/**
 * How many times as long the link of the first tier below takes for a block as the engine does to compute it. 0 where
 * loads take no time of their own, or always happen.
 */
function linkLag(config: EngineConfig): number {
  const { blockTokens, blockBytes, lowerTiers, loads, computeUsPerToken, shared } = config;
  // what others are to find goes down whatever it costs
  if (shared !== undefined) return 0;
  if (loads.kind !== 'deferred' || lowerTiers.length === 0 || computeUsPerToken === Infinity) return 0;
  const [{ tier }] = lowerTiers;
  const loadUs = linksOf(loads).transferUs(tierNames.indexOf(tier), TOP, blockBytes);
  return loadUs / (blockTokens * computeUsPerToken);
}

/** Blocks of a tier's size that stay free for blocks on their way. */
function landingBlocks(blocks: number): number {
  const share = Math.max(1, Math.floor(blocks * LANDING_SHARE));
  return Math.min(share, LANDING_BLOCKS_MAX, blocks - 1);
}

/** Least blocks below HBM with which tiers pay: the landing room is lost to HBM, and as many are on their way at a time. */
export function leastBlocksBelow({ topBlocks }: EngineConfig): number {
  return 2 * landingBlocks(topBlocks);
}

/** Why blocks leave HBM for good. Null where they do not. */
export function cutOffBy(config: EngineConfig): 'slow link' | 'small tiers' | null {
  const { lowerTiers, loads, scheduler, shared } = config;
  if (scheduler.preemption === 'offload' || shared !== undefined) return null;
  if (loads.kind !== 'deferred' || lowerTiers.length === 0) return null;
  const below = lowerTiers.reduce((sum, { blocks }) => sum + blocks, 0);
  if (below < leastBlocksBelow(config)) return 'small tiers';
  return linkLag(config) >= LAG_MOST ? 'slow link' : null;
}

export function linksOf(loads: LoadTiming): LinkModel {
  const links = loads.kind === 'deferred' ? loads.links : {};
  return new LinkModel(links, { baseLatencyUs: 10, bandwidthBytesPerS: 25e9 });
}

/** Share of HBM that may go down at a time: what the landing room takes, so that no request waits; or whole requests. */
function leavingShare({ scheduler, topBlocks }: EngineConfig): number {
  if (scheduler.preemption === 'offload') return 0.5;
  const landing = landingBlocks(topBlocks);
  return Math.min(1, (landing + 0.5) / (topBlocks - landing));
}

/** The manager behind an engine. Loads that take time need room to land; instant loads do not. */
export function managerConfigOf(config: EngineConfig): ManagerConfig {
  checkInputs({ config }, { config: is.fields({ blockTokens: is.number(), blockBytes: is.number() }) });
  if (config.manager !== undefined) return config.manager;
  const { blockBytes, topBlocks, lowerTiers, loads } = config;
  const cutOff = cutOffBy(config) !== null;
  const timed = loads.kind === 'deferred' && lowerTiers.length > 0 && !cutOff;
  const size = (blocks: number): { capacityBytes: number; landingBytes: number } => {
    const landing = timed ? landingBlocks(blocks) : 0;
    return { capacityBytes: (blocks - landing) * blockBytes, landingBytes: landing * blockBytes };
  };
  // as the runtime does it: what was computed goes down at once, so that others find it
  const below = config.shared === undefined ? {} : { offload: { policy: 'eager' } };
  const byThreshold = config.shared === undefined && config.offload === undefined;
  const own = config.offload === undefined ? {} : { offload: config.offload };
  const lower = Object.fromEntries(
    lowerTiers.map(({ tier, blocks }, i) => [
      tier,
      { ...size(blocks), ...(i === lowerTiers.length - 1 ? {} : { ...own, ...below }) },
    ]),
  );
  const total = lowerTiers.reduce((sum, { blocks }) => sum + blocks, topBlocks);
  return {
    unitBytes: [blockBytes],
    [tierNames[TOP]]: { ...size(topBlocks), ...own, ...below },
    ...lower,
    eviction: config.eviction,
    ...(byThreshold ? { offloadThreshold: config.offloadThreshold } : {}),
    lowerCopy: config.lowerCopy,
    ...(timed ? { leavingShare: leavingShare(config) } : cutOff ? { leavingShare: 0 } : {}),
    maxJobs: Math.min(2 ** 20, Math.max(16_384, 2 * total)),
  };
}

// Counters of an engine of the real scheduler and manager.

/**
 * @param hits of requests that joined the batch, by tier; the manager's own also count requests that looked and
 * did not join, were announced or handed off
 * @param received blocks that joined from another instance, and were found nowhere
 * @param losesLoads whether blocks may be found that are missing when they are loaded: such count as not found
 */
export function countersOf(
  manager: KVManager,
  scheduler: Readonly<SchedulerCounters>,
  hits: readonly number[],
  received: number,
  losesLoads: boolean = false,
): EngineCounters {
  const { openedBlocks, preemptions, hitBlocks } = scheduler;
  const { offloads, demotions, reloads: byTier, thrashed } = manager.inspect.counters;
  const found = hits.reduce((sum, blocks) => sum + blocks, 0);
  const lost = found + received - hitBlocks;
  invariant(lost === 0 || (losesLoads && lost > 0), 'each block that a request found was found in one tier');
  const sent = demotions.reduce((sum, blocks) => sum + blocks, 0);
  const reloads = byTier.reduce((sum, blocks) => sum + blocks, 0);
  const kept = hits.map((blocks, tier) => (tier === hits.length - 1 ? Math.max(0, blocks - lost) : blocks));
  return { hits: kept, openedBlocks, preemptions, offloads, sent, reloads, thrashed };
}

/** @param shared the server of the last tier, where instances share it */
export function tiersOf(
  manager: KVManager,
  blockBytes: number,
  shared: SharedServer | null = null,
): TierReport[] {
  const last = manager.inspect.tiers.length - 1;
  return manager.inspect.tiers.map((tier, position) => {
    const { sizeBytes, residentBytes, heldBytes, cachedBytes } = manager.inspect.usage(position);
    const used = position === TOP ? heldBytes : residentBytes;
    const isShared = shared !== null && position === last;
    return {
      tier: tierName(tier),
      ...(isShared ? { sharedFill: shared.residentBytes / shared.config.capacityBytes } : {}),
      capacityBlocks: sizeBytes / blockBytes,
      usedBlocks: used / blockBytes,
      freeBlocks: (sizeBytes - residentBytes + cachedBytes) / blockBytes,
    };
  });
}

/** @param hits by tier, as `countersOf` has them */
export function trafficOf(
  manager: KVManager,
  blockBytes: number,
  hits: readonly number[],
  flights: Flights<unknown> | null,
): EngineTraffic {
  const { evictions, writtenBytes, readBytes } = manager.inspect.counters;
  const tiers = tiersOf(manager, blockBytes).map(({ tier, capacityBlocks }, i) => ({
    tier,
    capacityBlocks,
    hits: hits[i],
    evictions: evictions[i],
    writtenBytes: writtenBytes[i],
    readBytes: readBytes[i],
  }));
  const links = [...(flights?.traffic ?? [])].map(([link, sums]) => ({ link, ...sums }));
  return { tiers, links };
}
