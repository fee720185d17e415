/** What `newKVStore` is given, under the original notes' names, checked before anything is built. */

import { requireFinite, requireFraction, requireInteger, requirePositive } from '../errors.ts';
import { Granularity, kvLayout, unitSpec } from '../geometry/index.ts';
import { KeyChain, type KeySource } from '../keys/index.ts';
import { oneOf, optionNames, requireFunction, requireOptions } from '../options.ts';
import { type TransferCost, transferCost } from './transferCost.ts';

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
  /** Ticks that every transfer takes beside that. Default 0. */
  transferBaseLatency?: number;
  /** The link in other units: bytes per second, with the bytes of a block. Instead of `transferBandwidth`. */
  link?: { bandwidthBytesPerS: number; blockBytes: number; baseLatencyUs?: number };
  /** A full lower tier `evict`s for a new block, the default, or `refuse`s it. */
  whenLowerFull?: 'evict' | 'refuse';
  /** Ticks within which the reload of an offloaded block counts as thrashing. Default 1000. */
  thrashingWindow?: number;
  /**
   * Where keys come from, for each tenant. Default: a key chain under a secret that is none, fit for
   * simulation.
   */
  keys?: (tenant: string) => KeySource;
}

export const kvStoreConfigNames: readonly string[] = optionNames<KVStoreConfig>({
  hbmBlocks: true,
  blockSize: true,
  ddrBlocks: true,
  nvmeBlocks: true,
  offloadThreshold: true,
  transferBandwidth: true,
  transferBaseLatency: true,
  link: true,
  whenLowerFull: true,
  thrashingWindow: true,
  keys: true,
});

const linkNames = optionNames<NonNullable<KVStoreConfig['link']>>({
  bandwidthBytesPerS: true,
  blockBytes: true,
  baseLatencyUs: true,
});

export interface ResolvedStoreConfig {
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
export function resolveStoreConfig(config: KVStoreConfig): ResolvedStoreConfig {
  requireOptions(config, kvStoreConfigNames, 'config', 'TKV_CONFIG');
  if (config.link !== undefined) requireOptions(config.link, linkNames, 'link', 'TKV_CONFIG');
  if (config.keys !== undefined) requireFunction(config.keys, 'keys', 'TKV_CONFIG');
  const blockSize = requireInteger('blockSize', config.blockSize ?? 16, 1);
  return {
    hbmBlocks: requireInteger('hbmBlocks', config.hbmBlocks, 1),
    blockSize,
    ddrBlocks: requireInteger('ddrBlocks', config.ddrBlocks ?? 0, 0),
    nvmeBlocks: requireInteger('nvmeBlocks', config.nvmeBlocks ?? 0, 0),
    offloadThreshold: requireFraction('offloadThreshold', config.offloadThreshold ?? 0.9),
    whenLowerFull: oneOf('whenLowerFull', config.whenLowerFull ?? 'evict', ['evict', 'refuse']),
    thrashingWindow: requireInteger('thrashingWindow', config.thrashingWindow ?? 1000, 0),
    cost: transferCost(
      config.link === undefined
        ? {
            unit: 'tokensPerTick',
            bandwidth: requirePositive('transferBandwidth', config.transferBandwidth ?? 100),
            baseLatency: requireFinite('transferBaseLatency', config.transferBaseLatency ?? 0),
            blockTokens: blockSize,
          }
        : {
            unit: 'bytesPerSecond',
            bandwidth: requirePositive('link.bandwidthBytesPerS', config.link.bandwidthBytesPerS),
            baseLatency: requireFinite('link.baseLatencyUs', config.link.baseLatencyUs ?? 0),
            blockBytes: requireInteger('link.blockBytes', config.link.blockBytes, 1),
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
