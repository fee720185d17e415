/** How much staging a pool has for each direction: what its device does well with, or what the caller says. */

import { requireInteger } from '../../runtime/errors.ts';
import type { PoolShape } from '../../runtime/pool/shape.ts';
import type { LiveDevice } from './liveDevice.ts';
import type { HbmStoreOptions } from './types.ts';
import type { UploadPathName } from './uploadPath.ts';

/** The staging buffers of one direction. */
export interface Staging {
  readonly bytes: number;
  readonly buffers: number;
}

export interface StagingSizes {
  readonly up: Record<UploadPathName, Staging>;
  readonly down: Staging;
}

const MIB = 1024 * 1024;

/** Enough to keep a link busy that is far away. */
const FAR: Staging = { bytes: 4 * MIB, buffers: 8 };
const hardware: StagingSizes = { up: { ring: FAR, writeBuffer: FAR }, down: FAR };
/**
 * A device that shares the host's caches does better with less on the way up, so that also a load of a few MiB is spread over
 * all buffers; not so the driver's own staging, of which each call costs more. What goes down is seldom waited for.
 */
const software: StagingSizes = {
  up: { ring: { bytes: 2 * MIB, buffers: 4 }, writeBuffer: { bytes: 4 * MIB, buffers: 3 } },
  down: { bytes: 4 * MIB, buffers: 3 },
};

/** @throws TKV_CONFIG naming the option that is no positive integer */
export function stagingSizes(
  live: LiveDevice,
  { capacityBytes }: PoolShape,
  options: Pick<HbmStoreOptions, 'stagingBytes' | 'stagingBuffers'>,
): StagingSizes {
  const sized = ({ bytes, buffers }: Staging): Staging => {
    const wanted = requireInteger('stagingBytes', options.stagingBytes ?? bytes, 8);
    return {
      bytes: Math.ceil(Math.min(wanted, Math.max(capacityBytes, 8)) / 8) * 8,
      buffers: requireInteger('stagingBuffers', options.stagingBuffers ?? buffers, 1),
    };
  };
  const { up, down } = live.adapter.software ? software : hardware;
  return { up: { ring: sized(up.ring), writeBuffer: sized(up.writeBuffer) }, down: sized(down) };
}
