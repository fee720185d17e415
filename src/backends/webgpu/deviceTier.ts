/**
 * The row of HBM: GPU memory through WebGPU. The binding, its native library and the kernels are loaded when the tier is
 * opened, so a runtime without a device loads none of them. Device and pool can be replaced after a loss.
 */

import { configError, described, type TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import type { PoolShape } from '../../runtime/tables/slotPool.ts';
import type { OpenedTier, TierRequest, TierRow } from '../tierRow.ts';
import type { LiveDevice } from './device.ts';
import type { DeviceOptions, DevicePool } from './types.ts';

export interface HbmOptions {
  /** GPU memory for blocks. Without it host memory is the top tier, and no device is opened. */
  readonly hbmBytes?: number | undefined;
  /**
   * A device of the embedder, whose engine shares it; it stays the embedder's when the runtime closes. As a function it is
   * asked again after a loss. Default: a device of the runtime's own.
   */
  readonly device?: GPUDevice | (() => Promise<GPUDevice>) | undefined;
  /** Which adapter to use; see `openDevice`. */
  readonly adapter?: string | undefined;
  /**
   * How this process waits for the device: `sleep` leaves the core to others after eight milliseconds, `spin`
   * keeps it busy and looks in every turn of the event loop; see `openDevice`. Default `sleep`.
   */
  readonly wait?: DeviceOptions['wait'] | undefined;
}

export const hbmTier: TierRow<HbmOptions> = {
  name: 'hbm',
  title: 'HBM',
  optionNames: ['hbmBytes', 'device', 'adapter', 'wait'] satisfies (keyof HbmOptions)[],
  fieldNames: { 'hbm.capacityBytes': 'hbmBytes' },
  canBeTop: true,
  isDevice: true,
  asked: {
    size: { option: 'hbm', about: 'GPU memory, in blocks or as 64MiB' },
    options: (hbmBytes) => ({ hbmBytes }),
  },
  check({ device, adapter, wait }) {
    if (device !== undefined && adapter !== undefined) {
      throw configError(
        'adapter',
        'excludes device',
        'Give the device, or say which adapter to open one on.',
      );
    }
    if (device !== undefined && (device === null || !/^(object|function)$/.test(typeof device))) {
      throw noDevice('is', device);
    }
    if (wait !== undefined) is.oneOf(['spin', 'sleep']).read(wait, 'wait');
    if (adapter !== undefined)
      is.name('Leave it out for the default.').read(adapter, 'adapter', 'TKV_CONFIG');
  },
  wish: ({ hbmBytes }) => (hbmBytes === undefined ? undefined : { field: 'hbmBytes', bytes: hbmBytes }),
  open,
};

interface OpenPool extends AsyncDisposable {
  readonly live: LiveDevice;
  readonly pool: DevicePool;
}

async function open({ options, shape, notice }: TierRequest<HbmOptions>): Promise<OpenedTier> {
  let current = await openPool(options, shape, notice);
  return {
    get store() {
      return current.pool;
    },
    device: {
      get live() {
        return current.live;
      },
      get pool() {
        return current.pool;
      },
      async replace() {
        const lost = current;
        current = await openPool(options, shape, notice);
        return lost;
      },
    },
    [Symbol.asyncDispose]: () => current[Symbol.asyncDispose](),
  };
}

async function openPool(
  options: HbmOptions,
  shape: PoolShape,
  notice: (line: string) => void,
): Promise<OpenPool> {
  const { HbmStore } = await import('./hbmStore.ts');
  const { live, close } =
    options.device === undefined ? await ownDevice(options, notice) : await givenDevice(options);
  try {
    const pool = await HbmStore.open(live, shape);
    return {
      live,
      pool,
      async [Symbol.asyncDispose]() {
        try {
          await pool[Symbol.asyncDispose]();
        } finally {
          await close();
        }
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

interface HeldDevice {
  readonly live: LiveDevice;
  close(): Promise<void>;
}

async function ownDevice(
  { adapter, wait = 'sleep' }: HbmOptions,
  notice: (line: string) => void,
): Promise<HeldDevice> {
  const { openDevice } = await import('./adapter.ts');
  const live = await openDevice({ notice, wait, ...(adapter === undefined ? {} : { adapter }) });
  return { live, close: () => live[Symbol.asyncDispose]() };
}

function noDevice(how: 'is' | 'gives', found: unknown): TierKVError {
  const problem = `must be a GPUDevice, or a function that gives one, and ${how} ${described(found)}`;
  return configError('device', problem, 'Pass what requestDevice gave.');
}

/** @throws TKV_DEVICE where it does not work, TKV_CONFIG for another value than a device */
async function givenDevice({ device, wait = 'sleep' }: HbmOptions): Promise<HeldDevice> {
  const { adoptDevice, reportOf } = await import('./selfTest.ts');
  const given = typeof device === 'function' ? await device() : device!;
  const hasCalls = typeof given?.createBuffer === 'function' && typeof given.queue === 'object';
  if (!hasCalls) throw noDevice(typeof device === 'function' ? 'gives' : 'is', given);
  // older browsers do not say of which adapter a device is
  const info = given.adapterInfo ?? { vendor: '', device: '', description: '', isFallbackAdapter: false };
  const { name, vendor, software } = reportOf(info, 'embedder');
  const live = await adoptDevice(given, { name, vendor, software });
  if (wait === 'sleep') live.sleepWhileWaiting();
  return { live, close: async () => live.release() };
}
