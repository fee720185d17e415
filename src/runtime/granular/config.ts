/**
 * What a multi-granular pool is built from, under the original notes' names, and the manager that comes of
 * it: one size class for each size of unit, all cut from pages of one size.
 */

import { configError, requireFraction, requireInteger } from '../errors.ts';
import {
  choosePageBytes,
  Granularity,
  granularityNames,
  type KVLayout,
  type KVLayoutConfig,
  kvLayout,
} from '../geometry/index.ts';
import { kvLayoutNames } from '../geometry/layout.ts';
import type { ManagerConfig, TierSize } from '../manager/config.ts';
import type { ClassifierOptions } from '../migration/index.ts';
import { described, optionNames, requireOptions } from '../options.ts';
import type { PolicyChoice } from '../policy/index.ts';
import { HALF_LIFE_US_DEFAULT } from '../usage/index.ts';
import { type ColumnShapes, columnShapes } from './columns.ts';

const GIB = 1024 ** 3;
/** Room for blocks in flight beside what a tier holds at rest, as a share of it and at most so many bytes. */
const LANDING_SHARE = 1 / 32;
const LANDING_BYTES_MAX = 64 * 1024 * 1024;
/** 'privunit': the second half of keys that nobody can look up. */
const PRIVATE_WORDS = [0x76697270, 0x74696e75] as const;
/** More slots than this take gigabytes for their tables alone. */
const SLOTS_MAX = 2 ** 25;

export interface KVPoolConfig extends ClassifierOptions {
  /** The model's KV: layers, KV heads, elements of a head and their type. */
  readonly layout: Omit<KVLayoutConfig, 'blockTokens'>;
  /** Tokens of a block. Default 16. */
  readonly blockSize?: number;
  /** Default 16 GiB. */
  readonly hbmCapacityBytes?: number;
  /** 0 for none. Default 64 GiB. */
  readonly ddrCapacityBytes?: number;
  /** 0 for none. Default 256 GiB. */
  readonly nvmeCapacityBytes?: number;
  /** How allocations are cut that do not say. Default BLOCK. */
  readonly defaultGranularity?: Granularity;
  /** Whether sequences share what has the same tokens. Default true. */
  readonly enableSharing?: boolean;
  /** Whether there are tiers below HBM. Default true. */
  readonly enableTiering?: boolean;
  /**
   * Granularities that the pool serves; smaller units mean larger tables for the same capacity. Default: all.
   */
  readonly granularities?: readonly Granularity[];
  /** Layers [first, end) that are blocks of their own, such as those of a sliding window. Default: none. */
  readonly layerGroups?: readonly { readonly first: number; readonly end: number }[];
  /** Layers and heads of the smallest part of a HEAD allocation that can lie apart. Default 1 and 1. */
  readonly headUnit?: { readonly layers: number; readonly heads: number };
  /** Name and revision of the weights: blocks of other weights are never found. */
  readonly model: string;
  /** 16 to 32 secret bytes under which block keys are made. */
  readonly secretKey: Uint8Array;
  /** Names the device that holds HBM in descriptors. Default 0. */
  readonly deviceId?: number;
  /** Who leaves a tier first when room is needed. Default `{ policy: 'lru' }`. */
  readonly eviction?: PolicyChoice;
  /** A use counts half after so many seconds. Default 20. */
  readonly useHalfLifeS?: number;
  /** Share of each tier beside its capacity that blocks in flight may take. Default 1/32 of the capacity. */
  readonly landingShare?: number;
  /** A transfer that has not ended after so many microseconds is given up. Default: never. */
  readonly transferDeadlineUs?: number;
  /** Most transfers in flight or waiting. Default 65,536. */
  readonly maxJobs?: number;
  /**
   * Two random words that tell the private keys of this run from those of other runs on the same files.
   * Default: always the same.
   */
  readonly privateKeyWords?: readonly [number, number];
}

export const kvPoolConfigNames: readonly string[] = optionNames<KVPoolConfig>({
  hotFrequencyThreshold: true,
  coldTimeoutS: true,
  warmFrequencyThreshold: true,
  layout: true,
  blockSize: true,
  hbmCapacityBytes: true,
  ddrCapacityBytes: true,
  nvmeCapacityBytes: true,
  defaultGranularity: true,
  enableSharing: true,
  enableTiering: true,
  granularities: true,
  layerGroups: true,
  headUnit: true,
  model: true,
  secretKey: true,
  deviceId: true,
  eviction: true,
  useHalfLifeS: true,
  landingShare: true,
  transferDeadlineUs: true,
  maxJobs: true,
  privateKeyWords: true,
});

