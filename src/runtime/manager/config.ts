/**
 * Configuration of a manager, checked field by field. Sizes are in bytes; a tier's capacity is what it may hold when
 * nothing moves, its landing room is room beside it for blocks in flight, so that a full tier can still take a load.
 */

import { configError, described, requireInteger } from '../errors.ts';
import type { EvictionChoice } from '../eviction/evictionPolicy.ts';
import { defaultEviction, resolvePolicy } from '../eviction/registry.ts';
import * as is from '../kinds.ts';
import { type Kinds, optionTable } from '../options.ts';
import { type UseRates, useRates } from '../tables/contentTable.ts';
import { type PoolShape, poolShape } from '../tables/slotPool.ts';
import type { TableMemory } from '../tables/tableMemory.ts';
import { type Tier, type TierName, TOP, tierName, tierNames } from '../tier/tier.ts';
import {
  checkedBudget,
  type OffloadChoice,
  type ResolvedOffload,
  resolveOffload,
  type WriteBudgetConfig,
} from './offloadPolicies.ts';

/** Size and policies of one tier of a manager. */
export interface TierSize {
  /** Bytes that the tier may hold at rest. At least one page. */
  capacityBytes: number;
  /** Room for blocks in flight on top of that. Default 0. */
  landingBytes?: number;
  /**
   * When its cached blocks go to the tier below: `lazy`, `threshold`, `eager` or `intent`, with parameters.
   * Default `{ policy: 'lazy' }`: when room is needed.
   */
  offload?: OffloadChoice;
  /** Bounds what is written to a lower tier by what is read from it. Default: no bound. */
  writeBudget?: WriteBudgetConfig;
}

const tierSizes = optionTable(
  {
    capacityBytes: is.integer(0),
    landingBytes: is.optional(is.integer(0), 0),
    offload: is.optional(is.passed()),
    writeBudget: is.optional(is.passed()),
  } satisfies Kinds<TierSize>,
  'TKV_CONFIG',
);

/** Size of each tier, by its name. The fastest of the named tiers is the top tier. */
type TierSizes = { [name in TierName]?: TierSize };

/** Configuration of a manager: the tiers with their sizes, the units, and the policies by name. */
export interface ManagerConfig extends TierSizes {
  /** Bytes of a unit, by size class. Class 0 is the whole block. */
  unitBytes: readonly number[];
  /** Bytes of a large page, of which slots are cut. Default: the largest unit. */
  pageBytes?: number;
  /** Who leaves a tier first: a policy's name and its parameters. Default `{ policy: 'hazard' }`. */
  eviction?: EvictionChoice;
  /** Owners that `open` may name, whose bytes are counted apart: 0 up to this number less one. Default 1. */
  owners?: number;
  /** An owner that stands for several, who must not see each other's bytes. Default: none. */
  sharedOwner?: number;
  /**
   * Treatment of the lower copy of a block that was reloaded: `keep` it (inclusive), or `move` it (exclusive). Default
   * keep.
   */
  lowerCopy?: 'keep' | 'move';
  /**
   * A lower tier that is full `evict`s one of its own blocks for a new one, or `refuse`s it.
   * Default evict.
   */
  whenLowerFull?: 'evict' | 'refuse';
  /**
   * Short for `offload: { policy: 'threshold', share }` of the top tier: the share of it, in use or cached, above
   * which a release offloads cached blocks. Default 1: only when room is needed.
   */
  offloadThreshold?: number;
  /**
   * Share of a tier that may be on its way down at a time, and half of its landing room where the tier below
   * does not keep up. A block evicted beyond that is dropped, so that no request waits for a slow lower
   * tier.
   * Default 1: no bound at all.
   */
  leavingShare?: number;
  /** Microseconds after which `tick` gives up a job that has not ended. Default: never. */
  transferDeadlineUs?: number;
  /** A reload fewer microseconds than this after the block's own offload counts as thrashing. Default 1000. */
  thrashingWindowUs?: number;
  /**
   * Whether equal keys mean equal prefixes, as those of a key chain do. Set it to false for ids from outside
   * that might not be chained: lookups are then slower and never jump over a block. Default true.
   */
  chainedKeys?: boolean;
  /** Most jobs in flight or waiting. Default 16384. */
  maxJobs?: number;
  /**
   * Half-life in microseconds of a use, where the manager counts how often each block is used: a migrator
   * tells hot blocks from cold ones by it. Default: not counted.
   */
  useHalfLifeUs?: number;
  /**
   * Gives zeroed memory of at least the given bytes, for the tables that a lookup reads at random: with
   * millions of blocks they are read faster in huge pages. Default: ordinary memory.
   */
  tableMemory?: TableMemory;
}

const managerConfig = optionTable(
  {
    unitBytes: is.list(is.integer(1), 'Name the bytes of a block.'),
    pageBytes: is.optional(is.passed()),
    eviction: is.optional(is.passed(), defaultEviction),
    owners: is.optional(is.integer(1, 2 ** 16), 1),
    sharedOwner: is.optional(is.integer(-1), -1),
    lowerCopy: is.optional(is.oneOf(['keep', 'move']), 'keep'),
    whenLowerFull: is.optional(is.oneOf(['evict', 'refuse']), 'evict'),
    offloadThreshold: is.optional(is.fraction()),
    leavingShare: is.optional(is.fraction(), 1),
    transferDeadlineUs: is.optional(is.integer(1)),
    thrashingWindowUs: is.optional(is.integer(0), 1000),
    chainedKeys: is.optional(is.flag(), true),
    maxJobs: is.optional(is.integer(1, 2 ** 21), 16_384),
    useHalfLifeUs: is.optional(is.integer(1)),
    tableMemory: is.optional(is.func()),
  } satisfies Kinds<Omit<ManagerConfig, TierName>>,
  'TKV_CONFIG',
);

