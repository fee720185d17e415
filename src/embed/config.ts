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
import { resolveOffload } from '../runtime/manager/offloadPolicies.ts';
import { OWNERS, SHARED_OWNER } from '../runtime/manager/ownerQuotas.ts';
import {
  oneOf,
  optionNames,
  requireFlag,
  requireFunction,
  requireObject,
  requireOptions,
  requireText,
} from '../runtime/options.ts';
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

const kvRuntimeConfigNames: readonly string[] = optionNames<Omit<KVRuntimeConfig, keyof TierOptions>>({
  layout: true,
  layerGroups: true,
  blocksPerPage: true,
  model: true,
  secretKey: true,
  epoch: true,
  extras: true,
  sharingGroups: true,
  eviction: true,
  lowerCopy: true,
  leavingShare: true,
  log: true,
  tokenIds: true,
  explain: true,
  scrub: true,
  offload: true,
  offloadThreshold: true,
  migration: true,
  transferDeadlineMs: true,
  wrapStores: true,
  notice: true,
});

/**
 * The settings as the runtime's own, each known and of its kind. What its owner does with the bytes of the secret and with
 * the extras later changes no key.
 * @throws TKV_CONFIG with the field at fault, and the nearest name where one is unknown
 */
export function checkedRuntimeConfig(config: KVRuntimeConfig): KVRuntimeConfig {
  const names = [...kvRuntimeConfigNames, ...tierRows.flatMap((row) => row.optionNames)];
  requireOptions(config, names, 'config', 'TKV_CONFIG');
  const { offload, migration, lowerCopy, sharingGroups } = config;
  requireKVLayout(config.layout);
  for (const row of tierRows) row.check(config);
  if (offload !== undefined) {
    const upper = tierRows.slice(0, -1).map(({ name }) => name);
    requireOptions(offload, upper, 'offload', 'TKV_CONFIG');
  }
  if (migration !== undefined && migration !== false) checkMigratorOptions(migration);
  if (lowerCopy !== undefined) oneOf('lowerCopy', lowerCopy, ['keep', 'move']);
  if (sharingGroups !== undefined) requireObject(sharingGroups, 'sharingGroups', 'TKV_CONFIG');
  if (config.extras !== undefined) requireObject(config.extras, 'extras', 'TKV_CONFIG');
  requireFlag(config.scrub, 'scrub', 'TKV_CONFIG');
  requireFlag(config.tokenIds, 'tokenIds', 'TKV_CONFIG');
  const { explain } = config;
  if (typeof explain === 'object') checkedMemory(explain);
  else requireFlag(explain, 'explain', 'TKV_CONFIG');
  for (const name of ['wrapStores', 'notice'] as const) {
    const given = config[name];
    if (given !== undefined) requireFunction(given, name, 'TKV_CONFIG');
  }
  const { log } = config;
  if (log !== undefined) requireText(log, 'log', 'Leave it out for the default.', 'TKV_CONFIG');
  const { secretKey, extras } = config;
  return {
    // the names are those of the interface, which the types of fromEntries do not say
    ...(Object.fromEntries(
      names.map((name) => [name, Reflect.get(config, name)]),
    ) as unknown as KVRuntimeConfig),
    // not by `slice`, which gives a view of a Buffer
    secretKey: secretKey instanceof Uint8Array ? new Uint8Array(secretKey) : secretKey,
    extras: extras === undefined ? undefined : { ...extras },
  };
}

/** Room for blocks in flight beside each tier's capacity: a share of it, and at most 64 MiB. */
const LANDING_SHARE = 1 / 16;
const LANDING_BYTES_MAX = 64 * 1024 * 1024;
const LEAVING_SHARE_DEFAULT = 1 / 2;
const DEADLINE_MS_DEFAULT = 10_000;

/** @throws TKV_CONFIG with the field at fault */
export function managerConfigOf(config: KVRuntimeConfig, units: GroupUnits): ManagerConfig {
  const blocksPerPage = requireInteger('blocksPerPage', config.blocksPerPage ?? 1, 1, 2 ** 15);
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
    transferDeadlineUs: 1000 * requireInteger('transferDeadlineMs', deadlineMs, 1, 2 ** 31 - 1),
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