export interface ResolvedPoolConfig {
  readonly layout: KVLayout;
  readonly defaultGranularity: Granularity;
  readonly enableSharing: boolean;
  readonly enableTiering: boolean;
  readonly model: string;
  readonly secretKey: Uint8Array;
  readonly deviceId: number;
  readonly useHalfLifeUs: number;
  readonly privateKeyWords: readonly [number, number];
  readonly shapes: ColumnShapes;
  readonly manager: ManagerConfig;
}

/** @throws TKV_CONFIG with the field that is wrong and the remedy */
export function resolvePoolConfig(config: KVPoolConfig): ResolvedPoolConfig {
  requireOptions(config, kvPoolConfigNames, 'config', 'TKV_CONFIG');
  const blockTokens = requireInteger('blockSize', config.blockSize ?? 16, 1);
  const layout = kvLayout({ ...shapeOf(config.layout), blockTokens });
  const served = config.granularities ?? Object.values(Granularity);
  const defaultGranularity = config.defaultGranularity ?? served[0] ?? Granularity.BLOCK;
  for (const [i, each] of served.entries()) requireGranularity(`granularities[${i}]`, each);
  requireGranularity('defaultGranularity', defaultGranularity);
  if (!served.includes(defaultGranularity)) {
    const name = granularityNames[defaultGranularity];
    throw configError('defaultGranularity', `is ${name}, which the pool does not serve`, 'Serve it.');
  }
  const shapes = columnShapes(layout, served, config.layerGroups ?? [], config.headUnit);
  const { pageBytes } = choosePageBytes(shapes.unitBytes, { alignmentBytes: 256 });
  const enableTiering = config.enableTiering ?? true;
  const landingShare = requireFraction('landingShare', config.landingShare ?? LANDING_SHARE);
  const size = (field: string, bytes: number): TierSize => {
    requireInteger(field, bytes, 0);
    const landing = Math.min(Math.floor(bytes * landingShare), LANDING_BYTES_MAX);
    const landingBytes = Math.floor(landing / pageBytes) * pageBytes;
    if (bytes - landingBytes < pageBytes) {
      throw configError(field, `is ${bytes}, less than one page of ${pageBytes}`, 'Give it a page or more.');
    }
    const slots = bytes / Math.min(...shapes.unitBytes);
    if (slots > SLOTS_MAX) {
      throw configError(
        field,
        `makes ${Math.floor(slots)} places for the smallest unit, above ${SLOTS_MAX}`,
        'Serve fewer granularities, raise headUnit, or lower the capacity.',
      );
    }
    return { capacityBytes: bytes - landingBytes, landingBytes };
  };
  const lower = (field: 'ddr' | 'nvme', bytes: number): Partial<ManagerConfig> => {
    requireInteger(`${field}CapacityBytes`, bytes, 0);
    return enableTiering && bytes > 0 ? { [field]: size(`${field}CapacityBytes`, bytes) } : {};
  };
  const useHalfLifeUs = Math.round((config.useHalfLifeS ?? HALF_LIFE_US_DEFAULT / 1e6) * 1e6);
  return {
    layout,
    defaultGranularity,
    enableSharing: config.enableSharing ?? true,
    enableTiering,
    model: config.model,
    secretKey: config.secretKey instanceof Uint8Array ? config.secretKey.slice() : config.secretKey,
    deviceId: config.deviceId ?? 0,
    privateKeyWords: config.privateKeyWords ?? PRIVATE_WORDS,
    useHalfLifeUs: requireInteger('useHalfLifeS', useHalfLifeUs, 1),
    shapes,
    manager: {
      unitBytes: shapes.unitBytes,
      pageBytes,
      hbm: size('hbmCapacityBytes', config.hbmCapacityBytes ?? 16 * GIB),
      ...lower('ddr', config.ddrCapacityBytes ?? 64 * GIB),
      ...lower('nvme', config.nvmeCapacityBytes ?? 256 * GIB),
      ...(config.eviction === undefined ? {} : { eviction: config.eviction }),
      ...(config.transferDeadlineUs === undefined ? {} : { transferDeadlineUs: config.transferDeadlineUs }),
      maxJobs: requireInteger('maxJobs', config.maxJobs ?? 65_536, 1, 2 ** 21),
    },
  };
}

function requireGranularity(field: string, value: number): void {
  requireInteger(field, value, 0, granularityNames.length - 1);
}

function shapeOf(layout: KVPoolConfig['layout'] | undefined): KVPoolConfig['layout'] {
  if (typeof layout === 'object' && layout !== null) {
    return requireOptions(layout, kvLayoutNames, 'layout', 'TKV_CONFIG');
  }
  throw configError('layout', `is ${described(layout)}`, 'Give layers, kvHeads, headDim and dtype.');
}
