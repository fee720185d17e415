/** What an embedder gives, and the pools that follow from it. */

import type { EngineStores } from '../backends/engine/transferEngine.ts';
import { type RemoteStoreOptions, remoteStoreOptionsNames } from '../backends/remote/remoteStore.ts';
import { configError, requireInteger } from '../runtime/errors.ts';
import { requireKVLayout } from '../runtime/geometry/layout.ts';
import {
  type EvictionChoice,
  type KeyNamespace,
  type KVLayout,
  type ManagerConfig,
  type OffloadChoice,
  TierKVError,
  type TierSize,
  type WriteBudgetConfig,
} from '../runtime/index.ts';
import { resolveOffload } from '../runtime/manager/offloadPolicies.ts';
import {
  oneOf,
  optionNames,
  requireFlag,
  requireFunction,
  requireObject,
  requireOptions,
  requireText,
} from '../runtime/options.ts';
import { HALF_LIFE_US_DEFAULT } from '../runtime/tables/useTable.ts';
import type { MigratorOptions } from '../views/index.ts';
import { checkMigratorOptions } from '../views/kvMigrator.ts';
import { type ExplainMemory, explainMemoryNames } from './explaining.ts';
import type { GroupUnits, LayerGroup } from './layerGroups.ts';
import { OWNERS, SHARED_OWNER } from './tenancy.ts';

export interface KVRuntimeConfig {
  /**
   * Shape of the model's KV. A block over all layers is the unit that moves, unless there are `layerGroups`.
   */
  readonly layout: KVLayout;
  /**
   * Layers that share a unit: each group of a block is a unit of its own. Default: one group of all layers.
   */
  readonly layerGroups?: readonly LayerGroup[];
  /** Blocks of a page. Compaction of HBM frees whole pages. Default 1. */
  readonly blocksPerPage?: number;
  /** Name and revision of the weights: blocks of other weights are never found. */
  readonly model: string;
  /** 16 to 32 secret bytes under which block keys are made. Keep it over restarts. */
  readonly secretKey: Uint8Array;
  /** Raised to forget everything that was cached before. Default 0. */
  readonly epoch?: number;
  /** What else determines the bytes, by name. */
  readonly extras?: KeyNamespace['extras'];
  /** Tenants that share KV, by the name of their group. Default: each tenant is alone. */
  readonly sharingGroups?: Readonly<Record<string, readonly string[]>>;
  /** GPU memory for blocks. */
  readonly hbmBytes: number;
  /** Locked host memory for blocks that GPU memory has no room for. Default 0: off. */
  readonly ddrBytes?: number;
  /** Files for blocks that host memory has no room for. The directory must exist. Default: off. */
  readonly nvme?: {
    readonly dir: string;
    readonly bytes: number;
    /**
     * `warm` begins with the blocks that an earlier run left, also after a crash; `empty` forgets them.
     * Default `warm`.
     */
    readonly restart?: 'warm' | 'empty';
    /** Bounds what is written to the files by what is read from them. Default: no bound. */
    readonly writeBudget?: WriteBudgetConfig;
    /**
     * `whole` takes the disk space now, so that it cannot be missing later; `extents` takes it as it is
     * needed. Default `whole`.
     */
    readonly allocation?: 'whole' | 'extents';
  };
  /**
   * A Valkey or Redis that several runtimes share: what one of them computed, the others load. It needs the package
   * `@valkey/valkey-glide`. Default: off.
   */
  readonly remote?: RemoteConfig;
  /** Who leaves a tier first: a policy's name and its parameters. Default `{ policy: 'hazard' }`. */
  readonly eviction?: EvictionChoice;
  /** What happens to the lower copy of a block that was reloaded: `keep` it or `move` it. Default `keep`. */
  readonly lowerCopy?: 'keep' | 'move';
  /**
   * Share of HBM and of DDR that may be on its way down at a time. A block that is evicted beyond it is
   * dropped: a slow disk then costs cached blocks, and no request waits for it. Where blocks take more than 50 ms
   * on their way, the bound is half of the tier's landing room, and one block at least, whatever the share.
   * Default 1/2; 1: no bound at all.
   */
  readonly leavingShare?: number;
  /**
   * A file to which the decision log is written: `tierkv replay --inputs` repeats the run from it. Default:
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
   * When cached blocks of a tier go to the tier below. Default: HBM by `offloadThreshold`, DDR when its room
   * is needed; with `remote`, both `eager`, so that others find a block soon after it was computed.
   */
  readonly offload?: { readonly hbm?: OffloadChoice; readonly ddr?: OffloadChoice };
  /**
   * Share of HBM above which a release offloads cached blocks, by the eviction policy. Default 1, since
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
  /** Which adapter to use; see `openDevice`. */
  readonly adapter?: string;
  /**
   * How this process waits for the device: `sleep` leaves the core to others after eight milliseconds, `spin`
   * keeps it busy and looks in every turn of the event loop; see `openDevice`. Default `sleep`.
   */
  readonly wait?: 'spin' | 'sleep';
  /** Stands between the engine and the stores, to count or to inject faults. */
  readonly wrapStores?: (stores: EngineStores) => EngineStores;
  /** Receives lines that a person should see. */
  readonly notice?: (line: string) => void;
}

