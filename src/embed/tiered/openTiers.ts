/** Opens a pool and the stores under it: what a tiered storage is made of. */

import { guarded } from '../../backends/guarded.ts';
import { resolvePoolConfig } from '../../runtime/granular/config.ts';
import {
  checkMigratorOptions,
  type DecisionSink,
  type KVPoolConfig,
  type MigratorOptions,
  MultiGranularKVPool,
  type TierStore,
} from '../../runtime/index.ts';
import { optionNames, requireObject, requireOptions } from '../../runtime/options.ts';
import { ManagerLoop } from '../managerLoop.ts';
import { DeviceKeeper } from '../stores/deviceKeeper.ts';
import { requireMachineHolds } from '../stores/machine.ts';
import { type OpenStores, openStores, type StoreConfig } from '../stores/openStores.ts';
import { adoptRecovered, nvmeIdentity } from '../stores/warm.ts';
import { type StorageBackend, StoreBackend } from './storageBackend.ts';
import { type CalibratedLink, type TierConfig, type TierSet, tierSet } from './tierConfig.ts';

export interface TieredStorageConfig extends Pick<StoreConfig, 'adapter' | 'wait' | 'notice' | 'wrapStores'> {
  /** The pool but for its capacities, which are those of the tiers. */
  readonly pool: Omit<
    KVPoolConfig,
    'hbmCapacityBytes' | 'ddrCapacityBytes' | 'nvmeCapacityBytes' | 'deviceId'
  >;
  /** HBM, and below it host memory, files, or both. */
  readonly tiers: readonly TierConfig[];
  /** What `tierkv calibrate` measured, by link such as `ddrToHbm`. */
  readonly links?: Readonly<Record<string, CalibratedLink>>;
  /** Moves blocks by their temperature; false: only when it is asked to. Default: on. */
  readonly migration?: MigratorOptions | false;
  /** What an earlier run left in the files: gone on with (`warm`), or forgotten (`empty`). Default `warm`. */
  readonly restart?: 'warm' | 'empty';
  /** Where the manager's decision log goes. Default: nowhere. */
  readonly sink?: DecisionSink;
}

export const tieredStorageConfigNames: readonly string[] = optionNames<TieredStorageConfig>({
  adapter: true,
  wait: true,
  notice: true,
  wrapStores: true,
  pool: true,
  tiers: true,
  links: true,
  migration: true,
  restart: true,
  sink: true,
});

export interface OpenTiers {
  readonly set: TierSet;
  readonly pool: MultiGranularKVPool;
  readonly stores: OpenStores;
  readonly loop: ManagerLoop;
  readonly keeper: DeviceKeeper;
  readonly backends: readonly StorageBackend[];
}

export async function openTiers(config: TieredStorageConfig): Promise<OpenTiers> {
  requireOptions(config, tieredStorageConfigNames, 'config', 'TKV_CONFIG');
  requireObject(config.pool, 'pool', 'TKV_CONFIG');
  const set = tierSet(config.tiers);
  if (config.migration !== undefined && config.migration !== false) checkMigratorOptions(config.migration);
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
  await requireMachineHolds(resolvePoolConfig(poolConfig).manager, nvme?.path);
  const pool = new MultiGranularKVPool(poolConfig, config.sink ?? null);
  const { manager } = pool;
  const stores = await openStores(storeConfig(config, pool, nvme), manager);
  const loop = new ManagerLoop(manager, stores.engine, { also: pool.listener });
  const keeper = new DeviceKeeper(manager, stores, loop, guarded(config.notice));
  if (stores.nvme !== undefined) adoptRecovered(manager, stores.nvme, stores.engine.nowUs());
  const all: readonly (() => TierStore | undefined)[] = [
    () => stores.hbm,
    () => stores.ddr,
    () => stores.nvme,
  ];
  const backends = manager.config.tiers.map(({ tier }, position) => {
    const store = (): TierStore => all[tier]() as TierStore; // a configured tier has a store
    return new StoreBackend(store, manager, position);
  });
  return { set, pool, stores, loop, keeper, backends };
}

function storeConfig(
  { pool: poolConfig, adapter, wait, notice, wrapStores, restart = 'warm' }: TieredStorageConfig,
  pool: MultiGranularKVPool,
  nvme: TierConfig | undefined,
): StoreConfig {
  const { secretKey, model } = poolConfig;
  const { layout, manager } = pool;
  const extras = { 'tierkv.units': manager.config.unitBytes.join(' ') };
  const identity = nvmeIdentity({ model, layout, secretKey, extras });
  return {
    adapter,
    wait,
    notice,
    wrapStores,
    nvme: nvme?.path === undefined ? undefined : { dir: nvme.path, options: { restart, identity } },
  };
}
