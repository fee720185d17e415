/**
 * A tier as the original notes describe it: how large, how fast, on which device or in which directory. What
 * is not said of its speed comes from a calibrated profile (`tierkv calibrate`).
 */

import { nvmeTier } from '../backends/file/fileTier.ts';
import { guarded } from '../backends/guarded.ts';
import { hostDigest } from '../backends/host/hostDigest.ts';
import { type OpenedTier, roomWithin } from '../backends/tierRow.ts';
import type { TierOptions } from '../backends/tierRows.ts';
import { adoptRecovered, storeIdentity } from '../embed/assembly.ts';
import { DeviceKeeper } from '../embed/deviceKeeper.ts';
import {
  classifierOptionsOf,
  classifierOptionsTable,
  HotColdClassifier,
} from '../embed/hotColdClassifier.ts';
import { ManagerLoop } from '../embed/managerLoop.ts';
import { checkMigratorOptions, type MigratorOptions } from '../embed/migrationPlan.ts';
import {
  OpenParts,
  type OpenStores,
  openStores,
  requireMachineHolds,
  type StoreConfig,
} from '../embed/stores.ts';
import { configError, requireFinite } from '../runtime/errors.ts';
import {
  type DecisionSink,
  type Digest,
  type KVManager,
  type ManagerConfig,
  Outcome,
  outcomeNames,
  type StoreResult,
  TierKVError,
  type TierStore,
  tierName,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import type { UnitPlace } from './kvBlockDescriptor.ts';
import { MultiGranularKVPool } from './multiGranularKVPool.ts';
import type { KVPoolConfig } from './poolConfig.ts';
import { resolvePoolConfig } from './poolConfig.ts';

export const storageTiers = ['hbm', 'ddr', 'nvme'] as const;
/** The name of a tier of a `TieredKVStorage`. */
export type StorageTier = (typeof storageTiers)[number];

/** One tier of a `TieredKVStorage`: its size, and what its link can do. */
export interface TierConfig {
  readonly tier: StorageTier;
  readonly capacityBytes: number;
  /** 10^9 bytes a second from this tier to HBM. Default: as calibrated. */
  readonly bandwidthGbps?: number;
  /** Microseconds that a transfer to HBM takes beside its bytes. Default: as calibrated. */
  readonly latencyUs?: number;
  /** HBM: a name for its device in descriptors. Default 0. */
  readonly deviceId?: number;
  /** NVME: the directory of its files, which must exist. */
  readonly path?: string;
}

const namedFolder = 'Name a directory that exists, or leave nvme out.';

const tierConfigTable = optionTable(
  {
    tier: is.oneOf(storageTiers),
    capacityBytes: is.integer(1),
    bandwidthGbps: is.optional(is.positive()),
    latencyUs: is.optional(is.finite()),
    deviceId: is.optional(is.integer(0)),
    path: is.optional(is.name(namedFolder)),
  } satisfies Kinds<TierConfig>,
  'TKV_CONFIG',
);

/** A link as `tierkv calibrate` writes it, or `parseLinkCalibration` reads it. */
interface CalibratedLink {
  readonly baseLatencyUs: number;
  readonly bandwidthBytesPerS: number;
  readonly delayUs?: number;
}

interface TierSet {
  readonly hbm: TierConfig;
  readonly ddr: TierConfig | undefined;
  readonly nvme: TierConfig | undefined;
}

/** @throws TKV_CONFIG for a tier that is missing, unknown or named twice, or a field that is wrong */
function tierSet(tiers: readonly TierConfig[]): TierSet {
  const byTier = new Map<string, TierConfig>();
  for (const [i, config] of tiers.entries()) {
    const { tier } = config;
    if (byTier.has(tier)) throw configError(`tiers[${i}].tier`, `is ${tier} again`, 'Name each tier once.');
    byTier.set(tier, config);
  }
  const hbm = byTier.get('hbm');
  if (hbm === undefined) throw configError('tiers', 'have no hbm', 'Blocks are written there: name it.');
  const nvme = byTier.get('nvme');
  if (nvme !== undefined && nvme.path === undefined)
    throw configError('nvme.path', 'is missing', namedFolder);
  return { hbm, ddr: byTier.get('ddr'), nvme };
}

/**
 * Microseconds until `bytes` of the tier are in HBM if nothing else moves: latency + bytes / bandwidth.
 * @throws TKV_CONFIG where neither the tier nor a profile says how fast it is
 */
export function estimatedLatencyUs(
  { tier, bandwidthGbps, latencyUs }: TierConfig,
  bytes: number,
  links: Readonly<Record<string, CalibratedLink>>,
): number {
  requireFinite('bytes', bytes);
  const link = links[`${tier}ToHbm`];
  const isHere = tier === 'hbm';
  const fixedUs = latencyUs ?? (link === undefined ? undefined : link.baseLatencyUs + (link.delayUs ?? 0));
  const bytesPerS = bandwidthGbps === undefined ? link?.bandwidthBytesPerS : bandwidthGbps * 1e9;
  if (bytesPerS === undefined && isHere) return latencyUs ?? 0;
  if (bytesPerS === undefined || fixedUs === undefined) {
    throw configError(
      `${tier}.${bytesPerS === undefined ? 'bandwidthGbps' : 'latencyUs'}`,
      'is not set, and no profile was calibrated',
      'Set it, or pass the links that tierkv calibrate measured.',
    );
  }
  return fixedUs + (bytes * 1e6) / bytesPerS;
}

// Opens a pool and the stores under it: what a tiered storage is made of.

/** Configuration of `TieredKVStorage.open`: the pool, and the tiers under it. */
export interface TieredStorageConfig extends Pick<StoreConfig, 'adapter' | 'wait' | 'notice' | 'wrapStores'> {
  /** The pool but for its capacities, which are those of the tiers. */
  readonly pool: Omit<
    KVPoolConfig,
    'hbmCapacityBytes' | 'ddrCapacityBytes' | 'nvmeCapacityBytes' | 'deviceId'
  >;
  /** HBM, and below it host memory, files, or both. */
  readonly tiers: readonly TierConfig[];
  /** Measurements of `tierkv calibrate`, by link such as `ddrToHbm`. */
  readonly links?: Readonly<Record<string, CalibratedLink>>;
  /** Moves blocks by their temperature; false: only when it is asked to. Default: on. */
  readonly migration?: MigratorOptions | false;
  /** Use of an earlier run's files: gone on with (`warm`), or forgotten (`empty`). Default `warm`. */
  readonly restart?: 'warm' | 'empty';
  /** Where the manager's decision log goes. Default: nowhere. */
  readonly sink?: DecisionSink;
}

const tieredStorageConfigTable = optionTable(
  {
    adapter: is.optional(is.passed()),
    wait: is.optional(is.passed()),
    notice: is.optional(is.func()),
    wrapStores: is.optional(is.func()),
    pool: is.object(),
    tiers: is.list(tierConfigTable, "Pass [{ tier: 'hbm', capacityBytes }, ...]."),
    links: is.optional(is.passed()),
    migration: is.optional(is.passed()),
    restart: is.optional(is.oneOf<'warm' | 'empty'>(['warm', 'empty'])),
    sink: is.optional(is.passed()),
  } satisfies Kinds<TieredStorageConfig>,
  'TKV_CONFIG',
);

/** The thresholds of the pool's classifier, and what the storage says of its migration. */
export function migratorOptionsOf({ pool, migration }: TieredStorageConfig): MigratorOptions {
  const thresholds = Object.entries(pool).filter(([name]) => classifierOptionsTable.names.includes(name));
  return { ...Object.fromEntries(thresholds), ...(migration === false ? {} : migration) };
}

export interface OpenTiers {
  readonly set: TierSet;
  readonly pool: MultiGranularKVPool;
  readonly stores: OpenStores;
  readonly loop: ManagerLoop;
  readonly keeper: DeviceKeeper;
  readonly backends: readonly StorageBackend[];
}

/** @param make makes what closes the tiers from then on. Whatever fails before, what was opened is closed */
export async function openTiers<Storage>(
  config: TieredStorageConfig,
  make: (tiers: OpenTiers) => Storage,
): Promise<Storage> {
  tieredStorageConfigTable.read(config, 'config');
  const set = tierSet(config.tiers);
  if (config.migration !== undefined && config.migration !== false) checkMigratorOptions(config.migration);
  new HotColdClassifier(classifierOptionsOf(migratorOptionsOf(config))); // refuses thresholds before anything is opened
  const { hbm, ddr, nvme } = set;
  const [a, b] = crypto.getRandomValues(new Uint32Array(2));
  const poolConfig: KVPoolConfig = {
    ...config.pool,
    hbmCapacityBytes: hbm.capacityBytes,
    ddrCapacityBytes: ddr?.capacityBytes ?? 0,
    nvmeCapacityBytes: nvme?.capacityBytes ?? 0,
    deviceId: hbm.deviceId ?? 0,
    privateKeyWords: config.pool.privateKeyWords ?? [a, b],
  };
  const { manager: asked } = resolvePoolConfig(poolConfig);
  const fitting: KVPoolConfig = { ...poolConfig, nvmeCapacityBytes: roomInFiles(nvme, asked) };
  await requireMachineHolds(resolvePoolConfig(fitting).manager, { nvme: filesOf(nvme) });
  const pool = new MultiGranularKVPool(fitting, config.sink ?? null);
  const { manager } = pool;
  await using opened = new OpenParts();
  const stores = opened.use(await openStores(storeConfig(config, pool, nvme), manager));
  const loop = new ManagerLoop(manager, stores.engine, { also: pool.listener });
  const keeper = new DeviceKeeper(manager, stores, loop, guarded(config.notice));
  opened.defer(() => keeper.close());
  adoptRecovered(manager, stores, stores.engine.nowUs());
  const backends = manager.inspect.tiers.map((tier, position) => {
    const part = stores.tiers.get(tierName(tier)) as OpenedTier; // a configured tier has a store
    return new StoreBackend(() => part.store, manager, position);
  });
  const storage = make({ set, pool, stores, loop, keeper, backends });
  opened.move();
  return storage;
}

/** Bytes of units that the files have room for. @throws TKV_CONFIG with the least that works */
function roomInFiles(nvme: TierConfig | undefined, { unitBytes, pageBytes = 0 }: ManagerConfig): number {
  if (nvme === undefined) return 0;
  const room = roomWithin(nvmeTier, nvme.capacityBytes, pageBytes, unitBytes);
  if (room > 0) return room;
  const least = nvmeTier.bytesOf?.(1, pageBytes, unitBytes) ?? pageBytes;
  throw configError(
    'nvme.capacityBytes',
    `is ${nvme.capacityBytes}, and a page of ${pageBytes} bytes takes ${least} in the files, with headers and padding`,
    `Give it ${least} bytes or more.`,
  );
}

function storeConfig(
  { pool: poolConfig, adapter, wait, notice, wrapStores, restart = 'warm' }: TieredStorageConfig,
  pool: MultiGranularKVPool,
  nvme: TierConfig | undefined,
): StoreConfig {
  const { secretKey, model } = poolConfig;
  const { layout, manager } = pool;
  const extras = { 'tierkv.units': manager.config.unitBytes.join(' ') };
  const identity = storeIdentity({ model, layout, secretKey, extras });
  return {
    adapter,
    wait,
    notice,
    wrapStores,
    facts: { identity, secretKey },
    nvme: filesOf(nvme, restart),
  };
}

function filesOf(nvme: TierConfig | undefined, restart?: 'warm' | 'empty'): TierOptions['nvme'] {
  return nvme?.path === undefined ? undefined : { dir: nvme.path, bytes: nvme.capacityBytes, restart };
}

// The holder of one tier's bytes, as the original notes ask for it: read, write, free space. Places are named by slot
// and generation rather than by offset alone, so that bytes which another block wrote there since are refused instead
// of read. Behind it are the stores that the transfers use: GPU memory through WebGPU, locked host memory, preallocated
// files.

/** A unit's place, and what must lie there. */
export interface StoredUnit {
  readonly place: UnitPlace;
  /** Four words; zeros for a unit that is still written. */
  readonly key: Uint32Array;
  /** undefined for a unit that is still written: whatever was written last is right. */
  readonly digest: Digest | undefined;
}

/** The holder of the bytes of one tier of a `TieredKVStorage`. */
export interface StorageBackend {
  readonly tier: StorageTier;
  /** Bytes of all its slots, those for blocks in flight included. */
  readonly capacityBytes: number;
  readonly freeBytes: number;
  /** Properties that the store really got: adapter, locked memory, direct I/O. */
  describe(): Record<string, string | number | boolean>;
  /**
   * The bytes of whole units, each compared with its digest. @throws TKV_STALE when a place has moved on,
   * TKV_MISMATCH for other bytes than the stored ones, TKV_IO or TKV_DEVICE when they cannot be had
   */
  read(units: readonly StoredUnit[]): Promise<Uint8Array[]>;
  /** Puts whole units in place. @throws as `read` */
  write(units: readonly StoredUnit[], data: readonly Uint8Array[]): Promise<void>;
}

class StoreBackend implements StorageBackend {
  readonly tier: StorageTier;
  readonly capacityBytes: number;
  readonly #store: () => TierStore;
  readonly #manager: KVManager;
  readonly #position: number;

  /** @param store asked for each time, since a device can be replaced */
  constructor(store: () => TierStore, manager: KVManager, position: number) {
    const { tier, shape } = manager.config.tiers[position];
    this.tier = storageTiers[Math.min(tier, storageTiers.length - 1)] as StorageTier;
    this.capacityBytes = shape.capacityBytes;
    this.#store = store;
    this.#manager = manager;
    this.#position = position;
  }

  get freeBytes(): number {
    const { residentBytes, leavingBytes } = this.#manager.inspect.usage(this.#position);
    return Math.max(0, this.capacityBytes - residentBytes - leavingBytes);
  }

  describe(): Record<string, string | number | boolean> {
    return this.#store().describe();
  }

  async read(units: readonly StoredUnit[]): Promise<Uint8Array[]> {
    const { unitBytes } = this.#manager.config;
    const items = units.map((unit) => itemOf(unit, new Uint8Array(unitBytes[unit.place.sizeClass])));
    const ends = await this.#store().read(items);
    ends.forEach((end, i) => {
      if (end.outcome !== Outcome.LOADED) throw this.#error('read', units[i], end);
      const { digest } = units[i];
      if (digest === undefined) return;
      const found = hostDigest(items[i].bytes);
      if (found.lo === digest.lo && found.hi === digest.hi) return;
      throw this.#error('read', units[i], {
        outcome: Outcome.CORRUPT,
        reason: 'its bytes do not have their digest',
      });
    });
    return items.map(({ bytes }) => bytes);
  }

  async write(units: readonly StoredUnit[], data: readonly Uint8Array[]): Promise<void> {
    const items = units.map((unit, i) => itemOf({ ...unit, digest: hostDigest(data[i]) }, data[i]));
    const ends = await this.#store().write(items);
    ends.forEach((end, i) => {
      if (end.outcome !== Outcome.LOADED) throw this.#error('written', units[i], end);
    });
  }

  #error(verb: 'read' | 'written', { place }: StoredUnit, end: StoreResult): TierKVError {
    const { outcome, reason, isStale } = end;
    const code = isStale
      ? 'TKV_STALE'
      : outcome === Outcome.CORRUPT
        ? 'TKV_MISMATCH'
        : outcome === Outcome.MISSING
          ? 'TKV_STATE'
          : this.tier === 'hbm'
            ? 'TKV_DEVICE'
            : 'TKV_IO';
    const remedy = isStale ? 'Look its place up again.' : 'Compute the block again.';
    const why = `${outcomeNames[outcome]} (${reason})`;
    const what = `slot ${place.slot} of ${this.tier} could not be ${verb}: ${why}`;
    return new TierKVError(code, `${what}. ${remedy}`, { field: 'blocks' });
  }
}

function itemOf({ place, key, digest }: StoredUnit, bytes: Uint8Array) {
  const { slot, sizeClass, generation } = place;
  return { slot, sizeClass, generation, key, digest: digest ?? { lo: 0, hi: 0 }, bytes, checkedLater: true };
}
