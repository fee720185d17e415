/**
 * Opens the tiers of a configuration by their rows and the engine over them, and closes them again: first the stores that
 * do the work, then the host memory between them, and that not at all while an I/O that never ended may still
 * touch it. The top tier may be a device, which can be lost and replaced, or host memory.
 */

import { Refusals } from '../backends/engine/refusals.ts';
import { StagingSlots } from '../backends/engine/stagedBatch.ts';
import { type StoresByTier, type TierLinks, TransferEngine } from '../backends/engine/transferEngine.ts';
import { guarded } from '../backends/guarded.ts';
import { availableMemoryBytes } from '../backends/host/posix.ts';
import {
  type DurableTier,
  noDevice,
  type OpenedTier,
  type SharedTier,
  type TierFacts,
  type TierRow,
} from '../backends/tierRow.ts';
import { type EngineStores, type TierOptions, type TierStores, tierRows } from '../backends/tierRows.ts';
import type { LiveDevice } from '../backends/webgpu/device.ts';
import type { DevicePool } from '../backends/webgpu/types.ts';
import { configError, TierKVError } from '../runtime/errors.ts';
import {
  type HostTierStore,
  isHostStore,
  type KVManager,
  type ManagerConfig,
  type TierName,
  type TierSize,
  TOP,
  tierName,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { configuredTiers } from '../runtime/manager/config.ts';
import { checkInputs, type Kinds, optionTable } from '../runtime/options.ts';

export interface StoreConfig extends TierOptions {
  /** Facts for tiers whose blocks outlive the process or are shared. Default: nothing outlives it. */
  readonly facts?: TierFacts | undefined;
  readonly notice?: ((line: string) => void) | undefined;
  /**
   * Stands between the engine and the stores, to count or to inject faults; called again for a new device.
   */
  readonly wrapStores?: ((stores: EngineStores) => EngineStores) | undefined;
}

const storeConfigTable = optionTable({
  facts: is.optional(is.passed()),
  notice: is.optional(is.func()),
  wrapStores: is.optional(is.func()),
} satisfies Kinds<Omit<StoreConfig, keyof TierOptions>>);

export interface OpenStores extends AsyncDisposable, TierStores {
  /** The tiers that are on, by name, from fast to slow. */
  readonly tiers: ReadonlyMap<TierName, OpenedTier>;
  /** Whether the top tier is a device. */
  readonly hasDevice: boolean;
  /** The option that says how large the top tier is, for errors. */
  readonly sizeField: string;
  /** The top tier where it is host memory; undefined where it is a device. */
  readonly host: HostTierStore | undefined;
  /** @throws TKV_STATE in a runtime without a device */
  readonly device: GPUDevice;
  /** The device's pool: another one after a loss. @throws TKV_STATE in a runtime without a device */
  readonly pool: DevicePool;
  /** Waits on the device as `wait` says. */
  waitFor<T>(start: () => Promise<T>): Promise<T>;
  /** The present device, with its loss and its errors; undefined in a runtime without a device. */
  readonly live: LiveDevice | undefined;
  /** The first tier whose blocks the next start finds; undefined where none is on. */
  readonly durable: DurableTier | undefined;
  /** The first tier that others write too, and its position; undefined where none is on. */
  readonly shared: { readonly tier: SharedTier; readonly position: number } | undefined;
  /** Position of the first tier below the top that is host memory; undefined where none is on. */
  readonly hostPosition: number | undefined;
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
  checkInputs({ config, manager }, { config: is.object(), manager: is.fields({ lookup: is.func() }) });
  const rows = tierRows;
  const known = rows.flatMap((row) => row.optionNames);
  const read = storeConfigTable.read(config, 'config', undefined, known);
  const notice = guarded(read.notice);
  const wrap = read.wrapStores ?? ((stores) => stores);
  let engine: TransferEngine | undefined;
  await using opened = new OpenParts();
  const memory = new OpenParts();
  opened.defer(async () => {
    if (engine === undefined || engine.overdue === 0) await memory[Symbol.asyncDispose]();
    else notice(`tierkv: ${engine.overdue} transfers never ended; their host memory is not given back`);
  });

  const tiers = new Map<TierName, OpenedTier>();
  for (const [position, { tier, shape }] of manager.config.tiers.entries()) {
    const row = rowOf(rows, tierName(tier));
    const { facts } = config;
    const part = await row.open({ options: config, shape, isTop: position === TOP, facts, notice });
    tiers.set(row.name, (row.isHostMemory === true ? memory : opened).use(part));
  }
  const unitBytes = Math.max(...manager.config.unitBytes);
  const isStaged = [...tiers.values()].filter(({ store }) => !isHostStore(store)).length > 1;
  const staging = isStaged
    ? memory.use(await StagingSlots.open(unitBytes, StagingSlots.countFor(unitBytes)))
    : null;
  const wrapped = (): StoresByTier =>
    wrap(Object.fromEntries([...tiers].map(([name, { store }]) => [name, store])));
  // A lost device and a shared server say so themselves.
  const silent = [...tiers].filter(([, part]) => part.device === undefined && part.shared === undefined);
  const titles = new Map(silent.map(([name]) => [name, rowOf(rows, name).title]));
  const refusals = new Refusals(titles, notice);
  engine = new TransferEngine(wrapped(), staging, undefined, undefined, linksOf(rows), refusals);

  const top = tierName(manager.config.tiers[TOP].tier);
  const { device, store } = tiers.get(top) ?? {};
  const stack = opened.move();
  const parts = [...tiers.values()];
  const position = parts.findIndex(({ shared }) => shared !== undefined);
  const tier = parts[position]?.shared;
  let isClosed = false;
  const hostPosition = [...tiers.keys()].findIndex(
    (name, at) => at > TOP && rowOf(rows, name).isHostMemory === true,
  );
  const stores: Omit<OpenStores, keyof TierStores> = {
    tiers,
    sizeField: rowOf(rows, top).fieldNames[`${top}.capacityBytes`] ?? `${top}.capacityBytes`,
    hasDevice: device !== undefined,
    host: store !== undefined && isHostStore(store) ? store : undefined,
    get device() {
      if (device === undefined) throw noDevice('device');
      return device.live.device;
    },
    get pool() {
      if (device === undefined) throw noDevice('pool');
      // its buffers are gone, and a copy from one gives zeros, with an error of the device that is told of later
      if (isClosed) throw new TierKVError('TKV_STATE', 'the runtime is closed. Use its blocks before.');
      return device.pool;
    },
    get live() {
      return device?.live;
    },
    waitFor: (start) => (device === undefined ? start() : device.live.waitFor(start)),
    durable: parts.find(({ durable }) => durable !== undefined)?.durable,
    shared: tier === undefined ? undefined : { tier, position },
    hostPosition: hostPosition > TOP ? hostPosition : undefined,
    engine,
    describe: () => Object.fromEntries([...tiers].map(([name, { store }]) => [name, store.describe()])),
    replaceDevice: async () => {
      if (device === undefined) throw noDevice('replaceDevice');
      const lost = await device.replace();
      const next = wrapped()[top];
      if (next !== undefined) engine.replaceStore(top, next);
      await lost[Symbol.asyncDispose]();
    },
    [Symbol.asyncDispose]: () => {
      isClosed = true;
      return stack[Symbol.asyncDispose]();
    },
  };
  return withStores(stores, rows, tiers);
}

/** The stores by the names of their tiers, as they are when they are asked for. */
function withStores(
  stores: Omit<OpenStores, keyof TierStores>,
  rows: readonly TierRow<TierOptions>[],
  tiers: OpenStores['tiers'],
): OpenStores {
  for (const { name, isDevice } of rows) {
    const get = (): unknown => {
      const store = tiers.get(name)?.store;
      if (store === undefined && isDevice === true) throw noDevice(`stores.${name}`);
      return store;
    };
    Object.defineProperty(stores, name, { get, enumerable: false });
  }
  return stores as OpenStores;
}

function rowOf(rows: readonly TierRow<TierOptions>[], name: TierName): TierRow<TierOptions> {
  const row = rows.find((each) => each.name === name);
  if (row !== undefined) return row;
  const known = rows.map((each) => each.name).join(', ');
  throw configError(name, 'has no store that could be opened', `Use ${known}, or register a row for it.`);
}

function linksOf(rows: readonly TierRow<TierOptions>[]): TierLinks {
  return Object.fromEntries(rows.flatMap(({ name, links }) => (links === undefined ? [] : [[name, links]])));
}

// Parts that are opened one after the other, and closed together in the opposite order. Node 22 has no
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

/** Bytes of a slot in the manager's tables and those of its store: measured at 190 and rounded up. */
const TABLE_BYTES_OF_SLOT = 256;
/** Share of the memory that is there which tables and host memory may take. */
const MEMORY_SHARE = 0.95;

/** @throws TKV_CONFIG naming `hbm.capacityBytes` and the like, as stores do */
export async function requireMachineHolds(manager: ManagerConfig, options: TierOptions): Promise<void> {
  const availableBytes = availableMemoryBytes();
  const smallest = Math.min(...manager.unitBytes);
  const bytesOf = ({ capacityBytes, landingBytes = 0 }: TierSize): number => capacityBytes + landingBytes;
  const asked = configuredTiers(manager).map((name) => ({
    row: rowOf(tierRows, name),
    bytes: bytesOf(manager[name] as TierSize),
  }));
  let tables = 0;
  for (const { row, bytes } of asked) {
    const slots = Math.floor(bytes / smallest);
    tables += slots * TABLE_BYTES_OF_SLOT;
    if (tables > availableBytes * MEMORY_SHARE) {
      throw configError(
        `${row.name}.capacityBytes`,
        `is room for ${slots} blocks of ${smallest} bytes, whose tables take ${slots * TABLE_BYTES_OF_SLOT} ` +
          `bytes of host memory where ${availableBytes} are available`,
        (name) => `Lower ${name(`${row.name}.capacityBytes`)}, or use larger blocks.`,
      );
    }
  }
  for (const { row, bytes } of asked) {
    if (row.isHostMemory === true && bytes + tables > availableBytes * MEMORY_SHARE) {
      throw configError(
        `${row.name}.capacityBytes`,
        `asks for ${bytes} bytes of host memory, and ${tables} go to tables, where ${availableBytes} are ` +
          'available',
        (name) => `Lower ${name(`${row.name}.capacityBytes`)}.`,
      );
    }
  }
  const { unitBytes, pageBytes = Math.max(...unitBytes) } = manager;
  for (const { row, bytes } of asked) {
    const taken = row.bytesOf?.(Math.floor(bytes / pageBytes), pageBytes, unitBytes) ?? bytes;
    await row.requireRoom?.(taken, options);
  }
}
