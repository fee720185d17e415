/** How much staging a pool has for each direction: what its device does well with, or what the caller says. */

import { requireInteger } from '../../runtime/errors.ts';
import type { PoolShape } from '../../runtime/pool/shape.ts';
import type { LiveDevice } from './liveDevice.ts';
import type { UploadStrategy } from './strategy.ts';
import type { HbmStoreOptions } from './types.ts';

/** The staging buffers of one direction. */
export interface Staging {
  readonly bytes: number;
  readonly buffers: number;
}

export interface StagingSizes {
  readonly up: Staging;
  readonly down: Staging;
}

const MIB = 1024 * 1024;

/** Enough to keep a link busy that is far away. */
const FAR: Staging = { bytes: 4 * MIB, buffers: 8 };
/**
 * A device that runs on the host's cores hands bytes over through the caches, so what is under way must fit there: with four
 * buffers of 2 MiB instead of two, what came back to be digested had left them, and verified uploads took a third longer.
 */
const NEAR_UP: Staging = { bytes: 2 * MIB, buffers: 2 };
/** What comes down is copied once and not looked at again, so a third buffer costs little and the device need not stop. */
const NEAR_DOWN: Staging = { bytes: 3 * MIB, buffers: 3 };
/** Where nothing comes back, twice as much fits, and each call and each hand-over cost half as much. */
const NEAR_UNCHECKED: Staging = { bytes: 4 * MIB, buffers: 2 };

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
  if (!live.adapter.software) return { up: sized(FAR), down: sized(FAR) };
  return { up: sized(verification === 'readback' ? NEAR_UP : NEAR_UNCHECKED), down: sized(NEAR_DOWN) };
}
