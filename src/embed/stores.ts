/**
 * Opens the stores of a configuration and the engine over them, and closes them again: first the stores that do
 * the work, then the host memory between them, and that not at all while an I/O that never ended may still
 * touch it. The device and its pool can be replaced, since a device can be lost.
 */

import { statfs } from 'node:fs/promises';
import { StagingSlots } from '../backends/engine/stagedBatch.ts';
import { type EngineStores, TransferEngine } from '../backends/engine/transferEngine.ts';
import { FileStore } from '../backends/file/fileStore.ts';
import type { FileStoreOptions } from '../backends/file/opening.ts';
import { guarded } from '../backends/guarded.ts';
import { MemoryStore } from '../backends/host/memoryStore.ts';
import { RemoteStore, type RemoteStoreOptions } from '../backends/remote/remoteStore.ts';
import { openDevice } from '../backends/webgpu/adapter.ts';
import type { DeviceErrors, LiveDevice } from '../backends/webgpu/device.ts';
import { HbmStore } from '../backends/webgpu/hbmStore.ts';
import type { DeviceOptions, DevicePool } from '../backends/webgpu/types.ts';
import { configError } from '../runtime/errors.ts';
import { type KVManager, type ManagerConfig, type PoolShape, Tier, type TierSize } from '../runtime/index.ts';
import { optionNames, requireOptions } from '../runtime/options.ts';

export interface StoreConfig {
  readonly nvme?: { readonly dir: string; readonly options?: FileStoreOptions } | undefined;
  readonly remote?: RemoteStoreOptions | undefined;
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
  remote: true,
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
  /** Why the device is gone, from the moment of its loss on; empty while it lives. */
  readonly deviceLoss: string;
  readonly hbm: DevicePool;
  readonly ddr: MemoryStore | undefined;
  readonly nvme: FileStore | undefined;
  readonly remote: RemoteStore | undefined;
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
  const remoteShape = shapeOf(Tier.REMOTE);
  const remote =
    remoteShape === undefined || config.remote === undefined
      ? undefined
      : opened.use(await RemoteStore.open(remoteShape, { ...config.remote, notice }));
  const files = nvme?.describe() ?? {};
  if (files.mode === 'buffered') notice(`NVMe: files are buffered (${files.modeReason})`);
  if (files.restart === 'warm' && String(files.recoveredFrom).startsWith('all records')) {
    notice(`NVMe: what the files hold was found by reading ${files.recoveredFrom}`);
  }
  const unitBytes = Math.max(...manager.config.unitBytes);
  const staging =
    nvme === undefined && remote === undefined
      ? null
      : memory.use(await StagingSlots.open(unitBytes, StagingSlots.countFor(unitBytes)));
  const wrapped = (hbm: HbmStore): EngineStores =>
    wrap({
      hbm,
      ...(ddr === undefined ? {} : { ddr }),
      ...(nvme === undefined ? {} : { nvme }),
      ...(remote === undefined ? {} : { remote }),
    });
  engine = new TransferEngine(wrapped(pool.hbm), staging);

  const stack = opened.move();
  return {
    get device() {
      return pool.live.device;
    },
    get deviceErrors() {
      return pool.live.deviceErrors;
    },
    get deviceLoss() {
      return pool.live.lostReason;
    },
    waitFor: (start) => pool.live.waitFor(start),
    get hbm() {
      return pool.hbm;
    },
    ddr,
    nvme,
    remote,
    engine,
    describe: () => ({
      hbm: pool.hbm.describe(),
      ...(ddr === undefined ? {} : { ddr: ddr.describe() }),
      ...(nvme === undefined ? {} : { nvme: nvme.describe() }),
      ...(remote === undefined ? {} : { remote: remote.describe() }),
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

// What is opened one after the other, and closed together in the opposite order. Node 22 has no
// `AsyncDisposableStack`.

export class OpenParts implements AsyncDisposable {
  #closing: (() => void | PromiseLike<void>)[] = [];

  /** Adds `part`, and gives it back. */
  use<Part extends AsyncDisposable | Disposable>(part: Part): Part {
    this.defer(() => (Symbol.asyncDispose in part ? part[Symbol.asyncDispose]() : part[Symbol.dispose]()));
    return part;
  }

  defer(close: () => void | PromiseLike<void>): void {
    this.#closing.push(close);
  }

  /** Hands all parts over, so that disposing of this object closes nothing. */
  move(): OpenParts {
    const moved = new OpenParts();
    moved.#closing = this.#closing;
    this.#closing = [];
    return moved;
  }

  /** Closes every part, also when one of them fails; rejects with the first failure. */
  async [Symbol.asyncDispose](): Promise<void> {
    const failures: unknown[] = [];
    for (let close = this.#closing.pop(); close !== undefined; close = this.#closing.pop()) {
      try {
        await close();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }
}

// Whether this machine can hold what a configuration asks for, before a table is made or a byte is taken: host
// memory, room on the disk, and the tables that grow with the number of blocks.

/** Of a slot, in the manager's tables and those of its store: measured at 190 and rounded up. */
const TABLE_BYTES_OF_SLOT = 256;
/** Share of the memory that is there which tables and host memory may take. */
const MEMORY_SHARE = 0.95;

/** @throws TKV_CONFIG naming `hbm.capacityBytes` and the like, as stores do */
export async function requireMachineHolds(manager: ManagerConfig, dir?: string): Promise<void> {
  const availableBytes = process.availableMemory();
  const smallest = Math.min(...manager.unitBytes);
  const bytesOf = ({ capacityBytes, landingBytes = 0 }: TierSize): number => capacityBytes + landingBytes;
  let tables = 0;
  for (const name of ['hbm', 'ddr', 'nvme', 'remote'] as const) {
    const size = manager[name];
    if (size === undefined) continue;
    const slots = Math.floor(bytesOf(size) / smallest);
    tables += slots * TABLE_BYTES_OF_SLOT;
    if (tables > availableBytes * MEMORY_SHARE) {
      throw configError(
        `${name}.capacityBytes`,
        `is room for ${slots} blocks of ${smallest} bytes, whose tables take ${slots * TABLE_BYTES_OF_SLOT} ` +
          `bytes of host memory where ${availableBytes} are available`,
        `Lower ${name}.capacityBytes, or use larger blocks.`,
      );
    }
  }
  const ddrBytes = manager.ddr === undefined ? 0 : bytesOf(manager.ddr);
  if (ddrBytes + tables > availableBytes * MEMORY_SHARE) {
    throw configError(
      'ddr.capacityBytes',
      `asks for ${ddrBytes} bytes of host memory, and ${tables} go to tables, where ${availableBytes} are ` +
        'available',
      'Lower ddr.capacityBytes.',
    );
  }
  if (dir !== undefined && manager.nvme !== undefined) await requireDiskHolds(bytesOf(manager.nvme), dir);
}

/**
 * No file is larger than its disk. Whether that much is free is for the store to see, which knows its own
 * files; and what is wrong with a directory that cannot be looked at.
 */
async function requireDiskHolds(bytes: number, dir: string): Promise<void> {
  const disk = await statfs(dir).catch(() => undefined);
  if (disk === undefined || disk.blocks === 0) return;
  const diskBytes = disk.blocks * disk.bsize;
  if (bytes <= diskBytes) return;
  throw configError(
    'nvme.capacityBytes',
    `asks for ${bytes} bytes in ${dir}, on a disk of ${diskBytes}`,
    'Lower nvme.capacityBytes, or name a directory on a larger disk.',
  );
}
