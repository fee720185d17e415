/** Configuration by an embedder, and the pools that follow from it. */

import { roomWithin, type TierRow, type TierWish } from '../backends/tierRow.ts';
import { type EngineStores, type TierOptions, tierRows } from '../backends/tierRows.ts';
import { configError, described, renamed, requireInteger } from '../runtime/errors.ts';
import { requireKVLayout } from '../runtime/geometry/layout.ts';
import {
  type EvictionChoice,
  type KeyNamespace,
  type KVLayout,
  type ManagerConfig,
  type OffloadChoice,
  type TierKVError,
  type TierName,
  type TierSize,
  TOP,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { resolveOffload } from '../runtime/manager/offloadPolicies.ts';
import { OWNERS, SHARED_OWNER } from '../runtime/manager/ownerQuotas.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import { HALF_LIFE_US_DEFAULT } from '../runtime/tables/contentTable.ts';
import { checkedMemory, type ExplainMemory } from './explaining.ts';
import type { GroupUnits, LayerGroup } from './layerGroups.ts';
import type { MigratorOptions } from './migrationPlan.ts';
import { checkMigratorOptions } from './migrationPlan.ts';

/**
 * Configuration of `KVRuntime.open`: the layout of the model's KV, the sizes of the tiers, and what determines keys.
 */
export interface KVRuntimeConfig extends TierOptions {
  /**
   * Shape of the model's KV. A block over all layers is the unit that moves, unless there are `layerGroups`.
   */
  readonly layout: KVLayout;
  /**
   * Layers that share a unit: each group of a block is a unit of its own. Default: one group of all layers.
   */
  readonly layerGroups?: readonly LayerGroup[];
  /** Blocks of a page. Compaction of the top tier frees whole pages. Default 1. */
  readonly blocksPerPage?: number;
  /** Name and revision of the weights: blocks of other weights are never found. */
  readonly model: string;
  /** 16 to 32 secret bytes under which block keys are made. Keep it over restarts. */
  readonly secretKey: Uint8Array;
  /** Raised to forget everything that was cached before. Default 0. */
  readonly epoch?: number;
  /** Other settings that determine the bytes, by name. */
  readonly extras?: KeyNamespace['extras'];
  /** Tenants that share KV, by the name of their group. Default: each tenant is alone. */
  readonly sharingGroups?: Readonly<Record<string, readonly string[]>>;
  /** Who leaves a tier first: a policy's name and its parameters. Default `{ policy: 'hazard' }`. */
  readonly eviction?: EvictionChoice;
  /** Treatment of the lower copy of a block that was reloaded: `keep` it or `move` it. Default `keep`. */
  readonly lowerCopy?: 'keep' | 'move';
  /**
   * Share of each tier that may be on its way down at a time. A block that is evicted beyond it is
   * dropped: a slow disk then costs cached blocks, and no request waits for it. Where blocks take more than 50 ms
   * on their way, the bound is half of the tier's landing room, and one block at least, whatever the share.
   * Default 1/2; 1: no bound at all.
   */
  readonly leavingShare?: number;
  /**
   * A file to which the decision log is written: `tierkv replay` repeats the run from it. Default:
   * none.
   */
  readonly log?: string;
  /**
   * Whether the token ids of cached blocks are kept, in memory and, encrypted, with the records in files: `events`
   * then tells them, also of blocks that an earlier run left. Routers need them. Default false.
   */
  readonly tokenIds?: boolean;
  /**
   * Whether blocks and requests are remembered, so that `explain` can say why a request missed what it missed: true, or how
   * much is remembered. Default false.
   */
  readonly explain?: boolean | ExplainMemory;
  /** Whether a slot that passes to another tenant is cleared before that tenant can read it. Default true. */
  readonly scrub?: boolean;
  /**
   * When cached blocks of a tier go to the tier below, by the name of the tier. Default: the top tier by
   * `offloadThreshold`, the others when their room is needed; above a tier that others read, such as `remote`, all of
   * them `eager`, so that others find a block soon after it was computed.
   */
  readonly offload?: { readonly [name in TierName]?: OffloadChoice };
  /**
   * Share of the top tier above which a release offloads cached blocks, by the eviction policy. Default 1, since
   * `migration` does it by temperature; 0.9 where that is off.
   */
  readonly offloadThreshold?: number;
  /**
   * Moves cached blocks by how often they are used: down from a tier that is 90 % full until it is 80 % full,
   * the coldest first, and hot ones up into a tier that is not half full. Beside compute, at the lowest
   * priority. `false` switches it off. Default: on, with the thresholds of `MigratorOptions`.
   */
  readonly migration?: MigratorOptions | false;
  /**
   * Milliseconds after which a transfer is given up, and its block computed instead. Default 10,000.
   */
  readonly transferDeadlineMs?: number;
  /** Stands between the engine and the stores, to count or to inject faults. */
  readonly wrapStores?: (stores: EngineStores) => EngineStores;
  /** Receives lines that a person should see. */
  readonly notice?: (line: string) => void;
}

/** A policy by the name of a tier: what tiers there are is known only now. */
const noOptions = optionTable({}, 'TKV_CONFIG');

const kvRuntimeConfigTable = optionTable(
  {
    layout: is.by(requireKVLayout),
    layerGroups: is.optional(is.passed()),
    blocksPerPage: is.optional(is.integer(1, 2 ** 15)),
    model: is.passed(),
    secretKey: is.passed(),
    epoch: is.optional(is.passed()),
    extras: is.optional(is.object()),
    sharingGroups: is.optional(is.object()),
    eviction: is.optional(is.passed()),
    lowerCopy: is.optional(is.oneOf(['keep', 'move'])),
    leavingShare: is.optional(is.passed()),
    log: is.optional(is.name('Leave it out for the default.')),
    tokenIds: is.optional(is.flag()),
    explain: is.optional(is.by(requireExplain)),
    scrub: is.optional(is.flag()),
    offload: is.optional(is.passed()),
    offloadThreshold: is.optional(is.passed()),
    migration: is.optional(is.by(requireMigration)),
    transferDeadlineMs: is.optional(is.integer(1, 2 ** 31 - 1)),
    wrapStores: is.optional(is.func()),
    notice: is.optional(is.func()),
  } satisfies Kinds<Omit<KVRuntimeConfig, keyof TierOptions>>,
  'TKV_CONFIG',
);

function requireExplain(explain: boolean | ExplainMemory, field: string): boolean | ExplainMemory {
  if (typeof explain === 'object') checkedMemory(explain);
  else is.flag().read(explain, field, 'TKV_CONFIG');
  return explain;
}

function requireMigration(migration: MigratorOptions | false): MigratorOptions | false {
  if (migration !== false) checkMigratorOptions(migration);
  return migration;
}

/**
 * The settings as the runtime's own, each known and of its kind. What its owner does with the bytes of the secret and with
 * the extras later changes no key.
 * @throws TKV_CONFIG with the field at fault, and the nearest name where one is unknown
 */
export function checkedRuntimeConfig(config: KVRuntimeConfig): KVRuntimeConfig {
  const ofTiers = tierRows.flatMap((row) => row.optionNames);
  const read = kvRuntimeConfigTable.read(config, 'config', undefined, ofTiers);
  for (const row of tierRows) row.check(config);
  const upper = tierRows.slice(0, -1).map(({ name }) => name);
  if (read.offload !== undefined) noOptions.read(read.offload, 'offload', undefined, upper);
  const { secretKey, extras } = read;
  return {
    ...read,
    // not by `slice`, which gives a view of a Buffer
    secretKey: secretKey instanceof Uint8Array ? new Uint8Array(secretKey) : secretKey,
    ...(extras === undefined ? {} : { extras: { ...extras } }),
  };
}

/** Room for blocks in flight beside each tier's capacity: a share of it, and at most 64 MiB. */
const LANDING_SHARE = 1 / 16;
const LANDING_BYTES_MAX = 64 * 1024 * 1024;
const LEAVING_SHARE_DEFAULT = 1 / 2;
const DEADLINE_MS_DEFAULT = 10_000;

/** @throws TKV_CONFIG with the field at fault */
export function managerConfigOf(config: KVRuntimeConfig, units: GroupUnits): ManagerConfig {
  const { blocksPerPage = 1 } = config;
  const pageBytes = units.pageBytes * blocksPerPage;
  const size = ({
    row,
    wish: { field, bytes },
  }: AskedTier): { capacityBytes: number; landingBytes: number } => {
    requireInteger(field, bytes, 0);
    const roomBytes = roomWithin(row, bytes, pageBytes, units.unitBytes);
    const landing = Math.min(Math.floor(roomBytes * LANDING_SHARE), LANDING_BYTES_MAX);
    const landingBytes = Math.floor(landing / pageBytes) * pageBytes;
    if (roomBytes - landingBytes < pageBytes) {
      const least = row.bytesOf?.(1, pageBytes, units.unitBytes) ?? pageBytes;
      const taken = least === pageBytes ? '' : `, which takes ${least} there`;
      throw configError(
        field,
        `is ${bytes}, less than a block of ${pageBytes} bytes${taken}`,
        `Give it ${least} bytes or more.`,
      );
    }
    return { capacityBytes: roomBytes - landingBytes, landingBytes };
  };
  const wishes = tierRows.flatMap((row): AskedTier[] => {
    const wish = row.wish(config);
    return wish === undefined ? [] : [{ row, wish }];
  });
  const [top] = wishes;
  if (top === undefined || !top.row.canBeTop) throw noTopTier(config);
  const sharedFrom = wishes.findIndex(({ row }) => row.isShared === true);
  const sizes = wishes.map((asked, position) => {
    const { name } = asked.row;
    const { writeBudget } = asked.wish;
    const sized = {
      ...size(asked),
      ...offloadOf(name, position === TOP, position < sharedFrom, config),
      ...(writeBudget === undefined ? {} : { writeBudget }),
    };
    return [name, sized];
  });
  const migrates = config.migration !== false && wishes.filter(({ row }) => row.isShared !== true).length > 1;
  const deadlineMs = config.transferDeadlineMs ?? DEADLINE_MS_DEFAULT;
  return {
    unitBytes: units.unitBytes,
    pageBytes,
    ...Object.fromEntries(sizes),
    ...(config.eviction === undefined ? {} : { eviction: config.eviction }),
    ...(config.lowerCopy === undefined ? {} : { lowerCopy: config.lowerCopy }),
    ...(config.offload?.[top.row.name] === undefined &&
    (sharedFrom === -1 || config.offloadThreshold !== undefined)
      ? { offloadThreshold: config.offloadThreshold ?? (migrates ? 1 : 0.9) }
      : {}),
    ...(migrates ? { useHalfLifeUs: HALF_LIFE_US_DEFAULT } : {}),
    owners: OWNERS,
    sharedOwner: SHARED_OWNER,
    leavingShare: config.leavingShare ?? LEAVING_SHARE_DEFAULT,
    transferDeadlineUs: 1000 * deadlineMs,
  };
}

interface AskedTier {
  readonly row: TierRow<TierOptions>;
  readonly wish: TierWish;
}

/** No tier is on that sequences can read and write in: the options that would give one. */
function noTopTier(config: KVRuntimeConfig): TierKVError {
  const fields = tierRows.filter(({ canBeTop }) => canBeTop).map(({ optionNames: [name] }) => name);
  const [field] = fields;
  const given = Reflect.get(config, field);
  return configError(field, `is ${described(given)}`, `Give bytes to ${fields.join(' or to ')}.`);
}

function offloadOf(
  tier: TierName,
  isTop: boolean,
  isAboveShared: boolean,
  config: KVRuntimeConfig,
): Pick<TierSize, 'offload'> {
  const isEager = isAboveShared && !(isTop && config.offloadThreshold !== undefined);
  const offload = config.offload?.[tier] ?? (isEager ? { policy: 'eager' } : undefined);
  if (offload === undefined) return {};
  resolveOffload(`offload.${tier}`, offload);
  if (isTop && config.offloadThreshold !== undefined) {
    throw configError('offloadThreshold', `is given beside offload.${tier}`, 'Leave one of them out.');
  }
  return { offload };
}

// Faults of the stores, in the names that the configuration has for their settings.

export function inConfigNames(error: unknown): unknown {
  return renamed(
    (field) => tierRows.map(({ fieldNames }) => fieldNames[field]).find((name) => name !== undefined),
    error,
  );
}