interface ResolvedTier {
  readonly tier: Tier;
  readonly shape: PoolShape;
  readonly capacityBytes: number;
  readonly writeBudget: WriteBudgetConfig | undefined;
}

export interface ResolvedConfig {
  readonly tiers: readonly ResolvedTier[];
  readonly unitBytes: readonly number[];
  readonly moveOnReload: boolean;
  readonly refuseWhenFull: boolean;
  /** Offload policies by tier; the last has no tier below, and its own is not used. */
  readonly offload: readonly ResolvedOffload[];
  readonly leavingShare: number;
  readonly transferDeadlineUs: number;
  readonly eviction: EvictionChoice;
  readonly owners: number;
  /** -1 for none. */
  readonly sharedOwner: number;
  readonly thrashingWindowUs: number;
  readonly chainedKeys: boolean;
  readonly maxJobs: number;
  /** null where uses are not counted. */
  readonly useRates: UseRates | null;
}

/** @throws TKV_CONFIG with the field that is wrong */
export function resolveConfig(config: ManagerConfig): ResolvedConfig {
  const read = managerConfig.read(config, 'config', undefined, tierNames);
  const { unitBytes, transferDeadlineUs = Number.POSITIVE_INFINITY, useHalfLifeUs } = read;
  if (unitBytes.length === 0) throw configError('unitBytes', 'is empty', 'Name the bytes of a block.');
  const pageBytes = requireInteger(
    'pageBytes',
    read.pageBytes ?? Math.max(...unitBytes),
    Math.max(...unitBytes),
  );

  const configured = configuredTiers(config);
  if (configured.length === 0) {
    const [first] = tierNames;
    throw configError(
      first,
      `is ${described(config[first])}`,
      (named) => `Give it ${named(`${first}.capacityBytes`)}.`,
    );
  }
  const tiers = configured.map((name, position) =>
    resolveTier(name, config[name], position === TOP, pageBytes, unitBytes),
  );

  return {
    tiers,
    unitBytes,
    moveOnReload: read.lowerCopy === 'move',
    refuseWhenFull: read.whenLowerFull === 'refuse',
    offload: offloadOf(config, tiers),
    leavingShare: read.leavingShare,
    transferDeadlineUs,
    eviction: resolvePolicy(read.eviction),
    owners: read.owners,
    sharedOwner: read.sharedOwner,
    thrashingWindowUs: read.thrashingWindowUs,
    chainedKeys: read.chainedKeys,
    maxJobs: read.maxJobs,
    useRates: useHalfLifeUs === undefined ? null : useRates(useHalfLifeUs),
  };
}

/** The tiers that the configuration names, from fast to slow. */
export function configuredTiers(config: TierSizes): TierName[] {
  return tierNames.filter((name) => config[name] !== undefined);
}

/** @throws TKV_CONFIG where the top tier's policy is given twice */
function offloadOf(config: ManagerConfig, tiers: readonly ResolvedTier[]): ResolvedOffload[] {
  const { offloadThreshold } = config;
  const share = offloadThreshold ?? 1;
  return tiers.map(({ tier }, position) => {
    const name = tierName(tier);
    const choice = config[name]?.offload;
    if (position === TOP && offloadThreshold !== undefined && choice !== undefined) {
      throw configError('offloadThreshold', `is given beside ${name}.offload`, 'Leave one of them out.');
    }
    if (choice !== undefined) return resolveOffload(`${name}.offload`, choice);
    const byThreshold = position === TOP && share < 1;
    return resolveOffload(name, byThreshold ? { policy: 'threshold', share } : { policy: 'lazy' });
  });
}

function resolveTier(
  name: TierName,
  size: TierSize | undefined,
  isTop: boolean,
  pageBytes: number,
  unitBytes: readonly number[],
): ResolvedTier {
  if (typeof size !== 'object' || size === null) {
    throw configError(name, `is ${described(size)}`, (named) => `Give it ${named(`${name}.capacityBytes`)}.`);
  }
  const { capacityBytes, landingBytes, writeBudget } = tierSizes.read(size, name);
  const pages = Math.floor(capacityBytes / pageBytes);
  if (pages === 0) {
    throw configError(
      `${name}.capacityBytes`,
      `is ${capacityBytes}, less than one page of ${pageBytes} bytes`,
      `Give ${name} at least ${pageBytes} bytes${isTop ? '' : ', or leave it out'}.`,
    );
  }
  const landing = Math.ceil(landingBytes / pageBytes);
  const shape = poolShape(pages + landing, pageBytes, unitBytes);
  if (shape.slotLimit > 2 ** 30) {
    throw configError(
      `${name}.capacityBytes`,
      `makes ${shape.slotLimit} slots`,
      'Use larger blocks or less capacity.',
    );
  }
  const tier = tierNames.indexOf(name);
  return { tier, shape, capacityBytes: pages * pageBytes, writeBudget: checkedBudget(name, writeBudget) };
}
