/** How much staging a pool has for each direction: what its device does well with, or what the caller says. */

import { requireInteger } from '../../runtime/errors.ts';
import type { PoolShape } from '../../runtime/pool/shape.ts';
import type { LiveDevice } from './liveDevice.ts';
import { type Staging, StagingSpread } from './stagingSpread.ts';
import type { UploadStrategy } from './strategy.ts';
import type { HbmStoreOptions } from './types.ts';

export interface StagingSizes {
  readonly up: StagingSpread;
  readonly down: StagingSpread;
}

const MIB = 1024 * 1024;

/** Enough to keep a link busy that is far away. */
const FAR: Staging = { bytes: 4 * MIB, buffers: 8 };
/** The same on a device that runs on the host's cores, each call to which costs the host more. */
const WIDE: Staging = { bytes: 8 * MIB, buffers: 4 };
/** One direction where the cores share a cache. */
const CLOSE_DOWN: Staging = { bytes: 3 * MIB, buffers: 3 };
const CLOSE_UP: Staging = { bytes: 4 * MIB, buffers: 2 };
/** Of uploads that come back to be looked at: what went up and what came back are in the caches at once. */
const CLOSE_UP_CHECKED: Staging = { bytes: 2 * MIB, buffers: 2 };
/** Both directions at once: each passes the host in turn, so equal portions keep both going. */
const CLOSE_BOTH: Staging = { bytes: 2 * MIB, buffers: 2 };
const CLOSE_BOTH_CHECKED: Staging = { bytes: 1.5 * MIB, buffers: 2 };

/** @throws TKV_CONFIG naming the option that is no positive integer */
export function stagingSizes(
  live: LiveDevice,
  { capacityBytes }: PoolShape,
  { verification }: Pick<UploadStrategy, 'verification'>,
  options: Pick<HbmStoreOptions, 'stagingBytes' | 'stagingBuffers'>,
): StagingSizes {
  const sized = ({ bytes, buffers }: Staging): Staging => {
    const wanted = requireInteger('stagingBytes', options.stagingBytes ?? bytes, 8);
    return {
      bytes: Math.ceil(Math.min(wanted, Math.max(capacityBytes, 8)) / 8) * 8,
      buffers: requireInteger('stagingBuffers', options.stagingBuffers ?? buffers, 1),
    };
  };
  const given = options.stagingBytes !== undefined || options.stagingBuffers !== undefined;
  if (!live.adapter.software || given) {
    return { up: new StagingSpread(sized(FAR)), down: new StagingSpread(sized(FAR)) };
  }
  const checked = verification === 'readback';
  const distance = live.cacheDistance;
  const beside = sized(checked ? CLOSE_BOTH_CHECKED : CLOSE_BOTH);
  const up: StagingSpread = new StagingSpread(sized(WIDE), {
    distance,
    alone: sized(checked ? CLOSE_UP_CHECKED : CLOSE_UP),
    beside,
    other: () => down,
  });
  const down: StagingSpread = new StagingSpread(sized(WIDE), {
    distance,
    alone: sized(CLOSE_DOWN),
    beside,
    other: () => up,
  });
  return { up, down };
}
