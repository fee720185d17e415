/**
 * One device for all runtimes, engines and servers of a test file that need none of their own: most of the time that they
 * take to open goes into the device and its kernels.
 */

import { openDevice } from '../src/backends/webgpu/adapter.ts';
import type { LiveDevice } from '../src/backends/webgpu/device.ts';

let last: Promise<LiveDevice> | undefined;

/** Another one where a test has destroyed the last. */
export async function sharedDevice(): Promise<GPUDevice> {
  return (await sharedLiveDevice()).device;
}

/** The same with what tells of its loss; it stays open for others. */
export async function sharedLiveDevice(): Promise<LiveDevice> {
  if (last !== undefined && (await last).lostReason !== '') last = undefined;
  return (last ??= openDevice());
}
