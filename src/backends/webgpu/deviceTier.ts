/**
 * The row of HBM: GPU memory through WebGPU. The binding, its native library and the kernels are loaded when the tier is
 * opened, so a runtime without a device loads none of them. Device and pool can be replaced after a loss.
 */

import { oneOf, optionNames, requireText } from '../../runtime/options.ts';
import type { PoolShape } from '../../runtime/tables/slotPool.ts';
import type { OpenedTier, TierRequest, TierRow } from '../tierRow.ts';
import type { LiveDevice } from './device.ts';
import type { DeviceOptions, DevicePool } from './types.ts';

export interface HbmOptions {
  /** GPU memory for blocks. Without it host memory is the top tier, and no device is opened. */
  readonly hbmBytes?: number | undefined;
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
  optionNames: optionNames<HbmOptions>({ hbmBytes: true, adapter: true, wait: true }),
  fieldNames: { 'hbm.capacityBytes': 'hbmBytes' },
  canBeTop: true,
  isDevice: true,
  check({ adapter, wait }) {
    if (wait !== undefined) oneOf('wait', wait, ['spin', 'sleep']);
    if (adapter !== undefined) requireText(adapter, 'adapter', 'Leave it out for the default.', 'TKV_CONFIG');
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
  { adapter, wait = 'sleep' }: HbmOptions,
  shape: PoolShape,
  notice: (line: string) => void,
): Promise<OpenPool> {
  const [{ openDevice }, { HbmStore }] = await Promise.all([import('./adapter.ts'), import('./hbmStore.ts')]);
  const live = await openDevice({ notice, wait, ...(adapter === undefined ? {} : { adapter }) });
  try {
    const pool = await HbmStore.open(live, shape);
    return {
      live,
      pool,
      async [Symbol.asyncDispose]() {
        try {
          await pool[Symbol.asyncDispose]();
        } finally {
          await live[Symbol.asyncDispose]();
        }
      },
    };
  } catch (error) {
    await live[Symbol.asyncDispose]();
    throw error;
  }
}