export const kvRuntimeConfigNames: readonly string[] = optionNames<KVRuntimeConfig>({
  layout: true,
  layerGroups: true,
  blocksPerPage: true,
  model: true,
  secretKey: true,
  epoch: true,
  extras: true,
  sharingGroups: true,
  hbmBytes: true,
  ddrBytes: true,
  nvme: true,
  remote: true,
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
  adapter: true,
  wait: true,
  wrapStores: true,
  notice: true,
});

export interface RemoteConfig
  extends Omit<RemoteStoreOptions, 'secretKey' | 'layout' | 'generation' | 'notice' | 'computeMs'> {
  /** Bytes of blocks on the server that this runtime keeps in mind; the server may hold more, or fewer. */
  readonly bytes: number;
  /** Bounds what is written to the server by what is read from it. Default: no bound. */
  readonly writeBudget?: WriteBudgetConfig;
}

const remoteNames: readonly string[] = [
  ...optionNames<Pick<RemoteConfig, 'bytes' | 'writeBudget'>>({ bytes: true, writeBudget: true }),
  ...remoteStoreOptionsNames.filter(
    (name) => !['secretKey', 'layout', 'generation', 'notice', 'computeMs'].includes(name),
  ),
];

const nvmeNames = optionNames<NonNullable<KVRuntimeConfig['nvme']>>({
  dir: true,
  bytes: true,
  restart: true,
  writeBudget: true,
  allocation: true,
});
const offloadNames = optionNames<NonNullable<KVRuntimeConfig['offload']>>({ hbm: true, ddr: true });

/**
 * That every setting is known and of its kind, before anything is made of it.
 * @throws TKV_CONFIG with the field at fault, and the nearest name where one is unknown
 */
