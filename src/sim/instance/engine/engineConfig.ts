/**
 * What an engine is made of, checked field by field: its KV tiers and the links between them, and how its
 * scheduler forms batches.
 */

import type { SchedulerConfig } from '../../../runtime/batching/index.ts';
import { configError, requireFinite, requireInteger, requirePositive } from '../../../runtime/errors.ts';
import type { ManagerConfig, PolicyChoice } from '../../../runtime/index.ts';
import type { LinkProfiles } from '../../driver/index.ts';

/** A tier below HBM. */
export interface LowerTier {
  readonly tier: 'ddr' | 'nvme' | 'remote';
  readonly blocks: number;
}

/** Who pays for a block on its way up. */
export type LoadTiming =
  /**
   * The request waits beside the queue until its blocks are there; others run meanwhile. With `prefetch` its
   * loads begin when it arrives, not when it asks to join the batch.
   */
  | { readonly kind: 'deferred'; readonly links: LinkProfiles; readonly prefetch: boolean }
  /** The block is there at once, and the next step takes so much longer. */
  | { readonly kind: 'billed'; readonly baseUs: number; readonly usPerBlock: number };

export interface EngineConfig {
  readonly blockTokens: number;
  /** Bytes of a block on one GPU, which links carry. */
  readonly blockBytes: number;
  readonly hbmBlocks: number;
  readonly lowerTiers: readonly LowerTier[];
  readonly loads: LoadTiming;
  /**
   * Time that the engine needs for one prompt token more: blocks below HBM are loaded when that takes no
   * longer than to compute them. Infinity: they always are.
   */
  readonly computeUsPerToken: number;
  readonly eviction: PolicyChoice;
  /** Share of HBM, in use or cached, above which a release offloads cached blocks. */
  readonly offloadThreshold: number;
  readonly lowerCopy: 'keep' | 'move';
  readonly scheduler: SchedulerConfig;
  /**
   * The manager's whole configuration, where a runtime that has one is to be predicted. Default: of the
   * above.
   */
  readonly manager?: ManagerConfig;
}

/** Room for blocks in flight beside each tier's capacity: a share of it, within these bounds. */
const LANDING_SHARE = 1 / 16;
const LANDING_BLOCKS_MIN = 128;
const LANDING_BLOCKS_MAX = 1024;
/** Most blocks of all tiers: the manager holds some 60 bytes for each. */
const BLOCKS_MAX = 2 ** 24;

/** @throws TKV_CONFIG with the field at fault */
export function checkEngineConfig(config: EngineConfig): EngineConfig {
  requireInteger('blockTokens', config.blockTokens, 1, 2 ** 20);
  requireInteger('blockBytes', config.blockBytes, 1);
  requireInteger('hbmBlocks', config.hbmBlocks, 1, BLOCKS_MAX);
  let blocks = config.hbmBlocks;
  for (const { tier, blocks: size } of config.lowerTiers) {
    blocks += requireInteger(`${tier}.blocks`, size, 1, BLOCKS_MAX);
  }
  if (blocks > BLOCKS_MAX) {
    const problem = `is ${config.hbmBlocks}, and all tiers together hold ${blocks} blocks`;
    throw configError('hbmBlocks', problem, `Keep them to ${BLOCKS_MAX}, or make blocks larger.`);
  }
  if (blocks * config.blockBytes > Number.MAX_SAFE_INTEGER) {
    throw configError('blockBytes', `is ${config.blockBytes}, too large for ${blocks} blocks`, 'Lower it.');
  }
  if (config.loads.kind === 'billed') {
    requireFinite('loads.baseUs', config.loads.baseUs);
    requireFinite('loads.usPerBlock', config.loads.usPerBlock);
  } else {
    for (const [name, link] of Object.entries(config.loads.links)) {
      requirePositive(`loads.links.${name}.bandwidthBytesPerS`, link.bandwidthBytesPerS);
    }
  }
  return config;
}

/** The manager behind an engine. Loads that take time need room to land; those that take none do not. */
export function managerConfigOf(config: EngineConfig): ManagerConfig {
  if (config.manager !== undefined) return config.manager;
  const { blockBytes, hbmBlocks, lowerTiers, loads } = config;
  const timed = loads.kind === 'deferred' && lowerTiers.length > 0;
  const size = (blocks: number): { capacityBytes: number; landingBytes: number } => {
    const share = Math.max(Math.ceil(blocks * LANDING_SHARE), LANDING_BLOCKS_MIN);
    const landing = timed ? Math.min(share, LANDING_BLOCKS_MAX, blocks) : 0;
    return { capacityBytes: blocks * blockBytes, landingBytes: landing * blockBytes };
  };
  const lower = Object.fromEntries(lowerTiers.map(({ tier, blocks }) => [tier, size(blocks)]));
  const total = lowerTiers.reduce((sum, { blocks }) => sum + blocks, hbmBlocks);
  return {
    unitBytes: [blockBytes],
    hbm: size(hbmBlocks),
    ...lower,
    eviction: config.eviction,
    offloadThreshold: config.offloadThreshold,
    lowerCopy: config.lowerCopy,
    ...(timed ? { leavingShare: 0.5 } : {}),
    maxJobs: Math.min(2 ** 20, Math.max(16_384, 2 * total)),
  };
}
