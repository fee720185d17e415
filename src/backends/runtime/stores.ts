/** Opens the stores of a configuration and the engine over them; closes them in the opposite order. */

import { type KVManager, Tier } from '../../runtime/index.ts';
import { StagingSlots, TransferEngine } from '../engine/index.ts';
import { FileStore, type FileStoreOptions } from '../file/index.ts';
import { MemoryStore } from '../memory/index.ts';
import { type DevicePool, HbmStore, openDevice } from '../webgpu/index.ts';

const STAGING_BYTES = 16 * 1024 * 1024;
const STAGING_SLOTS_MAX = 256;

export interface StoreConfig {
  readonly nvme?: { readonly dir: string; readonly options?: FileStoreOptions } | undefined;
  readonly adapter?: string | undefined;
  readonly notice?: ((line: string) => void) | undefined;
}

export interface OpenStores extends AsyncDisposable {
  readonly device: GPUDevice;
  readonly hbm: DevicePool;
  readonly ddr: MemoryStore | undefined;
  readonly nvme: FileStore | undefined;
  readonly engine: TransferEngine;
  readonly describe: () => Record<string, Record<string, string | number | boolean>>;
}

/** @throws {TierKVError} when a device, the memory or the directory is not to be had; what was opened is closed again */
export async function openStores(config: StoreConfig, manager: KVManager): Promise<OpenStores> {
  const shapeOf = (tier: Tier) => manager.config.tiers.find((each) => each.tier === tier)?.shape;
  const notice = config.notice ?? (() => {});
  await using opened = new AsyncDisposableStack();

  const device = opened.use(
    await openDevice({ notice, ...(config.adapter === undefined ? {} : { adapter: config.adapter }) }),
  );
  const hbm = opened.use(await HbmStore.open(device, shapeOf(Tier.HBM)!));
  const ddrShape = shapeOf(Tier.DDR);
  const ddr = ddrShape === undefined ? undefined : opened.use(await MemoryStore.open(ddrShape));
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
  if (files.restart === 'warm' && files.recoveredFrom !== 'checkpoint') {
    notice(`NVMe: what the files hold was found by reading ${files.recoveredFrom}`);
  }
  const unitBytes = Math.max(...manager.config.unitBytes);
  const slots = Math.max(1, Math.min(STAGING_SLOTS_MAX, Math.floor(STAGING_BYTES / unitBytes)));
  const staging = nvme === undefined ? null : opened.use(await StagingSlots.open(unitBytes, slots));
  const engine = new TransferEngine(
    { hbm, ...(ddr === undefined ? {} : { ddr }), ...(nvme === undefined ? {} : { nvme }) },
    staging,
  );

  const stack = opened.move();
  return {
    device: device.device,
    hbm,
    ddr,
    nvme,
    engine,
    describe: () => ({
      hbm: hbm.describe(),
      ...(ddr === undefined ? {} : { ddr: ddr.describe() }),
      ...(nvme === undefined ? {} : { nvme: nvme.describe() }),
    }),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}