export function checkRuntimeConfig(config: KVRuntimeConfig): void {
  requireOptions(config, kvRuntimeConfigNames, 'config', 'TKV_CONFIG');
  const { nvme, offload, migration, lowerCopy, wait, sharingGroups } = config;
  requireKVLayout(config.layout);
  if (nvme !== undefined) {
    requireOptions(nvme, nvmeNames, 'nvme', 'TKV_CONFIG');
    requireText(nvme.dir, 'nvme.dir', 'Name a directory that exists.', 'TKV_CONFIG');
    if (nvme.restart !== undefined) oneOf('nvme.restart', nvme.restart, ['warm', 'empty']);
    if (nvme.allocation !== undefined) oneOf('nvme.allocation', nvme.allocation, ['whole', 'extents']);
  }
  if (config.remote !== undefined) {
    requireOptions(config.remote, remoteNames, 'remote', 'TKV_CONFIG');
    requireText(config.remote.url, 'remote.url', 'Write it as redis://host:6379.', 'TKV_CONFIG');
  }
  if (offload !== undefined) requireOptions(offload, offloadNames, 'offload', 'TKV_CONFIG');
  if (migration !== undefined && migration !== false) checkMigratorOptions(migration);
  if (lowerCopy !== undefined) oneOf('lowerCopy', lowerCopy, ['keep', 'move']);
  if (wait !== undefined) oneOf('wait', wait, ['spin', 'sleep']);
  if (sharingGroups !== undefined) requireObject(sharingGroups, 'sharingGroups', 'TKV_CONFIG');
  if (config.extras !== undefined) requireObject(config.extras, 'extras', 'TKV_CONFIG');
  requireFlag(config.scrub, 'scrub', 'TKV_CONFIG');
  requireFlag(config.tokenIds, 'tokenIds', 'TKV_CONFIG');
  const { explain } = config;
  if (typeof explain === 'object') requireOptions(explain, explainMemoryNames, 'explain', 'TKV_CONFIG');
  else requireFlag(explain, 'explain', 'TKV_CONFIG');
  for (const name of ['wrapStores', 'notice'] as const) {
    const given = config[name];
    if (given !== undefined) requireFunction(given, name, 'TKV_CONFIG');
  }
  for (const name of ['adapter', 'log'] as const) {
    const given = config[name];
    if (given !== undefined) requireText(given, name, 'Leave it out for the default.', 'TKV_CONFIG');
  }
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
  const size = (field: string, bytes: number): { capacityBytes: number; landingBytes: number } => {
    requireInteger(field, bytes, 0);
    const landing = Math.min(Math.floor(bytes * LANDING_SHARE), LANDING_BYTES_MAX);
    const landingBytes = Math.floor(landing / pageBytes) * pageBytes;
    if (bytes - landingBytes < pageBytes) {
      throw configError(
        field,
        `is ${bytes}, less than a block of ${pageBytes} bytes`,
        'Give it room for a block or more.',
      );
    }
    return { capacityBytes: bytes - landingBytes, landingBytes };
  };
  const { ddrBytes = 0, nvme } = config;
  requireInteger('ddrBytes', ddrBytes, 0);
  const { remote } = config;
  const migrates = config.migration !== false && (ddrBytes > 0 || nvme !== undefined);
  const deadlineMs = config.transferDeadlineMs ?? DEADLINE_MS_DEFAULT;
  return {
    unitBytes: units.unitBytes,
    pageBytes,
    hbm: { ...size('hbmBytes', config.hbmBytes), ...offloadOf('hbm', config) },
    ...(ddrBytes === 0 ? {} : { ddr: { ...size('ddrBytes', ddrBytes), ...offloadOf('ddr', config) } }),
    ...(nvme === undefined
      ? {}
      : {
          nvme: {
            ...size('nvme.bytes', nvme.bytes),
            ...budgetOf(nvme),
            ...(remote === undefined ? {} : { offload: { policy: 'eager' } }),
          },
        }),
    ...(remote === undefined
      ? {}
      : { remote: { ...size('remote.bytes', remote.bytes), ...budgetOf(remote) } }),
    ...(config.eviction === undefined ? {} : { eviction: config.eviction }),
    ...(config.lowerCopy === undefined ? {} : { lowerCopy: config.lowerCopy }),
    ...(config.offload?.hbm === undefined && (remote === undefined || config.offloadThreshold !== undefined)
      ? { offloadThreshold: config.offloadThreshold ?? (migrates ? 1 : 0.9) }
      : {}),
    ...(migrates ? { useHalfLifeUs: HALF_LIFE_US_DEFAULT } : {}),
    owners: OWNERS,
    sharedOwner: SHARED_OWNER,
    leavingShare: config.leavingShare ?? LEAVING_SHARE_DEFAULT,
    transferDeadlineUs: 1000 * requireInteger('transferDeadlineMs', deadlineMs, 1, 2 ** 31 - 1),
  };
}

function offloadOf(tier: 'hbm' | 'ddr', config: KVRuntimeConfig): Pick<TierSize, 'offload'> {
  const isShared = config.remote !== undefined && !(tier === 'hbm' && config.offloadThreshold !== undefined);
  const offload = config.offload?.[tier] ?? (isShared ? { policy: 'eager' } : undefined);
  if (offload === undefined) return {};
  resolveOffload(`offload.${tier}`, offload);
  if (tier === 'hbm' && config.offloadThreshold !== undefined) {
    throw configError('offloadThreshold', 'is given beside offload.hbm', 'Leave one of them out.');
  }
  return { offload };
}

function budgetOf({ writeBudget }: Pick<TierSize, 'writeBudget'>): Pick<TierSize, 'writeBudget'> {
  return writeBudget === undefined ? {} : { writeBudget };
}

// Faults of the stores, in the names that the configuration has for their settings.

/** What the stores call their settings, in the words of the configuration. */
const configNames: Readonly<Record<string, string>> = {
  'hbm.capacityBytes': 'hbmBytes',
  'ddr.capacityBytes': 'ddrBytes',
  'nvme.capacityBytes': 'nvme.bytes',
  'remote.capacityBytes': 'remote.bytes',
  dir: 'nvme.dir',
  restart: 'nvme.restart',
  allocation: 'nvme.allocation',
};

export function inConfigNames(error: unknown): unknown {
  if (!(error instanceof TierKVError) || error.field === undefined) return error;
  const name = configNames[error.field];
  if (name === undefined) return error;
  const word = new RegExp(`(?<![\\w./-])${error.field.replaceAll('.', '\\.')}(?![\\w/-])`, 'g');
  const message = error.message.replace(word, name);
  const { path, line } = error;
  return new TierKVError(error.code, message, {
    field: name,
    cause: error,
    ...(path === undefined ? {} : { path }),
    ...(line === undefined ? {} : { line }),
  });
}
