/**
 * Opens the stores of a configuration and the engine over them, and closes them again: first those that do
 * the work, then the host memory between them, and that not at all while an I/O that never ended may still
 * touch it. The device and its pool can be replaced, since a device can be lost.
 */

import { type EngineStores, StagingSlots, TransferEngine } from '../../backends/engine/index.ts';
import { FileStore, type FileStoreOptions } from '../../backends/file/index.ts';
import { guarded } from '../../backends/guarded.ts';
import { MemoryStore } from '../../backends/memory/index.ts';
import {
  type DeviceErrors,
  type DeviceOptions,
  type DevicePool,
  HbmStore,
  type LiveDevice,
  openDevice,
} from '../../backends/webgpu/index.ts';
import { type KVManager, type PoolShape, Tier } from '../../runtime/index.ts';
import { optionNames, requireOptions } from '../../runtime/options.ts';
import { OpenParts } from './openParts.ts';

export interface StoreConfig {
  readonly nvme?: { readonly dir: string; readonly options?: FileStoreOptions } | undefined;
  readonly adapter?: string | undefined;
  readonly wait?: DeviceOptions['wait'] | undefined;
  readonly notice?: ((line: string) => void) | undefined;
  /**
   * Stands between the engine and the stores, to count or to inject faults; called again for a new device.
   */
  readonly wrapStores?: ((stores: EngineStores) => EngineStores) | undefined;
}

export const storeConfigNames: readonly string[] = optionNames<StoreConfig>({
  nvme: true,
  adapter: true,
  wait: true,
  notice: true,
  wrapStores: true,
});

export interface OpenStores extends AsyncDisposable {
  readonly device: GPUDevice;
  /** Waits on the device as `StoreConfig.wait` says. */
  waitFor<T>(start: () => Promise<T>): Promise<T>;
  /** What the device has reported of work that failed. */
  readonly deviceErrors: DeviceErrors;
  readonly hbm: DevicePool;
  readonly ddr: MemoryStore | undefined;
  readonly nvme: FileStore | undefined;
  readonly engine: TransferEngine;
  readonly describe: () => Record<string, Record<string, string | number | boolean>>;
  /**
   * Puts a new device and an empty pool in the place of lost ones.
   * @throws TKV_DEVICE when no device is to be had, or it has not the memory; the lost ones stay in their
   * place
   */
  replaceDevice(): Promise<void>;
}

/**
 * @throws {TierKVError} when a device, the memory or the directory is not to be had; what was opened is
 * closed again
 */
export async function openStores(config: StoreConfig, manager: KVManager): Promise<OpenStores> {
  const shapeOf = (tier: Tier) => manager.config.tiers.find((each) => each.tier === tier)?.shape;
  requireOptions(config, storeConfigNames, 'config', 'TKV_CONFIG');
  const notice = guarded(config.notice);
  const wrap = config.wrapStores ?? ((stores) => stores);
  let engine: TransferEngine | undefined;
  await using opened = new OpenParts();
  const memory = new OpenParts();
  opened.defer(async () => {
    if (engine === undefined || engine.overdue === 0) await memory[Symbol.asyncDispose]();
    else notice(`tierkv: ${engine.overdue} transfers never ended; their host memory is not given back`);
  });

  let pool = await openPool(config, shapeOf(Tier.HBM)!);
  opened.defer(() => pool[Symbol.asyncDispose]());
  const ddrShape = shapeOf(Tier.DDR);
  const ddr = ddrShape === undefined ? undefined : memory.use(await MemoryStore.open(ddrShape));
  if (ddr?.describe().locked === false) {
    notice('DDR: the operating system did not lock the memory (see "ulimit -l"); it may be paged out');
  }
  const nvmeShape = shapeOf(Tier.NVME);
  const nvme =
    nvmeShape === undefined || config.nvme === undefined
      ? undefined
      : opened.use(await FileStore.open(config.nvme.dir, nvmeShape, config.nvme.options));
  const files = nvme?.describe() ?? {};
  if (files.mode === 'buffered') notice(`NVMe: files are buffered (${files.modeReason})`);
  if (files.restart === 'warm' && String(files.recoveredFrom).startsWith('all records')) {
    notice(`NVMe: what the files hold was found by reading ${files.recoveredFrom}`);
  }
  const unitBytes = Math.max(...manager.config.unitBytes);
  const staging =
    nvme === undefined
      ? null
      : memory.use(await StagingSlots.open(unitBytes, StagingSlots.countFor(unitBytes)));
  const wrapped = (hbm: HbmStore): EngineStores =>
    wrap({ hbm, ...(ddr === undefined ? {} : { ddr }), ...(nvme === undefined ? {} : { nvme }) });
  engine = new TransferEngine(wrapped(pool.hbm), staging);

  const stack = opened.move();
  return {
    get device() {
      return pool.live.device;
    },
    get deviceErrors() {
      return pool.live.deviceErrors;
    },
    waitFor: (start) => pool.live.waitFor(start),
    get hbm() {
      return pool.hbm;
    },
    ddr,
    nvme,
    engine,
    describe: () => ({
      hbm: pool.hbm.describe(),
      ...(ddr === undefined ? {} : { ddr: ddr.describe() }),
      ...(nvme === undefined ? {} : { nvme: nvme.describe() }),
    }),
    replaceDevice: async () => {
      const next = await openPool(config, shapeOf(Tier.HBM)!);
      const lost = pool;
      pool = next;
      engine.replaceDevice(wrapped(next.hbm).hbm);
      await lost[Symbol.asyncDispose]();
    },
    [Symbol.asyncDispose]: () => stack[Symbol.asyncDispose](),
  };
}

interface Pool extends AsyncDisposable {
  readonly live: LiveDevice;
  readonly hbm: HbmStore;
}

async function openPool(
  { adapter, wait = 'sleep', notice = () => {} }: StoreConfig,
  shape: PoolShape,
): Promise<Pool> {
  await using opened = new OpenParts();
  const live = opened.use(await openDevice({ notice, wait, ...(adapter === undefined ? {} : { adapter }) }));
  const hbm = opened.use(await HbmStore.open(live, shape));
  const stack = opened.move();
  return { live, hbm, [Symbol.asyncDispose]: () => stack[Symbol.asyncDispose]() };
}
